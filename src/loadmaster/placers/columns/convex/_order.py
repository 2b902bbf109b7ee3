"""The order that a convex device must keep to, as a contracted problem: what ``ideal_dp`` can list the ideals of.

The forward ops of a device are convex: no path leaves it and comes back. Let each class be represented by one of its
forward ops, and say that a class comes before another if a path of forward ops leads from the one's to the other's.
This is a partial order, whatever the colocation, and the classes of a device are convex in it: if a class between two
of them were elsewhere, the path through its op would leave the device and come back. So they are the difference of
two ideals. (Where classes have several forward ops, more is asked of a device; that is left out, which may only lower
the bound.) Classes without a forward op are in no order.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np

from loadmaster.arrays import BoolArray, IntArray
from loadmaster.graph.order import csr_from_pairs, reachability_bitsets, topological_order
from loadmaster.placers.frame.feasible import atoms_of
from loadmaster.placers.frame.search import look_at_clock
from loadmaster.placers.stages._contraction import Contracted, without_weightless
from loadmaster.placers.stages._tables import change_of, kinds_of, tables_of
from loadmaster.placers.stages.ideal_dp._ideals import count_of
from loadmaster.problem import Problem, forward_arcs

__all__ = ["MOST_OPS", "ordered", "with_few_ideals"]

MOST_OPS = 5_000
"""Ops of a problem whose order is looked at: a square of bits is kept."""
LOOK = 100
"""Classes between two looks at the clock."""


def ordered(problem: Problem) -> Contracted:
    """The classes in their order, numbered topologically, without those that are free and take no time; kept on the
    problem.
    """
    return problem.derived(_ordered)


def _ordered(problem: Problem) -> Contracted:
    found = atoms_of(problem)
    classes = found.count
    tail, head = _arcs(problem)
    order = topological_order(classes, tail, head)
    place = np.empty(classes, np.int32)
    place[order] = np.arange(classes, dtype=np.int32)
    atom_of = place[problem.class_of].astype(np.int32)
    kinds = kinds_of(problem, found)
    count = np.array([min(len(kind), classes) for kind in kinds], np.int32)
    predecessor_ptr, predecessor = csr_from_pairs(place[head], place[tail], classes)
    successor_ptr, successor = csr_from_pairs(place[tail], place[head], classes)
    whole = Contracted(
        problem=problem,
        atom_of=atom_of,
        atoms=classes,
        predecessor_ptr=predecessor_ptr,
        predecessor=predecessor,
        successor_ptr=successor_ptr,
        successor=successor,
        kinds=kinds,
        count=count,
        states=0,
        tables=tables_of(
            problem, atom_of, classes, found.allowed[order], kinds, np.zeros(len(kinds), np.int32)
        ),
    )
    return without_weightless(whole)


def _arcs(problem: Problem) -> tuple[IntArray, IntArray]:
    """The arcs between classes that the order follows from.

    A class is represented by the forward op with most ops before and after it.
    """
    graph, of = problem.graph, problem.class_of
    tail, head = forward_arcs(problem)
    ptr, reader = csr_from_pairs(tail, head, problem.n)
    bits = reachability_bitsets(graph.topological_order, ptr, reader)
    after = np.unpackbits(bits.view(np.uint8), axis=1, bitorder="little")[:, : problem.n].astype(np.bool_)
    work = np.flatnonzero(~graph.backward & ~graph.boundary)
    related = after.sum(axis=0) + after.sum(axis=1)
    work = work[np.lexsort((-related[work], of[work]))]
    chosen = work[np.unique(of[work], return_index=True)[1]]
    chosen = chosen[np.argsort(graph.position[chosen], kind="stable")]
    after = after[np.ix_(chosen, chosen)]
    tails, heads = [], []
    for i in range(len(chosen)):
        if i % LOOK == 0:
            look_at_clock()
        rest = after[i].copy()
        while rest.any():
            j = int(rest.argmax())
            tails.append(of[chosen[i]])
            heads.append(of[chosen[j]])
            rest &= ~after[j]
            rest[j] = False
    return np.array(tails, np.int32), np.array(heads, np.int32)


def with_few_ideals(contracted: Contracted, few: int, most: int) -> Contracted | None:
    """The same without as many atoms in no order as it takes to have few ideals; None if there are more than ``most``
    without all of them.

    Each of them doubles the ideals; those that take least go first. What is left out takes no time and no memory, and
    its tensors cost what they cost at least wherever it is: nothing if no more than one end is left, and where the
    producer is left out, the less of sending and receiving if some, but not all, of the readers are on a device.
    """
    free = np.flatnonzero(
        (np.diff(contracted.predecessor_ptr) == 0) & (np.diff(contracted.successor_ptr) == 0)
    )
    least = np.where(np.isfinite(contracted.tables.time), contracted.tables.time, np.inf).min(axis=1)
    free = free[np.argsort(-least[free], kind="stable")]
    kept = np.ones(contracted.atoms, np.bool_)
    kept[free] = False
    bare = count_of(_without(contracted, kept), most)
    if bare is None:
        return None
    kept[free[: int(math.log2(max(few / bare, 1.0)))]] = True
    return _without(contracted, kept)


def _without(contracted: Contracted, kept: BoolArray) -> Contracted:
    if kept.all():
        return contracted
    number = np.full(contracted.atoms, -1, np.int32)
    number[kept] = np.arange(int(kept.sum()), dtype=np.int32)
    tables = contracted.tables
    ends = [tables.pin[a:b] for a, b in pairwise(tables.pin_ptr.tolist())]
    left = [number[pins[kept[pins]]] for pins in ends]
    nets = np.array([e for e, pins in enumerate(left) if len(pins) > 1], np.int64)
    homeless = ~kept[tables.home[nets]]
    cheaper = np.minimum(tables.send, tables.recv)[nets]
    send = np.where(homeless[:, None], cheaper, tables.send[nets])
    recv = np.where(homeless[:, None], cheaper, tables.recv[nets])
    pins = [left[e] for e in nets.tolist()]
    home = np.where(homeless, [some[0] for some in pins], number[tables.home[nets]]).astype(np.int32)
    sizes = np.array([len(some) for some in pins], np.int32)
    pin = np.concatenate(pins).astype(np.int32) if pins else np.zeros(0, np.int32)
    atoms = int(kept.sum())
    net_ptr, net = csr_from_pairs(pin, np.repeat(np.arange(len(pins), dtype=np.int32), sizes), atoms)
    owner = np.repeat(np.arange(atoms, dtype=np.int32), np.diff(net_ptr))
    tail = number[np.repeat(np.arange(contracted.atoms), np.diff(contracted.successor_ptr))]
    head = number[contracted.successor]
    predecessor_ptr, predecessor = csr_from_pairs(head, tail, atoms)
    successor_ptr, successor = csr_from_pairs(tail, head, atoms)
    return replace(
        contracted,
        atoms=atoms,
        predecessor_ptr=predecessor_ptr,
        predecessor=predecessor,
        successor_ptr=successor_ptr,
        successor=successor,
        tables=tables._replace(
            time=np.ascontiguousarray(tables.time[kept]),
            memory=tables.memory[kept],
            net_ptr=net_ptr,
            net=net,
            role=np.where(home[net] == owner, 4, 0).astype(np.int32),
            home=home,
            pins=sizes,
            pin_ptr=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32),
            pin=pin,
            load=tables.load[nets],
            send=np.ascontiguousarray(send),
            recv=np.ascontiguousarray(recv),
            change=change_of(send, recv),
        ),
    )
