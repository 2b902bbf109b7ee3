"""The best way to cut one topological order into stages, compiled.

A dynamic program over cuts: the best chain that ends at cut b and has used some devices of each kind follows
from a chain that ends at a cut a < b and one more stage, the atoms between the two. For each b the walk goes
back atom by atom and keeps the loads up to date on every kind of device, with a counter of pins per net; it
ends where compute or memory are too much for every kind. Complexity: O(cuts * longest stage * (degree + open
states)).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numba import njit

from loadmaster.arrays import FloatArray, IntArray, LongArray
from loadmaster.placers.stages._chain import Stages
from loadmaster.placers.stages._contraction import Contracted
from loadmaster.placers.stages._walk import Rules
from loadmaster.placers.stages._windows import Windows

__all__ = ["best_cut"]

FIRST_CUTS, STEP = 8, 0.05
"""Cuts until the first look at the clock; then as many as take so many seconds."""


class Table(NamedTuple):
    """(cuts, states) each; the open states of a cut are listed first in its row of ``listed``."""

    value: FloatArray
    origin: IntArray
    kind: IntArray
    listed: IntArray
    length: IntArray
    """(cuts,) how many are listed."""


def best_cut(
    contracted: Contracted,
    windows: Windows,
    order: IntArray,
    cuts: LongArray | None = None,
    *,
    limit: float = np.inf,
    ceiling: float = np.inf,
    floor: float = 0.0,
    check: Callable[[], None] = lambda: None,
) -> tuple[float, Stages] | None:
    """The best chain along a topological order of the atoms; None if there is none below ``limit`` (see
    ``best_chain``).

    ``cuts`` are the places where it may be cut, by default all: increasing, the first 0 and the last the
    number of atoms. ``check`` is called some twenty times a second, and may raise.
    """
    if cuts is None:
        cuts = np.arange(len(order) + 1)
    sums = np.zeros((len(order) + 1, len(windows.weight)))
    np.cumsum(windows.weight[:, order].T, axis=0, out=sums[1:])
    rules = Rules(
        limit=limit,
        ceiling=ceiling,
        left=(sums[-1] - sums)[cuts],
        room=windows.rooms(windows.left, (limit, ceiling)),
        held=windows.rooms(windows.used, (limit, ceiling)),
        used=contracted.used(),
    )
    shape = (len(cuts), contracted.states)
    table = Table(
        np.empty(shape),
        np.empty(shape, np.int32),
        np.empty(shape, np.int32),
        np.empty(shape, np.int32),
        np.zeros(len(cuts), np.int32),
    )
    table.value[0, 0], table.listed[0, 0], table.length[0] = floor, 0, 1
    last = len(cuts) - 1
    first, some = 1, FIRST_CUTS
    while first <= last:
        began = time.perf_counter()
        _cut(contracted.tables, rules, table, order, cuts, first, min(first + some, last + 1))
        first += some
        some = max(1, int(some * min(STEP / max(time.perf_counter() - began, 1e-9), 8.0)))
        check()
    found = table.listed[last, : table.length[last]]
    if not len(found):
        return None
    state = int(found[table.value[last, found].argmin()])
    value = float(table.value[last, state])
    stages: Stages = []
    at = last
    while at:
        origin, kind = int(table.origin[at, state]), int(table.kind[at, state])
        stages.append((order[cuts[origin] : cuts[at]], kind))
        before = table.listed[origin, : table.length[origin]]
        state = int(before[contracted.tables.following[before, kind] == state][0])
        at = origin
    return value, stages[::-1]


@njit(cache=True, nogil=True)
def _cut(tables, rules, table, order, cuts, first, end):  # type: ignore[no-untyped-def]
    """Fill the rows of the cuts from ``first`` up to ``end``; those before are filled."""
    time, bytes_, capacity, channel = tables.time, tables.memory, tables.capacity, tables.channel
    net_ptr, net, role, pins = tables.net_ptr, tables.net, tables.role, tables.pins
    booked, change, following = tables.load, tables.change, tables.following
    values, origins, kinds_of, listed, length = (
        table.value,
        table.origin,
        table.kind,
        table.listed,
        table.length,
    )
    limit, ceiling, crowded, overlap, loads = (
        rules.limit,
        rules.ceiling,
        tables.crowded,
        tables.overlap,
        tables.loads,
    )
    kinds, channels, states = len(capacity), change.shape[1], len(following)
    count = np.zeros(len(pins), np.int32)
    compute, comm = np.zeros(kinds * loads), np.zeros(channels * loads)
    load = np.empty(kinds)
    for b in range(first, end):
        opened = 0
        for s in range(states):
            values[b, s] = limit
            for j in range(rules.room.shape[0]):
                left = rules.left[b, j]
                if left > rules.room[j, s] or rules.left[0, j] - left > rules.held[j, s]:
                    values[b, s] = -1.0
                    break
            opened += values[b, s] >= 0.0
        if opened == 0:
            continue
        compute[:] = 0.0
        comm[:] = 0.0
        memory = 0.0
        a, at = b - 1, cuts[b]
        while a >= 0:
            alive = False
            while at > cuts[a]:
                at -= 1
                v = order[at]
                memory += bytes_[v]
                for j in range(kinds * loads):
                    compute[j] += time[v, j]
                for i in range(net_ptr[v], net_ptr[v + 1]):
                    e = net[i]
                    case = role[i] + 2 * (count[e] == 0) + (count[e] + 1 == pins[e])
                    count[e] += 1
                    for c in range(channels):
                        comm[c * loads + booked[e]] += change[e, c, case]
            for k in range(kinds):
                load[k] = np.inf
                work = compute[k * loads]
                fits = work < limit and (not crowded or memory <= capacity[k])
                if loads == 2:
                    fits = fits and compute[k * loads + 1] <= ceiling
                if not fits:
                    continue
                alive = True
                c = channel[k]
                if loads == 2:
                    talk = comm[c * loads + 1] if c >= 0 else 0.0
                    other = compute[k * loads + 1]
                    if (max(other, talk) if overlap else other + talk) > ceiling:
                        continue
                talk = comm[c * loads] if c >= 0 else 0.0
                load[k] = max(work, talk) if overlap else work + talk
            if not alive:
                break
            for i in range(length[a]):
                s = listed[a, i]
                for k in range(kinds):
                    to = following[s, k]
                    if to >= 0 and max(values[a, s], load[k]) < values[b, to]:
                        values[b, to] = max(values[a, s], load[k])
                        origins[b, to] = a
                        kinds_of[b, to] = k
            a -= 1
        for i in range(at, cuts[b]):
            v = order[i]
            for j in range(net_ptr[v], net_ptr[v + 1]):
                count[net[j]] = 0
        for s in range(states):
            if 0.0 <= values[b, s] < limit:
                listed[b, length[b]] = s
                length[b] += 1
