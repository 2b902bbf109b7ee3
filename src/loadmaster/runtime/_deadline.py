"""Inside the worker: a time after which making a model ready is given up, looked at between two submodels."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from loadmaster.errors import RunError

__all__ = ["check_deadline", "within"]

_end: ContextVar[float] = ContextVar("end", default=math.inf)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Let :func:`check_deadline` fail in so many seconds."""
    token = _end.set(time.monotonic() + seconds)
    try:
        yield
    finally:
        _end.reset(token)


def check_deadline(done: int, count: int) -> None:
    """Before each of some submodels is compiled.

    Raises
    ------
    RunError : the time is over.
    """
    if time.monotonic() > _end.get():
        raise RunError(f"the time was over when {done} of {count} submodels were compiled")
