"""The event-driven schedule of the ``concurrent`` execution model: a free device takes its best ready op.

No heap of events is needed. An arrival matters only to the device that it reaches, and to that one only when
it looks for its next op; so each device has one moment at which it *wakes*: the end of the op it runs or, if
it is idle, the first arrival on its way. The simulation goes from one earliest wake to the next. Transfers of
one ordered pair of devices arrive in the order in which they leave, so each pair is a plain queue.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba import njit
from numba.cpython.unsafe import numbers

from loadmaster.problem.concurrent._peak import peak_memory
from loadmaster.problem.concurrent._rank import number_by_device

__all__ = ["event_kernel"]

SPECIALISED = 9
"""Up to this many devices their number is a compile-time constant, and loops over devices are unrolled."""

# Unsigned indices spare numba's test for negative ones. (Mixed with signed ones they would become floats.)
U: Any = np.uint64
ZERO, ONE, SIX, TWELVE, SIXTEEN, EIGHTEEN, LOW_SIX = U(0), U(1), U(6), U(12), U(16), U(18), U(63)
NOBODY = U(1 << 62)
trailing_zeros: Any = numbers.trailing_zeros


def event_kernel(devices: int, *, traced: bool) -> Callable[..., None]:
    """The kernel for a number of devices, which is compiled when first called."""
    return _event_kernel(devices if devices <= SPECIALISED else 0, traced)


@cache
def _event_kernel(devices: int, traced: bool) -> Callable[..., None]:
    """``kernel(space, device, cost, trace, peak)`` for a number of devices, or for any if it is 0.

    It fills ``cost`` (k,) with the makespans of the placements ``device`` (k, n), infinite where an op is
    unsupported. If ``traced``, it also fills ``peak`` (k, D) with bytes (where the makespan is finite), and
    ``trace`` receives what happened in the last placement.

    The state of a simulation of n ops, E (tensor, reader) pairs and D devices:

    at : (n,) device of each rank.
    missing : (n,) how many of its inputs an op still waits for.
    ready : the ready ops of each device as a bitset of three levels: D rows of ``stride`` words. The first
        words have one bit per rank, those from ``middle`` on one bit per word before them that is not zero,
        those from ``top`` on one bit per word of these.
    best : (D,) the smallest rank in each bitset, or NOBODY.
    running : (D,) what a device runs; n, an op without outputs, if it is idle.
    wake : (D,) when a device has something to do: the end of its op or, if it is idle, the next arrival.
    until : (D,) the end of the op it runs; -inf if it is idle.
    free : (D * D,) when the link from d to e, at d * D + e, is free; latency and rate of links likewise.
    head : (D * D,) the next arrival at e from d, at **e * D + d**: one row per receiver.
    taken, tail : (D * D,) the queue of a link: the last entry that was taken out, and the last that was put
        in.
    arrival, follower : (E + 1 + D * D,) the entries of all queues: one per (tensor, reader) pair, then
        ``nil``, which ends every queue, then one per link with which its queue begins. When it arrives, and
        which entry comes next.
    landing : (D,) when the tensor at hand reaches each device.

    Only where there are many devices: ``nearest`` (D,), the next arrival at each, and ``earliest`` (blocks,),
    the smallest ``wake`` of each 16. Only where there is a trace: ``sent`` (D,), the tensor that was last
    sent to each device, and ``slot`` (D,), where its next op goes in the trace's sequence.

    Branches that depend on the placement are avoided, since they would be mispredicted half of the time: bits
    are set by shifting a comparison, and readers on the producer's own device pass through a queue that
    nobody looks at.

    Complexity: O(ops + edges + rounds * devices) per placement; a round is an instant at which some device
    wakes.
    """
    few, eager, constant = devices > 0, 0 < devices <= 4, U(devices)
    at_type = np.uint8 if few else np.uint32

    @njit(cache=True, nogil=True)
    def kernel(space, device, cost, trace, peak):  # type: ignore[no-untyped-def]
        order, time, waits, size = space.order, space.time, space.waits, space.size
        tensor_ptr, reader_ptr, reader = space.tensor_ptr, space.reader_ptr, space.reader
        latency, rate = space.latency.ravel(), space.rate.ravel()
        starts, ends, sequence, firsts = trace.start, trace.end, trace.sequence, trace.first
        log, span, made = trace.log, trace.span, ZERO
        D = constant if few else U(time.shape[1])
        n, nil = U(len(order)), U(len(reader))
        pairs, queues = D * D, nil + ONE
        at, missing = np.empty(n, at_type), np.empty(n, np.int32)
        middle = (n >> SIX) + ONE
        top = middle + (n >> TWELVE) + ONE
        stride = top + (n >> EIGHTEEN) + ONE
        ready, best = np.empty(D * stride, np.uint64), np.empty(D, np.uint64)
        running, wake, until = np.empty(D, np.uint64), np.empty(D), np.empty(D)
        free, head, landing = np.empty(pairs), np.empty(pairs), np.empty(D)
        taken, tail = np.empty(pairs, np.uint64), np.empty(pairs, np.uint64)
        arrival, follower = np.empty(queues + pairs), np.empty(queues + pairs, np.uint32)
        blocks = ONE if few else (D + SIXTEEN - ONE) // SIXTEEN
        nearest, earliest = np.empty(D), np.empty(blocks)
        sent, slot = np.empty(D, np.uint64), np.empty(D, np.uint64)
        for row in range(U(len(device))):
            for p in range(pairs):
                free[p], head[p] = 0.0, np.inf
                taken[p], tail[p], follower[queues + p] = queues + p, queues + p, nil
            arrival[nil] = np.inf
            earliest[:] = 0.0
            for d in range(D):
                wake[d], until[d], nearest[d] = 0.0, -np.inf, np.inf
                best[d], running[d] = NOBODY, n
            ready[:] = ZERO
            for r in range(n):
                at[r], missing[r] = device[row, U(order[r])], waits[r]
            for r in range(n):
                if waits[r] == 0:
                    d = U(at[r])
                    _put(ready, d * stride, middle, top, r, ONE)
                    best[d] = min(best[d], r)
            if traced:
                sent[:] = NOBODY
                number_by_device(at, trace.sequence_ptr, slot)
                made = ZERO
            makespan = 0.0
            while True:
                now = _least(wake, ZERO, D) if few else _least(earliest, ZERO, blocks)
                if now == np.inf:
                    break
                # First, everything that is complete by now: outputs reach their readers or leave for them.
                for b in range(blocks):
                    due = ZERO
                    if few:
                        due = _due(wake, ZERO, D, now)
                    elif earliest[b] <= now:
                        due = _due(wake, b * SIXTEEN, min(SIXTEEN, D - b * SIXTEEN), now)
                    while due != ZERO:
                        d = trailing_zeros(due) if few else b * SIXTEEN + trailing_zeros(due)
                        due &= due - ONE
                        v, base, first, near = running[d], d * stride, best[d], nearest[d]
                        for t in range(U(tensor_ptr[v]), U(tensor_ptr[v + ONE])):
                            begin, end = U(reader_ptr[t]), U(reader_ptr[t + ONE])
                            # Readers on one device share a transfer: find all landings, then take links.
                            if eager:
                                for e in range(D):
                                    p = d * D + e
                                    landing[e] = max(now, free[p]) + (latency[p] + size[t] * rate[p])
                            else:
                                for c in range(begin, end):
                                    e = U(at[U(reader[c])])
                                    p = d * D + e
                                    landing[e] = max(now, free[p]) + (latency[p] + size[t] * rate[p])
                            if traced:
                                firsts[t] = made
                            for c in range(begin, end):
                                u = U(reader[c])
                                e = U(at[u])
                                p, q = d * D + e, e * D + d
                                lands = landing[e]
                                if traced and e != d and sent[e] != t:
                                    sent[e] = t
                                    log[made, 0], log[made, 1], log[made, 2] = t, d, e
                                    span[made, 0], span[made, 1] = max(now, free[p]), lands
                                    made += ONE
                                arrival[c] = lands
                                follower[tail[p]] = c
                                follower[c] = nil
                                tail[p] = c
                                free[p] = lands
                                head[q] = min(head[q], lands)
                                wake[e] = max(min(wake[e], lands), until[e])
                                if not few:
                                    nearest[e] = min(nearest[e], lands)
                                    earliest[e // SIXTEEN] = min(earliest[e // SIXTEEN], wake[e])
                                left = missing[u] - (e == d)
                                missing[u] = left
                                _put(ready, base, middle, top, u, U(left == 0))
                                first = min(first, u if left == 0 else NOBODY)
                        head[d * D + d], nearest[d] = np.inf, near
                        best[d], running[d], wake[d], until[d] = first, n, now, -np.inf
                # Then every idle device takes in what has arrived, and starts its best ready op.
                for b in range(blocks):
                    due = ZERO
                    if few:
                        due = _due(wake, ZERO, D, now)
                    elif earliest[b] <= now:
                        due = _due(wake, b * SIXTEEN, min(SIXTEEN, D - b * SIXTEEN), now)
                    while due != ZERO:
                        d = trailing_zeros(due) if few else b * SIXTEEN + trailing_zeros(due)
                        due &= due - ONE
                        base, first = d * stride, best[d]
                        if few or nearest[d] <= now:
                            near = np.inf
                            for s in range(D):
                                lands = head[d * D + s]
                                if lands <= now:
                                    c = taken[s * D + d]
                                    while lands <= now:
                                        c = U(follower[c])
                                        u = U(reader[c])
                                        left = missing[u] - 1
                                        missing[u] = left
                                        _put(ready, base, middle, top, u, U(left == 0))
                                        first = min(first, u if left == 0 else NOBODY)
                                        lands = arrival[U(follower[c])]
                                    taken[s * D + d], head[d * D + s] = c, lands
                                near = min(near, lands)
                            nearest[d] = near
                        if first != NOBODY:
                            done = now + time[first, d]
                            wake[d], until[d], running[d] = done, done, first
                            makespan = max(makespan, done)
                            if traced:
                                starts[first], ends[first], sequence[slot[d]] = now, done, first
                                slot[d] += ONE
                            first = _pop(ready, base, middle, top, stride, first)
                        else:
                            wake[d] = nearest[d]
                        best[d] = first
                    if not few and earliest[b] <= now:
                        earliest[b] = _least(wake, b * SIXTEEN, min(SIXTEEN, D - b * SIXTEEN))
            cost[row] = makespan
            if traced:
                trace.made[0] = made
            if traced and makespan < np.inf:
                peak_memory(space, at, trace, peak[row])

    return kernel


# Inlined by numba, not by LLVM, these two are unrolled where the number of devices is a constant.


@njit(cache=True, nogil=True, inline="always")
def _least(values, begin, count):  # type: ignore[no-untyped-def]
    """The smallest of ``values[begin : begin + count]``."""
    least = values[begin]
    for i in range(begin + ONE, begin + count):
        least = min(least, values[i])
    return least


@njit(cache=True, nogil=True, inline="always")
def _due(wake, begin, count, now):  # type: ignore[no-untyped-def]
    """Bit i is set if the device ``begin + i`` wakes by ``now``."""
    due = ZERO
    for i in range(count):
        due |= U(wake[begin + i] <= now) << i
    return due


@njit(cache=True, nogil=True)
def _put(ready, base, middle, top, op, flag):  # type: ignore[no-untyped-def]
    """Put ``op`` into the bitset at ``base`` if ``flag`` is 1."""
    ready[base + (op >> SIX)] |= flag << (op & LOW_SIX)
    ready[base + middle + (op >> TWELVE)] |= flag << ((op >> SIX) & LOW_SIX)
    ready[base + top + (op >> EIGHTEEN)] |= flag << ((op >> TWELVE) & LOW_SIX)


@njit(cache=True, nogil=True)
def _pop(ready, base, middle, top, stride, op):  # type: ignore[no-untyped-def]
    """Take ``op``, the smallest of the bitset at ``base``, out of it; the smallest left, or NOBODY."""
    i, j, k = op >> SIX, op >> TWELVE, op >> EIGHTEEN
    low = ready[base + i] & (ready[base + i] - ONE)
    ready[base + i] = low
    mid = ready[base + middle + j] & ~(U(low == ZERO) << (i & LOW_SIX))
    ready[base + middle + j] = mid
    high = ready[base + top + k] & ~(U(mid == ZERO) << (j & LOW_SIX))
    ready[base + top + k] = high
    while high == ZERO:
        k += ONE
        if top + k >= stride:
            return NOBODY
        high = ready[base + top + k]
    j = (k << SIX) | trailing_zeros(high)
    i = (j << SIX) | trailing_zeros(ready[base + middle + j])
    return (i << SIX) | trailing_zeros(ready[base + i])
