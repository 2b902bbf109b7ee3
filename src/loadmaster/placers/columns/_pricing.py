"""The best bundle for one device under given prices: a dynamic program over states and a grid of loads.

For prices π (one per class) and a load price λ >= 0 the program maximises

    π(S) - λ · load(S)   over the bundles S with   grid load(S) <= g,   for every g = 0 … G at once,

where the grid load of a bundle is a whole number of at most load(S) / δ. Every bundle with a load of at most
T has a grid load of at most T / δ, so the maximum plus λT is an upper bound on π(S) over these bundles,
whatever λ is: the grid relaxes the limit on the load, and λ takes back some of what rounding down gives away.

Rounding down each decision would give away half a step per decision. Instead every state s gets an offset
φ(s) in [0, 1), 0 at both ends, and an arc from q to s counts floor(load / δ + φ(q) - φ(s)) steps: along a
path the offsets cancel, so that the sum is a relaxation for any offsets, and an arc with φ(s) = load / δ +
φ(q) modulo 1 loses nothing. A state chooses its offset so that the arcs which good bundles use lose least; a
bundle then pays for its changes of mind and not for its size.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from loadmaster.arrays import FloatArray, IntArray
from loadmaster.placers.columns._states import States

__all__ = [
    "Grid",
    "Table",
    "best_bundle",
    "best_values",
    "exact_bundle",
    "grid_of",
    "least_others",
    "new_table",
]


ROUNDING = 1e-9
"""What the floor of an arc may be too high by, in steps; budgets make up for it."""


class Grid(NamedTuple):
    """Loads in whole steps of ``step`` seconds.

    step : δ, seconds.
    size : G, the largest budget.
    slack : what the rounding of all arcs together may be too high by, in steps.
    offset : (states,) φ.
    shift : (arcs,) steps that an arc counts (-1 is possible).
    low, high : (states,) the range of budgets that matter at a state: no path needs less, none to the end
        allows more.
    first : (states + 1,) where a state's range begins in a table.
    """

    step: float
    size: int
    slack: float
    offset: FloatArray
    shift: IntArray
    low: IntArray
    high: IntArray
    first: npt.NDArray[np.int64]

    @property
    def cells(self) -> int:
        """Number of (state, budget) pairs."""
        return int(self.first[-1])

    def budget(self, load: float) -> int:
        """The budget that all bundles with at most this load (seconds) stay within."""
        return min(int(np.floor(load / self.step + self.slack)), self.size)


def grid_of(
    states: States, limit: float, size: int, weight: FloatArray | None = None, *, tries: int = 13
) -> Grid:
    """A grid of about ``size`` steps up to ``limit`` seconds.

    ``weight`` (arcs,) says how much an arc's rounding matters. The step is, of ``tries`` within three
    percent, the one that loses least.
    """
    weight = np.ones(len(states.load)) if weight is None else weight
    sizes = size * (np.linspace(0.97, 1.03, tries) if tries > 1 else np.ones(1))
    best: tuple[float, float, FloatArray, IntArray] | None = None
    for tried in limit / sizes:
        offset, shift, lost = _shifts(states.arc_ptr, states.source, states.load / tried, weight)
        if best is None or lost * tried < best[0]:
            best = lost * tried, float(tried), offset, shift
    assert best is not None
    _, step, offset, shift = best
    slack = (len(states.order) + 1) * ROUNDING
    largest = int(np.floor(limit / step + slack))
    low, high, first = _ranges(states.arc_ptr, states.source, shift, largest)
    return Grid(step, largest, slack, offset, shift, low, high, first)


@njit(cache=True, nogil=True)
def _shifts(arc_ptr, source, load, weight):  # type: ignore[no-untyped-def]
    """Offsets of the states, steps that the arcs count, and the weighted loss; ``load`` is in steps."""
    states = len(arc_ptr) - 1
    offset = np.zeros(states)
    shift = np.zeros(len(load), np.int32)
    total = 0.0
    for s in range(1, states):
        begin, end = arc_ptr[s], arc_ptr[s + 1]
        best, least = 0.0, np.inf
        # The last state must have offset 0; the others try to be lossless for each of their arcs.
        for a in range(begin, end):
            there = load[a] + offset[source[a]]
            candidate = 0.0 if s == states - 1 else there - np.floor(there)
            lost = 0.0
            for b in range(begin, end):
                x = load[b] + offset[source[b]] - candidate
                lost += weight[b] * (x - np.floor(x + ROUNDING))
            if lost < least:
                best, least = candidate, lost
        offset[s] = best
        if end > begin:
            total += least
        for a in range(begin, end):
            shift[a] = np.int32(np.floor(load[a] + offset[source[a]] - best + ROUNDING))
    return offset, shift, total


@njit(cache=True, nogil=True)
def _ranges(arc_ptr, source, shift, size):  # type: ignore[no-untyped-def]
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


class Table(NamedTuple):
    """Values of all (state, budget) pairs, for tracing bundles back."""

    grid: Grid
    value: FloatArray
    gain: FloatArray


def new_table(states: States, grid: Grid) -> Table:
    """Room for the values of a grid."""
    return Table(grid, np.empty(grid.cells), np.empty(len(states.load)))


def best_values(
    states: States, table: Table, prices: FloatArray, rate: float, charged: FloatArray
) -> FloatArray:
    """(G + 1,) the best π(S) - λ · charged(S) for every budget 0 … G; fills the table.

    ``rate`` is λ, and ``charged`` (arcs,) what it is paid for: the load of a bundle, or the seconds of a call.
    """
    _gains(states.layer, states.arc_ptr, states.order, states.taken, charged, prices, rate, table.gain)
    return _values(states, table)


def least_others(states: States, table: Table) -> FloatArray:
    """(G + 1,) for every budget of the first device, minus the least load of the second one (seconds); fills
    the table.

    Of equal loads of the second device, the lesser load of the first is preferred, by a little.
    """
    np.multiply(states.load, -0.01, out=table.gain)
    np.subtract(table.gain, states.other, out=table.gain)
    return _values(states, table)


def _values(states: States, table: Table) -> FloatArray:
    grid = table.grid
    _fill(states.arc_ptr, states.source, grid.shift, table.gain, grid.low, grid.high, grid.first, table.value)
    last = table.value[grid.first[-2] :]
    needed = max(int(grid.low[-1]), 0)
    values = np.full(grid.size + 1, -np.inf)
    values[needed:] = last[len(last) - (grid.size + 1 - needed) :]
    return values


@njit(cache=True, nogil=True)
def _gains(layer, arc_ptr, order, taken, charged, prices, rate, gain):  # type: ignore[no-untyped-def]
    for i in range(len(order)):
        price = prices[order[i]]
        for a in range(arc_ptr[layer[i + 1]], arc_ptr[layer[i + 2]]):
            gain[a] = taken[a] * price - rate * charged[a]


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


def best_bundle(states: States, table: Table, budget: int) -> IntArray:
    """(classes,) the arcs of the bundle that attains the best value for a budget."""
    grid = table.grid
    return _trace(
        states.arc_ptr, states.source, grid.shift, table.gain, grid.low, grid.high, grid.first, table.value,
        min(budget, grid.size), len(states.order),
    )  # fmt: skip


@njit(cache=True, nogil=True)
def _trace(arc_ptr, source, shift, gain, low, high, first, value, budget, steps):  # type: ignore[no-untyped-def]
    path = np.empty(steps, np.int32)
    s, g = len(low) - 1, budget
    for i in range(steps - 1, -1, -1):
        best, best_arc, best_budget = -np.inf, -1, 0
        for a in range(arc_ptr[s], arc_ptr[s + 1]):
            q = source[a]
            b = min(g - shift[a], high[q])
            if b >= low[q]:
                candidate = value[first[q] + b - low[q]] + gain[a]
                if candidate > best:
                    best, best_arc, best_budget = candidate, a, b
        path[i] = best_arc
        s, g = source[best_arc], best_budget
    return path


def exact_bundle(states: States, table: Table, limit: float, most: int) -> tuple[float, IntArray]:
    """(value, arcs or nothing): the best bundle whose load really is at most ``limit``, by best-first search
    from the end.

    The table bounds what the undecided classes can still bring; the part of the load that is decided counts
    exactly. After ``most`` steps the search gives up: the value is then an upper bound, and there is no
    bundle.
    """
    grid = table.grid
    bound, path = _best_first(
        states.arc_ptr, states.source, states.load, states.least, grid.offset, table.gain, grid.low, grid.high,
        grid.first, table.value, grid.step, grid.slack, limit, most, len(states.order),
    )  # fmt: skip
    return float(bound), path


@njit(cache=True, nogil=True)
def _best_first(  # type: ignore[no-untyped-def]
    arc_ptr, source, load, least, offset, gain, low, high, first, value, step, slack, limit, most, steps
):
    """A node is a state with the load and the gain from there to the end; ``heap`` holds (-bound, depth,
    node)."""
    nodes = 2 * most + 16
    # Sums in another order may differ in the last digits: no bundle is lost to that.
    limit *= 1.0 + 1e-12
    at, arc, parent = np.empty(nodes, np.int32), np.empty(nodes, np.int32), np.empty(nodes, np.int32)
    spent, earned = np.empty(nodes), np.empty(nodes)
    end = len(low) - 1
    at[0], arc[0], parent[0], spent[0], earned[0] = end, -1, -1, 0.0, 0.0
    count = 1
    b = min(np.int64(np.floor(limit / step + slack)), high[end])
    if b < low[end]:
        return -np.inf, np.empty(0, np.int32)
    heap = [(-value[first[end] + b - low[end]], 0, 0)]
    made = 0
    while len(heap) > 0:
        key, depth, node = heapq.heappop(heap)
        s = at[node]
        if s == 0:
            path = np.empty(steps, np.int32)
            i = 0
            while arc[node] >= 0:
                path[i] = arc[node]
                i += 1
                node = parent[node]
            return -key, path
        made += 1
        if made > most or count + arc_ptr[s + 1] - arc_ptr[s] >= nodes:
            return -key, np.empty(0, np.int32)
        for a in range(arc_ptr[s], arc_ptr[s + 1]):
            q = source[a]
            used = spent[node] + load[a]
            if used + least[q] > limit:
                continue
            b = min(np.int64(np.floor((limit - used) / step - offset[q] + slack)), high[q])
            if b < low[q]:
                continue
            got = earned[node] + gain[a]
            at[count], arc[count], parent[count], spent[count], earned[count] = q, a, node, used, got
            heapq.heappush(heap, (-(value[first[q] + b - low[q]] + got), depth - 1, count))
            count += 1
    return -np.inf, np.empty(0, np.int32)
