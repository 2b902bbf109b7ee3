"""Exhaustive search op by op, for constraints that packing does not know: convex devices, calls, peak memory.

Ops get their devices in a topological order. After each of them what can be said already is checked: memory;
that no path has left a device and come back (``contiguity="device"``); that no accelerator needs too
many calls and no calls wait for each other (``offload``). Complete placements are collected and judged by the
evaluator, so that the checks only have to be right where they refuse.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from loadmaster.arrays import BoolArray, FloatArray, IntArray, LongArray

__all__ = ["CALLS", "CONVEX", "FREE", "SLOTS", "Trying", "new_trying", "try_devices"]

FREE, CONVEX, CALLS, SLOTS = 0, 1, 2, 3
"""What is checked on the way: memory alone; convex devices; calls as the model cuts them; calls chosen freely."""


class Trying(NamedTuple):
    """The state of a search with n ops, C classes, D devices and at most Q calls."""

    mode: int
    calls: int
    """Q."""
    order: IntArray
    """(n,) a topological order; with calls that by which the model cuts them."""
    class_of: IntArray
    allowed: BoolArray
    """(C, D)."""
    memory: FloatArray
    """(C,) bytes."""
    capacity: FloatArray
    """(D,) bytes, a little widened against rounding."""
    pool: BoolArray
    """(D,)."""
    pred_ptr: IntArray
    pred: IntArray
    """(n + 1,), the arcs that the constraint looks at."""
    at: IntArray
    """(C,) device, or -1."""
    founder: IntArray
    """(C,) place in the order of the op that chose the device."""
    device: IntArray
    call: IntArray
    """(n,) of the ops that have been placed."""
    choice: IntArray
    """(n + 1,) the next choice to try at each place of the order."""
    left: LongArray
    """(n, D) CONVEX: whether a path to the op has left the device; CALLS: newest call that has a path to
    the op, plus one."""
    made: IntArray
    """(n + 1, D) CALLS: calls before each place of the order."""
    counts: LongArray
    """place in the order, whether the search is over."""


def new_trying(
    mode: int,
    order: IntArray,
    class_of: IntArray,
    allowed: BoolArray,
    memory: FloatArray,
    capacity: FloatArray,
    predecessors: tuple[IntArray, IntArray],
    pool: BoolArray,
    calls: int = 1,
) -> Trying:
    """A search that has not begun."""
    n, (classes, devices) = len(order), allowed.shape
    return Trying(
        mode=mode,
        calls=calls,
        order=order.astype(np.int32),
        class_of=class_of.astype(np.int32),
        allowed=allowed,
        memory=memory,
        capacity=capacity * (1 + 1e-12),
        pool=pool,
        pred_ptr=predecessors[0].astype(np.int32),
        pred=predecessors[1].astype(np.int32),
        at=np.full(classes, -1, np.int32),
        founder=np.full(classes, -1, np.int32),
        device=np.full(n, -1, np.int32),
        call=np.zeros(n, np.int32),
        choice=np.zeros(n + 1, np.int32),
        left=np.zeros((n, devices), np.int64),
        made=np.zeros((n + 1, devices), np.int32),
        counts=np.zeros(2, np.int64),
    )


@njit(cache=True, nogil=True)
def try_devices(s, steps, device, call):  # type: ignore[no-untyped-def]
    """Go on for at most so many steps, or until ``device`` and ``call`` (k, n) are full of complete placements.

    Returns (placements, whether everything has been tried).
    """
    n, devices = s.left.shape
    slots = s.calls if s.mode == SLOTS else 1
    found = 0
    for _ in range(steps):
        if s.counts[1]:
            return found, True
        place = s.counts[0]
        if place == n:
            device[found] = s.device
            call[found] = s.call
            found += 1
            _step_back(s)
            if found == len(device):
                break
            continue
        v = s.order[place]
        c = s.class_of[v]
        chosen = False
        while s.choice[place] < devices * slots:
            which = s.choice[place]
            s.choice[place] += 1
            # Begin with the device of a predecessor: neighbours mostly belong together.
            start = 0
            if s.pred_ptr[v] < s.pred_ptr[v + 1]:
                start = s.device[s.pred[s.pred_ptr[v + 1] - 1]]
            d, k = (start + which // slots) % devices, which % slots
            if s.at[c] >= 0 and s.at[c] != d:
                continue
            if s.pool[d] and k > 0:
                continue
            if s.at[c] < 0 and not (s.allowed[c, d] and _fits(s, c, d)):
                continue
            if _goes(s, place, v, d, k):
                chosen = True
                break
        if chosen:
            if s.at[c] < 0:
                s.at[c] = d
                s.founder[c] = place
            s.counts[0] = place + 1
            s.choice[place + 1] = 0
        else:
            _step_back(s)
    return found, bool(s.counts[1])


@njit(cache=True, nogil=True)
def _step_back(s):  # type: ignore[no-untyped-def]
    place = s.counts[0] - 1
    if place < 0:
        s.counts[1] = 1
        return
    s.counts[0] = place
    v = s.order[place]
    c = s.class_of[v]
    s.device[v] = -1
    if s.founder[c] == place:
        s.at[c] = -1
        s.founder[c] = -1


@njit(cache=True, nogil=True)
def _fits(s, c, d):  # type: ignore[no-untyped-def]
    used = s.memory[c]
    for other in range(len(s.memory)):
        if s.at[other] == d:
            used += s.memory[other]
    return used <= s.capacity[d]


@njit(cache=True, nogil=True)
def _goes(s, place, v, d, k):  # type: ignore[no-untyped-def]
    """Put op v on device d, and in call k where calls are chosen; False if that breaks a constraint."""
    devices = len(s.pool)
    s.device[v] = d
    s.call[v] = k
    if s.mode == CONVEX:
        for e in range(devices):
            s.left[v, e] = 0
        for i in range(s.pred_ptr[v], s.pred_ptr[v + 1]):
            u = s.pred[i]
            for e in range(devices):
                s.left[v, e] |= s.left[u, e]
            if s.device[u] != d:
                s.left[v, s.device[u]] = 1
        if s.left[v, d]:
            s.device[v] = -1
            return False
    elif s.mode == CALLS and not _cut(s, place, v, d):
        s.device[v] = -1
        return False
    if s.mode >= CALLS and not s.pool[d] and _wait_in_circle(s, place):
        s.device[v] = -1
        return False
    return True


@njit(cache=True, nogil=True)
def _cut(s, place, v, d):  # type: ignore[no-untyped-def]
    """The call of op v by the model's rule (``_cut_calls`` in the simulator); False if there are too many."""
    for e in range(len(s.pool)):
        s.made[place + 1, e] = s.made[place, e]
        newest = 0
        for i in range(s.pred_ptr[v], s.pred_ptr[v + 1]):
            newest = max(newest, s.left[s.pred[i], e])
        s.left[v, e] = newest
    if s.pool[d]:
        return True
    made = s.made[place, d]
    if made == 0:
        made = 1
    else:
        for i in range(s.pred_ptr[v], s.pred_ptr[v + 1]):
            u = s.pred[i]
            if s.left[u, d] == made and (s.device[u] != d or s.call[u] != made - 1):
                made += 1
                break
    s.made[place + 1, d] = made
    s.call[v] = made - 1
    s.left[v, d] = made
    return made <= s.calls


@njit(cache=True, nogil=True)
def _wait_in_circle(s, place):  # type: ignore[no-untyped-def]
    """Whether calls wait for each other already; what comes later adds ops and waits, and takes none away.

    Units are calls (device * Q + number) and, from D * Q on, single CPU ops. O(ops + arcs + D * Q).
    """
    devices, calls, n = len(s.pool), s.calls, len(s.order)
    units = devices * calls + n
    waiting = np.zeros(units, np.int32)
    first = np.full(units, -1, np.int32)
    following = np.full(n, -1, np.int32)
    for i in range(place + 1):
        v = s.order[i]
        unit = devices * calls + v if s.pool[s.device[v]] else s.device[v] * calls + s.call[v]
        following[v] = first[unit]
        first[unit] = v
    # Kahn's algorithm on the reversed graph: a unit is done when all that wait for it are done.
    for i in range(place + 1):
        v = s.order[i]
        mine = devices * calls + v if s.pool[s.device[v]] else s.device[v] * calls + s.call[v]
        for j in range(s.pred_ptr[v], s.pred_ptr[v + 1]):
            u = s.pred[j]
            other = devices * calls + u if s.pool[s.device[u]] else s.device[u] * calls + s.call[u]
            if other != mine:
                waiting[other] += 1
    for d in range(devices):
        for k in range(calls - 1):
            waiting[d * calls + k] += 1
    stack = np.empty(units, np.int32)
    top = done = 0
    for unit in range(units):
        if waiting[unit] == 0:
            stack[top] = unit
            top += 1
    while top:
        top -= 1
        unit = stack[top]
        done += 1
        if unit < devices * calls and unit % calls > 0:
            waiting[unit - 1] -= 1
            if waiting[unit - 1] == 0:
                stack[top] = unit - 1
                top += 1
        v = first[unit]
        while v >= 0:
            for j in range(s.pred_ptr[v], s.pred_ptr[v + 1]):
                u = s.pred[j]
                other = devices * calls + u if s.pool[s.device[u]] else s.device[u] * calls + s.call[u]
                if other != unit:
                    waiting[other] -= 1
                    if waiting[other] == 0:
                        stack[top] = other
                        top += 1
            v = following[v]
    return done < units
