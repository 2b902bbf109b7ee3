"""What every placer needs while it runs: a clock, a counter, the best placement so far, and Ctrl-C."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from loadmaster.arrays import IntArray
from loadmaster.errors import InputError
from loadmaster.files import shown
from loadmaster.placers.frame.board import board_of, end_of
from loadmaster.placers.frame.turns import turn_of
from loadmaster.problem import Evaluator, Placement, Point, Problem, SimulatedEvaluator, Solution
from loadmaster.problem.bounds import Bound, lower_bound

__all__ = ["SOLVE_FROM", "Budget", "OutOfBudget", "Progress", "ProgressCallback", "Search", "look_at_clock"]


SOLVE_FROM = 10_000
"""Under a budget of fewer evaluations than this no solver is called: the answer is what local search
finds."""


@dataclass(frozen=True)
class Budget:
    """How long a placer may search: seconds, evaluations, or whichever comes first. None is no limit."""

    seconds: float | None = None
    evaluations: int | None = None

    def __post_init__(self) -> None:
        if self.seconds is not None and not self.seconds >= 0:
            raise InputError(f"a budget must be >= 0 seconds, not {self.seconds}")
        if self.evaluations is not None and self.evaluations < 1:
            raise InputError(f"a budget must be >= 1 evaluations, not {shown(self.evaluations)}")
        if self.evaluations is not None and self.evaluations >= 2**63:
            raise InputError(f"a budget must be below 2**63 evaluations, not {shown(self.evaluations)}")


@dataclass(frozen=True)
class Progress:
    """Where a running search stands."""

    method: str
    seconds: float
    evaluations: int
    cost: float
    bound: float
    note: str = ""
    """What else the method says about itself."""


ProgressCallback = Callable[[Progress], None]


class OutOfBudget(Exception):  # noqa: N818 - it is no error
    """Raised inside a placer to leave its loops; :class:`Search` catches it if there is an answer, else the
    placer looks for any feasible placement."""


class Search:
    """One run of a placer. Used as a context manager: leaving the budget and Ctrl-C end the block quietly.

    >>> # with Search(problem, budget, "mine", evaluator, on_progress) as search:
    >>> #     while True:
    >>> #         search.try_device(devices)        # raises OutOfBudget when the budget is used up
    >>> # return search.solution(seed, parameters)

    Ctrl-C before a first feasible placement is known is not caught: there is nothing to return.
    """

    def __init__(
        self,
        problem: Problem,
        budget: Budget,
        method: str,
        evaluator: Evaluator | None = None,
        on_progress: ProgressCallback | None = None,
    ) -> None:
        self.problem = problem
        self.budget = budget
        self.method = method
        self.evaluator: Evaluator = evaluator if evaluator is not None else SimulatedEvaluator(problem)
        self.simulated = isinstance(self.evaluator, SimulatedEvaluator)
        self._board = board_of(problem) if self.simulated else None
        self._over = end_of(problem) if self.simulated else None
        self._bound = lower_bound(problem) if self._board is None else self._board.bound
        self.best: Placement | None = None
        self.cost = math.inf
        self.start: Placement | None = None
        """What the caller gave to begin with, for methods that learn from it."""
        self.stopped = "finished"
        self.note = ""
        """What a method shows of itself in the line of progress."""
        self.history: list[Point] = []
        self._on_progress = on_progress
        self._turn = turn_of()
        self._began = self._now()
        self._counted = 0
        self._first = self.evaluator.evaluations
        self._told = -math.inf
        self._confirmer = SimulatedEvaluator(problem)

    # -- budget ----------------------------------------------------------------------------------------------

    def _now(self) -> float:
        """The clock, which stands still while others have their turn."""
        return time.perf_counter() - (0.0 if self._turn is None else self._turn.waited)

    @property
    def seconds(self) -> float:
        """Seconds since the search began."""
        return self._now() - self._began

    @property
    def evaluations(self) -> int:
        """Number of evaluations so far, by the evaluator or by deltas that a kernel reported with :meth:`count`."""
        return self.evaluator.evaluations - self._first + self._counted

    @property
    def evaluations_left(self) -> int:
        """How many more evaluations the budget allows (a very large number where it sets no limit)."""
        limit = self.budget.evaluations
        return 2**62 if limit is None else limit - self.evaluations

    @property
    def seconds_left(self) -> float:
        """How many more seconds the budget allows."""
        return math.inf if self.budget.seconds is None else self.budget.seconds - self.seconds

    @property
    def seconds_expected(self) -> float:
        """How many more seconds of its own clock it will have, as far as can be told: others may have their turns."""
        return self.seconds_left if self._turn is None else min(self.seconds_left, self._turn.expected)

    @property
    def optimal(self) -> bool:
        """The best placement meets the lower bound: there is nothing left to find."""
        return self.simulated and self.cost <= self.bound.value * (1 + 1e-9)

    @property
    def accompanied(self) -> bool:
        """Others search the same problem all the time beside this one."""
        return self._board is not None and self._board.searched

    @property
    def bound(self) -> Bound:
        """The best lower bound so far."""
        return self._bound

    @bound.setter
    def bound(self, bound: Bound) -> None:
        self._bound = bound
        if self._board is not None:
            self._board.prove(bound, self.method)

    def count(self, evaluations: int) -> None:
        """Add evaluations that a kernel made by deltas."""
        self._counted += evaluations

    @contextmanager
    def part(self, share: float, seconds: float) -> Iterator[None]:
        """Only a share of what is left of the budget, and at most so many seconds, until the block ends."""
        whole = self.budget
        limit = None if whole.evaluations is None else self.evaluations + int(share * self.evaluations_left)
        left = min(share * self.seconds_left, seconds) if limit is None or whole.seconds is not None else None
        self.budget = Budget(None if left is None else self.seconds + left, limit)
        try:
            yield
        except OutOfBudget:
            if self.best is None:
                raise
            self.stopped = "finished"
        finally:
            self.budget = whole

    def began_earlier(self, seconds: float) -> None:
        """Add the seconds of an earlier run that this one continues."""
        self._began -= seconds

    def check(self) -> None:
        """Report progress; raise :class:`OutOfBudget` if time or evaluations are used up, or nothing is
        left to find."""
        self.tell()
        if self._turn is not None:
            self._turn.pass_on()
        if self._board is not None:
            self._look_at_board()
        if self.out_of_time() or (self.best is not None and self.evaluations_left <= 0):
            self.stopped = "budget"
            raise OutOfBudget
        if self.optimal:
            raise OutOfBudget

    def between_steps(self) -> None:
        """In the middle of long work, in whatever thread (one at a time): let others have their turn; raise
        :class:`OutOfBudget` if the time is over. It looks at nothing on which the result of a run under a budget of
        evaluations could depend."""
        if self._turn is not None:
            self._turn.pass_on()
        if self.out_of_time():
            self.stopped = "budget"
            raise OutOfBudget

    def _look_at_board(self) -> None:
        """Take over what other members of a portfolio found and proved."""
        board = self._board
        assert board is not None
        if board.best is not None and board.cost < self.cost:
            self.best, self.cost = board.best, board.cost
        if board.bound.value > self._bound.value:
            self._bound = board.bound

    def out_of_time(self) -> bool:
        """The deadline has come, or the portfolio that this search is part of has ended, or its time in it."""
        return self.seconds_left <= 0 or (self._over is not None and self._over())

    def tell(self, *, always: bool = False) -> None:
        """Call the progress callback, at most ten times a second."""
        if self._on_progress is not None and (always or self.seconds - self._told > 0.1):
            self._told = self.seconds
            self._on_progress(
                Progress(self.method, self.seconds, self.evaluations, self.cost, self.bound.value, self.note)
            )

    # -- incumbents ------------------------------------------------------------------------------------------

    def try_placement(self, placement: Placement) -> float:
        """Evaluate a placement, keep it if it is the best; its cost, infinite where infeasible."""
        value = self.evaluator.evaluate(placement).value
        self.offer(placement, value)
        return value

    def try_device(self, device: IntArray) -> float:
        """Evaluate the placement with these devices, keep it if it is the best; its cost, infinite where
        infeasible."""
        return self.try_placement(Placement(device))

    def confirm(self, placement: Placement, cost: float) -> None:
        """Keep a placement whose cost a walk has learnt (and counted) already.

        Deltas are exact up to rounding, so a simulated cost is computed afresh; a measured one is taken as it
        is.
        """
        if self.simulated:
            cost = self._confirmer.evaluate(placement).value
        self.offer(placement, cost)

    def offer(self, placement: Placement, cost: float) -> None:
        """Keep a placement whose exact cost the evaluator gave, if it is feasible and the best so far."""
        if cost < self.cost:
            self.best, self.cost = placement, cost
            self.history.append(Point(self.seconds, self.evaluations, cost))
            if self._board is not None:
                gain = self._board.offer(placement, cost, self.method)
                if self._turn is not None:
                    self._turn.gained(gain)

    def __enter__(self) -> Self:
        self._outside = _here.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        _here.reset(self._outside)
        if kind is None or self.best is None:
            return False
        if issubclass(kind, OutOfBudget):
            return True
        if issubclass(kind, KeyboardInterrupt):
            self.stopped = "interrupted"
            return True
        return False

    def solution(self, seed: int, parameters: Mapping[str, Any], *, found_by: str = "") -> Solution:
        """The best placement as a :class:`Solution`, with the better of the general bound and what was
        proved."""
        assert self.best is not None, "a placer must find a feasible placement or raise InfeasibleError"
        bound = self.bound if self.simulated else Bound(0.0, "none: the cost is measured")
        assert bound.value <= self.cost * (1 + 1e-9) + 1e-30, (
            f"the bound {bound} exceeds the cost {self.cost}"
        )
        try:
            self.tell(always=True)
        except KeyboardInterrupt:
            self.stopped = "interrupted"
        return Solution(
            placement=self.best,
            cost=self.cost,
            bound=min(bound.value, self.cost),
            bound_by=bound.name,
            method=self.method,
            evaluations=self.evaluations,
            seconds=self.seconds,
            seed=seed,
            parameters=dict(parameters),
            history=tuple(self.history),
            found_by=found_by or self.method,
            stopped=self.stopped,
        )


_here: ContextVar[Search | None] = ContextVar("search", default=None)


def look_at_clock() -> None:
    """For long steps that know of no search: show the progress of the one that they are part of, if there is one, and
    raise :class:`OutOfBudget` where its time is over."""
    search = _here.get()
    if search is None:
        return
    search.tell()
    if search.out_of_time():
        search.stopped = "budget"
        raise OutOfBudget
