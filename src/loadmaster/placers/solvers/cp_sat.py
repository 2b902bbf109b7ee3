"""CP-SAT on programs of three execution models."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from loadmaster.placers.frame.search import SOLVE_FROM, Search
from loadmaster.placers.search._incumbents import (
    construct,
    has_room_to_solve,
    note_bound,
    part_of,
    quick_answers,
)
from loadmaster.placers.solvers.concurrent.cpsat import solve_concurrent
from loadmaster.placers.solvers.concurrent.dividing import dividing_bounds
from loadmaster.placers.solvers.concurrent.stretches import stretch_bounds
from loadmaster.placers.solvers.offload import solve_offload
from loadmaster.placers.solvers.pipeline.portfolio import PipelineSolver, SolverName, first_part, unsolvable
from loadmaster.problem import Concurrent, Offload, Pipeline, Placement, Problem, Serial
from loadmaster.problem.bounds import NOWHERE, Apart, linear_bound

__all__ = ["CpSat"]

GAIN = 1e-3
"""What fixing classes must raise the bound by, relative to the cost, to go on."""
PATIENCE = 0.4
"""The part of its time in which it must do so."""
AT_ONCE = 20
"""Ops of a graph whose relaxation takes no time: without a limit on time others have none."""
GLANCES = 2e5
"""Without a limit on time, fixing classes looks at so many ops in all; and never at graphs of more than this."""


@dataclass(frozen=True)
class CpSat(PipelineSolver):
    """CP-SAT: clause learning with linear relaxations, on times rounded down to whole units.

    Solves ``pipeline`` (contiguity ``none`` or ``device``) as the 0/1 program of ``pipeline/program.py``;
    ``offload`` with calls as slots that have a start and a length (``offload.py``); ``concurrent`` with placement
    and schedule together, the schedule returned as ``order`` (``concurrent/program.py``), after a linear
    relaxation whose bound may be the better one. Exact if it finishes, up to the rounding (bounds hold in any
    case); else the best placement found, with a proven bound. Local search has the first tenth of the time, at
    most three seconds.

    Complexity: exponential in the worst case. Programs of more than 120,000 clauses (``pipeline``) or
    ``max_ops`` ops are left to local search.

    References
    ----------
    L. Perron, F. Didier, "CP-SAT", OR-tools, https://developers.google.com/optimization. J. Tarnawski et al.,
    "Efficient algorithms for device placement of DNN graph operators", NeurIPS 2020 (the programs of pipeline and
    offload).
    """

    workers: int = 4
    """Number of CP-SAT threads; fewer than four leave out strategies that it needs."""
    max_ops: int = 150
    """Larger graphs are not scheduled (``concurrent``) or called (``offload``): local search has the time."""

    name: ClassVar[str] = "cp-sat"
    summary: ClassVar[str] = "constraint programming by OR-Tools' CP-SAT, with a proven bound"
    solvers: ClassVar[tuple[SolverName, ...]] = ("cp-sat",)
    warm_up: ClassVar[int] = SOLVE_FROM  # its bounds under ``concurrent`` have kernels,
    warm_up_ops: ClassVar[int] = 8  # and so few ops are solved at once

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
                small = search.problem.n <= self.max_ops
                apart = _stretch(search, 0.08 if small else 0.25)
                finished = _relax(search, 0.1, apart)
                _divide(search, 0.15 if small else 0.5, apart)
                if not finished and not small:
                    _relax(search, 0.6, apart)
            if search.problem.n <= self.max_ops:
                solve = solve_offload if isinstance(model, Offload) else solve_concurrent
                if solve(search, workers=self.workers, seed=seed):
                    return
        quick_answers(search, part_of(search, 1.0, np.inf), seed)


def _stretch(search: Search, part: float) -> Apart:
    """Fix heavy classes in stretches of a long path, for a part of the time that is left; which ops are apart then."""
    begun, most, known = search.seconds, part * search.seconds_left, NOWHERE
    if search.problem.n > GLANCES or search.bound.value >= search.cost:
        return known

    def late(share: float) -> bool:
        search.check()
        return search.seconds > begun + share * most

    work = math.inf if search.budget.seconds is not None else GLANCES
    for value, apart in stretch_bounds(search.problem, search.bound.value, lambda: search.cost, late, work):
        note_bound(search, value, "stretches of a path")
        known = apart
    return known


def _relax(search: Search, part: float, apart: Apart) -> bool:
    """The linear relaxation of a schedule, in a part of the time that is left; whether it came to its end."""
    limit, begun = part_of(search, part, 10.0).seconds, search.seconds
    if limit is None and search.problem.n <= AT_ONCE:
        limit = 10.0
    if limit is None or search.bound.value >= search.cost:
        return True
    relaxed = linear_bound(search.problem, known=search.cost, seconds=limit, apart=apart)
    note_bound(search, relaxed.value, relaxed.name)
    search.check()
    return search.seconds - begun < 0.9 * limit


def _divide(search: Search, part: float, apart: Apart) -> None:
    """Fix heavy classes on devices, for a part of the time that is left or until that gains next to nothing."""
    if search.problem.n > GLANCES or search.bound.value >= search.cost:
        return
    begun, most = search.seconds, part * search.seconds_left
    gained, reached = begun, search.bound.value

    def over() -> bool:
        search.check()
        return search.seconds > begun + most or search.seconds > gained + PATIENCE * most

    nodes = int(GLANCES / search.problem.n) + 1 if search.budget.seconds is None else 10**9
    for value in dividing_bounds(search.problem, reached, lambda: search.cost, over, nodes, apart):
        note_bound(search, value, "divided heavy classes")
        if value > reached + GAIN * search.cost:
            gained, reached = search.seconds, value
