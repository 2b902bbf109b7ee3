"""Groups of atoms that probably share a device, found by merging along the edges that are dear to cut."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from numba import njit

from loadmaster.arrays import FloatArray, IntArray
from loadmaster.graph.order import sum_by
from loadmaster.placers.frame.feasible import Atoms, atoms_of
from loadmaster.placers.search.multilevel._alike import Colours, colours_of, mixed, stretches_of_colours
from loadmaster.problem import Problem

__all__ = ["Rating", "heavy_groups"]

Rating = Literal["heavy", "even", "chain", "random", "alike", "repeated"]
"""Which edges come first: the dearest; the dearest for what they join, so that groups grow evenly; the only edge
of one of its ends, then the dearest; any; the dearest between groups of atoms of one colour (``_alike.py``); the
dearest, where edges between the same colours come together."""

HEAVY = 2.0
"""A group has at most so many times the mean share of time and memory, as long as others can still be made."""
ROOM = 0.5
"""Share of a device's memory that a group may take up: the rest must still be packed."""
NOISE = 0.5
"""Spread of the random factors on the ratings, as a power of e."""


def heavy_groups(
    problem: Problem,
    target: int,
    rng: np.random.Generator,
    rating: Rating,
    *,
    at: IntArray | None = None,
    group: IntArray | None = None,
    check: Callable[[], None] = lambda: None,
) -> IntArray:
    """(atoms,) a group per atom, about ``target`` groups that a device can hold.

    Rounds of matching: the edges are visited by falling rating, and the groups at both ends are merged unless both
    have been merged in this round. Groups need not be acyclic: they are tied, not run as one. A merge takes no
    device away from what needs time.

    Parameters
    ----------
    at : (atoms,) devices; only atoms on the same one come together, so that this placement can still be expressed.
    group : (atoms,) groups to begin with, instead of single atoms.
    check : called between the rounds; may raise.

    Complexity: O(edges log edges) per round, and about log(atoms / target) rounds.

    References
    ----------
    G. Karypis, V. Kumar, "A fast and high quality multilevel scheme for partitioning irregular graphs", SIAM J. Sci.
    Comput. 20, 1998.
    """
    atoms = atoms_of(problem)
    tail, head, weight = _edges(problem, atoms)
    usual = np.where(np.isfinite(atoms.time), atoms.time, 0.0).mean(axis=1)
    own = _share(usual) + _share(atoms.memory)
    most = HEAVY * float(own.sum()) / max(target, 1)
    room = ROOM * problem.capacity
    if group is None and rating == "alike":
        group = stretches_of_colours(problem, own, most, float(room.min(initial=np.inf)), at)
    group = np.arange(atoms.count, dtype=np.int32) if group is None else _numbered(group)
    groups = int(group.max(initial=-1)) + 1
    colour = mixed(colours_of(problem)) if rating == "repeated" else None
    while groups > target:
        check()
        a, b, worth = _joined(group, groups, tail, head, weight)
        if at is not None:
            device = np.empty(groups, np.int32)
            device[group] = at
            same = device[a] == device[b]
            a, b, worth = a[same], b[same], worth[same]
        mass = sum_by(group, own, groups)
        pair = None
        if colour is not None:
            of_group = np.zeros(groups, np.uint64)
            np.add.at(of_group, group, colour)
            pair = mixed(of_group[a], 8) + mixed(of_group[b], 8)
        key = _key(rating, a, b, worth, mass, rng, pair)
        visit = np.argsort(-key, kind="stable")
        allowed = np.ones((groups, problem.devices), np.bool_)
        np.logical_and.at(allowed, group, atoms.allowed)
        memory, busy = np.bincount(group, atoms.memory, groups), np.bincount(group, usual, groups) > 0
        merged = _match(a[visit], b[visit], mass, most, memory, room, allowed, busy, groups - target)
        group = _numbered(merged[group])
        left = int(group.max(initial=-1)) + 1
        if left > 0.95 * groups:
            if left == groups and most > own.sum():
                break
            most *= 2.0
        groups = left
    return group


def _edges(problem: Problem, atoms: Atoms) -> tuple[IntArray, IntArray, FloatArray]:
    """Edges between different atoms: both ends and the seconds of the transfer, shared among a tensor's readers."""
    graph = problem.graph
    readers = np.diff(graph.consumer_ptr)[graph.edge_tensor]
    weight = problem.mean_link[graph.edge_tensor] / readers
    tail, head = atoms.of_op[graph.tensor_producer[graph.edge_tensor]], atoms.of_op[graph.consumer_op]
    apart = tail != head
    return tail[apart], head[apart], weight[apart]


def _joined(
    group: IntArray, groups: int, tail: IntArray, head: IntArray, weight: FloatArray
) -> tuple[IntArray, IntArray, FloatArray]:
    """The distinct pairs of groups with an edge between them, whatever its direction, and what their edges weigh."""
    u, v = group[tail].astype(np.int64), group[head].astype(np.int64)
    low, high = np.minimum(u, v), np.maximum(u, v)
    apart = low != high
    key, where = np.unique((low * groups + high)[apart], return_inverse=True)
    worth = sum_by(where.reshape(-1).astype(np.int32), weight[apart], len(key))
    return (key // groups).astype(np.int32), (key % groups).astype(np.int32), worth


def _key(
    rating: Rating,
    a: IntArray,
    b: IntArray,
    worth: FloatArray,
    mass: FloatArray,
    rng: np.random.Generator,
    pair: Colours | None,
) -> FloatArray:
    if rating == "random":
        return rng.random(len(a))
    if pair is None:
        noise = rng.standard_normal(len(a))
    else:
        _, of_pair = np.unique(pair, return_inverse=True)
        noise = rng.standard_normal(int(of_pair.max(initial=-1)) + 1)[of_pair.reshape(-1)]
    key = worth * np.exp(NOISE * noise)
    if rating == "even":
        least = float(mass.sum()) / max(len(mass), 1) * 0.1 + 1e-300
        return np.asarray(key / np.sqrt((mass[a] + least) * (mass[b] + least)))
    if rating == "chain":
        degree = np.bincount(np.concatenate([a, b]), minlength=len(mass))
        only = np.minimum(degree[a], degree[b]) == 1
        return np.asarray(key + only * (key.max(initial=0.0) + 1.0))
    return np.asarray(key)


@njit(cache=True, nogil=True)
def _match(first, second, mass, most, memory, room, allowed, busy, merges):  # type: ignore[no-untyped-def]
    """(groups,) a representative per group after one round; what is added up is kept at the representatives."""
    groups, devices = allowed.shape
    parent = np.arange(groups).astype(np.int32)
    touched = np.zeros(groups, np.bool_)
    for i in range(len(first)):
        if merges <= 0:
            break
        a, b = first[i], second[i]
        while parent[a] != a:
            parent[a] = parent[parent[a]]
            a = parent[a]
        while parent[b] != b:
            parent[b] = parent[parent[b]]
            b = parent[b]
        if a == b or (touched[a] and touched[b]) or mass[a] + mass[b] > most:
            continue
        total = memory[a] + memory[b]
        adds = min(memory[a], memory[b]) > 0.0
        fits, loses = False, False
        for d in range(devices):
            if allowed[a, d] and allowed[b, d]:
                fits |= not adds or total <= room[d]
            elif (allowed[a, d] and busy[a]) or (allowed[b, d] and busy[b]):
                loses = True
        if loses or not fits:
            continue
        parent[b] = a
        touched[a] = True
        mass[a] += mass[b]
        memory[a] = total
        busy[a] |= busy[b]
        for d in range(devices):
            allowed[a, d] &= allowed[b, d]
        merges -= 1
    for v in range(groups):
        root = v
        while parent[root] != root:
            root = parent[root]
        parent[v] = root
    return parent


def _numbered(label: IntArray) -> IntArray:
    """The same groups numbered from 0."""
    return np.unique(label, return_inverse=True)[1].astype(np.int32).reshape(-1)


def _share(amount: FloatArray) -> FloatArray:
    """Each atom's share of the sum."""
    total = float(amount.sum())
    return amount / total if total > 0 else np.zeros_like(amount)
