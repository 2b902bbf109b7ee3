"""Peak memory of a schedule: how many bytes are alive at once on each device at the worst moment."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

__all__ = ["peak_memory"]

U: Any = np.uint64
ZERO, ONE, HALF, LOW_HALF = U(0), U(1), U(32), U(2**32 - 1)


@njit(cache=True, nogil=True)
def peak_memory(space, at, trace, peak):  # type: ignore[no-untyped-def]
    """Fill ``peak`` (D,) with the most bytes that are alive at once; ``at`` (n,) is the device of each rank.

    A tensor is alive on its producer's device from the start of the producer until its last reader there and
    its last outgoing transfer end, and on another device from the start of the transfer until its last reader
    there ends; one that nobody reads stays. What ends at an instant makes room for what starts then.

    Nothing has to be sorted: memory is taken when an op or an incoming transfer starts and given back when an
    op or an outgoing transfer ends, and per device and link these follow each other in the trace. So each
    device merges its sequence of ops with the queues of its links:

    moment, change : (2 n,) when the op at each place of the trace's sequence starts, at 2 i, and ends, at
        2 i + 1, and by how many bytes memory grows then.
    returned : (transfers,) bytes that are given back at the source of a transfer when it ends.
    queue, follower : the transfers of each link as a linked list: queue[d * D + e] is the first from d to e.
    upcoming, when : of each link to or from a device that is in use, its next transfer, and the moment at
        which that takes memory here (in the ``inward`` first ones) or gives it back.

    Complexity: O(ops + edges + transfers * devices + devices²).
    """
    log, span, ptr, size, resident = trace.log, trace.span, trace.sequence_ptr, space.bytes, space.resident
    n, D, nil = U(len(at)), U(len(peak)), U(trace.made[0])
    moment, change = np.empty(U(2) * n + ONE), np.empty(U(2) * n + ONE)
    returned = np.zeros(nil + ONE)
    _account(space, at, trace, moment, change, returned)
    queue, follower = np.full(D * D, nil), np.empty(nil, np.uint64)
    for i in range(nil):
        k = nil - ONE - i
        link = U(log[k, 1]) * D + U(log[k, 2])
        follower[k], queue[link] = queue[link], k
    upcoming, when = np.empty(U(2) * D + ONE, np.uint64), np.empty(U(2) * D + ONE)
    for d in range(D):
        links = ZERO
        for e in range(D):
            k = queue[e * D + d]
            if k != nil:
                upcoming[links], when[links] = k, span[k, 0]
                links += ONE
        inward = links
        for e in range(D):
            k = queue[d * D + e]
            if k != nil:
                upcoming[links], when[links] = k, span[k, 1]
                links += ONE
        which, soonest = _first(when, links)
        alive, most, now = 0.0, 0.0, 0.0
        for i in range(U(2) * U(ptr[d]), U(2) * U(ptr[d + ONE])):
            while soonest <= moment[i]:
                # Only when the clock moves on has everything at one instant been counted.
                most = max(most, alive if soonest > now else 0.0)
                now = soonest
                k = upcoming[which]
                follow = follower[k]
                upcoming[which] = follow
                if which < inward:
                    alive += size[U(log[k, 0])]
                    when[which] = span[follow, 0] if follow != nil else np.inf
                else:
                    alive -= returned[k]
                    when[which] = span[follow, 1] if follow != nil else np.inf
                which, soonest = _first(when, links)
            most = max(most, alive if moment[i] > now else 0.0)
            now = moment[i]
            alive += change[i]
        peak[d] = max(most, alive)  # after the last op, memory is only given back
    for r in range(n):
        peak[U(at[r])] += resident[r]


@njit(cache=True, nogil=True, inline="always")
def _first(when, count):  # type: ignore[no-untyped-def]
    """Index and value of the smallest of the first ``count``; infinite if there are none."""
    which, soonest = ZERO, np.inf
    for i in range(count):
        which = i if when[i] < soonest else which
        soonest = min(soonest, when[i])
    return which, soonest


@njit(cache=True, nogil=True)
def _account(space, at, trace, moment, change, returned):  # type: ignore[no-untyped-def]
    """Book outputs at the start of their op, and each copy of a tensor at the end of the op or transfer after
    which it can go.

    place : (n,) where the end of each rank is in ``moment``; on one device a later op has a larger place.
    latest : (D,) the place of the last reader on each device, with the number of the tensor, plus one, in the
        upper half: tensors come in ascending order, so the largest is what is wanted, and never an old one.

    ``moment``, ``change`` and ``returned`` have an entry more, for tensors without such a reader or transfer.
    """
    starts, ends, sequence = trace.start, trace.end, trace.sequence
    firsts, log, span, written = trace.first, trace.log, trace.span, space.written
    tensor_ptr, reader_ptr, reader, size = space.tensor_ptr, space.reader_ptr, space.reader, space.bytes
    n, made = U(len(at)), U(trace.made[0])
    place, latest = np.empty(n, np.uint64), np.zeros(space.time.shape[1], np.uint64)
    moment[U(2) * n] = -np.inf
    for i in range(n):
        v = U(sequence[i])
        place[v] = U(2) * i + ONE
        moment[U(2) * i], moment[U(2) * i + ONE] = starts[v], ends[v]
        change[U(2) * i], change[U(2) * i + ONE] = written[v], 0.0
    for v in range(n):
        for t in range(U(tensor_ptr[v]), U(tensor_ptr[v + ONE])):
            begin, end = U(reader_ptr[t]), U(reader_ptr[t + ONE])
            for c in range(begin, end):
                u = U(reader[c])
                e = U(at[u])
                latest[e] = max(latest[e], ((t + ONE) << HALF) | place[u])
            until, leaving = -np.inf, made
            k = U(firsts[t])
            while k < made and U(log[k, 0]) == t:
                change[latest[U(log[k, 2])] & LOW_HALF] -= size[t]
                leaving = k if span[k, 1] > until else leaving
                until = max(until, span[k, 1])
                k += ONE
            home = latest[U(at[v])]
            home = (home & LOW_HALF) if home >> HALF == t + ONE else U(2) * n
            stays = moment[home] >= until
            change[home] -= size[t] * stays
            returned[leaving] += size[t] * (not stays)
