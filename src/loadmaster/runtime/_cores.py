"""The cores of this machine: which of them is calm, and keeping to some of them.

Pinning and the time that a process waited for a core are Linux's. Elsewhere models are placed, but not measured.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from loadmaster.cores import allowed_cores
from loadmaster.errors import UnsupportedError

__all__ = ["busy_ticks", "calmest_core", "end_with_parent", "pin", "require_pinning"]

DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of prctl(2)."""


def end_with_parent(how: signal.Signals = signal.SIGKILL) -> None:
    """Have this process end, by a signal, when the one that started it is gone, however it went."""
    with contextlib.suppress(OSError, AttributeError):  # Linux only; elsewhere the end of the input does it
        ctypes.CDLL(None).prctl(DEATH_SIGNAL, how)


def require_pinning() -> None:
    """Refuse to measure where a process cannot be kept to some cores.

    Raises
    ------
    UnsupportedError : this is not Linux.
    """
    if not hasattr(os, "sched_setaffinity"):
        raise UnsupportedError(
            f"running models for measurement needs Linux: a process cannot be pinned to cores on {sys.platform}"
        )


def pin(cores: Iterable[int]) -> None:
    """Keep the calling thread, and the threads that it starts, to some cores; nothing where that is not possible."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, set(cores))


def calmest_core() -> int:
    """The core of those allowed that was least busy in the last tenth of a second."""
    cores = allowed_cores()
    if len(cores) == 1:
        return cores[0]
    before = busy_ticks()
    time.sleep(0.1)
    after = busy_ticks()
    return min(cores, key=lambda core: (after.get(core, 0) - before.get(core, 0), core))


def busy_ticks() -> dict[int, int]:
    """Core -> clock ticks since the start in which it did something; empty where the system does not say."""
    try:
        lines = Path("/proc/stat").read_text().splitlines()
    except OSError:
        return {}
    busy = {}
    for line in lines:
        fields = line.split()
        if fields and fields[0].startswith("cpu") and fields[0] != "cpu":
            numbers = [int(x) for x in fields[1:]]
            busy[int(fields[0][3:])] = sum(numbers) - numbers[3] - numbers[4]
    return busy
