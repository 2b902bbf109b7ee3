"""Better placements by dividing the classes of two devices anew, optimally: a move that no sequence of small
moves replaces.

With all other classes where they are, a dynamic program over the states of the two devices' classes
(``columns/_states.py``) finds the least load of one device for every limit on the load of the other. The
descent divides the most loaded device with each other one until nothing helps; then a few pairs are divided
under falsified costs, and it begins again from there (iterated local search).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from loadmaster.arrays import FloatArray, IntArray
from loadmaster.placers.columns._nets import Bundles, Kind, loads_of
from loadmaster.placers.columns._pricing import best_bundle, grid_of, least_others, new_table
from loadmaster.placers.columns._states import split_states
from loadmaster.problem import Problem

__all__ = ["Exchange"]


STATES = 100_000
"""A pair of devices with more states than this is left alone."""
STEPS = 2000
"""Steps of the grid of loads."""


class Exchange:
    """An iterated search; :meth:`best` and :attr:`cost` are what it has found so far.

    The cost is the largest load, for the objective ``sum`` with ``comm="sum"`` and without contiguity; memory
    capacities are kept.
    """

    def __init__(
        self, problem: Problem, bundles: Bundles, order: IntArray, device: IntArray, seed: int
    ) -> None:
        self._problem = problem
        self._bundles = bundles
        self._order = order
        self._rng = np.random.default_rng(seed)
        self._kind: list[Kind | None] = [None] * problem.devices
        for kind in bundles.kinds:
            for d in kind.devices.tolist():
                self._kind[d] = kind
        self._usable = np.array([d for d, kind in enumerate(self._kind) if kind is not None])
        self._count = 0
        self.restart(device)

    def restart(self, device: IntArray) -> None:
        """Go on from a placement."""
        ptr, member = self._problem.members
        self.at = device[member[ptr[:-1]]].astype(np.int32)
        """(classes,) the best devices so far."""
        self._loads = self._all_loads(self.at)
        self.cost = float(self._loads.max(initial=0.0))

    def best(self) -> IntArray:
        """(n,) the best placement so far."""
        return self.at[self._problem.class_of]

    def run(self, tell: Callable[[int], bool]) -> None:
        """Search on until ``tell`` (called with the number of pairs divided since it was last called)
        returns False."""
        at, loads = self.at.copy(), self._loads.copy()
        while len(self._usable) > 1:
            at, loads = self._descend(at, loads)
            if float(loads.max()) < self.cost * (1.0 - 1e-12):
                self.at, self._loads, self.cost = at.copy(), loads.copy(), float(loads.max())
            self._count, made = 0, self._count
            if not tell(max(made, 1)):
                return
            at, loads = self._kicked(self.at.copy())

    def _all_loads(self, at: IntArray) -> FloatArray:
        loads = np.zeros(self._problem.devices)
        for d, kind in enumerate(self._kind):
            if kind is not None:
                loads[d] = loads_of(self._bundles, kind, at == d)[0]
        return loads

    def _descend(self, at: IntArray, loads: FloatArray) -> tuple[IntArray, FloatArray]:
        """Divide the most loaded device with each other one, until that changes nothing."""
        while True:
            i = int(loads.argmax())
            for j in self._rng.permutation(self._usable[self._usable != i]).tolist():
                limit = float(loads[i])
                divided = self._divide(at, i, j, limit)
                if divided is None:
                    continue
                after = self._all_loads(divided)
                if max(after[i], after[j]) < limit * (1.0 - 1e-9):
                    at, loads = divided, after
                    break
            else:
                return at, loads

    def _kicked(self, at: IntArray) -> tuple[IntArray, FloatArray]:
        """Divide a few random pairs under falsified costs."""
        rng = self._rng
        for _ in range(int(rng.integers(1, 4))):
            i, j = rng.choice(self._usable, 2, replace=False).tolist()
            divided = self._divide(at, i, j, 1.2 * self.cost, spread=0.1)
            if divided is not None:
                at = divided
        return at, self._all_loads(at)

    def _divide(self, at: IntArray, i: int, j: int, limit: float, *, spread: float = 0.0) -> IntArray | None:
        """The classes of i and j divided so that the larger load is least; None if both cannot stay within
        the limit."""
        self._count += 1
        first, second = self._kind[i], self._kind[j]
        assert first is not None
        assert second is not None
        if spread:
            ops = np.exp(spread * self._rng.standard_normal(self._bundles.classes))
            nets = np.exp(5 * spread * self._rng.standard_normal(len(self._bundles.producer)))
            first = Kind(first.devices, first.time * ops, first.send * nets, first.recv * nets)
            second = Kind(second.devices, second.time * ops, second.send * nets, second.recv * nets)
        member = (at == i) | (at == j)
        if limit <= 0.0 or not member.any():
            return None
        states = split_states(self._bundles, self._order, member, (first, second), (limit, limit), STATES)
        if states is None:
            return None
        grid = grid_of(states, limit, STEPS, tries=1)
        table = new_table(states, grid)
        values = least_others(states, table)
        larger = np.maximum(np.arange(len(values)) * grid.step, -values)
        middle = int(larger.argmin())
        best, least = None, np.inf
        # Rounding hides the exact loads, so the budgets around the best one are tried.
        for budget in range(max(middle - 6, 0), min(middle + 4, len(values))):
            if np.isfinite(values[budget]):
                path = best_bundle(states, table, budget)
                loads = float(states.load[path].sum()), float(states.other[path].sum())
                worth = max(loads) + 1e-3 * sum(loads)
                if worth < least:
                    best, least = path, worth
        if best is None:
            return None
        divided = at.copy()
        divided[states.order] = np.where(states.taken[best] == 1, i, j)
        return divided if self._fits(divided, i, j) else None

    def _fits(self, at: IntArray, i: int, j: int) -> bool:
        problem = self._problem
        return all(problem.class_memory[at == d].sum() <= problem.capacity[d] for d in (i, j))
