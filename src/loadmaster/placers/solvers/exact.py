"""General solvers: CP-SAT, HiGHS, and both side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from loadmaster.placers.frame.search import Budget, Search
from loadmaster.placers.frame.searcher import Searcher
from loadmaster.placers.search._incumbents import (
    construct,
    has_room_to_solve,
    note_bound,
    part_of,
    quick_answers,
)
from loadmaster.placers.solvers.concurrent.cpsat import solve_concurrent
from loadmaster.placers.solvers.offload import solve_offload
from loadmaster.placers.solvers.pipeline.together import (
    SolverName,
    first_part,
    solve_pipeline,
    unsolvable,
)
from loadmaster.problem import Concurrent, Offload, Pipeline, Placement, Problem, Serial
from loadmaster.problem.bounds._linear import linear_bound

__all__ = ["CpSat", "Exact", "Milp"]

SECONDS = 60.0
"""The budget where none is given."""


@dataclass(frozen=True)
class _PipelineSolver(Searcher):
    """What the three have in common: local search for a start, then the 0/1 program of ``_program.py``.

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
        """Local search, then the solvers."""
        workers = getattr(self, "workers", 1)
        solve_pipeline(search, self.solvers, workers=workers, start=start, seed=seed)


@dataclass(frozen=True)
class CpSat(_PipelineSolver):
    """CP-SAT: clause learning with linear relaxations, on times rounded down to whole units.

    For ``pipeline`` the 0/1 program; for ``offload`` calls as slots with a start and a length
    (``_cpsat_offload.py``); for ``concurrent`` placement and schedule together, the schedule returned as ``order``
    (``_cpsat_concurrent.py``), after a linear relaxation whose bound may be the better one.

    References
    ----------
    L. Perron, F. Didier, "CP-SAT", OR-tools, https://developers.google.com/optimization. J. Tarnawski et al.,
    "Efficient algorithms for device placement of DNN graph operators", NeurIPS 2020 (the programs of pipeline and
    offload).
    """

    workers: int = 4
    """Threads of CP-SAT; fewer than four leave out strategies that it needs."""
    max_ops: int = 150
    """Larger graphs are not scheduled (``concurrent``) or called (``offload``): local search has the time."""

    name: ClassVar[str] = "cp-sat"
    summary: ClassVar[str] = "pipeline, offload and concurrent by OR-tools' CP-SAT, with a proof"
    solvers: ClassVar[tuple[SolverName, ...]] = ("cp-sat",)

    def supports(self, problem: Problem) -> str | None:
        """All but ``serial`` and chains."""
        if isinstance(problem.model, Offload | Concurrent):
            return None
        if isinstance(problem.model, Serial):
            return "serial has a better exact method: use min-cut"
        return unsolvable(problem)

    def explore(self, search: Search, start: Placement | None, seed: int) -> None:
        """By execution model."""
        model = search.problem.model
        if isinstance(model, Pipeline):
            super().explore(search, start, seed)
            return
        construct(search, start, seed)
        if has_room_to_solve(search):
            quick_answers(search, first_part(search), seed)
            if isinstance(model, Concurrent):
                _relax(search)
            if search.problem.n <= self.max_ops:
                solve = solve_offload if isinstance(model, Offload) else solve_concurrent
                if solve(search, workers=self.workers, seed=seed):
                    return
        quick_answers(search, part_of(search, 1.0, np.inf), seed)


def _relax(search: Search) -> None:
    """The linear relaxation of a schedule, in a fifth of the time."""
    limit = part_of(search, 0.2, 10.0).seconds
    if limit is not None:
        relaxed = linear_bound(search.problem, known=search.cost, seconds=limit)
        note_bound(search, relaxed.value, relaxed.name)
        search.check()


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
