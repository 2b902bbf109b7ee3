"""A list scheduler with a small network in its rule: the decoder of ``gdp`` for models with a schedule.

Ops are taken in a given order. For every device the rule of ``lookahead`` gives the time at which the last of
the op's children would be done; a network adds to it what it has learnt, from features of the (op, device)
pair in the schedule so far and in the placement of the pass before. The op goes where the sum is least.

The first layer of the network is a sum of three parts: of the op (``hidden_op``, once per problem), of the device
(``hidden_device``) and of the pair (``pair_weights``, :data:`PAIR` features, computed here). The two numbers that
come out are in units of the op (``unit[v]``) and of the mean op (``common``). With output weights of zero the
result is that of ``lookahead`` to the last bit.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from loadmaster.placers.rules._insertion import (
    bring,
    empty_schedule,
    find_gap,
    may_take,
    ready_on,
    take_gap,
)
from loadmaster.placers.rules.lookahead import children_done, tell_children

__all__ = ["PAIR", "decode", "placed_rank", "squash"]

PAIR = (
    "finish", "children", "arrival", "wait", "time", "local", "committed", "horizon", "filled", "before",
    "children before", "children placed", "known", "busy before", "critical before",
)  # fmt: skip
"""Features of an (op, device) pair, in the order of the kernel: how much later than on the best device the op and
its children finish and its inputs arrive, how long it waits there, its time against the fastest; the share of its
inputs that is there; work committed to the device against its fair share, how long it is in use already, how full
its memory would be; whether the pass before had the op there, the shares of its children that it had there and that
are placed there now; how much later there the other inputs of the first child are; how busy the device was in
the pass before; whether the op was there and critical."""


@njit(cache=True, nogil=True)
def squash(x):  # type: ignore[no-untyped-def]
    """Into (-1, 1), and 0 to 0."""
    return x / (1.0 + abs(x))


@njit(cache=True, nogil=True)
def placed_rank(order, out_ptr, out_tensor, consumer_ptr, consumer, time, size, latency, rate, device):  # type: ignore[no-untyped-def]
    """(n,) seconds from the start of an op to the end of the graph along the longest path, as placed.

    ``order`` is a topological order of the ops.
    """
    n = len(device)
    rank = np.zeros(n)
    for k in range(n - 1, -1, -1):
        v = order[k]
        d, below = device[v], 0.0
        for i in range(out_ptr[v], out_ptr[v + 1]):
            t = out_tensor[i]
            for j in range(consumer_ptr[t], consumer_ptr[t + 1]):
                u = consumer[j]
                e = device[u]
                way = rank[u]
                if e != d:
                    way += latency[d, e] + size[t] * rate[d, e]
                below = max(below, way)
        rank[v] = time[v, d] + below
    return rank


@njit(cache=True, nogil=True)
def decode(  # type: ignore[no-untyped-def]
    order, in_ptr, in_tensor, producer, child_ptr, child, child_size, time, size, latency, rate, atom, allowed,
    memory, capacity, atom_time, unit, common, fair, prior, busy, slack, hidden_op, hidden_device, pair_weights,
    out_weights, device, begin,
):  # fmt: skip
    """Fill ``device`` and ``begin``; the makespan, or -1 if some op has no device with room left.

    The state is that of ``lookahead._schedule``; besides, ``committed[d]`` is the time of all ops that are bound
    to device d, scheduled or not. ``prior`` is the placement of the pass before (-1: there is none), ``busy`` (D,)
    its loads relative to their mean and ``slack`` (n,) the share of its makespan that an op could be late.
    """
    n, devices = time.shape
    width = hidden_op.shape[1]
    gap_start, gap_end, gaps, there, free, end, left, home = empty_schedule(
        n, len(producer), len(memory), capacity
    )
    known, queue = np.zeros((n, devices)), np.empty(devices)
    committed, horizon = np.zeros(devices), np.zeros(devices)
    ready_at, start_at, done_at, score_at = (
        np.empty(devices),
        np.empty(devices),
        np.empty(devices),
        np.empty(devices),
    )
    gap_at = np.empty(devices, np.int64)
    placed, before = np.zeros(devices), np.zeros(devices)
    hidden, x = np.empty(width), np.empty(len(pair_weights))
    makespan = 0.0
    for v in order:
        a = atom[v]
        least_ready = least_done = least_score = least_time = np.inf
        choices, only = 0, -1
        for d in range(devices):
            score_at[d] = np.inf
            if not may_take(d, home[a], allowed[a, d], memory[a], left[d]):
                continue
            ready = ready_on(v, d, in_ptr, in_tensor, producer, device, end, size, latency, rate, there, free)
            g = find_gap(gap_start[d], gap_end[d], gaps[d], ready, time[v, d])
            start = max(gap_start[d, g], ready)
            finish = start + time[v, d]
            score = finish
            if home[a] < 0:
                score = children_done(
                    v, d, finish, child_ptr, child, child_size, time, latency, rate, atom, allowed, home, known, free,
                    gap_start, gap_end, gaps, queue,
                )  # fmt: skip
            ready_at[d], start_at[d], done_at[d], score_at[d], gap_at[d] = ready, start, finish, score, g
            least_ready, least_done = min(least_ready, ready), min(least_done, finish)
            least_score, least_time = min(least_score, score), min(least_time, time[v, d])
            choices += 1
            only = d
        if choices == 0:
            return -1.0
        best = only
        if choices > 1:
            placed[:] = 0.0
            before[:] = 0.0
            total = 0.0
            least_known = np.inf
            for j in range(child_ptr[v], child_ptr[v + 1]):
                u = child[j]
                total += child_size[j]
                if home[atom[u]] >= 0:
                    placed[home[atom[u]]] += child_size[j]
                elif prior[u] >= 0:
                    before[prior[u]] += child_size[j]
            first = child[child_ptr[v]] if child_ptr[v] < child_ptr[v + 1] else -1
            if first >= 0:
                for d in range(devices):
                    least_known = min(least_known, known[first, d])
            came, soonest_free = 0.0, np.inf
            for i in range(in_ptr[v], in_ptr[v + 1]):
                came += size[in_tensor[i]]
            for d in range(devices):
                if score_at[d] < np.inf:
                    soonest_free = min(soonest_free, horizon[d])
            scale = 1.0 / unit[v]
            best, best_total = -1, np.inf
            for d in range(devices):
                if score_at[d] == np.inf:
                    continue
                here = 0.0
                for i in range(in_ptr[v], in_ptr[v + 1]):
                    t = in_tensor[i]
                    if device[producer[t]] == d or there[t, d] < np.inf:
                        here += size[t]
                x[0] = squash((done_at[d] - least_done) * scale)
                x[1] = squash((score_at[d] - least_score) * scale)
                x[2] = squash((ready_at[d] - least_ready) * scale)
                x[3] = squash((start_at[d] - ready_at[d]) * scale)
                x[4] = squash((time[v, d] - least_time) * scale)
                x[5] = here / came if came > 0.0 else 0.0
                x[6] = squash((committed[d] + atom_time[a, d]) * fair)
                x[7] = squash((horizon[d] - soonest_free) * scale)
                x[8] = 1.0 - (left[d] - memory[a]) / capacity[d] if 0.0 < capacity[d] < np.inf else 0.0
                x[9] = 1.0 if prior[v] == d else 0.0
                x[10] = before[d] / total if total > 0.0 else 0.0
                x[11] = placed[d] / total if total > 0.0 else 0.0
                x[12] = squash((known[first, d] - least_known) * scale) if first >= 0 else 0.0
                x[13] = squash(busy[d])
                x[14] = x[9] * (1.0 - slack[v])
                for j in range(width):
                    hidden[j] = hidden_op[v, j] + hidden_device[d, j]
                for k in range(len(x)):
                    for j in range(width):
                        hidden[j] += x[k] * pair_weights[k, j]
                own = shared = 0.0
                for j in range(width):
                    h = max(hidden[j], 0.0)
                    own += h * out_weights[0, j]
                    shared += h * out_weights[1, j]
                sum_ = score_at[d] + (own * unit[v] + shared * common)
                if best < 0 or sum_ < best_total or (sum_ == best_total and done_at[d] < done_at[best]):
                    best, best_total = d, sum_
        if home[a] < 0:
            home[a] = best
            left[best] -= memory[a]
            committed[best] += atom_time[a, best]
        device[v] = best
        begin[v] = start_at[best]
        end[v] = done_at[best]
        horizon[best] = max(horizon[best], end[v])
        makespan = max(makespan, end[v])
        bring(v, best, in_ptr, in_tensor, producer, device, end, size, latency, rate, there, free)
        gap_start, gap_end = take_gap(gap_start, gap_end, gaps, best, gap_at[best], start_at[best], end[v])
        tell_children(v, best, end[v], child_ptr, child, child_size, latency, rate, free, known)
    return makespan
