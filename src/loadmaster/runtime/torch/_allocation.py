"""Memory that is freed stays with the process, for the next tensor.

The gradient of a large weight is made anew for every microbatch. By default glibc gives such memory back to the system
when it is freed, or does not, as the heap happens to lie: the same layer then takes up to twice as long in one process
as in another. Ranks and measurements keep it, which is faster, and the same in both.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache

__all__ = ["keep_freed_memory"]

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Numbers of glibc's ``mallopt``: what may be free at the end of the heap, and what is mapped on its own."""
CHOSEN = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TOP_PAD_", "GLIBC_TUNABLES")
"""Variables by which the user has chosen."""


@cache
def keep_freed_memory() -> bool:
    """Keep it, from now on; whether that was done.

    Not where the user has said otherwise, where there is a limit of memory, which leaves none to be kept, or where the
    C library is another one.
    """
    if any(name in os.environ for name in CHOSEN) or _limited():
        return False
    try:
        choose = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return False
    return bool(choose(MMAP_THRESHOLD, 1 << 30)) and bool(choose(TRIM_THRESHOLD, (1 << 31) - 1))


def _limited() -> bool:
    try:
        import resource
    except ImportError:  # Windows
        return True
    kinds = (resource.RLIMIT_DATA, resource.RLIMIT_AS)
    return any(resource.getrlimit(kind)[0] != resource.RLIM_INFINITY for kind in kinds)
