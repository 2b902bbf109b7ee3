"""Samples that other work disturbed are seen and do not count."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import numpy as np

from loadmaster.runtime import _measuring
from loadmaster.runtime._measuring import Sample, bootstrap, summarise, timed


def test_disturbed_samples_do_not_count():
    found = summarise([Sample(1.0, 0.0), Sample(9.0, 3.0), Sample(1.2, 0.01), Sample(1.1, 0.0)])
    assert (found.median, found.kept, found.dropped) == (1.1, 3, 1)


def test_the_interval_holds_the_median_and_narrows():
    values = np.random.default_rng(0).normal(1.0, 0.1, 400)
    few, many = bootstrap(values[:20]), bootstrap(values)
    assert few[0] <= np.median(values[:20]) <= few[1]
    assert many[1] - many[0] < few[1] - few[0]


def test_time_taken_by_others_is_seen():
    """Another thread of the machine on our core: what it takes is lost to us."""
    own = os.sched_getaffinity(0)
    core = {sorted(own)[0]}
    other = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"import os; os.sched_setaffinity(0, {core}); print(flush=True)\nwhile True: pass",
        ],
        stdout=subprocess.PIPE,
    )
    lost = []

    def busy():
        os.sched_setaffinity(0, core)
        for _ in range(5):
            lost.append(timed(lambda: sum(range(3_000_000))))

    try:
        assert other.stdout is not None
        other.stdout.readline()
        thread = threading.Thread(target=busy)
        thread.start()
        thread.join()
    finally:
        other.kill()
        other.communicate()
    assert sum(not sample.clean for sample in lost) >= 3


def test_a_machine_is_busy_where_others_take_much_of_a_core(monkeypatch):
    for lost, busy in ((0.0, False), (0.01, False), (0.15, True)):
        monkeypatch.setattr(_measuring, "timed", lambda run, lost=lost: _measuring.Sample(0.2, lost))
        assert _measuring.machine_is_busy() == busy
