"""Messages along the arcs that say what a device for one unit costs the others: features that need no learning.

Sequential tree-reweighted message passing (V. Kolmogorov, "Convergent tree-reweighted message passing for energy
minimization", PAMI 28(10), 2006) on the sum of op times and transfers, which is the cost of ``serial`` but for
tensors with several readers. A few sweeps carry what is cheap here to where it matters.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from loadmaster.arrays import FloatArray
from loadmaster.graph.order import sum_by
from loadmaster.placers.learned.units import Units

__all__ = ["arc_costs", "beliefs", "unit_times"]

FAR = 1e6
"""What a forbidden device costs, in terms of the slowest unit."""


def unit_times(units: Units) -> FloatArray:
    """(units, devices) seconds of all members, infinite where one may not go."""
    columns = [np.bincount(units.of_op, column, units.count) for column in units.problem.time.T]
    time: FloatArray = np.stack(columns, axis=1)
    return np.where(units.allowed, time, np.inf)


def arc_costs(units: Units) -> tuple[FloatArray, FloatArray]:
    """(arcs,) transfers and (arcs,) sizes along the arcs of the units.

    A tensor is charged once for each device that reads it, so that one with F readers counts 1/√F for each: more than
    if all of them are on one device, less than if only one is elsewhere.
    """
    problem, graph, count = units.problem, units.problem.graph, max(units.count, 1)
    source = units.of_op[graph.tensor_producer[graph.edge_tensor]].astype(np.int64)
    reader = units.of_op[graph.consumer_op].astype(np.int64)
    apart = source != reader
    found = np.unique(graph.edge_tensor[apart].astype(np.int64) * count + reader[apart])
    tensor, reader = found // count, found % count
    source = units.of_op[graph.tensor_producer[tensor]].astype(np.int64)
    share = 1.0 / np.sqrt(np.maximum(np.bincount(tensor, minlength=graph.tensors), 1))[tensor]
    arc = np.searchsorted(units.tail.astype(np.int64) * count + units.head, source * count + reader)
    return sum_by(arc, share, len(units.tail)), sum_by(arc, share * problem.size[tensor], len(units.tail))


def beliefs(units: Units, price: float, sweeps: int) -> FloatArray:
    """(units, devices) seconds that a device for a unit costs in all, the cheapest being 0; transfers cost ``price``
    times what they do. O(sweeps · arcs · devices²)."""
    time = unit_times(units)
    known = np.isfinite(time)
    unary = np.where(known, time, FAR * max(float(time[known].max(initial=0.0)), 1e-12))
    count, size = arc_costs(units)
    ends = np.stack([units.tail, units.head], axis=1).astype(np.int64)
    order = np.argsort(np.concatenate([units.tail, units.head]), kind="stable")
    ptr = np.concatenate([[0], np.cumsum(np.bincount(ends.T.ravel(), minlength=units.count))])
    latency, rate = price * units.problem.latency, price * units.problem.rate
    found: FloatArray = _sweep(unary, ends, ptr, order, count, size, latency, rate, sweeps)
    return found - found.min(axis=1, keepdims=True, initial=np.inf)


@njit(cache=True, nogil=True)
def _sweep(unary, ends, ptr, order, count, size, latency, rate, sweeps):  # type: ignore[no-untyped-def]
    """Sweeps forth and back. ``message[a, 0]`` goes to the tail of arc a, ``message[a, 1]`` to its head."""
    n, devices = unary.shape
    arcs = len(ends)
    message = np.zeros((arcs, 2, devices))
    belief = unary.copy()
    part = np.empty(n)
    for u in range(n):
        before = after = 0
        for i in range(ptr[u], ptr[u + 1]):
            a = order[i] % arcs
            v = ends[a, 0] + ends[a, 1] - u
            before += v < u
            after += v > u
        part[u] = 1.0 / max(before, after, 1)
    sent = np.empty(devices)
    for sweep in range(2 * sweeps):
        for step in range(n):
            u = step if sweep % 2 == 0 else n - 1 - step
            for d in range(devices):
                belief[u, d] = unary[u, d]
            for i in range(ptr[u], ptr[u + 1]):
                a = order[i] % arcs
                mine = 0 if ends[a, 0] == u else 1
                for d in range(devices):
                    belief[u, d] += message[a, mine, d]
            for i in range(ptr[u], ptr[u + 1]):
                a = order[i] % arcs
                mine = 0 if ends[a, 0] == u else 1
                v = ends[a, 1 - mine]
                if (v > u) != (sweep % 2 == 0):
                    continue
                least = np.inf
                for e in range(devices):
                    best = np.inf
                    for d in range(devices):
                        x, y = (d, e) if mine == 0 else (e, d)
                        moved = 0.0 if x == y else count[a] * latency[x, y] + size[a] * rate[x, y]
                        best = min(best, part[u] * belief[u, d] - message[a, mine, d] + moved)
                    sent[e] = best
                    least = min(least, best)
                for e in range(devices):
                    message[a, 1 - mine, e] = sent[e] - least
    for u in range(n):
        for d in range(devices):
            belief[u, d] = unary[u, d]
        for i in range(ptr[u], ptr[u + 1]):
            a = order[i] % arcs
            mine = 0 if ends[a, 0] == u else 1
            for d in range(devices):
                belief[u, d] += message[a, mine, d]
    return belief
