"""The nearest classes around a class, and flows to them: the compiled part of ``_spreading.py``."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

__all__ = ["route"]

BUCKETS = 8192
"""Of the queue; a ball's radius takes up about an eighth of them."""


@njit(cache=True, nogil=True)
def route(  # type: ignore[no-untyped-def]
    source, capacity, first, member, of, net, mass, worthy, dear, cost, known, least, steep,
    width, length, full, reach, excess,
):  # fmt: skip
    """A ball around each of the sources; (Σ λ μ(B), Σ λ, the best worth, balls used).

    A search for nearest classes: all that a tensor joins is reached at once, as far away as the member that is reached
    first and the tensor's length; so the queue holds tensors (``nearest``, and the member each was reached from,
    ``came``). It has buckets (lists, ``head`` and ``after``) as wide as ``width[0]``, a small part of the last ball's
    radius: within one the order is any, so paths are shortest up to that. A ball has the nearest classes, as many as
    make most of 2 (μ(B) - cost) for what the flows cost, Σ μ · distance. The flow goes down the tree, with the rate
    that fills one of its tensors just once. Changed in place: ``width``, ``length``, how often a tensor is ``full``,
    the rates of balls around (``reach``) and what a source gains elsewhere (``excess``).
    """
    classes, tensors = len(mass), len(capacity)
    head, after = np.full(BUCKETS, -1, np.int32), np.empty(tensors, np.int32)
    came = np.empty(tensors, np.int32)
    seen, queued = np.zeros(classes, np.bool_), np.zeros(tensors, np.bool_)
    nearest = np.empty(tensors)
    order, through, parent = (
        np.empty(classes, np.int32),
        np.empty(classes, np.int32),
        np.empty(classes, np.int32),
    )
    touched = np.empty(tensors, np.int32)
    below, flow = np.zeros(classes), np.zeros(tensors)
    filled, rates, best, used = 0.0, 0.0, 0.0, 0
    for v in source:
        touches, fresh, bucket = 0, 0, 0
        order[0], through[0], parent[0] = v, -1, -1
        seen[v] = True
        count = 1
        total, useful, spent = mass[v], worthy[v], 0.0
        worth, ball, inside = 0.0, 0, 0.0
        distance, last = 0.0, 0.0
        per = 1.0 / width[0]
        while True:
            for i in range(fresh, count):
                u = order[i]
                for j in range(of[u], of[u + 1]):
                    t = net[j]
                    if not queued[t]:
                        queued[t] = True
                        touched[touches] = t
                        touches += 1
                        nearest[t] = distance + length[t] + dear[t]
                        at = max(bucket, int(min(nearest[t] * per, BUCKETS - 1.0)))
                        came[t], after[t], head[at] = u, head[at], t
            fresh = count
            while bucket < BUCKETS and head[bucket] < 0:
                bucket += 1
            if bucket == BUCKETS or total > 2.0 * cost:
                break
            t = head[bucket]
            head[bucket] = after[t]
            distance, u = nearest[t], came[t]
            last = max(last, distance)
            if worth * (distance - width[0]) >= 1.0 and bucket < BUCKETS - 1:
                break  # all that is farther adds less than it costs
            for j in range(first[t], first[t + 1]):
                w = member[j]
                if not seen[w]:
                    seen[w] = True
                    order[count], through[count], parent[count] = w, t, u
                    count += 1
                    total += mass[w]
                    useful += worthy[w]
                    spent += mass[w] * distance
            if useful > cost and spent > 0.0 and (useful - cost) / spent > worth:
                worth, ball, inside = (useful - cost) / spent, count, total
        for i in range(count):
            seen[order[i]] = False
        for i in range(touches):
            queued[touched[i]] = False
        head[:] = -1
        if last > 0.0:
            width[0] = 8.0 * last / BUCKETS
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
