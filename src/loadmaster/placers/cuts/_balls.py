"""The nearest classes around a class, and flows to them: the compiled part of ``_spreading.py``."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

__all__ = ["route"]


@njit(cache=True, nogil=True)
def route(  # type: ignore[no-untyped-def]
    source, capacity, first, member, of, net, mass, cost, known, least, steep, length, full, reach, excess
):
    """A ball around each of the sources; (Σ λ μ(B), Σ λ, the best worth, balls used).

    Dijkstra over classes: all that a tensor joins is reached at once, as far away as the nearest member and the
    tensor's length; so the heap holds tensors (``heap_net``) and the member each was reached from (``heap_from``). A
    ball has the nearest classes, as many as make most of 2 (μ(B) - cost) for what the flows cost, Σ μ · distance. The
    flow goes down the tree, with the rate that fills one of its tensors just once. Changed in place: ``length``, how
    often a tensor is ``full``, the rates of balls around (``reach``) and what a source gains elsewhere (``excess``).
    """
    classes, tensors = len(mass), len(capacity)
    heap_distance = np.empty(tensors + 1)
    heap_net, heap_from = np.empty(tensors + 1, np.int64), np.empty(tensors + 1, np.int64)
    seen, queued = np.zeros(classes, np.bool_), np.zeros(tensors, np.bool_)
    nearest = np.empty(tensors)
    order, through, parent = (
        np.empty(classes, np.int64),
        np.empty(classes, np.int64),
        np.empty(classes, np.int64),
    )
    touched = np.empty(tensors, np.int64)
    below, flow = np.zeros(classes), np.zeros(tensors)
    filled, rates, best, used = 0.0, 0.0, 0.0, 0
    for v in source:
        count, touches, size = 0, 0, 0
        order[0], through[0], parent[0] = v, -1, -1
        seen[v] = True
        count, fresh = 1, 0
        total, spent = mass[v], 0.0
        worth, ball, inside = 0.0, 0, 0.0
        distance = 0.0
        while True:
            for i in range(fresh, count):
                u = order[i]
                for j in range(of[u], of[u + 1]):
                    t = net[j]
                    if not queued[t]:
                        queued[t] = True
                        touched[touches] = t
                        touches += 1
                        # All members reached at the same distance queue it once; later ones are farther away.
                        nearest[t] = distance + length[t]
                        at = size
                        size += 1
                        while at > 0:
                            up = (at - 1) // 2
                            if heap_distance[up] <= nearest[t]:
                                break
                            heap_distance[at], heap_net[at], heap_from[at] = (
                                heap_distance[up],
                                heap_net[up],
                                heap_from[up],
                            )
                            at = up
                        heap_distance[at], heap_net[at], heap_from[at] = nearest[t], t, u
            fresh = count
            if size == 0 or total > 2.0 * cost:
                break
            distance, t, u = heap_distance[0], heap_net[0], heap_from[0]
            size -= 1
            last, last_net, last_from = heap_distance[size], heap_net[size], heap_from[size]
            at = 0
            while True:
                down = 2 * at + 1
                if down >= size:
                    break
                if down + 1 < size and heap_distance[down + 1] < heap_distance[down]:
                    down += 1
                if heap_distance[down] >= last:
                    break
                heap_distance[at], heap_net[at], heap_from[at] = (
                    heap_distance[down],
                    heap_net[down],
                    heap_from[down],
                )
                at = down
            heap_distance[at], heap_net[at], heap_from[at] = last, last_net, last_from
            for j in range(first[t], first[t + 1]):
                w = member[j]
                if not seen[w]:
                    seen[w] = True
                    order[count], through[count], parent[count] = w, t, u
                    count += 1
                    total += mass[w]
                    spent += mass[w] * distance
            if total > cost and spent > 0.0 and (total - cost) / spent > worth:
                worth, ball, inside = (total - cost) / spent, count, total
        for i in range(count):
            seen[order[i]] = False
        for i in range(touches):
            queued[touched[i]] = False
        if ball == 0:
            continue
        best = max(best, worth)
        if worth < least:
            continue
        used += 1
        worst = 0.0
        for i in range(ball):
            below[order[i]] = mass[order[i]]
        for i in range(ball - 1, 0, -1):
            t, amount = through[i], below[order[i]]
            flow[t] += amount
            worst = max(worst, flow[t] / capacity[t])
            below[parent[i]] += amount
        rate = 1.0 / worst
        for i in range(1, ball):
            t = through[i]
            if flow[t] > 0.0:
                share = rate * flow[t] / capacity[t]
                full[t] += share
                length[t] *= math.exp(steep * share)
                flow[t] = 0.0
        for i in range(ball):
            reach[order[i]] += rate
        excess[v] += rate * max(0.0, inside - 2.0 * known)
        filled += rate * inside
        rates += rate
    return filled, rates, best, used
