"""Every placement of a small problem: what no search has to guess, and a proof."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from loadmaster.arrays import IntArray
from loadmaster.errors import InfeasibleError
from loadmaster.placers.frame.feasible import Atoms, atoms_of
from loadmaster.placers.frame.search import Search
from loadmaster.problem import Concurrent, Offload, Placement, Problem, SimulatedEvaluator
from loadmaster.problem.bounds import Bound

__all__ = ["MOST", "exhaust", "placements_of"]

MOST = 1_000_000
"""Placements up to which a problem counts as small."""
ROWS = 8192
"""Placements between two looks at the clock."""
CALLED = 64
"""Likewise, where every one is tried with all calls."""


def placements_of(problem: Problem) -> float:
    """How many placements respect support, pins, forbids and colocation (memory and contiguity not counted).

    >>> # 12 ops on 3 devices, nothing pinned: 3 ** 12 = 531,441
    """
    with np.errstate(over="ignore"):
        return float(np.prod(atoms_of(problem).allowed.sum(axis=1), dtype=np.float64))


def exhaust(search: Search, *, small: bool = True) -> bool:
    """Evaluate every placement, if they are few and the budget has room for all; True if there is no better one.

    ``small=False`` begins however many there are, and ends with the budget. Calls of ``offload`` are enumerated with
    the devices, as long as both together are few. The orders that a placement may bring under ``concurrent`` are not:
    there the best devices are found, but nothing is proved.

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
    rows = _Rows(problem, atoms)
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
    whole = search.simulated and (several or not (free_calls or isinstance(problem.model, Concurrent)))
    if search.best is None and whole:
        raise InfeasibleError(
            f"none of the {int(count):,} placements that pins, forbids and colocation allow satisfies all constraints"
        )
    if whole:
        search.bound = Bound(search.cost, "enumeration")
    return whole


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


class _Rows:
    """All placements of a problem that memory may allow, in batches of (rows, n) devices."""

    def __init__(self, problem: Problem, atoms: Atoms) -> None:
        self._order = np.argsort(-atoms.memory, kind="stable").astype(np.int32)
        self._of_op = atoms.of_op
        self._allowed = atoms.allowed
        self._memory = atoms.memory
        self._room = problem.capacity * (1 + 1e-9)
        self._at = np.full(atoms.count, -1, np.int32)
        self._used = np.zeros(problem.devices)
        self._depth = 0
        self._empty = atoms.count == 0

    def next(self, rows: int) -> IntArray:
        """At most so many more; none when all have been made."""
        if self._empty:
            self._empty = self._depth < 0
            self._depth = -1
            return np.zeros((0 if self._empty else 1, 0), np.int32)
        found = np.empty((rows, len(self._at)), np.int32)
        made, self._depth = _fill(
            self._order, self._allowed, self._memory, self._room, self._at, self._used, self._depth, found
        )
        return np.ascontiguousarray(found[:made][:, self._of_op])


@njit(cache=True, nogil=True)
def _fill(order, allowed, memory, room, at, used, depth, found):  # type: ignore[no-untyped-def]
    """Depth-first over the atoms; goes on from ``at`` and ``depth`` (-1: all done) and fills rows of ``found``."""
    made, devices = 0, allowed.shape[1]
    while depth >= 0 and made < len(found):
        a = order[depth]
        d = at[a]
        if d >= 0:
            used[d] -= memory[a]
        d += 1
        while d < devices and not (allowed[a, d] and used[d] + memory[a] <= room[d]):
            d += 1
        if d == devices:
            at[a] = -1
            depth -= 1
            continue
        at[a] = d
        used[d] += memory[a]
        if depth + 1 == len(order):
            found[made] = at
            made += 1
        else:
            depth += 1
    return made, depth
