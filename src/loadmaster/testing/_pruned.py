"""The best placement of a small problem: all are tried, but for those that a partial placement already rules out."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from loadmaster.arrays import IntArray
from loadmaster.errors import InfeasibleError
from loadmaster.problem import (
    Concurrent,
    Offload,
    Pipeline,
    Placement,
    Problem,
    Serial,
    SimulatedEvaluator,
)

__all__ = ["optimum"]

ROWS = 4096
"""Placements between two looks at the best so far."""
SUM, LOADS, OVERLAP, PATHS = 0, 1, 2, 3
"""What a part of a placement already costs: everything added up; the busiest device, computing and communicating one
after the other or at once; the longest path, and the computing of the busiest device."""


def optimum(problem: Problem, known: float = math.inf) -> float:
    """The least cost of all placements without ``order`` and ``call``, as :func:`~loadmaster.testing.brute_force`
    finds it, for some ten million of them.

    Classes are placed one after another in topological order. What is placed so far has a cost of its own, at most
    that of any whole placement: ``serial`` adds it up, ``pipeline`` has its busiest device, ``concurrent`` that
    (computing alone) and the longest path with its transfers, ``offload`` the same without transfers and without CPUs.
    Where that is not below the best cost, nothing behind it is tried. Nothing here is shared with the searches but the
    compiled cost of whole placements.

    known : a cost that some placement is known to have; the answer is at most that.

    Raises
    ------
    InfeasibleError : none is feasible, and ``known`` is infinite.
    """
    tree = _Tree(problem)
    check = SimulatedEvaluator(problem)
    best = known
    while len(device := tree.next(best)):
        cost, possible = check.costs(device)
        for i in np.argsort(np.where(possible, cost, math.inf), kind="stable").tolist():
            if not (possible[i] and cost[i] < best):
                break
            if check.evaluate(Placement(device[i])).feasible:  # memory was looked at with a little slack
                best = float(cost[i])
    if math.isinf(best):
        raise InfeasibleError("none of all placements is feasible")
    return best


class _Tree:
    """The placements that are left, in batches of (rows, n) devices."""

    def __init__(self, problem: Problem) -> None:
        graph = problem.graph
        first = np.full(problem.classes, problem.n)
        np.minimum.at(first, problem.class_of, graph.position)
        self._order = np.argsort(first, kind="stable").astype(np.int32)
        model = problem.model
        kind = SUM if isinstance(model, Serial) else PATHS
        if isinstance(model, Pipeline):
            kind = LOADS if model.comm == "sum" else OVERLAP
        # Calls of an accelerator are one after another, but transfers differ from those of links.
        links = isinstance(model, Serial | Concurrent)
        peak = isinstance(model, Concurrent) and model.memory == "peak"
        self._given = (
            kind, links, problem.pool & isinstance(model, Offload), graph.topological_order, problem.class_of,
            *graph.inputs, graph.tensor_producer, problem.time, problem.size, problem.latency, problem.rate,
            problem.send_latency, problem.send_rate, problem.recv_latency, problem.recv_rate,
            problem.class_allowed, np.zeros(problem.n) if peak else problem.memory, problem.capacity * (1 + 1e-9),
        )  # fmt: skip
        self._at = np.full(problem.classes, -1, np.int32)
        self._depth = 0

    def next(self, best: float) -> IntArray:
        """At most :data:`ROWS` more that may be below ``best``; none when there are no more."""
        found = np.empty((ROWS, len(self._given[4])), np.int32)
        made, self._depth = _fill(self._order, self._at, self._depth, best, found, *self._given)
        return found[:made]


@njit(cache=True, nogil=True)
def _fill(  # type: ignore[no-untyped-def]
    order, at, depth, best, found, kind, links, pool, sequence, class_of, in_ptr, in_tensor, producer, time,
    size, latency, rate, send_latency, send_rate, recv_latency, recv_rate, allowed, memory, room,
):  # fmt: skip
    """Depth-first over the classes; goes on from ``at`` and ``depth`` (-1: all done) and fills rows of ``found``."""
    made, devices = 0, allowed.shape[1]
    used, end = np.zeros(devices), np.zeros(len(sequence))
    fetched, sent = np.empty(len(size) * devices, np.bool_), np.empty(len(size), np.bool_)
    while depth >= 0 and made < len(found):
        c = order[depth]
        at[c] += 1
        while at[c] < devices and not allowed[c, at[c]]:
            at[c] += 1
        if at[c] == devices:
            at[c] = -1
            depth -= 1
            continue
        used[:] = 0.0
        for v in range(len(sequence)):
            if at[class_of[v]] >= 0:
                used[at[class_of[v]]] += memory[v]
        if (used > room).any():
            continue
        least = _least(
            at, kind, links, pool, sequence, class_of, in_ptr, in_tensor, producer, time, size, latency, rate,
            send_latency, send_rate, recv_latency, recv_rate, end, fetched, sent,
        )  # fmt: skip
        if least * (1.0 - 1e-12) >= best:
            continue
        if depth + 1 < len(order):
            depth += 1
            continue
        for v in range(len(sequence)):
            found[made, v] = at[class_of[v]]
        made += 1
    return made, depth


@njit(cache=True, nogil=True)
def _least(  # type: ignore[no-untyped-def]
    at, kind, links, pool, sequence, class_of, in_ptr, in_tensor, producer, time, size, latency, rate, send_latency,
    send_rate, recv_latency, recv_rate, end, fetched, sent,
):  # fmt: skip
    """What the placed ops cost at least; ``end``, ``fetched`` and ``sent`` are room to work in."""
    devices = time.shape[1]
    fetched[:] = False
    sent[:] = False
    load, talk = np.zeros(devices), np.zeros(devices)
    total = longest = 0.0
    for v in sequence:
        d = at[class_of[v]]
        if d < 0:
            end[v] = 0.0
            continue
        begin = 0.0
        for i in range(in_ptr[v], in_ptr[v + 1]):
            t = in_tensor[i]
            u = producer[t]
            source = at[class_of[u]]
            if source < 0:
                continue
            wait = latency[source, d] + size[t] * rate[source, d] if links and source != d else 0.0
            begin = max(begin, end[u] + wait)
            if source != d and not fetched[t * devices + d]:
                fetched[t * devices + d] = True
                total += wait
                talk[d] += recv_latency[d] + size[t] * recv_rate[d]
                if not sent[t]:
                    sent[t] = True
                    talk[source] += send_latency[source] + size[t] * send_rate[source]
        end[v] = begin + time[v, d]
        total += time[v, d]
        if not pool[d]:
            load[d] += time[v, d]
        longest = max(longest, end[v])
    if kind == SUM:
        return total
    if kind == PATHS:
        return max(load.max(), longest)
    return (load + talk).max() if kind == LOADS else max(load.max(), talk.max())
