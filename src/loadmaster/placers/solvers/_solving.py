"""Solvers at work on one search: what they find and prove is shared while they run.

A solver is started in the background, asked from time to time what is new, and told what others have found.
:func:`drive` does that until one of them has proved the best placement optimal, all have given up, or the
budget is used up; whatever ends it, Ctrl-C too, no solver is left running.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from loadmaster.placers.frame.search import Search
from loadmaster.placers.search._incumbents import note_bound
from loadmaster.problem import OPTIMAL_GAP, Placement, relative_gap

__all__ = ["Found", "Proved", "Solver", "drained", "drive"]


BETTER = 1e-3
"""Other solvers are told of an improvement by at least this share at once; of smaller ones never."""


class Found(NamedTuple):
    """A placement."""

    placement: Placement


class Proved(NamedTuple):
    """No feasible placement costs less (seconds)."""

    value: float


class Solver(Protocol):
    """What runs in the background."""

    @property
    def name(self) -> str:
        """The name that its bounds carry."""

    @property
    def running(self) -> bool:
        """Whether it is still at work."""

    def start(self, placement: Placement, cost: float, seconds: float) -> None:
        """Begin, with a known placement, for at most so many seconds."""

    def share(self, placement: Placement, cost: float) -> None:
        """Hear of a better placement."""

    def news(self) -> list[Found | Proved]:
        """What has been found and proved since the last call."""

    def stop(self) -> None:
        """End at once; nothing is left running."""


def drained(news: queue.SimpleQueue[Found | Proved]) -> list[Found | Proved]:
    """What is in a queue, which is empty then."""
    found = []
    while not news.empty():
        found.append(news.get())
    return found


def drive(search: Search, solvers: Sequence[Solver], seconds: float, note: str = "") -> None:
    """Run solvers side by side on a search for at most so many seconds.

    note : what the name of a bound should say besides the solver's name.
    """
    assert search.best is not None
    until = search.seconds + seconds
    told = search.cost
    try:
        for solver in solvers:
            solver.start(search.best, search.cost, min(seconds, search.seconds_left))
        while search.seconds < until:
            running = [solver for solver in solvers if solver.running]  # asked first: news may come last
            for solver in solvers:
                _take(search, solver, note)
            search.check()
            if not running or relative_gap(search.cost, search.bound.value) <= OPTIMAL_GAP:
                return
            if search.cost < told * (1.0 - BETTER):
                told = search.cost
                for solver in running:
                    solver.share(search.best, search.cost)
            time.sleep(0.02)
    finally:
        for solver in solvers:
            solver.stop()


def _take(search: Search, solver: Solver, note: str) -> None:
    for event in solver.news():
        if isinstance(event, Found):
            search.count(1)
            search.confirm(event.placement, np.inf)
        else:
            note_bound(search, event.value, solver.name + note)
