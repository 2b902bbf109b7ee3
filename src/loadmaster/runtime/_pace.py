"""A device slowed down: after each submodel its thread stays busy for as long as a slower one would still compute.

CPU quotas are exact over tenths of a second, this is over milliseconds, and it needs no rights. What counts is the
time of the thread on its core, so that other work on the machine is not slowed down with it.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable

__all__ = ["paced"]

CHUNK = bytes(1 << 15)
"""What is summed up to stay busy: some ten microseconds, without the interpreter's lock."""


def _busy() -> None:
    zlib.crc32(CHUNK)


def paced(
    run: Callable[[], object],
    speed: float,
    *,
    clock: Callable[[], float] = time.thread_time,
    busy: Callable[[], object] = _busy,
) -> Callable[[], object]:
    """``run``, and then as much work of no use as makes it take ``1 / speed`` times as long by ``clock``.

    ``run`` itself for a speed of 1. ``clock`` is that of the thread on its core; of a device that computes elsewhere
    (a GPU, several threads) it must be the wall's.
    """
    if speed == 1.0:
        return run

    def slowed() -> None:
        began = clock()
        run()
        end = began + (clock() - began) / speed
        while clock() < end:
            busy()

    return slowed
