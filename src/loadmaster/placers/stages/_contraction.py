"""A pipeline problem as programs over chains of stages see it: atoms, kinds of devices, and nets.

*Atoms* are what stays together whatever the chain: colocation classes, united where the class graph of
``contiguity="chain"`` has a cycle, and idle ops united with their only neighbour. They are numbered in a
topological order. Boundary ops have no place in the order of stages: they are atoms without arcs, those that may
only go to one and the same device united.

*Kinds* are sets of devices that nothing tells apart. A program that builds a chain only counts how many
devices of each kind it has used; such a vector of counts is a *state*, numbered by mixed radix.

Preprocessing follows J. Tarnawski et al., "Efficient algorithms for device placement of DNN graph operators",
NeurIPS 2020, whose published program fixes what the number of ideals refers to.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from loadmaster.arrays import IntArray
from loadmaster.graph.order import csr_from_pairs, distinct_pairs, topological_order
from loadmaster.placers.frame.feasible import Atoms, atoms_of
from loadmaster.placers.stages._tables import MOST_STATES, Tables, count_vectors, kinds_of, tables_of
from loadmaster.problem import Pipeline, Problem

__all__ = ["Contracted", "contract", "no_chains", "without_weightless"]


MOST_ARCS = 256
"""A weightless atom stays if leaving it out would take more arcs than this."""


@dataclass(frozen=True, eq=False)
class Contracted:
    """See the module."""

    problem: Problem
    atom_of: IntArray
    """(n,) atom of each op."""
    atoms: int
    predecessor_ptr: IntArray
    predecessor: IntArray
    successor_ptr: IntArray
    successor: IntArray
    kinds: tuple[IntArray, ...]
    """Devices of each kind."""
    count: IntArray
    """(K,) how many of them a chain can use: no more than there are atoms."""
    states: int
    tables: Tables
    full: Contracted | None = None
    """Before weightless atoms were left out, and"""
    kept: IntArray | None = None
    """(atoms,) what the atoms were called there."""

    @cached_property
    def slim(self) -> Contracted:
        """See :func:`without_weightless`."""
        return _without_weightless(self)

    def used(self) -> IntArray:
        """(states, K) devices in use."""
        return count_vectors(self.count)

    def devices_of(self, stages: list[tuple[IntArray, int]]) -> IntArray:
        """(n,) devices of a chain given as (atoms, kind) per stage.

        A weightless atom goes to the last stage of its predecessors, or else to the first stage.
        """
        taken = [0] * len(self.kinds)
        devices = []
        stage = np.zeros(self.atoms, np.int32)
        for i, (members, kind) in enumerate(stages):
            stage[members] = i
            devices.append(self.kinds[kind][taken[kind]])
            taken[kind] += 1
        whole = self
        if self.full is not None:
            whole = self.full
            stage, own = np.full(whole.atoms, -1, np.int32), stage
            stage[self.kept] = own
            for v in np.flatnonzero(stage < 0).tolist():
                before = whole.predecessor[whole.predecessor_ptr[v] : whole.predecessor_ptr[v + 1]]
                stage[v] = stage[before].max(initial=0)
        return np.array(devices, np.int32)[stage[whole.atom_of]] if self.problem.n else np.zeros(0, np.int32)

    def stages_of(self, device: IntArray) -> list[tuple[IntArray, int]]:
        """(atoms, kind) per stage of a placement that is a chain; an atom that is split goes with its longest op.

        The inverse of :meth:`devices_of`, but for devices of one kind that change places.
        """
        whole = self if self.full is None else self.full
        at = np.zeros(whole.atoms, np.int32)
        by_time = np.argsort(self.problem.mean_time, kind="stable")
        at[whole.atom_of[by_time]] = device[by_time]
        if self.kept is not None:
            at = at[self.kept]
        tail = np.repeat(np.arange(self.atoms), np.diff(self.successor_ptr))
        arcs = np.unique(np.stack([at[tail], at[self.successor]]), axis=1)
        arcs = arcs[:, arcs[0] != arcs[1]]
        line = topological_order(self.problem.devices, arcs[0], arcs[1])
        kind_of = {d: k for k, kind in enumerate(self.kinds) for d in kind.tolist()}
        members = [(np.flatnonzero(at == d).astype(np.int32), d) for d in line.tolist()]
        return [(atoms, kind_of[d]) for atoms, d in members if len(atoms)]


def contract(problem: Problem) -> Contracted:
    """Contract a pipeline problem; kept on the problem.

    Complexity: near linear in ops, edges and devices.
    """
    return problem.derived(_contract)


def without_weightless(full: Contracted) -> Contracted:
    """The same without atoms that take no time, communicate at no cost, and may be anywhere; kept on the
    contracted problem.

    They only pass on the order between their predecessors and successors. Leaving them out can shrink the
    number of ideals by orders of magnitude; any chain of the rest has a place for them
    (:meth:`Contracted.devices_of`).
    """
    return full.slim


def _without_weightless(full: Contracted) -> Contracted:
    tables = full.tables
    light = (tables.time == 0.0).all(axis=1) & (np.diff(tables.net_ptr) == 0)
    if tables.crowded:
        light &= tables.memory == 0.0
    if not light.any() or light.all():
        return full
    before = [set(full.predecessor[a:b].tolist()) for a, b in pairwise(full.predecessor_ptr.tolist())]
    after = [set(full.successor[a:b].tolist()) for a, b in pairwise(full.successor_ptr.tolist())]
    gone = np.zeros(full.atoms, np.bool_)
    for v in np.flatnonzero(light).tolist():
        if len(before[v]) * len(after[v]) > MOST_ARCS:
            continue
        gone[v] = True
        for u in before[v]:
            after[u].discard(v)
            after[u] |= after[v]
        for w in after[v]:
            before[w].discard(v)
            before[w] |= before[v]
    kept = np.flatnonzero(~gone).astype(np.int32)
    number = np.full(full.atoms, -1, np.int32)
    number[kept] = np.arange(len(kept), dtype=np.int32)
    arcs = np.array(
        [(number[u], number[w]) for w in kept.tolist() for u in sorted(before[w])], np.int32
    ).reshape(-1, 2)
    predecessor_ptr, predecessor = csr_from_pairs(arcs[:, 1], arcs[:, 0], len(kept))
    successor_ptr, successor = csr_from_pairs(arcs[:, 0], arcs[:, 1], len(kept))
    return replace(
        full,
        atoms=len(kept),
        predecessor_ptr=predecessor_ptr,
        predecessor=predecessor,
        successor_ptr=successor_ptr,
        successor=successor,
        tables=tables._replace(
            time=np.ascontiguousarray(tables.time[kept]),
            memory=tables.memory[kept],
            net_ptr=tables.net_ptr[np.append(kept, full.atoms)],
            home=number[tables.home],
            pin=number[tables.pin],
        ),
        full=full,
        kept=kept,
    )


def no_chains(problem: Problem) -> str | None:
    """Why a program over chains is not for this problem: another model, or too many kinds of devices; or None."""
    if not isinstance(problem.model, Pipeline):
        return f"it builds pipelines, but the model is {problem.model.name}: use --model pipeline"
    kinds = kinds_of(problem, atoms_of(_as_chain(problem)))
    states = math.prod(min(len(kind), problem.n) + 1 for kind in kinds)
    if states <= MOST_STATES:
        return None
    return (
        f"its {sum(map(len, kinds))} usable devices are of {len(kinds)} different kinds, which gives "
        f"{states} combinations of used devices (at most {MOST_STATES} are supported): make devices equal, or "
        "forbid some"
    )


def _as_chain(problem: Problem) -> Problem:
    model = problem.model
    assert isinstance(model, Pipeline)
    if model.contiguity == "chain":
        return problem
    return problem.derived(_chained)


def _chained(problem: Problem) -> Problem:
    assert isinstance(problem.model, Pipeline)
    return problem.with_model(replace(problem.model, contiguity="chain"))


def _contract(problem: Problem) -> Contracted:
    found = atoms_of(_as_chain(problem))
    tail = np.repeat(np.arange(found.count, dtype=np.int32), np.diff(found.successor_ptr))
    head = found.successor
    label = _united_ends(problem, found)[_without_idle(problem, found, tail, head)]
    label = np.unique(label, return_inverse=True)[1].astype(np.int32)
    tail, head = label[tail], label[head]
    atoms = int(label.max()) + 1 if found.count else 0
    arcs = distinct_pairs(tail[tail != head], head[tail != head])
    order = topological_order(atoms, arcs[0], arcs[1])
    place = np.empty(atoms, np.int32)
    place[order] = np.arange(atoms, dtype=np.int32)
    label = place[label]
    arcs = place[arcs]
    atom_of = label[found.of_op] if problem.n else np.zeros(0, np.int32)
    allowed = np.ones((atoms, problem.devices), np.bool_)
    np.logical_and.at(allowed, label, found.allowed)
    kinds = kinds_of(problem, found)
    count = np.array([min(len(kind), atoms) for kind in kinds], np.int32)
    predecessor_ptr, predecessor = csr_from_pairs(arcs[1], arcs[0], atoms)
    successor_ptr, successor = csr_from_pairs(arcs[0], arcs[1], atoms)
    return Contracted(
        problem=problem,
        atom_of=atom_of,
        atoms=atoms,
        predecessor_ptr=predecessor_ptr,
        predecessor=predecessor,
        successor_ptr=successor_ptr,
        successor=successor,
        kinds=kinds,
        count=count,
        states=math.prod((count + 1).tolist()),
        tables=tables_of(problem, atom_of, atoms, allowed, kinds, count),
    )


def _united_ends(problem: Problem, found: Atoms) -> IntArray:
    """(atoms,) label of each atom: those of boundary ops alone that may go to one and the same device only are one.

    Each of them would be in or out of an ideal by itself, which doubles the number of ideals.
    """
    label = np.arange(found.count, dtype=np.int32)
    outside = np.ones(found.count, np.bool_)
    np.logical_and.at(outside, found.of_op, problem.graph.boundary)
    lone = np.flatnonzero(outside & (found.allowed.sum(axis=1) == 1))
    home = found.allowed[lone].argmax(axis=1)
    for d in np.unique(home).tolist():
        mates = lone[home == d]
        label[mates] = mates[0]
    return label


def _without_idle(problem: Problem, found: Atoms, tail: IntArray, head: IntArray) -> IntArray:
    """(atoms,) new label of each atom: an idle atom joins its only neighbour, again and again, where that
    loses nothing.

    Idle: no time anywhere, no neighbour in the backward pass, one neighbour in the class graph and none but
    that in the data. Next to it, it communicates no more than elsewhere, and no cycle can arise. Its
    neighbour must not be tied down by it, so that it must be allowed wherever the neighbour is and take no
    memory that could be missing there. Boundary ops have no neighbour in the class graph: theirs is the one in
    the data.
    """
    label = np.arange(found.count, dtype=np.int32)
    rest = np.where(found.allowed, found.time, 0.0).sum(axis=1) == 0.0
    graph, of = problem.graph, found.of_op
    a, b = graph.arcs
    mixed = graph.backward[a] != graph.backward[b]
    rest[of[a[mixed & ~graph.backward[a]]]] = False
    rest[of[b[mixed & ~graph.backward[b]]]] = False
    if not rest.any():
        return label
    roomy = found.memory.sum() <= problem.capacity
    neighbours: list[set[int]] = [set() for _ in range(found.count)]
    for u, v in zip(tail.tolist(), head.tolist(), strict=True):
        neighbours[u].add(v)
        neighbours[v].add(u)
    partners: list[set[int]] = [set() for _ in range(found.count)]
    across = of[a] != of[b]
    for u, v in zip(of[a[across]].tolist(), of[b[across]].tolist(), strict=True):
        partners[u].add(v)
        partners[v].add(u)
    outside = np.ones(found.count, np.bool_)
    np.logical_and.at(outside, of, graph.boundary)
    waiting = np.flatnonzero(rest)[::-1].tolist()
    while waiting:
        v = waiting.pop()
        near = neighbours[v] or (partners[v] if outside[v] else set())
        if len(near) != 1:
            continue
        (u,) = near
        there = found.allowed[u]
        free = found.memory[v] == 0.0 or bool(roomy[there].all())
        if not (partners[v] <= {u} and free and found.allowed[v][there].all()):
            continue
        label[v] = u
        neighbours[u].discard(v)
        partners[u].discard(v)
        neighbours[v] = set()
        if rest[u]:
            waiting.append(u)
    while (label != label[label]).any():
        label = label[label]
    return label
