"""The frame of most placers: a search that they explore, and an answer whatever happens."""

from __future__ import annotations

from typing import ClassVar

from loadmaster.placers.frame.exhaust import exhaust
from loadmaster.placers.frame.feasible import find_feasible, prove_infeasible
from loadmaster.placers.frame.placer import parameters
from loadmaster.placers.frame.search import SOLVE_FROM, Budget, OutOfBudget, ProgressCallback, Search
from loadmaster.problem import Evaluator, Placement, Problem, Solution

__all__ = ["Searcher"]


class Searcher:
    """Base of the placers that offer placements to a :class:`Search`; they say which in :meth:`explore`."""

    name: ClassVar[str]
    summary: ClassVar[str]
    unlimited: ClassVar[Budget] = Budget()
    """The budget if the caller sets no limit; by default the method ends by itself."""
    warm_up: ClassVar[int] = SOLVE_FROM
    """Evaluations on a tiny problem after which every part of the method has been loaded or compiled."""
    exhausts: ClassVar[bool] = False
    """A problem with few placements is enumerated first: for methods that search as long as they may."""

    keeps_start: ClassVar[bool] = False
    """It never returns something worse than a feasible placement that it is given as the start."""

    def supports(self, problem: Problem) -> str | None:
        """Everything."""
        return None

    def explore(self, search: Search, start: Placement | None, seed: int) -> None:
        """Offer placements and bounds; the search ends it at the deadline and on Ctrl-C."""
        raise NotImplementedError

    def place(
        self,
        problem: Problem,
        *,
        budget: Budget,
        seed: int = 0,
        start: Placement | None = None,
        evaluator: Evaluator | None = None,
        on_progress: ProgressCallback | None = None,
    ) -> Solution:
        """The best placement that was offered; any feasible one where none was."""
        prove_infeasible(problem)
        limits = self.unlimited if budget == Budget() else budget
        with Search(problem, limits, self.name, evaluator, on_progress) as search:
            try:
                if not (self.exhausts and exhaust(search)):
                    self.explore(search, start, seed)
            except OutOfBudget:
                if search.best is not None:
                    raise
            if search.best is None:
                find_feasible(search, seed)
        return search.solution(seed, parameters(self))
