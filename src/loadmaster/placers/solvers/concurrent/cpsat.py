"""CP-SAT scheduling for the ``concurrent`` model: placements with their order, and a proof."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from ortools.sat.python import cp_model

from loadmaster.arrays import IntArray
from loadmaster.placers.frame.search import Search
from loadmaster.placers.search._incumbents import note_bound
from loadmaster.placers.solvers._following import follow_cp_sat
from loadmaster.placers.solvers.concurrent.program import schedule_program
from loadmaster.problem import OPTIMAL_GAP, Concurrent, Placement, Problem, evaluate, relative_gap

__all__ = ["solve_concurrent", "too_large_to_schedule"]


TICKS = 2**30
"""The cost of the first placement is about this many units of time; durations are rounded down to units."""
LARGEST = 400_000
"""Most combinations of a tensor and two devices, or of two ops, that a program is written for."""


def too_large_to_schedule(problem: Problem) -> str | None:
    """None, or why no program is written for the problem."""
    size = max(problem.graph.tensors * problem.devices**2, problem.n**2)
    if size <= LARGEST:
        return None
    return f"a schedule of {problem.n} ops on {problem.devices} devices is too large for CP-SAT"


def solve_concurrent(search: Search, *, seconds: float = math.inf, workers: int = 8, seed: int = 0) -> bool:
    """Let CP-SAT improve the best placement of the search, and prove a bound; True if it finished with a proof.

    There must be a first placement: it is the hint and the horizon. Every better schedule is given to the
    search as a placement with its order, which the evaluator replays; bounds are those of the program whose
    durations are rounded down, so they hold for the problem. With ``memory="peak"`` lifetimes are not in the
    program: its bound holds all the same, and what does not fit is refused by the evaluator.

    Leaves on Ctrl-C and at the end of the budget, as everything that runs in a :class:`Search`.
    """
    problem = search.problem
    assert isinstance(problem.model, Concurrent)
    assert search.best is not None, "a first placement is the horizon"
    seconds = min(seconds, search.seconds_left)
    if not problem.n or not search.cost > 0 or seconds <= 0 or too_large_to_schedule(problem):
        return False
    scale = 2.0 ** math.floor(math.log2(TICKS / search.cost))
    program = schedule_program(
        problem, scale, math.floor(search.cost * scale), math.floor(search.bound.value * scale)
    )
    program.hint(*_sequence(problem, search.best))

    def placement_of(solution: cp_model.CpSolverSolutionCallback) -> Placement:
        device, order = program.read(solution)
        return Placement(device, order=order)

    def note(bound: float) -> None:
        if bound > 0:
            note_bound(search, bound / scale, "CP-SAT schedule")

    finished = follow_cp_sat(
        search, program.model, placement_of, note, seconds=seconds, workers=workers, seed=seed
    )
    search.check()
    # With memory="peak" the best schedule of the program may not fit: then nothing is proved of what does.
    assert isinstance(problem.model, Concurrent)
    closed = relative_gap(search.cost, search.bound.value) <= OPTIMAL_GAP
    return finished and (problem.model.memory == "sum" or closed)


def _sequence(problem: Problem, placement: Placement) -> tuple[IntArray, IntArray]:
    """(n,) devices of a placement, and the ops in the order in which they start."""
    detail = evaluate(problem, placement)
    assert detail.start is not None
    assert detail.end is not None
    rank = np.empty(problem.n, np.int64)
    rank[problem.priority_order] = np.arange(problem.n)
    order = rank if placement.order is None else np.argsort(np.lexsort((rank, placement.order)))
    begun = np.lexsort((order, detail.end, detail.start))
    return placement.device, _topological(problem, begun)


def _topological(problem: Problem, begun: npt.NDArray[np.intp]) -> IntArray:
    """The same sequence where it is topological; ops that take no time may need to change places."""
    place = np.empty(problem.n, np.int64)
    place[begun] = np.arange(problem.n)
    tail, head = problem.graph.arcs
    if (place[tail] < place[head]).all():
        return begun.astype(np.int32)
    return problem.priority_order
