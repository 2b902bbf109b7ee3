"""Exact solvers for pipelined throughput without chains: CP-SAT, HiGHS, and both side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from loadmaster.placers._base import parameters
from loadmaster.placers._feasible import prove_infeasible
from loadmaster.placers._pipeline_solvers import SolverName, seconds_or, solve_pipeline, unsolvable
from loadmaster.placers._search import Budget, ProgressCallback, Search
from loadmaster.problem import Placement, Problem, Solution
from loadmaster.problem._evaluator import Evaluator

__all__ = ["CpSat", "Exact", "Milp"]

SECONDS = 60.0
"""The budget where none is given."""


@dataclass(frozen=True)
class _PipelineSolver:
    """What the three have in common: local search for a start, then the 0/1 program of ``_program.py``.

    With contiguity ``none`` or ``device``, both kinds of ``comm`` and both objectives. Under a budget of few
    evaluations no solver is called.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    solvers: ClassVar[tuple[SolverName, ...]]

    def supports(self, problem: Problem) -> str | None:
        """Only ``pipeline`` without chains."""
        return unsolvable(problem)

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
        """Solve until there is a proof or the budget is used up (60 seconds if it sets no limit)."""
        prove_infeasible(problem)
        workers = getattr(self, "workers", 1)
        budget = seconds_or(budget, SECONDS)
        with Search(problem, budget, self.name, evaluator, on_progress) as search:
            solve_pipeline(search, self.solvers, workers=workers, start=start, seed=seed)
        return search.solution(seed, parameters(self))


@dataclass(frozen=True)
class CpSat(_PipelineSolver):
    """CP-SAT: clause learning with linear relaxations, on costs rounded down to whole units.

    References
    ----------
    L. Perron, F. Didier, "CP-SAT", OR-tools, https://developers.google.com/optimization. J. Tarnawski et al.,
    "Efficient algorithms for device placement of DNN graph operators", NeurIPS 2020 (the program).
    """

    workers: int = 4
    """Threads of CP-SAT; fewer than four leave out strategies that it needs."""

    name: ClassVar[str] = "cp-sat"
    summary: ClassVar[str] = "pipelined throughput as a 0/1 program, by OR-tools' CP-SAT"
    solvers: ClassVar[tuple[SolverName, ...]] = ("cp-sat",)


@dataclass(frozen=True)
class Milp(_PipelineSolver):
    """HiGHS: branch and cut on the linear relaxation, in a process of its own.

    References
    ----------
    Q. Huangfu, J. A. J. Hall, "Parallelizing the dual revised simplex method", Mathematical Programming
    Computation 10(1), 2018 (HiGHS). The program as in :class:`CpSat`.
    """

    name: ClassVar[str] = "milp"
    summary: ClassVar[str] = "pipelined throughput as a 0/1 program, by HiGHS"
    solvers: ClassVar[tuple[SolverName, ...]] = ("milp",)


@dataclass(frozen=True)
class Exact(_PipelineSolver):
    """CP-SAT and HiGHS side by side: each hears of what the other has found, and the better bound counts."""

    workers: int = 4
    """Threads of CP-SAT."""

    name: ClassVar[str] = "exact"
    summary: ClassVar[str] = "pipelined throughput by CP-SAT and HiGHS side by side"
    solvers: ClassVar[tuple[SolverName, ...]] = ("milp", "cp-sat")
