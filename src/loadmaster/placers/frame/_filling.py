"""Exhaustive search for a packing: device after device is filled until nothing more fits.

The atoms have memories, devices on which they are allowed, and perhaps arcs: under ``contiguity="chain"`` the
devices stand in a line and data only flows forward, so that the atoms on the first so many devices are an ideal.
Without arcs it is plain packing. In both only *full* devices matter: where a device could take one more
atom that is ready, moving the atom there from a later device breaks nothing. This is the rule of maximal loads
from assembly line balancing; together with a table of the states (atoms placed, devices used) that failed it
decides graphs of some 45 ops in milliseconds.

References
----------
J. R. Jackson, "A computing procedure for a line balancing problem", Management Science 2(3), 1956 (maximal
loads). S. Martello, P. Toth, "Knapsack problems", 1990, chapter 8 (packing by completing bins).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from loadmaster.arrays import BoolArray, FloatArray, IntArray, LongArray

__all__ = ["EXHAUSTED", "FOUND", "REJECTED", "UNDECIDED", "Filling", "fill_devices", "new_filling"]

UNDECIDED, FOUND, EXHAUSTED = 0, 1, 2
"""What a slice of the search ends with."""

TAKE, SKIP, OPEN = 0, 1, 2
TABLE = 2**17
"""States whose failure can be remembered (half of them, as it is a hash table)."""
DEPTH, LEVEL, BACK, REJECTED = 0, 1, 2, 3


class Filling(NamedTuple):
    """The state of a search with A atoms, n ops and D devices. Atoms are numbered as they are to be tried."""

    allowed: BoolArray
    """(A, D)."""
    memory: FloatArray
    """(A,) bytes."""
    capacity: FloatArray
    """(D,) bytes, a little widened against rounding: whether a packing fits is judged when it is complete."""
    successor_ptr: IntArray
    successor: IntArray
    twin: IntArray
    """(D,) an equal device that is to be used before this one, or -1."""
    op_atom: IntArray
    op_memory: FloatArray
    true_capacity: FloatArray
    """(n,), (n,), (D,) by which a complete packing is judged, the bytes added up op by op."""
    key: npt.NDArray[np.uint64]
    """(A + D, 2) random words whose exclusive or names a state."""
    at: IntArray
    """(A,) device, or -1."""
    waiting: IntArray
    """(A,) predecessors that are not placed."""
    skipped: IntArray
    """(A,) level at which the atom was left out, or -1."""
    used: BoolArray
    """(D,)."""
    device: IntArray
    taken: IntArray
    load: FloatArray
    rest: FloatArray
    """(D + 2,) by level: the device that is being filled, its atoms and bytes, and the bytes that were not
    placed when it was opened."""
    name: npt.NDArray[np.uint64]
    """(D + 2, 2) by level: name of the state in which the device was opened."""
    trail: LongArray
    """(length, 3) decisions: kind, atom or device, and the value of ``skipped`` that a SKIP replaced."""
    table: npt.NDArray[np.uint64]
    """(TABLE, 2) names of states that failed."""
    counts: LongArray
    """depth of the trail, level, whether to go back, packings rejected, states in the table."""


def new_filling(
    allowed: BoolArray,
    memory: FloatArray,
    capacity: FloatArray,
    arcs: tuple[IntArray, IntArray],
    op_atom: IntArray,
    op_memory: FloatArray,
    slack: float,
) -> Filling:
    """A search that has not begun.

    arcs : (successor_ptr, successor) of the atoms.
    slack : what the capacities are multiplied by during the search.
    """
    count, devices = allowed.shape
    ptr, successor = arcs
    twin = np.full(devices, -1, np.int32)
    for d in range(devices):
        for e in range(d - 1, -1, -1):
            if capacity[d] == capacity[e] and (allowed[:, d] == allowed[:, e]).all():
                twin[d] = e
                break
    key = np.random.default_rng(1).integers(1, 2**63, (count + devices, 2)).astype(np.uint64)
    return Filling(
        allowed=allowed,
        memory=memory,
        capacity=capacity * slack,
        successor_ptr=ptr.astype(np.int32),
        successor=successor.astype(np.int32),
        twin=twin,
        op_atom=op_atom.astype(np.int32),
        op_memory=op_memory,
        true_capacity=capacity,
        key=key,
        at=np.full(count, -1, np.int32),
        waiting=np.bincount(successor, minlength=count).astype(np.int32),
        skipped=np.full(count, -1, np.int32),
        used=np.zeros(devices, np.bool_),
        device=np.full(devices + 2, -1, np.int32),
        taken=np.zeros(devices + 2, np.int32),
        load=np.zeros(devices + 2),
        rest=np.full(devices + 2, memory.sum()),
        name=np.zeros((devices + 2, 2), np.uint64),
        trail=np.zeros((devices * (count + 1) + count + 2, 3), np.int64),
        table=np.zeros((TABLE, 2), np.uint64),
        counts=np.zeros(5, np.int64),
    )


@njit(cache=True, nogil=True)
def fill_devices(s, steps):  # type: ignore[no-untyped-def]
    """Go on searching for at most so many steps; FOUND leaves the packing in ``s.at``.

    level : number of devices opened, the last of which is being filled; between two devices the next one is
        chosen (:func:`_open`).
    """
    count = len(s.memory)
    for _ in range(steps):
        if s.counts[BACK]:
            if s.counts[DEPTH] == 0:
                return EXHAUSTED
            _go_back(s)
            continue
        level = s.counts[LEVEL]
        if level == 0:
            if count == 0:
                return FOUND
            _open(s, 0)
            continue
        d = s.device[level]
        free = s.capacity[d] - s.load[level]
        best = -1
        for a in range(count):
            ready = s.at[a] < 0 and s.waiting[a] == 0 and s.skipped[a] != level
            if ready and s.allowed[a, d] and s.memory[a] <= free:
                best = a
                break
        if best >= 0:
            _take(s, level, d, best)
        else:
            _close(s, level, d)
            if s.counts[REJECTED] < 0:
                s.counts[REJECTED] = -s.counts[REJECTED] - 1
                return FOUND
    return UNDECIDED


@njit(cache=True, nogil=True)
def _push(s, kind, item, old):  # type: ignore[no-untyped-def]
    depth = s.counts[DEPTH]
    s.trail[depth, 0], s.trail[depth, 1], s.trail[depth, 2] = kind, item, old
    s.counts[DEPTH] = depth + 1


@njit(cache=True, nogil=True)
def _take(s, level, d, a):  # type: ignore[no-untyped-def]
    s.at[a] = d
    s.taken[level] += 1
    s.load[level] += s.memory[a]
    for i in range(s.successor_ptr[a], s.successor_ptr[a + 1]):
        s.waiting[s.successor[i]] -= 1
    _push(s, TAKE, a, 0)


@njit(cache=True, nogil=True)
def _loaded(s, d):  # type: ignore[no-untyped-def]
    """Bytes on a device, added up afresh: taking away again would gather rounding."""
    total = 0.0
    for a in range(len(s.memory)):
        if s.at[a] == d:
            total += s.memory[a]
    return total


@njit(cache=True, nogil=True)
def _room_left(s, d):  # type: ignore[no-untyped-def]
    """Bytes that the devices not used yet, and d, can hold."""
    room = s.capacity[d]
    for e in range(len(s.used)):
        if not s.used[e]:
            room += s.capacity[e]
    return room


@njit(cache=True, nogil=True)
def _elsewhere(s, a):  # type: ignore[no-untyped-def]
    """Whether an atom may go to a device that is not used yet."""
    found = False
    for e in range(len(s.used)):
        found = found or (s.allowed[a, e] and not s.used[e])
    return found


@njit(cache=True, nogil=True)
def _too_empty(s, level, d, most):  # type: ignore[no-untyped-def]
    """Whether the rest cannot fit elsewhere if the device holds at most ``most`` bytes."""
    room = _room_left(s, d)
    if room == np.inf:
        return False
    waste = s.capacity[d] - most
    return waste > (room - s.rest[level]) + 1e-9 * s.rest[level]


@njit(cache=True, nogil=True)
def _go_back(s):  # type: ignore[no-untyped-def]
    """Undo the last decision and make the next one in its place, if there is one."""
    depth = s.counts[DEPTH] - 1
    s.counts[DEPTH] = depth
    level = s.counts[LEVEL]
    kind, item = s.trail[depth, 0], s.trail[depth, 1]
    d = s.device[level]
    if kind == TAKE:
        s.at[item] = -1
        s.taken[level] -= 1
        s.load[level] = _loaded(s, d)
        for i in range(s.successor_ptr[item], s.successor_ptr[item + 1]):
            s.waiting[s.successor[i]] += 1
        # Leaving it out: it must find another device, and enough others must be left to fill this one.
        # Without memory it would fit at the end as well.
        if s.memory[item] == 0.0 or not _elsewhere(s, item):
            return
        _push(s, SKIP, item, s.skipped[item])
        s.skipped[item] = level
        most = s.load[level]
        for a in range(len(s.memory)):
            if s.at[a] < 0 and s.allowed[a, d] and s.skipped[a] != level:
                most += s.memory[a]
        s.counts[BACK] = _too_empty(s, level, d, min(most, s.capacity[d]))
    elif kind == SKIP:
        s.skipped[item] = s.trail[depth, 2]
    else:
        s.used[item] = False
        s.counts[LEVEL] = level - 1
        _open(s, item + 1)


@njit(cache=True, nogil=True)
def _close(s, level, d):  # type: ignore[no-untyped-def]
    """The device is full: judge the packing if it is complete, else open the next device.

    A packing that fits is told by a negative number of rejected ones.
    """
    count, devices = len(s.memory), len(s.used)
    s.counts[BACK] = 1
    if s.taken[level] == 0:
        return
    free = s.capacity[d] - s.load[level]
    left = 0
    for a in range(count):
        if s.at[a] < 0:
            left += 1
            if s.skipped[a] == level and s.waiting[a] == 0 and s.memory[a] <= free:
                return
            if not _elsewhere(s, a):
                return
    if left == 0:
        total = np.zeros(devices)
        for v in range(len(s.op_atom)):
            total[s.at[s.op_atom[v]]] += s.op_memory[v]
        for e in range(devices):
            if total[e] > s.true_capacity[e]:
                s.counts[REJECTED] += 1
                return
        s.counts[REJECTED] = -s.counts[REJECTED] - 1
        return
    if _too_empty(s, level, d, s.load[level]):
        return
    s.rest[level + 1] = s.rest[level] - s.load[level]
    first, second = np.uint64(0), np.uint64(0)
    for a in range(count):
        if s.at[a] >= 0:
            first ^= s.key[a, 0]
            second ^= s.key[a, 1]
    for e in range(devices):
        if s.used[e]:
            first ^= s.key[count + e, 0]
            second ^= s.key[count + e, 1]
    s.name[level + 1, 0], s.name[level + 1, 1] = first, second
    if not _failed(s, first, second):
        _open(s, 0)


@njit(cache=True, nogil=True)
def _open(s, first):  # type: ignore[no-untyped-def]
    """Open the next device from ``first`` on that may be the one to fill; if there is none, this state failed."""
    level = s.counts[LEVEL]
    for d in range(first, len(s.used)):
        if s.used[d] or (s.twin[d] >= 0 and not s.used[s.twin[d]]):
            continue
        s.used[d] = True
        s.counts[LEVEL] = level + 1
        s.device[level + 1] = d
        s.taken[level + 1] = 0
        s.load[level + 1] = 0.0
        _push(s, OPEN, d, 0)
        s.counts[BACK] = 0
        return
    s.counts[BACK] = 1
    if level > 0:
        _remember(s, s.name[level + 1, 0], s.name[level + 1, 1])


@njit(cache=True, nogil=True)
def _failed(s, first, second):  # type: ignore[no-untyped-def]
    i = np.int64(first % np.uint64(len(s.table)))
    while s.table[i, 0] != 0 or s.table[i, 1] != 0:
        if s.table[i, 0] == first and s.table[i, 1] == second:
            return True
        i = (i + 1) % len(s.table)
    return False


@njit(cache=True, nogil=True)
def _remember(s, first, second):  # type: ignore[no-untyped-def]
    if 2 * s.counts[4] >= len(s.table):
        return
    i = np.int64(first % np.uint64(len(s.table)))
    while s.table[i, 0] != 0 or s.table[i, 1] != 0:
        i = (i + 1) % len(s.table)
    s.table[i, 0], s.table[i, 1] = first, second
    s.counts[4] += 1
