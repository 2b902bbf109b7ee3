"""Stages that reach over a station, all at once.

Where the ideals of one size are few, each of them is a *station*. By taking away the last atom of an ideal
again and again one comes to exactly one station M of that size, and there the walk down from the ideal ends
(``_kernel.py``). What it would meet beyond are starts J of stages that contain the same atoms outside
M. So only the loads of M - J matter, and how M - J meets the nets that cross M: for each of them it has none
of the pins inside M, all of them, or some of them, with or without the producer. That is the *signature* of
M - J; stages with the same one form a group. Within a group, a kind and a state, a stage is dropped if another
is no worse in value, load and memory.

What remains is a :class:`Front` (``_starts.py`` builds it). Without fronts the program would look at
all pairs of ideals; with them, at those between two such sizes, which is what makes long graphs cheap.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from loadmaster.arrays import BoolArray, FloatArray, IntArray, LongArray
from loadmaster.placers.stages._tables import Tables
from loadmaster.placers.stages._walk import offer

__all__ = ["ALL", "NONE", "RECEIVES", "SENDS", "Front", "empty_front", "extend", "unite"]


NONE, ALL, SENDS, RECEIVES = 0, 1, 2, 3
"""How a stage meets a net that crosses the station: no pin inside, all of them, some and the producer, some
without it.
"""


class Front(NamedTuple):
    """W stations, X nets that cross one of them, G groups of lists of stages."""

    size: int
    """Number of atoms of a station."""
    member: BoolArray
    """(W, N) the atoms of each station."""
    net: IntArray
    """(X,)."""
    before: IntArray
    """(W, X) pins inside each station."""
    station: IntArray
    """(G,)."""
    signature: npt.NDArray[np.uint8]
    """(G, X)."""
    group_ptr: LongArray
    """(G + 1,) lists of each group."""
    list_ptr: LongArray
    kind: IntArray
    state: IntArray
    """(lists,) stages, kind of device, state before the stage."""
    value: FloatArray
    origin: IntArray
    """(stages,) largest load before the stage, and the ideal that it starts from."""
    cost: FloatArray
    """(stages, columns) each load (compute and communication apart if they overlap), then memory if it
    matters.
    """
    work: FloatArray
    """(stages, L) compute alone, which only grows."""


def empty_front(tables: Tables) -> Front:
    """At the empty ideal there is no stage yet."""
    columns = tables.loads * (2 if tables.overlap else 1) + int(tables.crowded)
    none, zero = np.zeros(0, np.int32), np.zeros(1, np.int64)
    return Front(
        size=0,
        member=np.zeros((1, len(tables.memory)), np.bool_),
        net=none,
        before=np.zeros((1, 0), np.int32),
        station=none,
        signature=np.zeros((0, 0), np.uint8),
        group_ptr=zero,
        list_ptr=zero,
        kind=none,
        state=none,
        value=np.zeros(0),
        origin=none,
        cost=np.zeros((0, columns)),
        work=np.zeros((0, tables.loads)),
    )


@njit(cache=True, nogil=True)
def unite(tables, front, walk, group, extra):  # type: ignore[no-untyped-def]
    """Fill ``extra``: communication of a stage of the group united with the walk's stage, less that of the
    two apart.

    Only nets count that both have pins of. The walk stands at the station, so that its stage has no pin
    inside, and each of the two apart pays for the net: by sending if it has the producer, else by receiving.
    """
    loads, channels = tables.loads, tables.send.shape[1]
    extra[:] = 0.0
    station = front.station[group]
    for x in range(len(front.net)):
        e, how = front.net[x], front.signature[group, x]
        if how == NONE or walk.have[e] == 0:
            continue
        home, before = tables.home[e], front.before[station, x]
        first = how == SENDS or (how == ALL and front.member[station, home])
        second = walk.inside[home]
        whole = how == ALL and walk.have[e] == tables.pins[e] - before
        for c in range(channels):
            send, recv = tables.send[e, c], tables.recv[e, c]
            change = -(send if first else recv) - (send if second else recv)
            if not whole:
                change += send if first or second else recv
            extra[c * loads + tables.load[e]] += change


@njit(cache=True, nogil=True)
def extend(tables, rules, front, walk, depth, station):  # type: ignore[no-untyped-def]
    """Offer the target of the walk all stages of a station's groups, united with the walk's stage."""
    simple = tables.loads == 1 and not tables.overlap and not tables.crowded
    for group in range(len(front.station)):
        if front.station[group] != station:
            continue
        unite(tables, front, walk, group, walk.extra)
        for i in range(front.group_ptr[group], front.group_ptr[group + 1]):
            k = front.kind[i]
            state = tables.following[front.state[i], k]
            if walk.row[state] < 0.0:
                continue
            low, high = front.list_ptr[i], front.list_ptr[i + 1]
            if not simple:
                for j in range(low, high):
                    value = _united_value(tables, rules, front, walk, depth, k, j)
                    if value < rules.limit:
                        offer(walk, state, value, front.origin[j], k)
                continue
            c = tables.channel[k]
            more = walk.compute[depth, k]
            if c >= 0:
                more += walk.comm[depth, c] + walk.extra[c]
            # Along a list values fall and loads rise: the best is where they meet.
            a, b = low, high
            while a < b:
                middle = (a + b) // 2
                if front.cost[middle, 0] + more < front.value[middle]:
                    a = middle + 1
                else:
                    b = middle
            for j in range(max(a - 1, low), min(a + 1, high)):
                offer(walk, state, max(front.value[j], front.cost[j, 0] + more), front.origin[j], k)


@njit(cache=True, nogil=True)
def _united_value(tables, rules, front, walk, depth, k, j):  # type: ignore[no-untyped-def]
    """Value of a chain that ends with stage j of the front united with the walk's stage; infinite if it
    breaks a rule.
    """
    loads, c = tables.loads, tables.channel[k]
    if tables.crowded and front.cost[j, front.cost.shape[1] - 1] + walk.memory[depth] > tables.capacity[k]:
        return np.inf
    value = np.inf
    for side in range(loads):
        work = walk.compute[depth, k * loads + side]
        talk = walk.comm[depth, c * loads + side] + walk.extra[c * loads + side] if c >= 0 else 0.0
        if tables.overlap:
            load = max(work + front.cost[j, 2 * side], talk + front.cost[j, 2 * side + 1])
        else:
            load = work + talk + front.cost[j, side]
        if side == 0:
            value = max(load, front.value[j])
        elif load > rules.ceiling:
            return np.inf
    return value
