"""Priorities of ops: mean times, mean transfers, and the upward rank that they give.

Plain functions of arrays; :class:`loadmaster.problem.Problem` keeps what they return for its own arrays.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from loadmaster.arrays import FloatArray, IntArray
from loadmaster.graph import Graph

__all__ = ["mean_link", "mean_time", "priority_order", "upward_rank"]


def mean_time(time: FloatArray) -> FloatArray:
    """(n,) mean seconds of the (n, D) times over the devices that support the op (0 where none does)."""
    supported = np.isfinite(time)
    count = np.maximum(supported.sum(axis=1), 1)
    return np.where(supported, time, 0.0).sum(axis=1) / count


def mean_link(size: FloatArray, latency: FloatArray, rate: FloatArray) -> FloatArray:
    """(m,) mean seconds of a transfer over ordered pairs of different devices (0 for one device)."""
    devices = len(latency)
    pairs = devices * (devices - 1)
    if pairs == 0:
        return np.zeros(len(size))
    off = ~np.eye(devices, dtype=bool)
    return latency[off].sum() / pairs + size * (rate[off].sum() / pairs)


def upward_rank(graph: Graph, mean_time: FloatArray, mean_link: FloatArray) -> FloatArray:
    """(n,) seconds from the start of an op to the end of the graph along the longest mean path.

    Complexity: O(ops + edges).

    References
    ----------
    H. Topcuoglu, S. Hariri, M.-Y. Wu, "Performance-effective and low-complexity task scheduling for
    heterogeneous computing", IEEE TPDS 2002, equation 5.
    """
    rank: FloatArray = _upward(
        graph.topological_order, *graph.outputs, graph.consumer_ptr, graph.consumer_op, mean_time, mean_link
    )
    return rank


@njit(cache=True, nogil=True)
def _upward(order, out_ptr, out_tensor, ptr, consumer, time, link):  # type: ignore[no-untyped-def]
    rank = np.zeros(len(time))
    for i in range(len(order) - 1, -1, -1):
        v = order[i]
        below = 0.0
        for j in range(out_ptr[v], out_ptr[v + 1]):
            t = out_tensor[j]
            for c in range(ptr[t], ptr[t + 1]):
                below = max(below, link[t] + rank[consumer[c]])
        rank[v] = time[v] + below
    return rank


def priority_order(graph: Graph, rank: list[int]) -> IntArray:
    """(n,) ops by falling rank, ties by topological position: a topological order where ranks fall along edges."""
    return np.array(sorted(graph.topological_order.tolist(), key=lambda v: -rank[v]), np.int32)
