"""The best bundle for one device under given prices: a dynamic program over states and a grid of loads.

For prices π (one per class) and a load price λ >= 0 the program maximises

    π(S) - λ · load(S)   over the bundles S with   Σ floor(load of a decision / δ) <= g,   for every g = 0 … G at once.

Every bundle with a load of at most T satisfies the constraint for g = floor(T / δ), so the maximum plus λT is an upper bound on
π(S) over these bundles, whatever λ is: the grid relaxes the limit on the load, and λ takes back most of what the floors give away.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from loadmaster.placers._frontier_states import States

__all__ = ["Grid", "Table", "best_bundle", "best_values", "grid_of", "new_table"]

IntArray = npt.NDArray[np.int32]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


class Grid(NamedTuple):
    """Loads in whole steps of ``step`` seconds, rounded down.

    shift : (arcs,) what an arc adds.
    low, high : (states,) the range of budgets that matter at a state: no path needs less, none to the end allows more.
    first : (states + 1,) where a state's range begins in a table.
    """

    step: float
    size: int
    shift: IntArray
    low: IntArray
    high: IntArray
    first: npt.NDArray[np.int64]

    @property
    def cells(self) -> int:
        """Number of (state, budget) pairs."""
        return int(self.first[-1])


class Table(NamedTuple):
    """Values of all (state, budget) pairs, for tracing bundles back."""

    grid: Grid
    value: FloatArray
    gain: FloatArray


def grid_of(states: States, limit: float, size: int) -> Grid:
    """A grid of about ``size`` steps up to ``limit`` seconds.

    The step is the one, within three percent, that the floors lose least on: many ops cost the same.
    """
    load = states.load[states.load > 0]
    best, least = limit / size, np.inf
    for tried in limit / size * np.linspace(0.97, 1.03, 41) if size > 1 and len(load) else ():
        lost = float((load - tried * np.floor(load * (1 - 1e-12) / tried)).sum())
        if lost < least:
            best, least = float(tried), lost
    return _grid(states, best, limit)


def _grid(states: States, step: float, limit: float) -> Grid:
    # The factor makes up for a division that rounds up to a whole number.
    shift = np.floor(states.load * ((1.0 - 1e-12) / step)).astype(np.int32)
    size = int(np.floor(limit / step)) + 1
    low, high, first = _ranges(states.layer, states.arc_ptr, states.source, shift, size)
    return Grid(step, size, shift, low, high, first)


@njit(cache=True, nogil=True)
def _ranges(layer, arc_ptr, source, shift, size):  # type: ignore[no-untyped-def]
    states = len(arc_ptr) - 1
    far = np.int32(1 << 30)
    low, rest = np.full(states, far, np.int32), np.full(states, far, np.int32)
    low[0] = rest[states - 1] = 0
    for s in range(1, states):
        for a in range(arc_ptr[s], arc_ptr[s + 1]):
            low[s] = min(low[s], low[source[a]] + shift[a])
    for s in range(states - 1, 0, -1):
        for a in range(arc_ptr[s], arc_ptr[s + 1]):
            rest[source[a]] = min(rest[source[a]], rest[s] + shift[a])
    first = np.zeros(states + 1, np.int64)
    high = np.empty(states, np.int32)
    for s in range(states):
        high[s] = max(size - rest[s], low[s] - 1)
        first[s + 1] = first[s] + high[s] - low[s] + 1
    return low, high, first


def new_table(states: States, grid: Grid) -> Table:
    """Room for the values of a grid."""
    return Table(grid, np.empty(grid.cells), np.empty(len(states.load)))


def best_values(states: States, table: Table, prices: FloatArray, load_price: float) -> FloatArray:
    """(grid size + 1,) the best value for every budget; fills the table."""
    grid = table.grid
    _gains(states.layer, states.arc_ptr, states.order, states.taken, states.load, prices, load_price, table.gain)
    _fill(states.arc_ptr, states.source, grid.shift, table.gain, grid.low, grid.high, grid.first, table.value)
    return table.value[grid.first[-2] :]


@njit(cache=True, nogil=True)
def _gains(layer, arc_ptr, order, taken, load, prices, load_price, gain):  # type: ignore[no-untyped-def]
    for i in range(len(order)):
        price = prices[order[i]]
        for a in range(arc_ptr[layer[i + 1]], arc_ptr[layer[i + 2]]):
            gain[a] = taken[a] * price - load_price * load[a]


@njit(cache=True, nogil=True)
def _fill(arc_ptr, source, shift, gain, low, high, first, value):  # type: ignore[no-untyped-def]
    """value[first[s] + g - low[s]]: the best gain of a path to s with budget g. O(arcs · budgets)."""
    value[first[0] : first[1]] = 0.0
    for s in range(1, len(low)):
        value[first[s] : first[s + 1]] = -np.inf
        for a in range(arc_ptr[s], arc_ptr[s + 1]):
            q = source[a]
            begin = max(low[s], low[q] + shift[a])
            end = min(high[s], high[q] + shift[a]) + 1
            if end > begin:
                into = value[first[s] + begin - low[s] : first[s] + end - low[s]]
                out = value[first[q] + begin - shift[a] - low[q] : first[q] + end - shift[a] - low[q]]
                _relax(into, out, gain[a])


@njit(cache=True, nogil=True)
def _relax(into, out, gain):  # type: ignore[no-untyped-def]
    for g in range(len(into)):
        candidate = out[g] + gain
        into[g] = candidate if candidate > into[g] else into[g]


def best_bundle(states: States, table: Table, budget: int) -> BoolArray:
    """(classes,) the bundle that attains the best value for a budget (in grid steps)."""
    grid = table.grid
    taken: BoolArray = np.zeros(len(states.order), np.bool_)
    _trace(
        states.layer, states.arc_ptr, states.source, states.taken, states.order, grid.shift, table.gain, grid.low,
        grid.high, grid.first, table.value, min(budget, grid.size), taken,
    )  # fmt: skip
    return taken


@njit(cache=True, nogil=True)
def _trace(layer, arc_ptr, source, taken, order, shift, gain, low, high, first, value, budget, inside):  # type: ignore[no-untyped-def]
    s, g = len(low) - 1, budget
    for i in range(len(order) - 1, -1, -1):
        best, best_arc, best_budget = -np.inf, -1, 0
        for a in range(arc_ptr[s], arc_ptr[s + 1]):
            q = source[a]
            b = min(g - shift[a], high[q])
            if b >= low[q]:
                candidate = value[first[q] + b - low[q]] + gain[a]
                if candidate > best:
                    best, best_arc, best_budget = candidate, a, b
        inside[order[i]] = taken[best_arc] == 1
        s, g = source[best_arc], best_budget
