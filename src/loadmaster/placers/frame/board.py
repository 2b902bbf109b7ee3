"""What placers that work on one problem at the same time know together: the best placement and the best bound.

A portfolio puts up a :class:`Board` for the threads of its members (:func:`using`). Every
:class:`~loadmaster.placers.frame.search.Search` that begins in such a thread writes down what it finds and proves,
takes over what is better, and ends when the board is closed.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from loadmaster.problem import Placement, Point, Problem, relative_gap
from loadmaster.problem.bounds import Bound

__all__ = ["Board", "board_of", "end_of", "using"]


class Board:
    """The best of several searches; all methods may be called from any thread.

    problem : the problem whose placements are written down; searches on others (a coarsened one, say) are
        not concerned.
    gap : the board closes when the relative gap is at most this.
    began : when the run began, by ``time.perf_counter``; now if it is not given.
    """

    def __init__(self, problem: Problem, bound: Bound, gap: float, began: float | None = None) -> None:
        self.problem = problem
        self.best: Placement | None = None
        self.cost = math.inf
        self.found_by = ""
        self.bound = bound
        self.proved_by = ""
        self.history: list[Point] = []
        self.evaluations = 0
        self.closed = False
        self.searched = False
        """Some members only search, all the time: the others need not."""
        self.part = (0, 1)
        """Which of so many equal runs this is, that share a problem, each with its own board: a portfolio runs only
        its part of the members that would do the same in all of them."""
        self._sealed = False
        self._gap = gap
        self._began = time.perf_counter() if began is None else began
        self._lock = threading.Lock()

    def offer(self, placement: Placement, cost: float, method: str) -> float:
        """Write down a feasible placement if it is better than the one known; by what share of the cost."""
        with self._lock:
            gain = max(0.0, 1.0 - cost / self.cost) if math.isfinite(self.cost) and self.cost > 0 else 0.0
            if cost < self.cost and not self._sealed:
                self.best, self.cost, self.found_by = placement, cost, method
                self.history.append(Point(time.perf_counter() - self._began, self.evaluations, cost))
                self._judge()
        return gain

    def prove(self, bound: Bound, method: str) -> None:
        """Write down a bound if it is better than the one known."""
        with self._lock:
            if bound.value > self.bound.value and not self._sealed:
                self.bound, self.proved_by = bound, method
                self._judge()

    def count(self, evaluations: int) -> None:
        """Book evaluations of a member that has ended."""
        with self._lock:
            self.evaluations += evaluations

    def close(self) -> None:
        """Ask all members to end."""
        self.closed = True

    def seal(self) -> None:
        """Nothing is written down any more: the answer is being given, and a member may be late."""
        with self._lock:
            self._sealed = True

    def _judge(self) -> None:
        if relative_gap(self.cost, self.bound.value) <= self._gap:
            self.closed = True


_here: ContextVar[tuple[Board, Callable[[], bool]] | None] = ContextVar("board", default=None)


def board_of(problem: Problem) -> Board | None:
    """The board of the present thread, if there is one for this problem."""
    here = _here.get()
    return here[0] if here is not None and here[0].problem is problem else None


def end_of(problem: Problem) -> Callable[[], bool] | None:
    """Tells whether a search that begins in the present thread should end before its time is over, or None."""
    here = _here.get()
    return here[1] if here is not None and here[0].problem is problem else None


@contextmanager
def using(board: Board, over: Callable[[], bool] | None = None) -> Iterator[None]:
    """Searches that begin in this thread inside the block use the board; they end when it is closed, or it is ``over``
    for them."""
    ends = (lambda: board.closed) if over is None else (lambda: board.closed or over())
    token = _here.set((board, ends))
    try:
        yield
    finally:
        _here.reset(token)
