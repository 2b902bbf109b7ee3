"""The frame of most placers: a search that they explore, and an answer whatever happens."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ClassVar

from loadmaster.placers.frame.branching import branch, branches
from loadmaster.placers.frame.exhaust import exhaust
from loadmaster.placers.frame.feasible import find_feasible, prove_infeasible
from loadmaster.placers.frame.placer import parameters
from loadmaster.placers.frame.search import SOLVE_FROM, Budget, OutOfBudget, ProgressCallback, Search
from loadmaster.problem import Evaluator, Pipeline, Placement, Problem, Solution

__all__ = ["Searcher"]

SHARE = 0.5
"""Of the budget, for the method itself before branch and bound;"""
SECONDS = 2.0
"""no more seconds than this, because branch and bound takes about one, and the method has the rest again."""


def _unknown_step(problem: Problem) -> str | None:
    model = problem.model
    if isinstance(model, Pipeline) and model.microbatches:
        return "it knows the saturated pipeline but no step of microbatches: use auto or stages"
    return None


def _knowing_steps(own: Callable[[Any, Problem], str | None]) -> Callable[[Any, Problem], str | None]:
    """``supports`` of a placer, which need not know that there is such a thing as a step of microbatches."""

    @wraps(own)
    def supports(self: Any, problem: Problem) -> str | None:
        return own(self, problem) or (None if self.knows_steps else _unknown_step(problem))

    return supports


class Searcher:
    """Base of the placers that offer placements to a :class:`Search`; they say which in :meth:`explore`."""

    name: ClassVar[str]
    summary: ClassVar[str]
    unlimited: ClassVar[Budget] = Budget()
    """The budget if the caller sets no limit; by default the method ends by itself."""
    warm_up: ClassVar[int] = SOLVE_FROM
    """Evaluations on a tiny problem after which every part of the method has been loaded or compiled,"""
    warm_up_ops: ClassVar[int] = 24
    """and the ops of that problem: more where parts of the method are for larger graphs."""
    exhausts: ClassVar[bool] = False
    """A problem with few placements is enumerated first: for methods that search as long as they may."""

    keeps_start: ClassVar[bool] = False
    """It never returns something worse than a feasible placement that it is given as the start."""

    knows_steps: ClassVar[bool] = False
    """It knows what a step of microbatches costs (``pipeline`` with microbatches); others say that they do not."""

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        own = cls.__dict__.get("supports")
        if own is not None:
            cls.supports = _knowing_steps(own)  # type: ignore[method-assign, assignment]

    def supports(self, problem: Problem) -> str | None:
        """Everything, but a step of microbatches only if it knows that."""
        return None if self.knows_steps else _unknown_step(problem)

    def explore(self, search: Search, start: Placement | None, seed: int) -> None:
        """Offer placements and bounds; the search ends it at the deadline and on Ctrl-C."""
        raise NotImplementedError

    def _explore(self, search: Search, start: Placement | None, seed: int) -> None:
        """Explore; where the problem has few atoms, leave a part of the budget for a search that overlooks nothing."""
        if not (self.exhausts and branches(search)):
            self.explore(search, start, seed)
            return
        with search.part(SHARE, SECONDS):
            self.explore(search, start, seed)
        search.check()
        if not branch(search):
            search.check()
            self.explore(search, search.best, seed + 1)

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
                    self._explore(search, start, seed)
            except OutOfBudget:
                if search.best is not None:
                    raise
            if search.best is None:
                find_feasible(search, seed)
        return search.solution(seed, parameters(self))
