"""Peak memory of a schedule: how many bytes are alive at once on each device at the worst moment."""

from __future__ import annotations

import numpy as np
from numba import njit

__all__ = ["peak_memory"]

U = np.uint64
ZERO, ONE = U(0), U(1)
NONE = U(1 << 62)


@njit(cache=True, nogil=True)
def peak_memory(space, at, trace, peak):  # type: ignore[no-untyped-def]
    """Fill ``peak`` (D,) with the largest number of bytes alive at once; ``at`` (n,) is the device of each rank.

    A tensor is alive on its producer's device from the start of the producer until its last reader there and its last
    outgoing transfer end, and on another device from the start of the transfer until its last reader there ends; one
    that nobody reads stays. What ends at an instant makes room for what starts then.

    Nothing has to be sorted: memory is taken when an op or an incoming transfer starts and given back when an op or an
    outgoing transfer ends, and per device and link these follow each other in the trace. So each device merges one
    sequence of ops with 2 (D - 1) queues of transfers:

    given : (n,) bytes that are given back when an op ends; returned : (transfers,) likewise at the source of a transfer.
    follower, first : the transfers of each link as linked lists, in the order of the log; first[d * D + e].
    inward, outward : (D,) the next transfer from and to each other device; when : (2 D + 1,) the next moment of each
        queue, that of the ops last.

    Complexity: O(edges + (ops + transfers) * devices).
    """
    start, end, log, span, sequence = trace.start, trace.end, trace.log, trace.span, trace.sequence
    size, written = space.bytes, space.written
    n, D, made = U(len(at)), U(len(peak)), U(trace.made[0])
    given, returned = np.zeros(n), np.zeros(made)
    _release(space, at, trace, given, returned)
    follower, first = np.empty(made, np.uint64), np.full(D * D, NONE)
    for i in range(made):
        k = made - ONE - i
        p = U(log[k, 1]) * D + U(log[k, 2])
        follower[k], first[p] = first[p], k
    inward, outward = np.empty(D, np.uint64), np.empty(D, np.uint64)
    when = np.empty(U(2) * D + ONE)
    ops = U(2) * D
    for d in range(D):
        when[:] = np.inf
        for e in range(D):
            inward[e], outward[e] = first[e * D + d], first[d * D + e]
            if inward[e] != NONE:
                when[e] = span[inward[e], 0]
            if outward[e] != NONE:
                when[D + e] = span[outward[e], 1]
        i, last = U(trace.sequence_ptr[d]), U(trace.sequence_ptr[d + ONE])
        started = False
        if i < last:
            when[ops] = start[U(sequence[i])]
        alive, most, now = 0.0, 0.0, 0.0
        while True:
            which = ops
            for q in range(ops):
                which = q if when[q] < when[which] else which
            moment = when[which]
            # Only when the clock moves on has everything at one instant been counted.
            if moment > now:
                most = max(most, alive)
                now = moment
            if moment == np.inf:
                break
            if which == ops:
                v = U(sequence[i])
                if started:
                    alive -= given[v]
                    i += ONE
                    when[ops] = start[U(sequence[i])] if i < last else np.inf
                else:
                    alive += written[v]
                    when[ops] = end[v]
                started = not started
            elif which < D:
                k = inward[which]
                alive += size[U(log[k, 0])]
                inward[which] = follower[k]
                when[which] = span[follower[k], 0] if follower[k] != NONE else np.inf
            else:
                k = outward[which - D]
                alive -= returned[k]
                outward[which - D] = follower[k]
                when[which] = span[follower[k], 1] if follower[k] != NONE else np.inf
        peak[d] = most
    _add_resident(space, at, peak)


@njit(cache=True, nogil=True)
def _release(space, at, trace, given, returned):  # type: ignore[no-untyped-def]
    """Book the bytes of every tensor on the op, or the transfer, at whose end its last copy on a device can go."""
    end, log, span, first, size = trace.end, trace.log, trace.span, trace.first, space.bytes
    tensor_ptr, reader_ptr, reader = space.tensor_ptr, space.reader_ptr, space.reader
    D, made = U(space.time.shape[1]), U(trace.made[0])
    last, stamp = np.zeros(D, np.uint64), np.full(D, NONE)
    for v in range(U(len(at))):
        home = U(at[v])
        for t in range(U(tensor_ptr[v]), U(tensor_ptr[v + ONE])):
            for c in range(U(reader_ptr[t]), U(reader_ptr[t + ONE])):
                u = U(reader[c])
                e = U(at[u])
                if stamp[e] != t or end[u] > end[last[e]]:
                    stamp[e], last[e] = t, u
            until, leaves = -np.inf, NONE
            k = U(first[t])
            while k < made and U(log[k, 0]) == t:
                given[last[U(log[k, 2])]] += size[t]
                if span[k, 1] > until:
                    until, leaves = span[k, 1], k
                k += ONE
            if stamp[home] == t and end[last[home]] >= until:
                given[last[home]] += size[t]
            else:
                returned[leaves] += size[t]


@njit(cache=True, nogil=True)
def _add_resident(space, at, peak):  # type: ignore[no-untyped-def]
    """Add what stays all the time, in the order of the ops."""
    order, resident = space.order, space.resident
    stays, device = np.zeros(len(peak)), np.empty(len(at), np.uint64)
    for r in range(U(len(at))):
        device[U(order[r])] = at[r]
    for v in range(U(len(at))):
        stays[device[v]] += resident[v]
    peak += stays
