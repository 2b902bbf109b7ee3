"""Lines: paths through the graph along which the time of an ``offload`` placement is added up.

For any path P, what its ops wait for takes at least

    Σ (seconds of the calls that meet P) + Σ (CPU seconds of the ops of P that are on the CPU),

since calls are convex: P enters each at most once. Which path tells most is a matter of trying: good ones run
through ops that are slow wherever they are, where accelerators are taken to charge for memory (λ per byte), and
through large tensors.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numba import njit

from loadmaster.arrays import FloatArray, IntArray
from loadmaster.problem import Problem

__all__ = ["Line", "line_of", "pool_seconds", "some_lines"]


TENSORS = (0.3, 0.0, 1.0)
"""How much the transfer of a tensor counts in the length of a path."""


class Line(NamedTuple):
    """A path, as its classes see it.

    classes : the classes of its ops, by their first op.
    seconds : (classes,) CPU seconds of the ops of each class that are on the path; 0 for other classes.
    """

    classes: IntArray
    seconds: FloatArray


def line_of(problem: Problem, ops: IntArray, ceiling: float) -> Line:
    """The line of a path, given as ops in its order.

    A class that may not go to a CPU counts ``ceiling`` seconds there, which is more than any placement of
    interest takes.
    """
    of = problem.class_of[ops]
    first = np.unique(of, return_index=True)[1]
    classes = of[np.sort(first)]
    seconds = np.zeros(problem.classes)
    usable = problem.class_allowed & (problem.class_memory[:, None] <= problem.capacity * (1.0 + 1e-9))
    best = np.full(problem.classes, np.inf)
    for d in np.flatnonzero(problem.pool).tolist():
        there = np.bincount(of, np.where(np.isfinite(problem.time[ops, d]), problem.time[ops, d], 0.0))
        there = np.concatenate([there, np.zeros(problem.classes - len(there))])
        best = np.minimum(best, np.where(usable[:, d], there, np.inf))
    seconds[classes] = np.minimum(best[classes], ceiling)
    return Line(classes.astype(np.int32), seconds)


def pool_seconds(problem: Problem) -> FloatArray:
    """(n,) the least seconds of each op on a CPU that may run it, infinite where there is none."""
    return np.where(problem.allowed & problem.pool, problem.time, np.inf).min(axis=1, initial=np.inf)


def some_lines(problem: Problem, prices: FloatArray) -> Iterator[IntArray]:
    """Different paths (ops in their order), for these prices of memory (seconds per byte)."""
    graph = problem.graph
    accelerators = np.where(problem.allowed & ~problem.pool, problem.time, np.inf).min(axis=1, initial=np.inf)
    cpu = pool_seconds(problem)
    talk = ~problem.pool
    rate = float((problem.send_rate + problem.recv_rate)[talk].mean()) if talk.any() else 0.0
    delay = float((problem.send_latency + problem.recv_latency)[talk].mean()) if talk.any() else 0.0
    tail, head = graph.tensor_producer[graph.edge_tensor], graph.consumer_op
    seconds = delay + rate * problem.size[graph.edge_tensor]
    by_head = np.argsort(head, kind="stable")
    ptr = np.zeros(graph.n + 1, np.int32)
    np.cumsum(np.bincount(head, minlength=graph.n), out=ptr[1:])
    seen = set()
    for price in prices.tolist():
        weight = np.minimum(accelerators + price * problem.memory, cpu)
        weight[~np.isfinite(weight)] = 0.0
        for share in TENSORS:
            path = _longest(graph.topological_order, ptr, tail[by_head], share * seconds[by_head], weight)
            if path.tobytes() not in seen:
                seen.add(path.tobytes())
                yield path


@njit(cache=True, nogil=True)
def _longest(order, ptr, tail, length, weight):  # type: ignore[no-untyped-def]
    """The ops of a longest path; arcs into v come from tail[ptr[v]:ptr[v + 1]]. O(ops + arcs)."""
    n = len(order)
    total = np.empty(n)
    before = np.full(n, -1, np.int32)
    last = -1
    for v in order:
        best = 0.0
        for i in range(ptr[v], ptr[v + 1]):
            reach = total[tail[i]] + length[i]
            if before[v] < 0 or reach > best:
                best = reach
                before[v] = tail[i]
        total[v] = best + weight[v]
        if last < 0 or total[v] > total[last]:
            last = v
    path = np.empty(n, np.int32)
    at = n
    while last >= 0:
        at -= 1
        path[at] = last
        last = before[last]
    return path[at:].copy()
