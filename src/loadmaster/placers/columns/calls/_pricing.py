"""The best calls of one accelerator under given worths of the classes.

For worths w (one per class) and a line P, the value of a call S is w(S) - seconds(S); the dynamic program of
``columns/_pricing.py`` finds the best call within every budget of memory at once, rounded so that it never
misses one. An accelerator may make several calls that share its memory: the best ``max_calls`` of them follow
from the values by budget. Calls of one accelerator may overlap here, which real ones may not: a relaxation.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from loadmaster.arrays import BoolArray, FloatArray, IntArray
from loadmaster.placers.columns._pricing import (
    Grid,
    Table,
    best_bundle,
    best_values,
    exact_bundle,
    grid_of,
    new_table,
)
from loadmaster.placers.columns._states import States

__all__ = ["Choice", "Pricing"]


FEWEST_STATES = 1000


class Choice(NamedTuple):
    """Calls of one accelerator.

    inside : (calls, classes).
    seconds : what they take together.
    """

    inside: BoolArray
    seconds: float


class Pricing:
    """Prices the calls of one kind of accelerator."""

    def __init__(self, states: States, capacity: float, calls: int, cells: int) -> None:
        self.states = states
        self.capacity = capacity if np.isfinite(capacity) else 0.5
        self.calls = calls
        self.usage = np.full(len(states.load), 1e-3)
        self.limited = bool(states.load.any())
        self.classes = len(states.order)
        self.regrid(cells)

    def regrid(self, cells: int) -> None:
        """A grid of memory for the present usage, with about so many cells."""
        size = max(64, min(cells // max(self.states.total, FEWEST_STATES), 20_000)) if self.limited else 1
        self.grid: Grid = grid_of(self.states, self.capacity * (1.0 + 1e-8), size, self.usage)
        self.table: Table = new_table(self.states, self.grid)

    def use(self, inside: BoolArray, weight: float) -> None:
        """Let the rounding of a call's memory matter more."""
        path = self.states.path(inside)
        if path is not None:
            self.usage[path] += weight

    def price(self, worth: FloatArray, effort: int) -> tuple[float, list[Choice]]:
        """(most, choices): no calls of one accelerator are worth more than ``most`` >= 0; the best found.

        With one call, a best-first search of ``effort`` steps makes up for the rounding of memory.
        """
        states, table = self.states, self.table
        values = best_values(states, table, worth, 1.0, states.other)
        budget = table.grid.size
        if self.calls == 1:
            most, path = exact_bundle(states, table, self.capacity, effort)
            if not len(path):
                path = best_bundle(states, table, budget)
                while budget > 0 and states.load[path].sum() > self.capacity:
                    budget = int(0.99 * budget)
                    path = best_bundle(states, table, budget)
            return max(most, 0.0), [self._choice([path])] if most > 0.0 else []
        values = np.maximum(values, 0.0)
        most, budgets = _several(values, self.calls)
        paths = [best_bundle(states, table, int(b)) for b in budgets if values[b] > 0.0]
        return float(most), [self._choice(paths)] if paths else []

    def _choice(self, paths: list[IntArray]) -> Choice:
        inside = np.stack([self.states.inside(path, self.classes) for path in paths])
        return Choice(inside, float(sum(self.states.other[path].sum() for path in paths)))


@njit(cache=True, nogil=True)
def _several(values, calls):  # type: ignore[no-untyped-def]
    """The best sum of ``calls`` values whose budgets add up to at most the largest, and the budgets.

    ``values`` never falls. O(calls · budgets²), on the budgets at which it rises.
    """
    size = len(values)
    rises = np.zeros(size, np.int64)
    steps = 1
    for g in range(1, size):
        if values[g] > values[g - 1]:
            rises[steps] = g
            steps += 1
    best = np.zeros((calls + 1, size))
    chosen = np.zeros((calls + 1, size), np.int64)
    for c in range(1, calls + 1):
        last = size - 1 if c == calls else 0
        for g in range(last, size):
            for i in range(steps):
                b = rises[i]
                if b > g:
                    break
                value = best[c - 1, g - b] + values[b]
                if value > best[c, g]:
                    best[c, g] = value
                    chosen[c, g] = b
    budgets = np.zeros(calls, np.int64)
    g = size - 1
    for c in range(calls, 0, -1):
        budgets[c - 1] = chosen[c, g]
        g -= chosen[c, g]
    return best[calls, size - 1], budgets
