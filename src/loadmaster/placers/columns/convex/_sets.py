"""Every convex set that a device could run within a load, each once.

A convex set S is the difference of two ideals. The larger one is chosen as small as possible, all that S depends on
with S itself, so that each of its maximal atoms is in S: then every set is met exactly once. From each ideal a walk
takes away maximal atoms in decreasing order (as ``ideal_dp/_kernel.py`` does, where the loads are explained), turns
back where compute or memory is too much on every kind of device, and never leaves a maximal atom of its ideal behind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from loadmaster.arrays import FloatArray, IntArray
from loadmaster.placers.stages._contraction import Contracted
from loadmaster.placers.stages.ideal_dp._ideals import Lattice

__all__ = ["Sets", "best_sets", "refuted", "sets_of", "worth_of"]

PAIRS = 500_000
"""Pairs of ideals that are looked at between two looks at the clock, some 0.05 s."""


class Sets(NamedTuple):
    """The sets that a device can run, by load."""

    load: FloatArray
    """Seconds: all that counts on the device, forward and backward."""
    kind: npt.NDArray[np.int8]
    target: IntArray
    source: IntArray
    """The set is what ideal ``target`` has more than ideal ``source``."""


def sets_of(
    contracted: Contracted, lattice: Lattice, limit: float, most: int, check: Callable[[], None]
) -> Sets | None:
    """All sets with a load below ``limit`` on a device that has room for them; None if there are more than ``most``, or
    too many on the way.

    Complexity: O(degree · kinds) per set. Memory: 17 bytes per set and kind.
    """
    tables = contracted.tables
    capacity = tables.capacity * (1.0 + 1e-9)
    kinds = len(capacity)
    room = (PAIRS + lattice.ideals) * kinds
    parts: list[Sets] = []
    found = looked = 0
    target = 1
    while target < lattice.ideals:
        check()
        made = Sets(
            np.empty(room), np.empty(room, np.int8), np.empty(room, np.int32), np.empty(room, np.int32)
        )
        target, fill, pairs = _walk(tables, lattice, capacity, limit, made, target, PAIRS)
        parts.append(
            Sets(
                made.load[:fill].copy(),
                made.kind[:fill].copy(),
                made.target[:fill].copy(),
                made.source[:fill].copy(),
            )
        )
        found, looked = found + fill, looked + pairs
        if max(found, looked // 4) > most:
            return None
    check()
    if not parts:
        return None
    load = np.concatenate([part.load for part in parts])
    order = np.argsort(load, kind="stable")
    return Sets(
        load[order],
        np.concatenate([part.kind for part in parts])[order],
        np.concatenate([part.target for part in parts])[order],
        np.concatenate([part.source for part in parts])[order],
    )


@njit(cache=True, nogil=True)
def _walk(tables, lattice, capacity, limit, made, first, pairs):  # type: ignore[no-untyped-def]
    """The sets of one ideal after another, until so many pairs have been looked at.

    Returns (the next ideal, sets made, pairs looked at).
    """
    top_ptr, top, below = lattice.top_ptr, lattice.top, lattice.below
    time, bytes_, channel, booked, change = (
        tables.time,
        tables.memory,
        tables.channel,
        tables.load,
        tables.change,
    )
    net_ptr, net, role, pins = tables.net_ptr, tables.net, tables.role, tables.pins
    overlap, loads, kinds, channels = tables.overlap, tables.loads, len(capacity), tables.change.shape[1]
    deep = len(bytes_) + 2
    have = np.zeros(len(pins), np.int32)
    atom, ideal = np.zeros(deep, np.int32), np.zeros(deep, np.int32)
    at, left = np.zeros(deep, np.int64), np.zeros(deep, np.int64)
    compute, comm = np.zeros((deep, kinds * loads)), np.zeros((deep, channels * loads))
    memory = np.zeros(deep)
    fill = looked = 0
    target = first
    while target < len(top_ptr) - 1 and looked < pairs:
        # at: next maximal atom of the ideal at this depth, from the largest on; left: maximal atoms of the target that
        # are still to be taken away, the first so many of its list.
        depth = 0
        ideal[0] = target
        at[0] = top_ptr[target + 1] - 1
        left[0] = top_ptr[target + 1] - top_ptr[target]
        while True:
            edge = at[depth]
            least = top[top_ptr[target] + left[depth] - 1] if left[depth] > 0 else -1
            if edge < top_ptr[ideal[depth]] or top[edge] < least:
                if depth == 0:
                    break
                v = atom[depth]
                for i in range(net_ptr[v], net_ptr[v + 1]):
                    have[net[i]] -= 1
                depth -= 1
                continue
            at[depth] -= 1
            v = top[edge]
            if depth > 0 and v > atom[depth]:
                continue
            looked += 1
            filled = memory[depth] + bytes_[v]
            alive = False
            for k in range(kinds):
                work = 0.0
                for j in range(k * loads, (k + 1) * loads):
                    compute[depth + 1, j] = compute[depth, j] + time[v, j]
                    work += compute[depth + 1, j]
                alive = alive or (work < limit and filled <= capacity[k])
            if not alive:
                continue
            left[depth + 1] = left[depth] - (v == least)
            depth += 1
            atom[depth], ideal[depth], memory[depth] = v, below[edge], filled
            at[depth] = top_ptr[ideal[depth] + 1] - 1
            for j in range(channels * loads):
                comm[depth, j] = comm[depth - 1, j]
            for i in range(net_ptr[v], net_ptr[v + 1]):
                e = net[i]
                case = role[i] + 2 * (have[e] == 0) + (have[e] + 1 == pins[e])
                have[e] += 1
                for c in range(channels):
                    comm[depth, c * loads + booked[e]] += change[e, c, case]
            if left[depth] > 0:
                continue
            for k in range(kinds):
                load = 0.0
                for side in range(loads):
                    talk = comm[depth, channel[k] * loads + side] if channel[k] >= 0 else 0.0
                    work = compute[depth, k * loads + side]
                    load += max(work, talk) if overlap else work + talk
                if load < limit and filled <= capacity[k]:
                    made.load[fill], made.kind[fill] = load, k
                    made.target[fill], made.source[fill] = target, ideal[depth]
                    fill += 1
        target += 1
    return target, fill, looked


@njit(cache=True, nogil=True)
def worth_of(lattice, price):  # type: ignore[no-untyped-def]
    """(ideals,) the sum of the prices in each ideal."""
    worth = np.zeros(len(lattice.top_ptr) - 1)
    for i in range(1, len(worth)):
        last = lattice.top_ptr[i + 1] - 1
        worth[i] = worth[lattice.below[last]] + price[lattice.top[last]]
    return worth


@njit(cache=True, nogil=True)
def refuted(sets, worth, counts, total, begin, end, best):  # type: ignore[no-untyped-def]
    """Go on from set ``begin`` until the best sets, one for each device, are worth the total: the set where that
    happens; ``end`` if it does not. ``best``: (kinds,) what the best set of each kind is worth, kept up to date.
    """
    for i in range(begin, end):
        value = worth[sets.target[i]] - worth[sets.source[i]]
        k = sets.kind[i]
        if value > best[k]:
            best[k] = value
            whole = 0.0
            for other in range(len(best)):
                whole += counts[other] * best[other]
            if whole >= total:
                return i
    return end


@njit(cache=True, nogil=True)
def best_sets(sets, worth, begin, end, value, chosen):  # type: ignore[no-untyped-def]
    """Go on from set ``begin``: (kinds, ideals) the best set of every kind and target, and what it is worth."""
    for i in range(begin, end):
        k, target = sets.kind[i], sets.target[i]
        found = worth[target] - worth[sets.source[i]]
        if found > value[k, target]:
            value[k, target], chosen[k, target] = found, i
