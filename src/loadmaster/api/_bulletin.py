"""What runs on one problem in several processes know together, and how often they ask for it.

The :class:`Bulletin` is to processes what :class:`~loadmaster.placers.frame.board.Board` is to threads: the best
placement, the best bound, and whether it is over. It lives in a process of its own and knows no Ray, so that it can as
well be simulated (``benchmarks/scaling.py``).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from loadmaster.placers.frame.board import Board
from loadmaster.problem import Placement, relative_gap
from loadmaster.problem.bounds import Bound

__all__ = ["LOAD", "PERIOD", "Bulletin", "Correspondent", "Found", "Message", "News", "Proved", "period_for"]

PERIOD = 0.5
"""Seconds between two exchanges of a run,"""
LOAD = 0.5
"""or more, so that the bulletin is busy for at most this share of the time."""
FEW = 20
"""Exchanges after which it is known how long one takes."""


def period_for(runs: int, seconds: float, least: float = PERIOD) -> float:
    """Seconds between two exchanges of each of so many runs, if one keeps the bulletin busy for so many seconds.

    >>> period_for(2, 0.001), period_for(1000, 0.001)
    (0.5, 2.0)
    """
    return max(least, runs * seconds / LOAD)


@dataclass(frozen=True)
class Found:
    """A feasible placement with its cost, and who found it."""

    cost: float
    placement: Placement
    by: str


@dataclass(frozen=True)
class Proved:
    """A bound, and who proved it."""

    bound: Bound
    by: str


@dataclass(frozen=True)
class Message:
    """What a run tells: its number of evaluations, the cost and bound that it knows, and what it thinks is new."""

    run: str
    evaluations: int
    cost: float
    bound: float
    found: Found | None
    proved: Proved | None


@dataclass(frozen=True)
class News:
    """What it is told: what is known, as far as it is better, whether to end, and when to ask again."""

    cost: float
    bound: float
    found: Found | None
    proved: Proved | None
    closed: bool
    period: float


class Bulletin:
    """The best of all runs.

    gap : it is over when the relative gap is at most this.
    least : seconds between two exchanges of a run, if there are few runs.
    clock, cpu : seconds from some moment on, and seconds that this process has worked.
    """

    def __init__(
        self,
        gap: float,
        least: float = PERIOD,
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.process_time,
    ) -> None:
        self._gap, self._least, self._clock, self._cpu = gap, least, clock, cpu
        self._began: float | None = None
        self._before = cpu()
        self._runs: dict[str, int] = {}
        self._ended: set[str] = set()
        self._found: Found | None = None
        self._proved: Proved | None = None
        self._closed = False
        self.exchanges = 0

    def begin(self, run: str) -> float:
        """Seconds since the first run began; a run says so when it has imported and compiled what it needs."""
        now = self._clock()
        if self._began is None:  # what it did while the runs were loading is none of their exchange
            self._began, self._before = now, self._cpu()
        self._runs.setdefault(run, 0)
        return now - self._began

    def exchange(self, message: Message) -> News:
        """Write down what is better; tell what is better than what the run knows."""
        self.exchanges += 1
        self._runs[message.run] = message.evaluations
        if message.found is not None and message.found.cost < self.cost:
            self._found = message.found
        if message.proved is not None and message.proved.bound.value > self.bound:
            self._proved = message.proved
        if relative_gap(self.cost, self.bound) <= self._gap:
            self._closed = True
        each = (self._cpu() - self._before) / self.exchanges if self.exchanges >= FEW else 0.0
        return News(
            self.cost,
            self.bound,
            self._found if self.cost < message.cost else None,
            self._proved if self.bound > message.bound else None,
            self._closed,
            period_for(len(self._runs) - len(self._ended), each, self._least),
        )

    def end(self, run: str) -> None:
        """A run has ended."""
        self._ended.add(run)

    def close(self) -> None:
        """Ask all runs to end."""
        self._closed = True

    @property
    def cost(self) -> float:
        return math.inf if self._found is None else self._found.cost

    @property
    def bound(self) -> float:
        return 0.0 if self._proved is None else self._proved.bound.value

    def state(self) -> tuple[float, float, int]:
        """Best cost, best bound, and evaluations of all runs, of those that died as well."""
        return self.cost, self.bound, sum(self._runs.values())

    def best(self) -> tuple[Found | None, Proved | None]:
        """Best placement and bound."""
        return self._found, self._proved

    def effort(self) -> tuple[int, float]:
        """Exchanges, and the seconds that this process has worked for them."""
        return self.exchanges, self._cpu() - self._before


class Correspondent:
    """One run's end of it: what of its board is new to the bulletin, and the other way round.

    It tells whatever is better than what the bulletin last said that it knew, so that one which has begun anew knows
    everything again after an exchange.
    """

    def __init__(self, run: str, board: Board) -> None:
        self.run, self.board = run, board
        self.evaluations = 0
        self.period = PERIOD
        self._cost, self._bound = math.inf, 0.0  # as the bulletin knows them

    def message(self) -> Message:
        """What to tell now."""
        board = self.board
        best, cost, by = board.best, board.cost, board.found_by
        bound = board.bound
        found = Found(cost, best, by) if best is not None and cost < self._cost else None
        proved = Proved(bound, board.proved_by) if bound.value > self._bound else None
        return Message(self.run, self.evaluations, cost, bound.value, found, proved)

    def hear(self, news: News | None) -> None:
        """Take over what others know; None where the bulletin did not answer."""
        if news is None:
            return
        self.period, self._cost, self._bound = news.period, news.cost, news.bound
        if news.found is not None:
            self.board.offer(news.found.placement, news.found.cost, news.found.by)
        if news.proved is not None:
            self.board.prove(news.proved.bound, news.proved.by)
        if news.closed:
            self.board.close()
