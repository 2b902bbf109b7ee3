"""The cores that this process may use."""

from __future__ import annotations

import os

__all__ = ["allowed_cores"]


def allowed_cores() -> list[int]:
    """The cores that this process may use, in ascending order."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))
