"""Calls of one accelerator as paths through a layered graph of states, each with its memory and its seconds.

A call is a set of classes that an accelerator runs as one subgraph. What it takes (fetching, computing, writing
back) depends on nothing but the set, so that the states of bundles (``columns/_states.py``) serve: classes are
decided one after another, and all that matters of the past is what the call has in common with the open nets.

Memory is the resource that is limited, and seconds are what is paid. And calls are convex: along any path of the
graph the ops of a call are consecutive. This is kept for one path, the *line*.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from loadmaster.arrays import FloatArray, IntArray
from loadmaster.placers.columns._nets import Bundles, Kind, bundles_of
from loadmaster.placers.columns._states import Charges, States, layered_states
from loadmaster.problem import Problem

__all__ = ["Accelerators", "accelerators_of", "call_states"]


class Accelerators(NamedTuple):
    """Accelerators that are alike.

    kind : devices, seconds of each class, and what a cut net costs.
    capacity : bytes; infinite where there is room for everything.
    """

    kind: Kind
    capacity: float


def accelerators_of(problem: Problem) -> tuple[Bundles, list[Accelerators]]:
    """The hypergraph of an ``offload`` problem, and its accelerators by what they are like."""
    bundles = bundles_of(problem)
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
    capacity = like.capacity
    if np.isinf(capacity):
        memory, capacity = np.zeros_like(memory), 1.0
    nothing = np.zeros(bundles.classes)
    free = np.zeros_like(kind.send)
    # The second sum sees the bundle from outside: what its device sends is what the call fetches.
    seconds = Charges(kind.time, nothing, send=kind.recv, recv=kind.send)
    charges = Charges(memory, nothing, free, free), seconds
    everything = np.ones(bundles.classes, np.bool_)
    return layered_states(bundles, order, everything, charges, (capacity, limit), most, line)
