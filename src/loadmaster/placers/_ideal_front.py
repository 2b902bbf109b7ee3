"""Stages that reach over a gate, all at once.

The walk down from an ideal I ends at the last gate G before it. Stages that start before G are not walked one by one, as all of them
contain the same atoms behind G. For a start J only the loads of G - J matter, and how G - J meets the nets that cross G: for
each of them it has none of the pins before G, all of them, or some of them, with or without the producer. That is the
*signature* of G - J; stages with the same one form a group. Within a group, a kind and a state, a stage is dropped if another is no worse
in value, load and memory.

What remains is a :class:`Front`. It is built at each gate from the front of the gate before and the ideals in between.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from loadmaster.placers._contraction import Tables
from loadmaster.placers._ideal_walk import offer

__all__ = ["Front", "Starts", "build_front", "empty_front", "extend", "new_starts", "no_starts", "note", "note_gate"]

IntArray = npt.NDArray[np.int32]
LongArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

NONE, ALL, SENDS, RECEIVES = 0, 1, 2, 3
"""How a stage meets a net: no pin before the gate, all, some and the producer, some without the producer."""
COMPARED = 64
"""How many stages of its list a stage is compared with when there are more than two criteria."""


class Front(NamedTuple):
    """X nets cross the gate; G groups of lists of stages."""

    gate: int
    """Number of atoms before the gate."""
    net: IntArray
    """(X,)."""
    before: IntArray
    """(X,) pins before the gate."""
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
    """(stages, columns) each load (compute and communication apart if they overlap), then memory if it matters."""
    work: FloatArray
    """(stages, L) compute alone, which only grows."""


def empty_front(tables: Tables) -> Front:
    """Nothing starts before the first gate."""
    columns = tables.loads * (2 if tables.overlap else 1) + int(tables.crowded)
    none, zero = np.zeros(0, np.int32), np.zeros(1, np.int64)
    return Front(
        gate=0,
        net=none,
        before=none,
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


class Starts(NamedTuple):
    """What the walk from a gate notes about the ideals that it meets, for the front at that gate."""

    net: IntArray
    before: IntArray
    """(X,) nets that cross the gate, and their pins before it."""
    index: IntArray
    """(X,) where the net is among those of the front before, or -1."""
    fill: LongArray
    """(2,) ideals noted; groups of the front before that go on."""
    ideal: IntArray
    """(room,)."""
    numbers: FloatArray
    """(room + 1, K * L + C * L + 1) compute, communication, memory of the stage from there; last, from the gate before."""
    signature: npt.NDArray[np.uint8]
    """(room, X)."""
    extra: FloatArray
    """(G, C * L) see :func:`_unite`."""


@njit(cache=True, nogil=True)
def _unite(tables, front, walk, group):  # type: ignore[no-untyped-def]
    """Fill ``walk.extra``: communication of a stage of the group united with the walk's stage, less that of the two apart.

    Only nets that both have pins of count. The walk stands at the gate, so that its stage has no pin before the gate, and
    each of the two apart pays for the net: by sending if it has the producer, else by receiving.
    """
    loads, channels = tables.loads, tables.send.shape[1]
    walk.extra[:] = 0.0
    for x in range(len(front.net)):
        e, how = front.net[x], front.signature[group, x]
        if how == NONE or walk.count[e] == 0:
            continue
        home = tables.home[e]
        first = how == SENDS or (how == ALL and home < front.gate)
        second = home >= front.gate and walk.inside[home]
        whole = how == ALL and walk.count[e] == tables.pins[e] - front.before[x]
        for c in range(channels):
            change = -(tables.send[e, c] if first else tables.recv[e, c]) - (tables.send[e, c] if second else tables.recv[e, c])
            if not whole:
                change += tables.send[e, c] if first or second else tables.recv[e, c]
            walk.extra[c * loads + tables.load[e]] += change


@njit(cache=True, nogil=True)
def extend(tables, rules, front, walk, depth):  # type: ignore[no-untyped-def]
    """Offer the target of the walk all stages of the front, united with the walk's stage."""
    loads = tables.loads
    simple = loads == 1 and not tables.overlap and not tables.crowded
    for group in range(len(front.group_ptr) - 1):
        _unite(tables, front, walk, group)
        for i in range(front.group_ptr[group], front.group_ptr[group + 1]):
            k = front.kind[i]
            state = tables.following[front.state[i], k]
            low, high = front.list_ptr[i], front.list_ptr[i + 1]
            if walk.row[state] < 0.0:
                continue
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
                value = max(front.value[j], front.cost[j, 0] + more)
                offer(walk, state, value, front.origin[j], k)


@njit(cache=True, nogil=True)
def _united_value(tables, rules, front, walk, depth, k, j):  # type: ignore[no-untyped-def]
    """Value of a chain that ends with stage j of the front united with the walk's stage; infinite if it breaks a rule."""
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


@njit(cache=True, nogil=True)
def _crossing(tables, front, gate):  # type: ignore[no-untyped-def]
    """Nets that cross the next gate: (net, pins before it, index among the nets of the front or -1)."""
    room = len(front.net)
    for v in range(front.gate, gate):
        room += tables.net_ptr[v + 1] - tables.net_ptr[v]
    net, before, index = np.empty(room, np.int32), np.empty(room, np.int32), np.empty(room, np.int32)
    found = 0
    for x in range(len(front.net)):
        e = front.net[x]
        if tables.pin[tables.pin_ptr[e + 1] - 1] >= gate:
            net[found], index[found] = e, x
            found += 1
    for v in range(front.gate, gate):
        for i in range(tables.net_ptr[v], tables.net_ptr[v + 1]):
            e = tables.net[i]
            if tables.pin[tables.pin_ptr[e]] == v and tables.pin[tables.pin_ptr[e + 1] - 1] >= gate:
                net[found], index[found] = e, -1
                found += 1
    for x in range(found):
        before[x] = 0
        for i in range(tables.pin_ptr[net[x]], tables.pin_ptr[net[x] + 1]):
            before[x] += tables.pin[i] < gate
    return net[:found].copy(), before[:found].copy(), index[:found].copy()


@njit(cache=True, nogil=True)
def _grouped(signature):  # type: ignore[no-untyped-def]
    """Group of each row, and one row per group. Equal rows are found by their hash; a collision only splits a group."""
    rows = len(signature)
    key = np.zeros(rows, np.int64)
    for r in range(rows):
        h = np.int64(1)
        for x in range(signature.shape[1]):
            h = (h ^ np.int64(signature[r, x])) * np.int64(0x100000001B3)
            h ^= h >> np.int64(29)
        key[r] = h
    order = np.argsort(key, kind="mergesort")
    group, example = np.empty(rows, np.int64), np.empty(rows, np.int64)
    groups = 0
    for i in range(rows):
        r = order[i]
        same = groups > 0 and key[r] == key[example[groups - 1]]
        if same:
            for x in range(signature.shape[1]):
                same = same and signature[r, x] == signature[example[groups - 1], x]
        if not same:
            example[groups] = r
            groups += 1
        group[r] = groups - 1
    chosen = np.empty((groups, signature.shape[1]), np.uint8)
    for g in range(groups):
        chosen[g] = signature[example[g]]
    return group, chosen


@njit(cache=True, nogil=True)
def no_starts(tables, walk):  # type: ignore[no-untyped-def]
    """Nothing is to be noted."""
    none = np.zeros(0, np.int32)
    numbers, extra = np.zeros((0, 0)), np.zeros((0, 0))
    return Starts(none, none, none, np.zeros(2, np.int64), none, numbers, np.zeros((0, 0), np.uint8), extra)


@njit(cache=True, nogil=True)
def new_starts(tables, walk, front, gate, room):  # type: ignore[no-untyped-def]
    """Room to note ``room`` ideals on the way from the gate of so many atoms down to that of the front."""
    net, before, index = _crossing(tables, front, gate)
    columns = walk.compute.shape[1] + walk.comm.shape[1] + 1
    return Starts(
        net,
        before,
        index,
        np.zeros(2, np.int64),
        np.empty(room, np.int32),
        np.zeros((room + 1, columns)),
        np.empty((room, len(net)), np.uint8),
        np.zeros((len(front.group_ptr) - 1, walk.comm.shape[1])),
    )


@njit(cache=True, nogil=True)
def _note_numbers(walk, depth, numbers):  # type: ignore[no-untyped-def]
    columns, channels = walk.compute.shape[1], walk.comm.shape[1]
    numbers[:columns] = walk.compute[depth]
    numbers[columns : columns + channels] = walk.comm[depth]
    numbers[columns + channels] = walk.memory[depth]


@njit(cache=True, nogil=True)
def note(tables, starts, walk, depth, ideal):  # type: ignore[no-untyped-def]
    """Note the ideal at which the walk stands."""
    i = starts.fill[0]
    starts.fill[0] += 1
    starts.ideal[i] = ideal
    _note_numbers(walk, depth, starts.numbers[i])
    for x in range(len(starts.net)):
        e = starts.net[x]
        some = SENDS if walk.inside[tables.home[e]] else RECEIVES
        starts.signature[i, x] = NONE if walk.count[e] == 0 else ALL if walk.count[e] == starts.before[x] else some


@njit(cache=True, nogil=True)
def note_gate(tables, starts, front, walk, depth):  # type: ignore[no-untyped-def]
    """The walk stands at the gate of the front: its stages go on."""
    starts.fill[1] = len(front.group_ptr) - 1
    _note_numbers(walk, depth, starts.numbers[len(starts.ideal)])
    for g in range(starts.fill[1]):
        _unite(tables, front, walk, g)
        starts.extra[g] = walk.extra


@njit(cache=True, nogil=True)
def build_front(tables, rules, entries, front, starts, gate):  # type: ignore[no-untyped-def]
    """The front at the gate of so many atoms, from what the walk from there noted and the front at the gate before."""
    loads, kinds, states = tables.loads, len(tables.capacity), len(tables.following)
    columns, channels = front.cost.shape[1], starts.extra.shape[1]
    found, groups = starts.fill
    signature = np.empty((found + groups, len(starts.net)), np.uint8)
    signature[:found] = starts.signature[:found]
    for g in range(groups):
        for x in range(len(starts.net)):
            signature[found + g, x] = _carried(tables, front, g, starts.net[x], starts.index[x], starts.before[x], gate)
    group, chosen = _grouped(signature)
    most = len(front.value) if groups else 0
    for i in range(found):
        most += (entries.stop[starts.ideal[i]] - entries.first[starts.ideal[i]]) * kinds
    key, value, origin = np.empty(most, np.int64), np.empty(most), np.empty(most, np.int32)
    cost, work = np.empty((most, columns)), np.empty((most, loads))
    no_cost, no_work, silent = np.zeros(columns), np.zeros(loads), np.zeros(channels)
    one_cost, one_work = np.zeros(columns), np.zeros(loads)
    made = 0
    for i in range(found):
        ideal, pool = starts.ideal[i], starts.ideal[i] & 1
        for k in range(kinds):
            if _stage(tables, rules, starts.numbers[i], silent, no_cost, no_work, k, one_cost, one_work):
                for j in range(entries.first[ideal], entries.stop[ideal]):
                    state = entries.state[pool, j]
                    if tables.following[state, k] >= 0:
                        key[made] = (group[i] * kinds + k) * states + state
                        value[made], origin[made] = entries.value[pool, j], ideal
                        cost[made], work[made] = one_cost, one_work
                        made += 1
    across = starts.numbers[len(starts.ideal)]
    for g in range(groups):
        for i in range(front.group_ptr[g], front.group_ptr[g + 1]):
            k = front.kind[i]
            for j in range(front.list_ptr[i], front.list_ptr[i + 1]):
                if _stage(tables, rules, across, starts.extra[g], front.cost[j], front.work[j], k, cost[made], work[made]):
                    key[made] = (group[found + g] * kinds + k) * states + front.state[i]
                    value[made], origin[made] = front.value[j], front.origin[j]
                    made += 1
    return _listed(
        gate, starts.net, starts.before, chosen, kinds, states, key[:made], value[:made], origin[:made], cost[:made], work[:made]
    )


@njit(cache=True, nogil=True)
def _carried(tables, front, group, e, index, before, gate):  # type: ignore[no-untyped-def]
    """How a stage of an old group, with all that lies between the gates added, meets net e."""
    if index < 0:
        return ALL
    how = front.signature[group, index]
    more = before > front.before[index]
    has_home = front.gate <= tables.home[e] < gate
    if how == NONE:
        return NONE if not more else SENDS if has_home else RECEIVES
    return SENDS if how == RECEIVES and has_home else how


@njit(cache=True, nogil=True)
def _stage(tables, rules, numbers, extra, cost_before, work_before, k, cost, work):  # type: ignore[no-untyped-def]
    """Fill ``cost`` and ``work`` for a stage on kind k: what it had before plus the numbers of a walk; whether it may grow on."""
    loads, c, columns = tables.loads, tables.channel[k], len(tables.capacity) * tables.loads
    for side in range(loads):
        more = numbers[k * loads + side]
        talk = numbers[columns + c * loads + side] + extra[c * loads + side] if c >= 0 else 0.0
        work[side] = work_before[side] + more
        if tables.overlap:
            cost[2 * side], cost[2 * side + 1] = cost_before[2 * side] + more, cost_before[2 * side + 1] + talk
        else:
            cost[side] = cost_before[side] + more + talk
    if tables.crowded:
        last = len(cost) - 1
        cost[last] = cost_before[last] + numbers[len(numbers) - 1]
        if cost[last] > tables.capacity[k]:
            return False
    return work[0] < rules.limit and (loads == 1 or work[1] <= rules.ceiling)


@njit(cache=True, nogil=True)
def _listed(gate, net, before, signature, kinds, states, key, value, origin, cost, work):  # type: ignore[no-untyped-def]
    """Sort the stages into lists by group, kind and state, and drop those that another beats."""
    order = np.argsort(cost[:, 0].copy(), kind="mergesort")
    order = order[np.argsort(key[order], kind="mergesort")]
    kept = np.empty(len(order), np.int64)
    list_ptr, list_key = np.empty(len(order) + 1, np.int64), np.empty(len(order), np.int64)
    lists = fill = 0
    for i in order:
        if lists == 0 or list_key[lists - 1] != key[i]:
            list_ptr[lists], list_key[lists] = fill, key[i]
            lists += 1
        beaten = False
        for j in range(fill - 1, max(list_ptr[lists - 1], fill - COMPARED) - 1, -1):
            other = kept[j]
            beaten = value[other] <= value[i]
            for c in range(1, cost.shape[1]):
                beaten = beaten and cost[other, c] <= cost[i, c]
            if beaten or cost.shape[1] == 1:
                break
        if not beaten:
            kept[fill] = i
            fill += 1
    list_ptr[lists] = fill
    kind, state = np.empty(lists, np.int32), np.empty(lists, np.int32)
    group_ptr = np.zeros(len(signature) + 1, np.int64)
    for i in range(lists):
        state[i] = list_key[i] % states
        kind[i] = list_key[i] // states % kinds
        group_ptr[list_key[i] // states // kinds + 1] += 1
    for g in range(len(signature)):
        group_ptr[g + 1] += group_ptr[g]
    kept = kept[:fill]
    return Front(
        gate, net, before, signature, group_ptr, list_ptr[: lists + 1].copy(), kind, state,
        value[kept], origin[kept], cost[kept], work[kept],
    )  # fmt: skip
