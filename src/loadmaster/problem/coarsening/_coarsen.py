"""Coarsening: a smaller problem whose ops are groups of ops, and the way back.

>>> from loadmaster.graph import layered
>>> from loadmaster.hardware import accelerators, roofline
>>> from loadmaster.problem import Placement, Serial
>>> graph, cluster = layered(200, seed=1), accelerators(2)
>>> problem = Problem.make(graph, cluster, Serial(), time=roofline(graph, cluster))
>>> coarsening = coarsen(problem, "chain,matching:50")
>>> coarsening.coarse.n
50
>>> coarsening.expand(Placement(np.zeros(50, np.int32)))
Placement(200 ops, per device [200])

What the cost of a coarse placement says about the expanded one:

- ``serial`` and ``pipeline``: it is the same, up to rounding. Every original tensor that leaves its group is
  a tensor of the coarse problem, so that it is charged once per destination there as here.
- ``concurrent`` and ``offload``: it is an approximation. A group starts when all its inputs are there and
  sends when it is done, where the ops of the expanded placement start and send one by one.

In every model a feasible coarse placement expands to one that respects pins, forbids, colocation, additive
memory and contiguity. A lower bound of the coarse problem is a bound for placements that keep the groups
together, *not* for the full problem: :func:`loadmaster.api.place` always gives the bound of the full one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from loadmaster.arrays import FloatArray, IntArray
from loadmaster.errors import InputError
from loadmaster.files import read_json, shown
from loadmaster.graph import Graph
from loadmaster.graph.order import csr_from_pairs, distinct_pairs, topological_order
from loadmaster.problem._model import Pipeline, Serial
from loadmaster.problem._placement import Placement
from loadmaster.problem._problem import Problem
from loadmaster.problem._rules import classes_of
from loadmaster.problem._tie import Tie
from loadmaster.problem.coarsening import _rules as rules

__all__ = ["RULES", "Coarsening", "coarsen", "contract"]


Rule = Callable[[Problem], IntArray]

RULES = {
    "colour": "one forward and one backward group per colocation class",
    "chain": "ops with one child whose only parent they are (HSDAG)",
    "constants": "constants with the first op that reads them",
    "zero": "ops that take no time, merged into their only neighbour",
    "scope:DEPTH": "ops whose names share the first DEPTH scopes",
    "fused:FILE": "the groups in a JSON file: a list of lists of op names",
    "matching:SIZE": "heavy-edge matching until SIZE groups are left",
}
"""The rules by name, as ``--coarsen`` takes them."""


@dataclass(frozen=True, eq=False, repr=False)
class Coarsening:
    """A problem, a coarser one, and which op is in which group.

    Attributes
    ----------
    fine, coarse : the two problems; the ops of ``coarse`` are the groups.
    group_of : (ops of ``fine``,) group of each op.
    rules : what made it, in words.
    """

    fine: Problem
    coarse: Problem
    group_of: IntArray
    rules: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return (
            f"Coarsening({self.fine.n} ops -> {self.coarse.n} groups, {', '.join(self.rules) or 'no rules'})"
        )

    @property
    def exact(self) -> bool:
        """Whether a coarse cost is the cost of the expanded placement."""
        return isinstance(self.fine.model, Serial | Pipeline)

    @cached_property
    def groups(self) -> tuple[IntArray, IntArray]:
        """CSR group -> ops in topological order: (ptr, op)."""
        order = self.fine.graph.topological_order
        return csr_from_pairs(self.group_of[order], order, self.coarse.n)

    def expand(self, placement: Placement) -> Placement:
        """The placement of the ops: each goes where its group goes.

        An ``order`` of the groups becomes one of the ops, group by group; calls are those of the groups.
        """
        order = None
        if placement.order is not None:
            position, coarse_position = self.fine.graph.position, self.coarse.graph.position
            sequence = np.lexsort((position, coarse_position[self.group_of], placement.order[self.group_of]))
            order = np.empty(self.fine.n, np.int32)
            order[sequence] = np.arange(self.fine.n, dtype=np.int32)
        call = None if placement.call is None else placement.call[self.group_of]
        return Placement(placement.device[self.group_of], order, call)

    def restrict(self, placement: Placement) -> Placement:
        """A coarse placement near a placement of the ops: what goes together goes where most of its time is.

        A placement that keeps groups and colocation classes together is met exactly.
        """
        coarse, fine = self.coarse, self.fine
        together = coarse.class_of[self.group_of]
        votes = np.zeros((coarse.classes, coarse.devices))
        np.add.at(votes, (together, placement.device), fine.mean_time + 1e-12)
        votes[~coarse.class_allowed] = -1.0
        return Placement(votes.argmax(axis=1).astype(np.int32)[coarse.class_of])


def coarsen(problem: Problem, spec: str | Sequence[str | Rule]) -> Coarsening:
    """Apply rules one after another, each to what the ones before have made.

    Parameters
    ----------
    spec : names as the command line writes them (``"constants,chain,matching:1000"``), or a list of names and
        of functions that take a problem and give a representative per op.

    Raises
    ------
    InputError : a rule is unknown, or its argument is wrong.
    """
    chosen = spec.split(",") if isinstance(spec, str) else spec
    steps = [_named(rule.strip()) if isinstance(rule, str) else (_name(rule), rule) for rule in chosen]
    group = np.arange(problem.n, dtype=np.int32)
    coarse = problem
    for _, rule in steps:
        step = contract(coarse, rule(coarse))
        group = step.group_of[group]
        coarse = step.coarse
    provenance = f"{problem.provenance}; summed over groups ({', '.join(name for name, _ in steps)})"
    return Coarsening(
        problem, replace(coarse, provenance=provenance), group, tuple(name for name, _ in steps)
    )


def _name(rule: Rule) -> str:
    return getattr(rule, "__name__", "given")


def _named(text: str) -> tuple[str, Rule]:
    """The rule that a text such as ``scope:2`` stands for."""
    name, separator, argument = text.partition(":")
    plain: dict[str, Rule] = {
        "colour": rules.colour,
        "chain": rules.chain,
        "constants": rules.constants,
        "zero": rules.zero,
    }
    if name in plain and not separator:
        return text, plain[name]
    if name in ("scope", "matching"):
        if not argument.isdecimal() or len(argument) > 9 or int(argument) < 1:
            example = "scope:2" if name == "scope" else "matching:1000"
            raise InputError(
                f"--coarsen {shown(text)}: {name} needs a whole number >= 1 and < 1e9, e.g. {example}"
            )
        number = int(argument)
        made = rules.scope if name == "scope" else rules.matching
        return text, lambda problem: made(problem, number)
    if name == "fused" and argument:
        groups = _groups_in(argument)
        return text, lambda problem: rules.fused(problem, groups)
    raise InputError(f"--coarsen {text!r} is not a rule: choose from {', '.join(RULES)}")


def _groups_in(path: str) -> list[list[str]]:
    groups = read_json(path)
    if not isinstance(groups, list):
        raise InputError(f"{path}: must be a list of lists of op names")
    for g, names in enumerate(groups):
        if not isinstance(names, list) or any(not isinstance(name, str) for name in names):
            raise InputError(f"{path}: group {g} must be a list of op names")
    return groups


def contract(problem: Problem, representative: IntArray) -> Coarsening:
    """The problem whose ops are the groups: times, memory and traffic added up, constraints carried over.

    A group is unsupported where any member is, is pinned where one is, and colocated with every group that
    has a member of one of its classes. It has one tensor per original tensor that leaves it. It is called as
    its first op (in topological order), has the type of its longest op and the output shapes of its last.

    Raises
    ------
    InputError : the groups form a cycle, or one has forward and backward ops.
    """
    fine, n = problem.graph, problem.n
    first = np.full(n, n, np.int64)
    np.minimum.at(first, representative, fine.position)
    # Groups are numbered in the order in which their first ops come.
    leader = fine.topological_order[np.unique(first[representative])] if n else np.zeros(0, np.int32)
    number = np.empty(n, np.int32)
    number[representative[leader]] = np.arange(len(leader), dtype=np.int32)
    group = number[representative]
    groups = len(leader)
    graph = _quotient(problem, group, groups, leader)
    _reject_bad_groups(problem, group, graph)

    def added(amount: FloatArray) -> FloatArray:
        return np.bincount(group, amount, groups).astype(np.float64)

    forbidden = np.zeros((groups, problem.devices), np.bool_)
    np.logical_or.at(forbidden, group, problem.forbidden)
    pin = np.full(groups, -1, np.int32)
    np.maximum.at(pin, group, problem.pin)
    # Two different pins in one group: no device is right, so the others are forbidden as well.
    other = (problem.pin >= 0) & (problem.pin != pin[group])
    forbidden[group[other]] = True
    origin = None
    if problem.origin is not None:
        origin = np.full((groups, problem.devices), 255, np.uint8)
        np.minimum.at(origin, group, problem.origin)
    memory, ties = added(problem.memory), []
    for tie in problem.ties:
        its = sorted({int(group[v]) for v in tie.ops})
        if len(its) > 1:
            ties.append(Tie(tuple(its), tie.size, tie.memory))
        else:
            memory[its[0]] += tie.memory
    coarse = replace(
        problem,
        graph=graph,
        time=np.stack([added(problem.time[:, d]) for d in range(problem.devices)], axis=1),
        size=problem.size[_leaving(fine, group)[0]],
        memory=memory,
        resident=added(problem.resident),
        kept=None if problem.kept is None else added(problem.kept),
        ties=tuple(ties),
        class_of=_classes(problem, group, groups),
        pin=pin,
        forbidden=forbidden,
        origin=origin,
    )
    return Coarsening(problem, coarse, group)


def _quotient(problem: Problem, group: IntArray, groups: int, leader: IntArray) -> Graph:
    """The graph of the groups."""
    fine = problem.graph
    tensor, ptr, reader = _leaving(fine, group)
    by_time = np.lexsort((-fine.position, problem.mean_time))
    longest = np.empty(groups, np.int64)
    longest[group[by_time]] = by_time
    last = np.empty(groups, np.int64)
    last[group[fine.topological_order]] = fine.topological_order

    def added(amount: FloatArray) -> FloatArray:
        return np.bincount(group, amount, groups).astype(np.float64)

    boundary = np.ones(groups, np.bool_)
    np.logical_and.at(boundary, group, fine.boundary)
    return Graph(
        name=fine.name,
        names=tuple(fine.names[v] for v in leader.tolist()),
        op_types=tuple(fine.op_types[v] for v in longest.tolist()),
        output_shapes=tuple(fine.output_shapes[v] for v in last.tolist()),
        flops=added(fine.flops),
        bytes_read=added(fine.bytes_read),
        bytes_written=added(fine.bytes_written),
        param_bytes=added(fine.param_bytes),
        backward=fine.backward[leader],
        tensor_producer=group[fine.tensor_producer[tensor]],
        tensor_bytes=fine.tensor_bytes[tensor],
        consumer_ptr=ptr,
        consumer_op=reader,
        boundary=boundary,
    )


def _leaving(fine: Graph, group: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """The original tensors that leave their group, and their readers (ptr, group).

    Those of one group come in the order in which they are produced, which is what ports mean to the models.
    """
    source, target = group[fine.tensor_producer[fine.edge_tensor]], group[fine.consumer_op]
    cut = source != target
    pairs = distinct_pairs(fine.edge_tensor[cut], target[cut])
    tensor = np.unique(pairs[0])
    producer = fine.tensor_producer[tensor]
    tensor = tensor[np.lexsort((tensor, fine.position[producer], group[producer]))]
    rank = np.empty(fine.tensors, np.int32)
    rank[tensor] = np.arange(len(tensor), dtype=np.int32)
    ptr, reader = csr_from_pairs(rank[pairs[0]], pairs[1], len(tensor))
    return tensor.astype(np.int32), ptr, reader


def _reject_bad_groups(problem: Problem, group: IntArray, graph: Graph) -> None:
    mixed = np.flatnonzero(graph.backward[group] != problem.graph.backward)
    if len(mixed):
        name = graph.names[group[mixed[0]]]
        raise InputError(f"the group of op {name!r} has both forward and backward ops")
    order = topological_order(graph.n, *graph.arcs)
    if len(order) < graph.n:
        around = sorted(set(range(graph.n)) - set(order.tolist()))[:3]
        names = ", ".join(repr(graph.names[g]) for g in around)
        raise InputError(f"the groups form a cycle, e.g. those of the ops {names}")
    graph.remember_order(order)


def _classes(problem: Problem, group: IntArray, groups: int) -> IntArray:
    """Colocation classes of the groups: those that share a class of ops, directly or over others, are one."""
    if problem.classes == problem.n:
        return np.arange(groups, dtype=np.int32)
    ptr, member = problem.members
    shared: Iterable[Sequence[int]] = (
        np.unique(group[member[ptr[c] : ptr[c + 1]]]).tolist()
        for c in np.flatnonzero(np.diff(ptr) > 1).tolist()
    )
    return classes_of(groups, shared)
