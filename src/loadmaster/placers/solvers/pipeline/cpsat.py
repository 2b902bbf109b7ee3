"""CP-SAT on the 0/1 program of pipelined throughput (``program.py``)."""

from __future__ import annotations

import queue
import threading
from typing import Any

import numpy as np
import numpy.typing as npt
from ortools.sat.python import cp_model

from loadmaster.placers.solvers._solving import Found, Proved, drained
from loadmaster.placers.solvers.pipeline.program import Program
from loadmaster.problem import Placement, Problem

__all__ = ["CpSatLoads"]


UNITS = 2**36
"""The known cost in whole units. Costs are rounded down, so that a proven bound is one; a load of a thousand
parts then loses 1.5e-8 of itself."""


class CpSatLoads:
    """Runs CP-SAT in a thread (its own threads do the work).

    Each start and each much better placement from elsewhere begins a new solve, with that placement as hint:
    CP-SAT takes no solutions while it runs.
    """

    name = "cp-sat"

    def __init__(self, problem: Problem, program: Program, workers: int, seed: int) -> None:
        self.problem, self.program = problem, program
        self.workers, self.seed = workers, seed
        self._news: queue.SimpleQueue[Found | Proved] = queue.SimpleQueue()
        self._solver: cp_model.CpSolver | None = None
        self._lock = threading.Lock()
        self._best: tuple[Placement, float] | None = None
        self._renewed = False
        self._stopped = False
        self._thread: threading.Thread | None = None

    @property
    def running(self) -> bool:
        """Whether the thread is alive."""
        return self._thread is not None and self._thread.is_alive()

    def start(self, placement: Placement, cost: float, seconds: float) -> None:
        """Begin in a thread."""
        self._best = (placement, cost)
        self._thread = threading.Thread(target=self._run, args=(seconds,), name="cp-sat", daemon=True)
        self._thread.start()

    def share(self, placement: Placement, cost: float) -> None:
        """Begin anew from a better placement."""
        with self._lock:
            if self._best is None or cost < self._best[1]:
                self._best, self._renewed = (placement, cost), True
                if self._solver is not None:
                    self._solver.stop_search()

    def news(self) -> list[Found | Proved]:
        """What the callbacks left."""
        return drained(self._news)

    def stop(self) -> None:
        """Stop the search and wait for the thread."""
        with self._lock:
            self._stopped = True
            if self._solver is not None:
                self._solver.stop_search()
        if self._thread is not None:
            self._thread.join()

    def _run(self, seconds: float) -> None:
        again = True
        while again and not self._stopped:
            with self._lock:
                assert self._best is not None
                (placement, cost), self._renewed = self._best, False
            self._solve(placement, cost, seconds)
            with self._lock:
                again = self._renewed

    def _solve(self, placement: Placement, cost: float, seconds: float) -> None:
        unit = cost / UNITS if cost > 0.0 else 1.0
        model, x = _model_of(self.program, unit, cost)
        ptr, member = self.problem.members
        known = self.program.assignment(placement.device[member[ptr[:-1]]])
        for variable, value in zip(x, known.tolist(), strict=True):
            model.add_hint(variable, value)
        solver = cp_model.CpSolver()
        parameters = solver.parameters
        parameters.num_workers = self.workers
        parameters.random_seed = self.seed % 2**31
        parameters.catch_sigint_signal = False
        if np.isfinite(seconds):
            parameters.max_time_in_seconds = max(seconds, 0.0)

        def prove(value: float) -> None:
            # CP-SAT tells its integer bound as a double; one unit covers what that may round away.
            self._news.put(Proved((value - 1.0) * unit * (1.0 - 1e-12)))

        solver.best_bound_callback = prove
        with self._lock:
            if self._stopped:
                return
            self._solver = solver
        status = solver.solve(model, _Callback(self, x))
        with self._lock:
            self._solver = None
        if status == cp_model.INFEASIBLE:
            self._news.put(Proved(cost))
        elif status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            prove(float(solver.best_objective_bound))

    def found(self, values: npt.NDArray[np.bool_]) -> None:
        """Pass on an assignment of the binaries."""
        device = self.program.placement(values)[self.problem.class_of]
        self._news.put(Found(Placement(device)))


class _Callback(cp_model.CpSolverSolutionCallback):
    def __init__(self, owner: CpSatLoads, x: list[Any]) -> None:
        super().__init__()
        self.owner, self.x = owner, x

    def on_solution_callback(self) -> None:
        self.owner.found(np.array([self.boolean_value(v) for v in self.x], np.bool_))


def _model_of(program: Program, unit: float, upper: float) -> tuple[Any, list[Any]]:
    """The model in whole units: costs rounded down, memories rounded in favour of feasibility."""
    model = cp_model.CpModel()
    x = [model.new_bool_var("") for _ in range(program.variables)]
    most = int(upper / unit) + 1
    terms = [model.new_int_var(0, most, "") for _ in range(program.terms)]
    for begin, end in zip(program.choice_ptr[:-1].tolist(), program.choice_ptr[1:].tolist(), strict=True):
        model.add_exactly_one([x[v] for v in program.choice[begin:end].tolist()])
    literals = [x[v] if v >= 0 else ~x[~v] for v in program.clause.tolist()]
    for begin, end in zip(program.clause_ptr[:-1].tolist(), program.clause_ptr[1:].tolist(), strict=True):
        model.add_bool_or(literals[begin:end])
    cost = np.floor(program.load_cost / unit).astype(np.int64).tolist()
    chosen = [x[v] for v in program.load_var.tolist()]
    weighted: Any = cp_model.LinearExpr.weighted_sum
    for row, term in enumerate(program.load_term.tolist()):
        begin, end = int(program.load_ptr[row]), int(program.load_ptr[row + 1])
        model.add(weighted(chosen[begin:end], cost[begin:end]) <= terms[term])
    for row, limit in enumerate(program.memory_limit.tolist()):
        begin, end = int(program.memory_ptr[row]), int(program.memory_ptr[row + 1])
        size = program.memory_size[begin:end]
        step = max(limit, float(size.max(initial=0.0)), 1e-300) / 2**40
        whole = np.floor(size / step).astype(np.int64).tolist()
        held = [x[v] for v in program.memory_var[begin:end].tolist()]
        model.add(weighted(held, whole) <= int(limit / step) + 1)
    total = weighted(terms, [1] * len(terms))
    model.add(total <= most)
    model.minimize(total)
    return model, x
