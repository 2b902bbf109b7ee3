"""A portfolio of solvers on the 0/1 program of a pipeline: local search first, then CP-SAT, HiGHS or both side by side.

What ``cp-sat``, ``milp`` and ``exact`` have in common; ``frontier`` hands over to it where its frontier is too wide.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from loadmaster.placers.frame.search import Budget, Search
from loadmaster.placers.frame.searcher import Searcher
from loadmaster.placers.search._incumbents import construct, has_room_to_solve, part_of, quick_answers
from loadmaster.placers.solvers._solving import Solver, drive
from loadmaster.placers.solvers.pipeline.cpsat import CpSatLoads
from loadmaster.placers.solvers.pipeline.highs import HighsLoads
from loadmaster.placers.solvers.pipeline.program import program_of, size_of
from loadmaster.problem import Pipeline, Placement, Problem

__all__ = [
    "PipelineSolver",
    "SolverName",
    "first_part",
    "solve_with",
    "too_large",
    "unsolvable",
]

SolverName = Literal["cp-sat", "milp"]

SECONDS = 60.0
"""The budget where none is given."""

MAX_CLAUSES = 120_000
"""Larger programs are not built: local search has the whole budget then."""

FIRST_MOVES = 20_000
"""Moves per class that local search makes at most before the solvers begin."""


def unsolvable(problem: Problem) -> str | None:
    """Why the 0/1 program does not fit a problem, or None."""
    model = problem.model
    if not isinstance(model, Pipeline):
        return f"it optimizes pipeline throughput, but the model is {model.name}: use --model pipeline"
    if model.contiguity == "chain":
        return "contiguity chain has a better exact method: use ideal-dp (or linear-dp where it has too many ideals)"
    return None


def too_large(problem: Problem) -> bool:
    """Whether no 0/1 program is made: it has too many clauses, or there is none for the problem."""
    return unsolvable(problem) is not None or size_of(problem) > MAX_CLAUSES


@dataclass(frozen=True)
class PipelineSolver(Searcher):
    """Good placements by local search, then the solvers of :attr:`solvers` on the 0/1 program of ``program.py``.

    With contiguity ``none`` or ``device``, both kinds of ``comm`` and both objectives. Under a budget of few
    evaluations no solver is called.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    keeps_start: ClassVar[bool] = True
    unlimited: ClassVar[Budget] = Budget(seconds=SECONDS)
    warm_up: ClassVar[int] = 500  # solvers have no kernels, and might take long
    solvers: ClassVar[tuple[SolverName, ...]]

    def supports(self, problem: Problem) -> str | None:
        """Only ``pipeline`` without chains."""
        return unsolvable(problem)

    def explore(self, search: Search, start: Placement | None, seed: int) -> None:
        """Good placements first, then the solvers side by side for the rest of the budget."""
        construct(search, start, seed)
        if not has_room_to_solve(search):
            quick_answers(search, search.budget, seed)
            return
        quick_answers(search, first_part(search), seed)
        workers = getattr(self, "workers", 1)
        if not solve_with(search, self.solvers, workers=workers, seed=seed):
            quick_answers(search, part_of(search, 1.0, math.inf), seed)


def first_part(search: Search) -> Budget:
    """What local search has before a solver begins."""
    first = part_of(search, 0.1, 3.0)
    if first.evaluations is None:
        first = Budget(first.seconds, FIRST_MOVES * search.problem.classes)
    return first


def solve_with(
    search: Search, names: Sequence[SolverName], *, workers: int, seed: int, note: str = ""
) -> bool:
    """Run the solvers for the rest of the budget; False if the program is too large, or none for them."""
    problem = search.problem
    assert search.best is not None
    if too_large(problem):
        return False
    program = program_of(problem, search.cost)
    solvers: list[Solver] = []
    if "milp" in names:
        solvers.append(HighsLoads(problem, program, seed))
    if "cp-sat" in names:
        solvers.append(CpSatLoads(problem, program, workers, seed))
    drive(search, solvers, search.seconds_left, note)
    return True
