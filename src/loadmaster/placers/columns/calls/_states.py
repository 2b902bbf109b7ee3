"""Calls of one accelerator as paths through a layered graph of states, each with its memory and its seconds.

A call is a set of classes that an accelerator runs as one subgraph. What it takes (fetching, computing, writing
back) depends on nothing but the set, so that the states of ``_frontier_states.py`` serve again: classes are
decided one after another, and all that matters of the past is what the call has in common with the open nets.

Two things are new. Memory is the resource that is limited, and seconds are what is paid. And calls are convex:
along any path of the graph the ops of a call are consecutive. This is kept for one path, the *line*: its classes
are decided in its order, and a state knows whether the call has not yet met the line, is on it, or has left it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from loadmaster.arrays import BoolArray, FloatArray, IntArray
from loadmaster.placers.columns._nets import Bundles, Kind, bundles_of
from loadmaster.placers.columns.frontier._states import (
    States,
    _decide,
    _follow,
    _grown,
    _least_loads,
    _steps,
    _trimmed,
)
from loadmaster.problem import Problem

__all__ = ["Accelerators", "accelerators_of", "call_states", "path_of_call"]


PHASE = 62
"""The lowest of the two bits of a state that hold the phase: 0 before the line, 1 on it, 2 after it."""


class Accelerators(NamedTuple):
    """Accelerators that are alike.

    kind : devices, seconds of each class, and what a cut net costs.
    capacity : bytes; infinite where there is room for everything.
    """

    kind: Kind
    capacity: float


def accelerators_of(problem: Problem, bundles: Bundles | None = None) -> tuple[Bundles, list[Accelerators]]:
    """The hypergraph of an ``offload`` problem, and its accelerators by what they are like."""
    bundles = bundles_of(problem) if bundles is None else bundles
    total = float(problem.class_memory.sum())
    found = []
    for kind in bundles.kinds:
        groups: dict[float, list[int]] = {}
        for d in kind.devices[~problem.pool[kind.devices]].tolist():
            room = float(problem.capacity[d])
            groups.setdefault(room if room < total else np.inf, []).append(d)
        for room, devices in groups.items():
            found.append(Accelerators(kind._replace(devices=np.array(devices, np.int32)), room))
    return bundles, found


def call_states(
    bundles: Bundles,
    like: Accelerators,
    memory: FloatArray,
    order: IntArray,
    line: IntArray,
    limit: float,
    most: int,
) -> States | None:
    """The states of calls that fit the memory and take at most ``limit`` seconds.

    In the result, ``load`` is the bytes that a decision adds and ``other`` the seconds. The classes of
    ``line`` must be in its order in ``order``. None if there are more than ``most`` states, or too many nets
    are open. O(states · degree), times a logarithm for sorting.
    """
    kind = like.kind
    room = like.capacity * (1.0 + 1e-9)
    if np.isinf(like.capacity):
        memory, room = np.zeros_like(memory), 1.0
    everything = np.ones(bundles.classes, np.bool_)
    costly = (kind.send > 0) | (kind.recv > 0)
    fits, chosen, *steps = _steps(
        order,
        everything,
        bundles.net_ptr,
        bundles.net,
        bundles.pin_ptr,
        bundles.pin,
        bundles.producer,
        costly,
    )
    if not fits:
        return None
    turn = np.zeros(bundles.classes, np.int32)
    turn[line] = 1
    if len(line):
        turn[line[-1]] = 2
    expand: Any = _expand_calls  # mypy counts the arguments of a compiled function wrongly behind a star
    found = expand(
        chosen, *steps, turn, memory, kind.time, kind.send, kind.recv, room, limit * (1.0 + 1e-9), most
    )
    if len(found[0]) == 0 or found[0][-1] == 0:
        return None
    layer, arc_ptr, source, taken, load, other = found
    return States(chosen, layer, arc_ptr, source, taken, load, other, _least_loads(arc_ptr, source, load))


def path_of_call(states: States, inside: BoolArray) -> IntArray | None:
    """The arcs of a call; None if it has none (it is too large, or not convex along the line)."""
    path = _follow(states.layer, states.arc_ptr, states.source, states.taken, inside[states.order])
    return None if len(path) and path[-1] < 0 else path


@njit(cache=True, nogil=True)
def _expand_calls(  # type: ignore[no-untyped-def]
    chosen, ptr, net, slot, flags, turn, memory, time, send, recv, room, limit, most
):
    """All states within the limits, layer by layer; then those without a future are dropped.

    ``turn`` (classes,) is 1 for the classes of the line, 2 for the last of them, else 0.
    """
    n = len(chosen)
    nothing = np.zeros(0, np.int32)
    failed = (nothing, nothing, nothing, nothing, np.zeros(0), np.zeros(0))
    layer = np.zeros(n + 2, np.int32)
    layer[1] = 1
    code, so_far, so_far2 = np.zeros(1, np.uint64), np.zeros(1), np.zeros(1)
    size, space, arcs = 1024, 2048, 0
    reach, reach2 = np.zeros(size), np.zeros(size)
    source, target, taken = np.empty(space, np.int32), np.empty(space, np.int32), np.empty(space, np.int32)
    load, other = np.empty(space), np.empty(space)
    high, three = np.uint64(PHASE), np.uint64(3)
    for i in range(n):
        c = chosen[i]
        first, count = layer[i], layer[i + 1] - layer[i]
        fresh, origin = np.empty(2 * count, np.uint64), np.empty(2 * count, np.int32)
        decision = np.empty(2 * count, np.int32)
        added, added2 = np.empty(2 * count), np.empty(2 * count)
        made = 0
        for k in range(count):
            phase = np.int64((code[k] >> high) & three)
            for x in range(2):
                if x == 1 and (time[c] == np.inf or (turn[c] > 0 and phase == 2)):
                    continue
                after, pays, _ = _decide(
                    code[k], x, ptr[i], ptr[i + 1], net, slot, flags, send, recv, send, recv
                )
                if turn[c] > 0:
                    now = 1 if x == 1 else 2 if phase > 0 else 0
                    if turn[c] == 2:
                        now = 0
                    after = (after & ~(three << high)) | (np.uint64(now) << high)
                weighs = 0.0
                if x == 1:
                    pays += time[c]
                    weighs = memory[c]
                if so_far[k] + weighs <= room and so_far2[k] + pays <= limit:
                    fresh[made], origin[made], decision[made] = after, k, x
                    added[made], added2[made] = weighs, pays
                    made += 1
        if made == 0:
            return failed
        while arcs + made > space:
            space *= 2
            source, target, taken = _grown(source, space), _grown(target, space), _grown(taken, space)
            load, other = _grown(load, space), _grown(other, space)
        after_code, after1, after2 = np.empty(made, np.uint64), np.empty(made), np.empty(made)
        states = 0
        for k in np.argsort(fresh[:made]):
            total, total2 = so_far[origin[k]] + added[k], so_far2[origin[k]] + added2[k]
            if states == 0 or after_code[states - 1] != fresh[k]:
                after_code[states], after1[states], after2[states] = fresh[k], total, total2
                states += 1
            after1[states - 1] = min(after1[states - 1], total)
            after2[states - 1] = min(after2[states - 1], total2)
            source[arcs], target[arcs] = first + origin[k], layer[i + 1] + states - 1
            taken[arcs], load[arcs], other[arcs] = decision[k], added[k], added2[k]
            arcs += 1
        layer[i + 2] = layer[i + 1] + states
        if layer[i + 2] > most:
            return failed
        while layer[i + 2] > size:
            size *= 2
            reach, reach2 = _grown(reach, size), _grown(reach2, size)
        reach[layer[i + 1] : layer[i + 2]] = after1[:states]
        reach2[layer[i + 1] : layer[i + 2]] = after2[:states]
        code, so_far, so_far2 = after_code[:states], after1[:states], after2[:states]
    return _trimmed(
        layer, reach, reach2, source[:arcs], target[:arcs], taken[:arcs], load[:arcs], other[:arcs], room, limit
    )  # fmt: skip
