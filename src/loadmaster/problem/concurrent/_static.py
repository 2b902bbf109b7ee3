"""The static schedule of the ``concurrent`` execution model: every device follows one fixed order of the ops.

With the order given, nothing has to be chosen, so no clock is needed: going through the ops in an order in
which each comes after its inputs and after its predecessor on the device, every start is the largest of some
known moments.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from loadmaster.problem.concurrent._peak import peak_memory
from loadmaster.problem.concurrent._rank import number_by_device

__all__ = ["LANES", "given_order", "static_costs", "static_lanes", "static_traced"]

U: Any = np.uint64
ZERO, ONE = U(0), U(1)
LANES = 32
"""How many placements :func:`static_lanes` looks at side by side."""
WIDTH = U(LANES)


@njit(cache=True, nogil=True)
def static_costs(space, device, cost):  # type: ignore[no-untyped-def]
    """Fill ``cost`` (k,) with the makespans of the placements ``device`` (k, n) under the priority order.

    ready : (n,) when the inputs of each op are on its device, as far as they are known.
    busy : (D,) when each device is free; free : (D * D,) when each link is, d to e at d * D + e.
    landing : when the tensor at hand reaches each of its readers. All of them are computed before a link is
        taken, since readers on one device share one transfer. "Sending" to oneself takes no time and needs no
        case.

    Complexity: O(ops + edges + devices²) per placement.
    """
    order, time, size = space.order, space.time, space.size
    tensor_ptr, reader_ptr, reader = space.tensor_ptr, space.reader_ptr, space.reader
    latency, rate = space.latency.ravel(), space.rate.ravel()
    n, D = U(len(order)), U(time.shape[1])
    at, ready, busy, free = np.empty(n, np.uint32), np.empty(n), np.empty(D), np.empty(D * D)
    landing = np.empty(len(reader))
    for row in range(U(len(device))):
        for r in range(n):
            at[r], ready[r] = device[row, U(order[r])], 0.0
        busy[:] = 0.0
        free[:] = 0.0
        makespan = 0.0
        for r in range(n):
            d = U(at[r])
            end = max(ready[r], busy[d]) + time[r, d]
            busy[d] = end
            makespan = max(makespan, end)
            for t in range(U(tensor_ptr[r]), U(tensor_ptr[r + ONE])):
                for c in range(U(reader_ptr[t]), U(reader_ptr[t + ONE])):
                    u = U(reader[c])
                    p = d * D + U(at[u])
                    lands = max(end, free[p]) + (latency[p] + size[t] * rate[p])
                    landing[c] = lands
                    ready[u] = max(ready[u], lands)
                for c in range(U(reader_ptr[t]), U(reader_ptr[t + ONE])):
                    free[d * D + U(at[U(reader[c])])] = landing[c]
        cost[row] = makespan


@njit(cache=True, nogil=True)
def static_lanes(space, device, cost):  # type: ignore[no-untyped-def]
    """The same as :func:`static_costs`, 32 placements side by side.

    Every array of that function gets a last axis of 32 lanes, flattened: op r of lane l is at r * 32 + l. All
    lanes go through the same ops and edges, so the inner loops have a fixed length and no branch at all:
    nothing is mispredicted, and the moments of different lanes do not wait for each other.
    """
    order, time, size = space.order, space.time.ravel(), space.size
    tensor_ptr, reader_ptr, reader = space.tensor_ptr, space.reader_ptr, space.reader
    latency, rate = space.latency.ravel(), space.rate.ravel()
    n, D, rows = U(len(order)), U(space.time.shape[1]), U(len(device))
    at, ready = np.zeros(n * WIDTH, np.uint8), np.empty(n * WIDTH)
    busy, free = np.empty(D * WIDTH), np.empty(D * D * WIDTH)
    ends, makespan = np.empty(WIDTH), np.empty(WIDTH)
    fan_out = ONE
    for t in range(U(len(size))):
        fan_out = max(fan_out, U(reader_ptr[t + ONE]) - U(reader_ptr[t]))
    landing = np.empty(fan_out * WIDTH)
    for row in range(ZERO, rows, WIDTH):
        lanes = min(WIDTH, rows - row)
        for r in range(n):
            v = U(order[r])
            for lane in range(lanes):
                at[r * WIDTH + lane] = device[row + lane, v]
        ready[:] = 0.0
        busy[:] = 0.0
        free[:] = 0.0
        makespan[:] = 0.0
        for r in range(n):
            mine = r * WIDTH
            for lane in range(WIDTH):
                d = U(at[mine + lane])
                end = max(ready[mine + lane], busy[d * WIDTH + lane]) + time[r * D + d]
                busy[d * WIDTH + lane] = end
                ends[lane] = end
                makespan[lane] = max(makespan[lane], end)
            for t in range(U(tensor_ptr[r]), U(tensor_ptr[r + ONE])):
                amount = size[t]
                first, last = U(reader_ptr[t]), U(reader_ptr[t + ONE]) - ONE
                for c in range(first, last):
                    its, kept = U(reader[c]) * WIDTH, (c - first) * WIDTH
                    for lane in range(WIDTH):
                        p = U(at[mine + lane]) * D + U(at[its + lane])
                        lands = max(ends[lane], free[p * WIDTH + lane]) + (latency[p] + amount * rate[p])
                        landing[kept + lane] = lands
                        ready[its + lane] = max(ready[its + lane], lands)
                # The last reader, which is the only one in most cases, can take its link at once.
                its = U(reader[last]) * WIDTH
                for lane in range(WIDTH):
                    p = U(at[mine + lane]) * D + U(at[its + lane])
                    lands = max(ends[lane], free[p * WIDTH + lane]) + (latency[p] + amount * rate[p])
                    free[p * WIDTH + lane] = lands
                    ready[its + lane] = max(ready[its + lane], lands)
                for c in range(first, last):
                    its, kept = U(reader[c]) * WIDTH, (c - first) * WIDTH
                    for lane in range(WIDTH):
                        p = U(at[mine + lane]) * D + U(at[its + lane])
                        free[p * WIDTH + lane] = landing[kept + lane]
        for lane in range(lanes):
            cost[row + lane] = makespan[lane]


@njit(cache=True, nogil=True)
def static_traced(space, device, cost, trace, peak):  # type: ignore[no-untyped-def]
    """The same with peak memory (k, D) in bytes; ``trace`` receives the schedule of the last placement."""
    n, D, order, sequence = U(space.time.shape[0]), U(space.time.shape[1]), space.order, trace.sequence
    at, slot = np.empty(n, np.uint32), np.empty(D, np.uint64)
    for row in range(U(len(device))):
        for r in range(n):
            at[r] = device[row, U(order[r])]
        number_by_device(at, trace.sequence_ptr, slot)
        for r in range(n):
            sequence[slot[U(at[r])]] = r
            slot[U(at[r])] += ONE
        given_order(space, at, trace)
        cost[row] = trace.end.max() if n else 0.0
        if cost[row] < np.inf:
            peak_memory(space, at, trace, peak[row])


@njit(cache=True, nogil=True)
def given_order(space, at, trace):  # type: ignore[no-untyped-def]
    """The schedule in which each device follows ``trace.sequence`` strictly, waiting if need be.

    A device goes on until the next op of its sequence waits for an op that has not run; running that one,
    later, calls the device again. ``at`` (n,) is the device of each rank; the rest of ``trace`` is filled.
    Returns n, or if the devices wait for each other the rank that the first of them is stuck at.

    Complexity: O(ops + edges + devices²).
    """
    time, size, latency, rate = space.time, space.size, space.latency, space.rate
    sequence, ptr, starts, ends = trace.sequence, trace.sequence_ptr, trace.start, trace.end
    firsts, log, span, made = trace.first, trace.log, trace.span, ZERO
    tensor_ptr, reader_ptr, reader = space.tensor_ptr, space.reader_ptr, space.reader
    n, D = U(time.shape[0]), U(time.shape[1])
    missing, ready, busy, free = space.waits.copy(), np.zeros(n), np.zeros(D), np.zeros((D, D))
    landing, sent = np.empty(D), np.full(D, len(size), np.uint64)
    upcoming, called, calls = ptr[:D].copy(), np.ones(D, np.bool_), np.arange(len(busy))
    count = D
    while count > ZERO:
        count -= ONE
        d = U(calls[count])
        called[d] = False
        while upcoming[d] < ptr[d + ONE] and missing[U(sequence[U(upcoming[d])])] == 0:
            v = U(sequence[U(upcoming[d])])
            upcoming[d] += np.uint32(1)
            starts[v] = max(ready[v], busy[d])
            end = starts[v] + time[v, d]
            ends[v], busy[d] = end, end
            for t in range(U(tensor_ptr[v]), U(tensor_ptr[v + ONE])):
                firsts[t] = made
                sent[d], landing[d] = t, end
                for c in range(U(reader_ptr[t]), U(reader_ptr[t + ONE])):
                    u = U(reader[c])
                    e = U(at[u])
                    if sent[e] != t:
                        sent[e] = t
                        start = max(end, free[d, e])
                        landing[e] = start + (latency[d, e] + size[t] * rate[d, e])
                        free[d, e] = landing[e]
                        log[made, 0], log[made, 1], log[made, 2] = t, d, e
                        span[made, 0], span[made, 1] = start, landing[e]
                        made += ONE
                    ready[u] = max(ready[u], landing[e])
                    missing[u] -= 1
                    if missing[u] == 0 and e != d and not called[e] and sequence[U(upcoming[e])] == u:
                        called[e] = True
                        calls[count] = e
                        count += ONE
    trace.made[0] = made
    for d in range(D):
        if upcoming[d] < ptr[d + ONE]:
            return U(sequence[U(upcoming[d])])
    return n
