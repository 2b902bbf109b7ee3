"""A worker that dies or hangs is reported, and leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
from small_networks import DEVICES

from loadmaster.errors import (
    RunTimeoutError,
    WorkerError,
)
from loadmaster.runtime.openvino import OpenVinoSession, parse_devices


def gone(pid: int) -> bool:
    for _ in range(1200):  # a minute: on a busy machine it may still be starting
        if not os.path.exists(f"/proc/{pid}"):
            return True
        time.sleep(0.05)
    return False


def test_a_killed_worker_is_reported_and_leaves_nothing(network):
    with OpenVinoSession(network, parse_devices(DEVICES[:1])) as session:
        pid = session.worker.pid
        with pytest.raises(WorkerError, match="died of signal SIGKILL"):
            session.worker.ask("crash")
        with pytest.raises(WorkerError):
            session.load("single", device="A")
    assert gone(pid)


def test_a_hanging_worker_is_ended(network):
    with OpenVinoSession(network, parse_devices(DEVICES[:1])) as session:
        with pytest.raises(RunTimeoutError, match=r"longer than 0.3 s to sleep"):
            session.worker.ask("sleep", seconds=60.0, limit=0.3)
        assert gone(session.worker.pid)


def test_a_worker_ends_with_its_parent(network):
    code = (
        "import os; from loadmaster.runtime.openvino._session import HOST\n"
        "from loadmaster.runtime._worker import Worker\n"
        "worker = Worker([sorted(os.sched_getaffinity(0))[0]], HOST); print(worker.pid, flush=True); os._exit(1)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert gone(int(done.stdout))
