"""CP-SAT scheduling for the ``concurrent`` model: placements with their order, and a proof."""

from __future__ import annotations

import math
import queue
import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from ortools.sat.python import cp_model

from loadmaster.arrays import IntArray
from loadmaster.placers.frame.search import Search
from loadmaster.placers.search._incumbents import note_bound
from loadmaster.placers.solvers.concurrent.program import Program, schedule_program
from loadmaster.problem import Concurrent, Placement, Problem
from loadmaster.problem._evaluator import evaluate
from loadmaster.problem._placement import OPTIMAL_GAP, relative_gap

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
    return _Run(search, program, scale, seconds, workers, seed).follow()


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


@dataclass
class _Event:
    """What the solver's threads tell the main one."""

    device: IntArray | None = None
    order: IntArray | None = None
    bound: float = -math.inf
    done: bool = False


class _Run(cp_model.CpSolverSolutionCallback):
    """The solver works in a thread of its own, so that the main one can look after the budget and Ctrl-C."""

    def __init__(
        self, search: Search, program: Program, scale: float, seconds: float, workers: int, seed: int
    ) -> None:
        super().__init__()
        self._search, self._program, self._scale = search, program, scale
        self._events: queue.Queue[_Event] = queue.Queue()
        self._solver = cp_model.CpSolver()
        settings = self._solver.parameters
        settings.num_workers = workers
        settings.random_seed = seed % 2**31
        settings.catch_sigint_signal = False
        if math.isfinite(seconds):
            settings.max_time_in_seconds = seconds
        self._solver.best_bound_callback = lambda bound: self._events.put(_Event(bound=bound))
        self._status: Any = None
        self._failure: BaseException | None = None

    def on_solution_callback(self) -> None:
        """Called by the solver, in any of its threads."""
        device, order = self._program.read(self)
        self._events.put(_Event(device=device, order=order))

    def _solve(self) -> None:
        try:
            self._status = self._solver.solve(self._program.model, self)
        except BaseException as error:  # raised again in the main thread
            self._failure = error
        self._events.put(_Event(done=True))

    def follow(self) -> bool:
        """Solve, and pass on what is found while it is found."""
        thread = threading.Thread(target=self._solve, daemon=True)
        thread.start()
        try:
            while True:
                try:
                    event = self._events.get(timeout=0.05)
                except queue.Empty:
                    self._search.check()
                    continue
                if event.done:
                    break
                self._note(event)
                self._search.check()
        finally:
            self._solver.stop_search()
            thread.join()
        if self._failure is not None:
            raise self._failure
        if self._status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            self._note(_Event(bound=self._solver.best_objective_bound))
        self._search.check()
        if self._status != cp_model.OPTIMAL:
            return False
        # With memory="peak" the best schedule of the program may not fit: then nothing is proved of what does.
        model = self._search.problem.model
        assert isinstance(model, Concurrent)
        gap = relative_gap(self._search.cost, self._search.bound.value)
        return model.memory == "sum" or gap <= OPTIMAL_GAP

    def _note(self, event: _Event) -> None:
        if event.device is not None:
            self._search.try_placement(Placement(event.device, order=event.order))
        if event.bound > 0:
            note_bound(self._search, event.bound / self._scale, "CP-SAT schedule")
