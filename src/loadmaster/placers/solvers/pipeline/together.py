"""CP-SAT and HiGHS on a pipeline search: what ``cp-sat``, ``milp``, ``exact`` and ``frontier`` have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from loadmaster.placers.frame.search import Budget, Search
from loadmaster.placers.search._incumbents import construct, has_room_to_solve, part_of, quick_answers
from loadmaster.placers.solvers._solving import Solver, drive
from loadmaster.placers.solvers.pipeline.cpsat import CpSatLoads
from loadmaster.placers.solvers.pipeline.highs import HighsLoads
from loadmaster.placers.solvers.pipeline.program import program_of, size_of
from loadmaster.problem import Pipeline, Placement, Problem

__all__ = [
    "MAX_CLAUSES",
    "SolverName",
    "first_part",
    "solve_pipeline",
    "solve_with",
    "unsolvable",
]

SolverName = Literal["cp-sat", "milp"]

MAX_CLAUSES = 120_000
"""Larger programs are not built: local search has the whole budget then."""

FIRST_MOVES = 20_000
"""Moves per class that local search makes at most before the solvers begin."""


def unsolvable(problem: Problem) -> str | None:
    """Why the 0/1 program does not fit a problem, or None."""
    model = problem.model
    if not isinstance(model, Pipeline):
        return f"it solves pipelined throughput, and the model is {model.name}: use --model pipeline"
    if model.contiguity == "chain":
        return "contiguity chain has a better exact method: use ideal-dp (or linear-dp where it has too many ideals)"
    return None


def solve_pipeline(
    search: Search, names: Sequence[SolverName], *, workers: int, start: Placement | None, seed: int
) -> None:
    """Good placements first, then the solvers side by side for the rest of the budget."""
    construct(search, start, seed)
    if not has_room_to_solve(search):
        quick_answers(search, search.budget, seed)
        return
    quick_answers(search, first_part(search), seed)
    if not solve_with(search, names, workers=workers, seed=seed):
        quick_answers(search, part_of(search, 1.0, float("inf")), seed)


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
    if unsolvable(problem) is not None or size_of(problem) > MAX_CLAUSES:
        return False
    program = program_of(problem, search.cost)
    solvers: list[Solver] = []
    if "milp" in names:
        solvers.append(HighsLoads(problem, program, seed))
    if "cp-sat" in names:
        solvers.append(CpSatLoads(problem, program, workers, seed))
    drive(search, solvers, search.seconds_left, note)
    return True
