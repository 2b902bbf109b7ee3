"""Which ops hold up the end of a ``concurrent`` schedule."""

from __future__ import annotations

import numpy as np
from numba import njit

from loadmaster.arrays import FloatArray, IntArray
from loadmaster.problem import Problem

__all__ = ["critical_ops"]


def critical_ops(problem: Problem, device: IntArray, start: FloatArray, end: FloatArray) -> IntArray:
    """The ops on the chains of causes that end with the last op.

    The cause of an op's start is the op before it on its device, if that ends just then, and the input that
    arrives last. Queues on links are not looked at: of the inputs, the one with the latest end plus transfer
    time counts. O(n log n + edges).
    """
    graph = problem.graph
    in_ptr, in_tensor = graph.inputs
    latest_first = np.lexsort((start, end))[::-1].astype(np.int32)
    marked = _mark(
        latest_first,
        in_ptr,
        in_tensor,
        graph.tensor_producer,
        problem.size,
        problem.latency,
        problem.rate,
        device,
        start,
        end,
    )
    return np.flatnonzero(marked).astype(np.int32)


@njit(cache=True, nogil=True)
def _mark(order, in_ptr, in_tensor, producer, size, latency, rate, device, start, end):  # type: ignore[no-untyped-def]
    """``waited[d]``: the latest start of a marked op on device d whose predecessor on the device is still
    looked for."""
    marked = np.zeros(len(device), np.bool_)
    if len(order) == 0:
        return marked
    waited = np.full(latency.shape[0], -1.0)
    makespan = end[order[0]]
    for v in order:
        d = device[v]
        if end[v] == makespan or (waited[d] >= 0.0 and end[v] == waited[d]):
            marked[v] = True
        if not marked[v]:
            continue
        waited[d] = start[v]
        last, cause = -1.0, -1
        for i in range(in_ptr[v], in_ptr[v + 1]):
            t = in_tensor[i]
            u = producer[t]
            s = device[u]
            arrival = end[u] if s == d else end[u] + (latency[s, d] + size[t] * rate[s, d])
            if arrival > last:
                last, cause = arrival, u
        if cause >= 0:
            marked[cause] = True
    return marked
