"""Kernels being compiled: numba tells when one is not in its cache, and Ctrl-C need not wait for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

__all__ = ["Compilations", "compilations", "interruptible", "on_compiling"]

EVENT = "numba:compile"
"""What numba calls it; a kernel that comes from the cache is not announced."""

PATIENCE = 1.0
"""Seconds of compiling before it is worth a word."""


@dataclass
class Compilations:
    """Kernels that were compiled; those that numba's own library is made of do not count."""

    count: int = 0


@contextmanager
def compilations() -> Iterator[Compilations]:
    """Count the kernels that are compiled meanwhile."""
    from numba.core import event

    found = Compilations()

    class Counter(event.Listener):
        def on_start(self, event: Any) -> None:
            found.count += event.data["dispatcher"].py_func.__module__.startswith("loadmaster.")

        def on_end(self, event: Any) -> None:
            pass

    with event.install_listener(EVENT, Counter()):
        yield found


_told: list[Callable[[], None]] = []


def on_compiling(tell: Callable[[], None]) -> None:
    """Have ``tell`` called once in this process, as soon as compiling has taken :data:`PATIENCE` seconds."""
    if _told:
        return
    _told.append(tell)
    from numba.core import event

    class Announcer(event.Listener):
        spent = 0.0
        began: float | None = None
        depth = 0

        def on_start(self, event: Any) -> None:
            self.depth += 1
            if self.began is None:
                self.began = time.perf_counter()
            self.check()

        def on_end(self, event: Any) -> None:
            self.depth -= 1
            self.check()
            if self.depth <= 0 and self.began is not None:
                self.spent += time.perf_counter() - self.began
                self.began = None

        def check(self) -> None:
            busy = 0.0 if self.began is None else time.perf_counter() - self.began
            if self.spent + busy > PATIENCE and _told:
                self.spent = float("-inf")
                tell()

    event.register(EVENT, Announcer())


def interruptible(work: Callable[[Callable[[], bool]], None], *, finish: bool = False) -> None:
    """Do some work that compiles kernels in another thread: compiling one may take many seconds, which nothing can cut
    short.

    work : is given a function that says whether it has been left, to be asked between its steps.
    finish : after Ctrl-C, still wait for the end of the work; Ctrl-C again leaves it.

    Raises
    ------
    KeyboardInterrupt : Ctrl-C; without ``finish``, at once.
    """
    failed: list[BaseException] = []
    # Not Thread.join: interrupted, it takes the thread for dead.
    left, done = threading.Event(), threading.Event()

    def run() -> None:
        try:
            work(left.is_set)
        except BaseException as error:
            failed.append(error)
        finally:
            done.set()

    thread = threading.Thread(target=run, name="compiling", daemon=True)
    try:
        thread.start()
        while not done.wait(0.05):
            pass
    except KeyboardInterrupt:
        left.set()
        while finish and thread.ident is not None and not done.wait(0.05):
            pass
        raise
    if failed:
        raise failed[0]
