"""What is wrong, or foolish, about a plan before it is run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from loadmaster.arrays import IntArray
from loadmaster.graph import Graph, Network
from loadmaster.graph.order import topological_order
from loadmaster.problem import Placement, Problem, Serial, SimulatedEvaluator

__all__ = ["Finding", "lint", "submodels_of"]

SHOWN = 3
"""Ops that a finding names."""


@dataclass(frozen=True)
class Finding:
    """One thing about a plan. An ``error`` keeps it from being run, a ``warning`` costs time."""

    rule: str
    """``stale-hash``, ``unsupported``, ``constraint``, ``constant``, ``fused``, ``cycle``, ``ping-pong``; of a run
    on several machines ``slow-node``."""
    level: str
    text: str
    ops: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


def lint(
    problem: Problem,
    placement: Placement,
    network: Network | None = None,
    fused: Sequence[Sequence[int]] = (),
) -> list[Finding]:
    """All findings about a plan, errors first.

    ``network``: the model as it is now, to which the plan must fit. ``fused``: groups of ops that a device runs as
    one, beyond the colocation classes of the problem.
    """
    found: list[Finding] = []
    if network is not None:
        found += _stale(problem.graph, network.graph)
    found += _unsupported(problem, placement.device)
    found += _cut_groups(problem, placement.device, fused)
    found += _constants(problem, placement.device)
    if isinstance(problem.model, Serial):  # HETERO runs these alone; our own runtime cuts by its schedule
        found += _cycles(problem, placement.device)
    found += _ping_pong(problem, placement)
    return sorted(found, key=lambda finding: finding.level)


def _names(graph: Graph, ops: Sequence[int]) -> str:
    more = f" and {len(ops) - SHOWN} more" if len(ops) > SHOWN else ""
    return ", ".join(repr(graph.names[v]) for v in ops[:SHOWN]) + more


def _finding(rule: str, level: str, text: str, graph: Graph, ops: Sequence[int]) -> Finding:
    return Finding(rule, level, text, tuple(graph.names[v] for v in ops))


def _stale(plan: Graph, now: Graph) -> list[Finding]:
    if plan.digest == now.digest:
        return []
    gone = sorted(set(plan.names) - set(now.names))
    new = sorted(set(now.names) - set(plan.names))
    what = f"it places {gone[0]!r}, which the model does not have" if gone else ""
    what = what or (
        f"it does not place {new[0]!r}" if new else "ops have the same names but different shapes or work"
    )
    return [
        Finding(
            "stale-hash",
            "error",
            f"the plan is for a different model ({plan.name}, {plan.digest[:12]}) than {now.name} "
            f"({now.digest[:12]}): {what}",
        )
    ]


def _unsupported(problem: Problem, device: IntArray) -> list[Finding]:
    ops = np.flatnonzero(np.isinf(problem.time[np.arange(problem.n), device])).tolist()
    found = [
        _finding(
            "unsupported",
            "error",
            f"device {problem.cluster.names[device[v]]!r} does not support op {problem.graph.names[v]!r}",
            problem.graph,
            [v],
        )
        for v in ops
    ]
    outside = np.flatnonzero(~problem.allowed[np.arange(problem.n), device]).tolist()
    for v in sorted(set(outside) - set(ops)):
        text = f"op {problem.graph.names[v]!r} must not be on device {problem.cluster.names[device[v]]!r}"
        found.append(_finding("constraint", "error", text, problem.graph, [v]))
    return found


def _cut_groups(problem: Problem, device: IntArray, fused: Sequence[Sequence[int]]) -> list[Finding]:
    ptr, member = problem.members
    groups = [member[ptr[c] : ptr[c + 1]].tolist() for c in range(problem.classes)]
    found = []
    for group in (*groups, *fused):
        if len(set(device[list(group)].tolist())) > 1:
            what = _names(problem.graph, group)
            text = f"the plan splits ops that a device fuses or that share a weight: {what}"
            found.append(_finding("fused", "warning", text, problem.graph, group))
    return found


def _constants(problem: Problem, device: IntArray) -> list[Finding]:
    """A constant that is read on another device crosses over in every run."""
    graph, found = problem.graph, []
    source, target = graph.tensor_producer[graph.edge_tensor], graph.consumer_op
    for u, v in zip(source.tolist(), target.tolist(), strict=True):
        if graph.op_types[u] == "Constant" and device[u] != device[v]:
            names = problem.cluster.names
            text = (
                f"constant {graph.names[u]!r} is on {names[device[u]]!r}, but {graph.names[v]!r} "
                f"reads it on {names[device[v]]!r}"
            )
            found.append(_finding("constant", "warning", text, graph, [u, v]))
    return found


def submodels_of(graph: Graph, device: IntArray) -> IntArray:
    """(n,) the connected piece of one device that each op belongs to: what a submodel is before cycles are cut."""
    parent = list(range(graph.n))

    def root(v: int) -> int:
        while parent[v] != v:
            parent[v] = parent[parent[v]]
            v = parent[v]
        return v

    for u, v in zip(*(ends.tolist() for ends in graph.arcs), strict=True):
        if device[u] == device[v]:
            a, b = root(u), root(v)
            parent[max(a, b)] = min(a, b)
    number: dict[int, int] = {}
    return np.array([number.setdefault(root(v), len(number)) for v in range(graph.n)], np.int32)


def _quotient(graph: Graph, piece: IntArray) -> tuple[IntArray, IntArray]:
    tail, head = (piece[ends] for ends in graph.arcs)
    pairs = np.unique(np.stack([tail[tail != head], head[tail != head]], axis=1), axis=0).astype(np.int32)
    return np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])


def _cycles(problem: Problem, device: IntArray) -> list[Finding]:
    """Pieces that wait for each other: HETERO has to cut them further, at places of its own choosing."""
    graph = problem.graph
    piece = submodels_of(graph, device)
    count = int(piece.max()) + 1 if graph.n else 0
    tail, head = _quotient(graph, piece)
    left = np.setdiff1d(np.arange(count), topological_order(count, tail, head))
    # What only comes behind a cycle is no part of one: peel from the other end, too.
    inside = np.isin(tail, left) & np.isin(head, left)
    tail, head = tail[inside], head[inside]
    back = np.setdiff1d(
        left, topological_order(count, np.ascontiguousarray(head), np.ascontiguousarray(tail))
    )
    if not len(back):
        return []
    ops = np.flatnonzero(np.isin(piece, back)).tolist()
    text = f"{len(back)} pieces of the plan wait for each other, so HETERO splits them further: {_names(graph, ops)}"
    return [_finding("cycle", "warning", text, graph, ops)]


def _ping_pong(problem: Problem, placement: Placement) -> list[Finding]:
    """A piece whose neighbours are all on one other device, which costs more to reach than it saves.

    What runs beside them there is no such piece: the exact cost of the plan must not rise when it is moved.
    """
    graph, device, found = problem.graph, placement.device, []
    exact = SimulatedEvaluator(problem)
    now = exact.evaluate(placement) if problem.allowed[np.arange(problem.n), device].all() else None
    piece = submodels_of(graph, device)
    tail, head = graph.arcs
    producer, edge = graph.tensor_producer, graph.edge_tensor
    for number in range(int(piece.max()) + 1 if graph.n else 0):
        inside = piece == number
        ops = np.flatnonzero(inside)
        around = np.concatenate([tail[inside[head] & ~inside[tail]], head[inside[tail] & ~inside[head]]])
        before = bool((inside[head] & ~inside[tail]).any()) and bool((inside[tail] & ~inside[head]).any())
        others = set(device[around].tolist())
        if len(others) != 1 or not before:
            continue
        here, there = int(device[ops[0]]), others.pop()
        moved = problem.time[ops, there].sum()
        crossing = inside[producer[edge]] != inside[graph.consumer_op]
        tensors = np.unique(edge[crossing])
        out = inside[producer[tensors]]
        cost = np.where(
            out,
            problem.latency[here, there] + problem.size[tensors] * problem.rate[here, there],
            problem.latency[there, here] + problem.size[tensors] * problem.rate[there, here],
        ).sum()
        if moved <= problem.time[ops, here].sum() + cost and problem.allowed[ops, there].all():
            if now is not None and now.feasible:
                changed = device.copy()
                changed[np.isin(problem.class_of, problem.class_of[ops])] = there
                tried = [replace(placement, device=changed, call=None)]
                tried += [replace(tried[0], order=None)] if placement.order is not None else []
                after = [exact.evaluate(each) for each in tried]
                if not any(each.feasible and each.cost <= now.cost for each in after):
                    continue
            names = problem.cluster.names
            text = (
                f"{_names(graph, ops.tolist())} on {names[here]!r} lies between ops on {names[there]!r}, "
                "and would be no slower there"
            )
            found.append(_finding("ping-pong", "warning", text, graph, ops.tolist()))
    return found
