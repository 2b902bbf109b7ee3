"""A placement cut into pieces: as few submodels as the schedule allows, in the order in which each device runs them.

A piece ends where another device waits for it, unless waiting a little longer costs less than one more submodel.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from loadmaster.problem import Pipeline, Placement, Problem, Serial

__all__ = ["DATA", "JOINS", "PIECE", "WAIT", "Piece", "cut", "homes", "simulate"]

PIECE = 40e-6
"""Seconds that one more submodel costs: the call and the changes of layout at its ends."""
WAIT = 25e-6
"""Seconds until a device sees that another one has finished what it waits for."""
JOINS = frozenset({"Concat"})
"""Cheap ops that end a block: every device that reads one computes it for itself, so that nobody waits for it."""
DATA = frozenset({"Parameter", "Result", "Constant"})

Node = tuple[int, int]
"""An op and the device that computes it: more than one for a join."""


@dataclass(frozen=True)
class Piece:
    """One submodel: its device, and its ops by name. Pieces of one device run in the order of the list they are in."""

    device: str
    ops: tuple[str, ...]


def homes(pieces: Sequence[Piece]) -> dict[tuple[str, str], int]:
    """(op, device) -> the piece that a device reads an op from: its own copy of a join, else the only one there is."""
    own: dict[tuple[str, str], int] = {}
    first: dict[str, int] = {}
    for number, piece in enumerate(pieces):
        for op in piece.ops:
            own.setdefault((op, piece.device), number)
            first.setdefault(op, number)
    devices = {piece.device for piece in pieces}
    return {(op, device): own.get((op, device), first[op]) for op in first for device in devices}


@dataclass
class _Units:
    """What is merged: device, seconds and what they wait for; ``sequence`` has the units of each device in order."""

    device: list[int]
    seconds: list[float]
    waits: list[set[int]]
    members: list[list[Node]]
    sequence: list[list[int]]


def cut(
    problem: Problem, placement: Placement, *, piece: float = PIECE, wait: float = WAIT, joins: bool = True
) -> list[Piece]:
    """The pieces of a placement, in an order in which one device alone could run them all.

    Begins with pieces that delay nobody at all, each ended by the first op that another device reads. Then merges
    neighbours of one device while the simulated end of the whole does not become later. O(pieces²).

    In a pipeline only the load of a device counts, not who waits, and under ``serial`` one submodel runs at a time:
    all neighbours are merged that do not wait for each other through another device, and joins stay where they are.
    """
    stream = isinstance(problem.model, Pipeline | Serial)
    units = _units(problem, placement, joins and not stream)
    _schedule(units, problem.devices, piece, wait)
    _merge(units, piece, wait, stream=stream)
    order = _order(units, piece, wait)
    names, devices = problem.graph.names, problem.cluster.names
    position = problem.graph.position
    return [
        Piece(
            devices[units.device[u]],
            tuple(names[v] for v, _ in sorted(units.members[u], key=lambda node: position[node[0]])),
        )
        for u in order
    ]


# -- what delays nobody --------------------------------------------------------------------------------------


def _nodes(
    problem: Problem, device: npt.NDArray[np.int32], joins: bool
) -> tuple[list[Node], dict[Node, list[Node]]]:
    """Nodes in topological order, and what each reads; joins once per device that reads them."""
    graph = problem.graph
    ptr, successors = graph.successors
    back, predecessors = graph.predecessors
    where: list[set[int]] = [set() for _ in range(graph.n)]
    order = [v for v in graph.topological_order.tolist() if graph.op_types[v] not in DATA]
    for v in reversed(order):
        readers: set[int] = set()
        if joins and graph.op_types[v] in JOINS:
            for u in successors[ptr[v] : ptr[v + 1]].tolist():
                readers |= where[u]
            if not np.isfinite(problem.time[v, sorted(readers)]).all():
                readers = set()
        where[v] = readers or {int(device[v])}
    nodes = [(v, d) for v in order for d in sorted(where[v])]
    reads = {}
    for v, d in nodes:
        sources = [u for u in predecessors[back[v] : back[v + 1]].tolist() if where[u]]
        reads[v, d] = [(u, d if d in where[u] else min(where[u])) for u in sources]
    return nodes, reads


def _units(problem: Problem, placement: Placement, joins: bool) -> _Units:
    """Connected ops of one device between two cuts: none of them is held up by another device's work."""
    nodes, reads = _nodes(problem, placement.device, joins)
    sends = {source for node in nodes for source in reads[node] if source[1] != node[1]}
    level: dict[Node, int] = {}
    unit: dict[Node, Node] = {}

    def root(node: Node) -> Node:
        while unit[node] != node:
            unit[node] = unit[unit[node]]
            node = unit[node]
        return node

    for node in nodes:
        level[node] = max((level[source] + (source in sends) for source in reads[node]), default=0)
        unit[node] = node
        for source in reads[node]:
            if source[1] == node[1] and level[source] == level[node]:
                unit[root(node)] = root(source)
    number: dict[Node, int] = {}
    units = _Units([], [], [], [], [])
    for node in nodes:
        r = root(node)
        if r not in number:
            number[r] = len(number)
            units.device.append(node[1])
            units.seconds.append(0.0)
            units.waits.append(set())
            units.members.append([])
        at = number[r]
        units.members[at].append(node)
        spent = float(problem.time[node])
        units.seconds[at] += (
            spent if np.isfinite(spent) else 0.0
        )  # what is not supported fails when it is run
    for node in nodes:
        mine = number[root(node)]
        units.waits[mine] |= {number[root(source)] for source in reads[node]} - {mine}
    return units


def _schedule(units: _Units, devices: int, piece: float, wait: float) -> None:
    """Fill the sequences: a free device takes the ready unit with the longest way to the end."""
    count = len(units.device)
    readers: list[list[int]] = [[] for _ in range(count)]
    left = [len(waits) for waits in units.waits]
    for u, waits in enumerate(units.waits):
        for source in waits:
            readers[source].append(u)
    order = [u for u in range(count) if not left[u]]
    for u in order:
        for v in readers[u]:
            left[v] -= 1
            if not left[v]:
                order.append(v)
    rank = [0.0] * count
    for u in reversed(order):
        below = max((rank[v] + (units.device[v] != units.device[u]) * wait for v in readers[u]), default=0.0)
        rank[u] = units.seconds[u] + piece + below
    left = [len(waits) for waits in units.waits]
    ready_at = [0.0] * count
    free = [0.0] * devices
    waiting: list[list[tuple[float, int]]] = [[] for _ in range(devices)]
    events: list[tuple[float, int]] = [(0.0, u) for u in range(count) if not left[u]]
    heapq.heapify(events)
    units.sequence = [[] for _ in range(devices)]
    while events or any(waiting):
        now = min([when for when, _ in events[:1]] + [free[d] for d in range(devices) if waiting[d]])
        while events and events[0][0] <= now:
            _, u = heapq.heappop(events)
            heapq.heappush(waiting[units.device[u]], (-rank[u], u))
        for d in range(devices):
            if not waiting[d] or free[d] > now:
                continue
            _, u = heapq.heappop(waiting[d])
            units.sequence[d].append(u)
            free[d] = now + units.seconds[u] + piece
            for v in readers[u]:
                ready_at[v] = max(ready_at[v], free[d] + (units.device[v] != d) * wait)
                left[v] -= 1
                if not left[v]:
                    heapq.heappush(events, (ready_at[v], v))


# -- merging -------------------------------------------------------------------------------------------------


def simulate(
    sequence: Sequence[Sequence[int]],
    seconds: Sequence[float],
    waits: Sequence[set[int]],
    device: Sequence[int],
    *,
    piece: float,
    wait: float,
    delay: Mapping[tuple[int, int], float] | None = None,
) -> tuple[float, list[float]]:
    """When everything is done if each device keeps to its sequence, and when each piece ends.

    ``delay``: (piece, one that waits for it) -> seconds on a link. Infinite where the sequences wait for each other.
    """
    slow = delay or {}
    end = [-1.0] * len(seconds)
    at = [0] * len(sequence)
    free = [0.0] * len(sequence)
    moved = True
    while moved:
        moved = False
        for d, pieces in enumerate(sequence):
            while at[d] < len(pieces):
                u = pieces[at[d]]
                start = free[d]
                for source in waits[u]:
                    if end[source] < 0:
                        break
                    start = max(
                        start, end[source] + (device[source] != d) * wait + slow.get((source, u), 0.0)
                    )
                else:
                    end[u] = free[d] = start + seconds[u] + piece
                    at[d] += 1
                    moved = True
                    continue
                break
    if any(at[d] < len(pieces) for d, pieces in enumerate(sequence)):
        return np.inf, end
    return max(free, default=0.0), end


def _merge(units: _Units, piece: float, wait: float, *, stream: bool) -> None:
    def cost() -> float:
        return simulate(units.sequence, units.seconds, units.waits, units.device, piece=piece, wait=wait)[0]

    best = cost()
    readers: list[set[int]] = [set() for _ in units.device]
    for u, waits in enumerate(units.waits):
        for source in waits:
            readers[source].add(u)
    again = True
    while again:
        again = False
        for pieces in units.sequence:
            i = 0
            while i + 1 < len(pieces):
                a, b = pieces[i], pieces[i + 1]
                kept = units.seconds[a], set(units.waits[a])
                units.seconds[a] += units.seconds[b]
                units.waits[a] = (units.waits[a] | units.waits[b]) - {a, b}
                for reader in readers[b]:
                    units.waits[reader].discard(b)
                    if reader != a:
                        units.waits[reader].add(a)
                del pieces[i + 1]
                found = cost()
                if found <= best or (stream and np.isfinite(found)):
                    best, again = found, True
                    units.members[a] += units.members[b]
                    for source in units.waits[b]:
                        readers[source].discard(b)
                        if source != a:
                            readers[source].add(a)
                    readers[a] = (readers[a] | readers[b]) - {a, b}
                    continue
                pieces.insert(i + 1, b)
                units.seconds[a], units.waits[a] = kept
                for reader in readers[b]:
                    units.waits[reader].add(b)
                    if reader not in readers[a]:
                        units.waits[reader].discard(a)
                i += 1


def _order(units: _Units, piece: float, wait: float) -> list[int]:
    """All pieces by their simulated end: a topological order that keeps every sequence."""
    _, end = simulate(units.sequence, units.seconds, units.waits, units.device, piece=piece, wait=wait)
    left = [u for pieces in units.sequence for u in pieces]
    return sorted(left, key=lambda u: end[u])
