"""One program given to CP-SAT, and what it finds passed on to a search while it is found."""

from __future__ import annotations

import math
import queue
import threading
from collections.abc import Callable
from typing import Any

from ortools.sat.python import cp_model

from loadmaster.placers.frame.search import Search
from loadmaster.problem import Placement

__all__ = ["follow_cp_sat"]

SHORTEST = 0.01
"""Seconds that CP-SAT has at least."""


def follow_cp_sat(
    search: Search,
    model: cp_model.CpModel,
    placement_of: Callable[[cp_model.CpSolverSolutionCallback], Placement],
    note: Callable[[float], None],
    *,
    seconds: float,
    workers: int,
    seed: int,
) -> bool:
    """Solve, trying every placement and noting every bound (in the units of the model's objective); True if CP-SAT
    finished with a proof.

    CP-SAT works in a thread of its own, so that this one can look after the budget and Ctrl-C.
    """
    solver = cp_model.CpSolver()
    settings = solver.parameters
    settings.num_workers = workers
    settings.random_seed = seed % 2**31
    settings.catch_sigint_signal = False
    if math.isfinite(seconds):
        settings.max_time_in_seconds = max(seconds, SHORTEST)
    news: queue.Queue[Placement | float | None] = queue.Queue()
    solver.best_bound_callback = news.put
    listener = _Listener(placement_of, news)
    status: Any = None
    failure: BaseException | None = None

    def solve() -> None:
        nonlocal status, failure
        try:
            status = solver.solve(model, listener)
        except BaseException as error:  # raised again below
            failure = error
        news.put(None)

    thread = threading.Thread(target=solve, daemon=True)
    thread.start()
    try:
        while True:
            try:
                event = news.get(timeout=0.05)
            except queue.Empty:
                search.check()
                continue
            if event is None:
                break
            if isinstance(event, Placement):
                search.try_placement(event)
            else:
                note(event)
            search.check()
    finally:
        solver.stop_search()
        thread.join()
    if failure is not None:
        raise failure
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        note(solver.best_objective_bound)
    return bool(status == cp_model.OPTIMAL)


class _Listener(cp_model.CpSolverSolutionCallback):
    """Called by the solver, in any of its threads."""

    def __init__(
        self,
        placement_of: Callable[[cp_model.CpSolverSolutionCallback], Placement],
        news: queue.Queue[Placement | float | None],
    ) -> None:
        super().__init__()
        self._placement_of, self._news = placement_of, news

    def on_solution_callback(self) -> None:
        self._news.put(self._placement_of(self))
