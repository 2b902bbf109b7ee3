"""Building the front of the next stations, from the last front and the ideals in between."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from loadmaster.arrays import BoolArray, FloatArray, IntArray, LongArray
from loadmaster.placers.stages.ideal_dp._front import ALL, NONE, RECEIVES, SENDS, Front, unite

__all__ = ["Starts", "build_front", "new_starts", "no_starts", "note", "note_station"]


COMPARED = 64
"""How many stages of its list a stage is compared with when there are more than two criteria."""


class Starts(NamedTuple):
    """What the walks from the next stations note: a row for each ideal met, and for each group of the station
    they end at.
    """

    member: BoolArray
    net: IntArray
    before: IntArray
    """As in the front to come."""
    earlier: IntArray
    """(X,) where the net is among those of the old front, or -1."""
    fill: LongArray
    """(2,) rows in use; the station that the walk comes from."""
    source: LongArray
    """(rows,) an ideal, or -1 - g for group g of the old front."""
    numbers: FloatArray
    """(rows, K * L + C * L + 1) compute, communication and memory of what the walk has collected."""
    extra: FloatArray
    """(rows, C * L) see :func:`unite`."""
    signature: npt.NDArray[np.uint8]
    """(rows, X + 1) and the station first."""


@njit(cache=True, nogil=True)
def no_starts(tables, front):  # type: ignore[no-untyped-def]
    """Nothing is to be noted."""
    none, numbers = np.zeros(0, np.int32), np.zeros((0, 0))
    empty = np.zeros(0, np.int64)
    return Starts(
        front.member, none, front.before, none, empty, empty, numbers, numbers, np.zeros((0, 0), np.uint8)
    )


@njit(cache=True, nogil=True)
def new_starts(tables, lattice, front, walk, size, rows):  # type: ignore[no-untyped-def]
    """Room for so many notes on the way from the stations of a size down to those of the front."""
    first, stations = lattice.level[size], lattice.level[size + 1] - lattice.level[size]
    member = np.zeros((stations, front.member.shape[1]), np.bool_)
    seen = np.zeros(len(tables.home), np.bool_)
    crossing = np.empty(len(tables.home), np.int32)
    found = 0
    for x in range(len(front.net)):
        seen[front.net[x]] = True
        crossing[found] = front.net[x]
        found += 1
    for w in range(stations):
        ideal = first + w
        for _ in range(size - front.size):
            last = lattice.top_ptr[ideal + 1] - 1
            v = lattice.top[last]
            member[w, v] = True
            for i in range(tables.net_ptr[v], tables.net_ptr[v + 1]):
                if not seen[tables.net[i]]:
                    seen[tables.net[i]] = True
                    crossing[found] = tables.net[i]
                    found += 1
            ideal = lattice.below[last]
        member[w] |= front.member[ideal - lattice.level[front.size]]
    before = np.zeros((stations, found), np.int32)
    net, index = np.empty(found, np.int32), np.empty(found, np.int32)
    kept = 0
    for x in range(found):
        e = crossing[x]
        crosses = False
        for w in range(stations):
            inside = 0
            for i in range(tables.pin_ptr[e], tables.pin_ptr[e + 1]):
                inside += member[w, tables.pin[i]]
            before[w, kept] = inside
            crosses = crosses or 0 < inside < tables.pins[e]
        if crosses:
            net[kept], index[kept] = e, x if x < len(front.net) else -1
            kept += 1
    columns, channels = walk.compute.shape[1], walk.comm.shape[1]
    return Starts(
        member,
        net[:kept].copy(),
        before[:, :kept].copy(),
        index[:kept].copy(),
        np.zeros(2, np.int64),
        np.empty(rows, np.int64),
        np.empty((rows, columns + channels + 1)),
        np.zeros((rows, channels)),
        np.empty((rows, kept + 1), np.uint8),
    )


@njit(cache=True, nogil=True)
def _note(starts, walk, depth, source):  # type: ignore[no-untyped-def]
    row = starts.fill[0]
    starts.fill[0] += 1
    columns, channels = walk.compute.shape[1], walk.comm.shape[1]
    starts.source[row] = source
    starts.numbers[row, :columns] = walk.compute[depth]
    starts.numbers[row, columns : columns + channels] = walk.comm[depth]
    starts.numbers[row, columns + channels] = walk.memory[depth]
    starts.signature[row, 0] = starts.fill[1]
    return row


@njit(cache=True, nogil=True)
def note(tables, starts, walk, depth, ideal):  # type: ignore[no-untyped-def]
    """Note the ideal at which the walk stands."""
    row = _note(starts, walk, depth, ideal)
    station = starts.fill[1]
    for x in range(len(starts.net)):
        e, before = starts.net[x], starts.before[station, x]
        how = SENDS if walk.inside[tables.home[e]] else RECEIVES
        if walk.have[e] == 0 or before == tables.pins[e]:
            how = NONE
        elif walk.have[e] == before:
            how = ALL
        starts.signature[row, x + 1] = how


@njit(cache=True, nogil=True)
def note_station(tables, starts, front, walk, depth, old):  # type: ignore[no-untyped-def]
    """The walk stands at station ``old`` of the front: the stages of its groups go on, with what the walk has
    collected.
    """
    station = starts.fill[1]
    for g in range(len(front.station)):
        if front.station[g] != old:
            continue
        row = _note(starts, walk, depth, -1 - g)
        unite(tables, front, walk, g, starts.extra[row])
        for x in range(len(starts.net)):
            e, before = starts.net[x], starts.before[station, x]
            was = 0 if starts.earlier[x] < 0 else front.before[old, starts.earlier[x]]
            how = NONE if was == 0 else front.signature[g, starts.earlier[x]]
            if before == tables.pins[e]:
                how = NONE
            elif was == 0:
                how = ALL if before > 0 else NONE
            elif how == NONE and before > was:
                how = SENDS if walk.inside[tables.home[e]] else RECEIVES
            elif how == RECEIVES and walk.inside[tables.home[e]]:
                how = SENDS
            starts.signature[row, x + 1] = how


@njit(cache=True, nogil=True)
def _grouped(signature):  # type: ignore[no-untyped-def]
    """Group of each row, and an example of each group. Equal rows are found by a hash; a collision only
    splits a group.
    """
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
    return group, example[:groups]


@njit(cache=True, nogil=True)
def _stage(tables, rules, numbers, extra, old_cost, old_work, k, cost, work):  # type: ignore[no-untyped-def]
    """Fill ``cost`` and ``work`` of a stage on kind k: what it was before, and the numbers of a walk; whether
    it may grow on.
    """
    loads, c, columns = tables.loads, tables.channel[k], len(tables.capacity) * tables.loads
    for side in range(loads):
        more = numbers[k * loads + side]
        talk = numbers[columns + c * loads + side] + extra[c * loads + side] if c >= 0 else 0.0
        work[side] = old_work[side] + more
        if tables.overlap:
            cost[2 * side], cost[2 * side + 1] = (
                old_cost[2 * side] + more,
                old_cost[2 * side + 1] + talk,
            )
        else:
            cost[side] = old_cost[side] + more + talk
    if tables.crowded:
        last = len(cost) - 1
        cost[last] = old_cost[last] + numbers[len(numbers) - 1]
        if cost[last] > tables.capacity[k]:
            return False
    return work[0] < rules.limit and (loads == 1 or work[1] <= rules.ceiling)


@njit(cache=True, nogil=True)
def build_front(tables, rules, entries, front, starts, size):  # type: ignore[no-untyped-def]
    """The front at the stations of a size, from the notes of the walks from there."""
    loads, kinds, states = tables.loads, len(tables.capacity), len(tables.following)
    rows, columns = starts.fill[0], front.cost.shape[1]
    group, example = _grouped(starts.signature[:rows])
    most = 0
    for r in range(rows):
        source = starts.source[r]
        if source >= 0:
            most += (entries.stop[source] - entries.first[source]) * kinds
        else:
            most += front.list_ptr[front.group_ptr[-source]] - front.list_ptr[front.group_ptr[-1 - source]]
    key, value, origin = np.empty(most, np.int64), np.empty(most), np.empty(most, np.int32)
    cost, work = np.empty((most, columns)), np.empty((most, loads))
    no_cost, no_work = np.zeros(columns), np.zeros(loads)
    one_cost, one_work = np.zeros(columns), np.zeros(loads)
    made = 0
    for r in range(rows):
        source, numbers, extra = starts.source[r], starts.numbers[r], starts.extra[r]
        if source >= 0:
            pool = source & 1
            for k in range(kinds):
                if not _stage(tables, rules, numbers, extra, no_cost, no_work, k, one_cost, one_work):
                    continue
                for j in range(entries.first[source], entries.stop[source]):
                    state = entries.state[pool, j]
                    if tables.following[state, k] >= 0:
                        key[made] = (group[r] * kinds + k) * states + state
                        value[made], origin[made] = entries.value[pool, j], source
                        cost[made], work[made] = one_cost, one_work
                        made += 1
            continue
        for i in range(front.group_ptr[-1 - source], front.group_ptr[-source]):
            k = front.kind[i]
            for j in range(front.list_ptr[i], front.list_ptr[i + 1]):
                if _stage(
                    tables, rules, numbers, extra, front.cost[j], front.work[j], k, cost[made], work[made]
                ):
                    key[made] = (group[r] * kinds + k) * states + front.state[i]
                    value[made], origin[made] = front.value[j], front.origin[j]
                    made += 1
    kept, list_ptr, list_key = _listed(key[:made], value, cost)
    lists = len(list_key)
    kind, state = np.empty(lists, np.int32), np.empty(lists, np.int32)
    group_ptr = np.zeros(len(example) + 1, np.int64)
    for i in range(lists):
        state[i] = list_key[i] % states
        kind[i] = list_key[i] // states % kinds
        group_ptr[list_key[i] // states // kinds + 1] += 1
    station = np.empty(len(example), np.int32)
    signature = np.empty((len(example), len(starts.net)), np.uint8)
    for g in range(len(example)):
        group_ptr[g + 1] += group_ptr[g]
        station[g] = starts.signature[example[g], 0]
        signature[g] = starts.signature[example[g], 1:]
    return Front(
        size, starts.member, starts.net, starts.before, station, signature, group_ptr, list_ptr, kind, state,
        value[kept], origin[kept], cost[kept], work[kept],
    )  # fmt: skip


@njit(cache=True, nogil=True)
def _listed(key, value, cost):  # type: ignore[no-untyped-def]
    """Sort stages into lists by key and, in a list, by their first cost; drop those that another beats.

    Returns (stages kept, where each list begins, key of each list).
    """
    order = np.argsort(cost[: len(key), 0].copy(), kind="mergesort")
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
    return kept[:fill], list_ptr[: lists + 1].copy(), list_key[:lists].copy()
