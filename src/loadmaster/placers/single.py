"""The best single device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from loadmaster.placers._base import parameters
from loadmaster.placers._feasible import first_feasible, prove_infeasible, single_devices
from loadmaster.placers._search import Budget, ProgressCallback, Search
from loadmaster.problem import Placement, Problem, Solution
from loadmaster.problem._evaluator import Evaluator

__all__ = ["Single"]


@dataclass(frozen=True)
class Single:
    """Everything on one device, the best one that is feasible.

    Ops that the device must not or cannot take go to their fastest device, and what exceeds its memory goes
    where it costs least; without such constraints it is one device and nothing else.
    """

    name: ClassVar[str] = "single"
    summary: ClassVar[str] = "the best single device (what it cannot take goes elsewhere)"

    def supports(self, problem: Problem) -> str | None:
        """Everything."""
        return None

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
        """Try every device."""
        prove_infeasible(problem)
        with Search(problem, budget, self.name, evaluator, on_progress) as search:
            for device in single_devices(problem):
                search.try_device(device)
                search.check()
            if search.best is None:
                search.try_device(first_feasible(problem, seed))
        return search.solution(seed, parameters(self))
