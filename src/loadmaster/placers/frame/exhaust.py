"""Every placement of a small problem: what no search has to guess, and a proof."""

from __future__ import annotations

import math

import numpy as np

from loadmaster.arrays import IntArray
from loadmaster.errors import InfeasibleError
from loadmaster.placers.frame.atoms import Atoms, atoms_of
from loadmaster.placers.frame.enumeration import MOST, Rows, placements_of
from loadmaster.placers.frame.search import Search
from loadmaster.problem import Concurrent, Offload, Pipeline, Placement, Problem, SimulatedEvaluator
from loadmaster.problem.bounds import Bound

__all__ = ["MOST", "exhaust", "placements_of"]

ROWS = 8192
"""Placements between two looks at the clock."""
CALLED = 64
"""Likewise, where every one is tried with all calls."""


def exhaust(search: Search, *, small: bool = True) -> bool:
    """Evaluate every placement, if they are few and the budget has room for all; True if there is no better one.

    ``small=False`` begins however many there are, and ends with the budget. Calls of ``offload`` are enumerated with
    the devices, as long as both together are few. The orders of stages and those that a placement may bring under
    ``concurrent`` are not: there the best devices are found, but nothing is proved.

    Raises
    ------
    InfeasibleError : no placement is feasible.
    """
    problem = search.problem
    count = placements_of(problem)
    if small and (
        not search.simulated or count > MOST or search.evaluations_left < count or search.budget.seconds == 0
    ):
        return False
    atoms = atoms_of(problem)
    free_calls = isinstance(problem.model, Offload) and problem.model.max_calls > 1
    several = free_calls and search.simulated and _with_calls(problem, atoms) <= MOST
    rows = Rows(problem)
    # One evaluation is kept for a placement that is known to be feasible, as long as none has been met.
    while (room := search.evaluations_left - (search.best is None)) > 0:
        device = rows.next(int(min(CALLED if several else ROWS if search.simulated else 1, room)))
        if not len(device):
            break
        _offer_best(search, device, several)
        search.tell()
        if search.best is not None:
            search.check()
    else:
        return False
    # Stages of a step may come in an order of their own, too.
    free = isinstance(problem.model, Concurrent) or _is_step(problem)
    whole = search.simulated and (several or not (free_calls or free))
    if search.best is None and whole:
        raise InfeasibleError(
            f"none of the {int(count):,} placements that pins, forbids and colocation allow satisfies all constraints"
        )
    if whole:
        search.bound = Bound(search.cost, "enumeration")
    return whole


def _is_step(problem: Problem) -> bool:
    return isinstance(problem.model, Pipeline) and problem.model.microbatches > 0


def _offer_best(search: Search, device: IntArray, several: bool) -> None:
    """Evaluate (rows, n) devices, with all calls if there may be ``several``, and keep the best feasible placement."""
    calls: IntArray | None = None
    if not search.simulated:
        cost, feasible = search.evaluator.evaluate_batch(device)
        for i in np.flatnonzero(feasible).tolist():
            search.offer(Placement(device[i].copy()), float(cost[i]))
        return
    check = SimulatedEvaluator(search.problem)
    if several:
        cost, calls = check.best_calls(device)
    else:
        cost, ok = check.costs(device)
        cost = np.where(ok, cost, math.inf)
    search.count(len(device))
    for i in np.argsort(cost, kind="stable").tolist():
        if not cost[i] < search.cost:
            return
        # Capacities were looked at with a little slack: the evaluator has the last word.
        before = search.cost
        call = None if calls is None else calls[i].copy()
        search.confirm(Placement(device[i].copy(), call=call), float(cost[i]))
        if search.cost < before:
            return


def _with_calls(problem: Problem, atoms: Atoms) -> float:
    """How many placements there are where every op on an accelerator has a call, too."""
    assert isinstance(problem.model, Offload)
    size = np.bincount(atoms.of_op, minlength=atoms.count)[:, None]
    ways = np.where(problem.pool, 1.0, np.float64(problem.model.max_calls) ** np.minimum(size, 64))
    with np.errstate(over="ignore"):
        return float(np.prod((ways * atoms.allowed).sum(axis=1)))
