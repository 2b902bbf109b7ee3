"""What determines the makespan: the chain of ops and transfers without slack, and who waits for whom."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from loadmaster.problem import Concurrent, Evaluation, Offload, Placement, Problem

__all__ = ["Step", "Wait", "critical_path", "waits"]

NEAR = 1e-9
"""Two moments closer than this share of the makespan are the same."""


@dataclass(frozen=True)
class Step:
    """One link of the chain: an op, a transfer (index into ``evaluation.transfers``) or a call, with what it
    waited for before it could start (``start``: nothing, ``data``, ``device``: the device was busy, ``link``: the link
    was busy)."""

    kind: str
    index: int
    start: float
    end: float
    because: str


@dataclass(frozen=True)
class Wait:
    """Idle seconds of ``device`` until something arrived from ``source``; None is the end of all work."""

    device: int
    source: int | None
    seconds: float


def critical_path(problem: Problem, placement: Placement, evaluation: Evaluation) -> list[Step]:
    """The chain that ends with the makespan, first step first.

    Empty where there is no schedule (``pipeline``), and for ``serial``, where everything is on the chain. Each
    step starts the moment the one before it ends; from several that end together the first found is taken.
    """
    if evaluation.start is None or evaluation.end is None or not problem.n:
        return []
    match problem.model:
        case Concurrent():
            return _concurrent(problem, placement, evaluation)
        case Offload():
            return _offload(problem, placement, evaluation)
    return []


def _concurrent(problem: Problem, placement: Placement, evaluation: Evaluation) -> list[Step]:
    start, end, device = evaluation.start, evaluation.end, placement.device
    assert start is not None
    assert end is not None
    graph, transfers = problem.graph, evaluation.transfers
    in_ptr, in_tensor = graph.inputs
    arrival = {(t.tensor, t.target): i for i, t in enumerate(transfers)}
    # Ops of no length at one instant: in the order that the device keeps to, which is a topological one.
    rank = np.empty(problem.n, np.int64)
    rank[problem.priority_order] = np.arange(problem.n)
    if placement.order is not None:
        rank[np.lexsort((graph.position, placement.order))] = np.arange(problem.n)
    before_op = _previous(
        range(problem.n),
        lambda v: (int(device[v]),),
        lambda v: (float(start[v]), float(end[v]), int(rank[v])),
    )
    before_transfer = _previous(
        range(len(transfers)),
        lambda i: (transfers[i].source, transfers[i].target),
        lambda i: (transfers[i].start, transfers[i].end),
    )

    def op(v: int) -> tuple[Step, list[tuple[str, str, int]]]:
        causes: list[tuple[float, str, str, int]] = []
        for t in in_tensor[in_ptr[v] : in_ptr[v + 1]].tolist():
            producer = int(graph.tensor_producer[t])
            if device[producer] == device[v]:
                causes.append((float(end[producer]), "data", "op", producer))
            elif (i := arrival.get((t, int(device[v])))) is not None:
                causes.append((transfers[i].end, "data", "transfer", i))
        if v in before_op:
            causes.append((float(end[before_op[v]]), "device", "op", before_op[v]))
        return _bound("op", v, float(start[v]), float(end[v]), causes)

    def transfer(i: int) -> tuple[Step, list[tuple[str, str, int]]]:
        found = transfers[i]
        producer = int(graph.tensor_producer[found.tensor])
        causes = [(float(end[producer]), "data", "op", producer)]
        if i in before_transfer:
            causes.append((transfers[before_transfer[i]].end, "link", "transfer", before_transfer[i]))
        return _bound("transfer", i, found.start, found.end, causes)

    return _chain(("op", int(np.argmax(end))), {"op": op, "transfer": transfer})


def _offload(problem: Problem, placement: Placement, evaluation: Evaluation) -> list[Step]:
    """Calls and CPU ops; a call begins when all that it reads is written and the device's last call is over."""
    start, end = evaluation.start, evaluation.end
    assert start is not None
    assert end is not None
    calls = evaluation.calls
    call_of = {v: c for c, call in enumerate(calls) for v in call.ops}
    pred_ptr, pred = problem.graph.predecessors
    before = _previous(
        range(len(calls)), lambda c: (calls[c].device,), lambda c: (calls[c].start, calls[c].end)
    )

    def unit(v: int) -> tuple[str, int]:
        return ("call", call_of[v]) if v in call_of else ("op", v)

    def causes(ops: tuple[int, ...], me: tuple[str, int]) -> list[tuple[float, str, str, int]]:
        read = {int(u) for v in ops for u in pred[pred_ptr[v] : pred_ptr[v + 1]]}
        return [(float(end[u]), "data", *unit(u)) for u in sorted(read) if unit(u) != me]

    def op(v: int) -> tuple[Step, list[tuple[str, str, int]]]:
        return _bound("op", v, float(start[v]), float(end[v]), causes((v,), ("op", v)))

    def call(c: int) -> tuple[Step, list[tuple[str, str, int]]]:
        found = causes(calls[c].ops, ("call", c))
        if c in before:
            found.append((calls[before[c]].end, "device", "call", before[c]))
        return _bound("call", c, calls[c].start, calls[c].end, found)

    return _chain(unit(int(np.argmax(end))), {"op": op, "call": call})


def _previous(
    items: range, key: Callable[[int], tuple[int, ...]], span: Callable[[int], tuple[float, ...]]
) -> dict[int, int]:
    """Item -> the item that ran just before it on the same device or link."""
    last: dict[tuple[int, ...], int] = {}
    before = {}
    for item in sorted(items, key=span):
        if key(item) in last:
            before[item] = last[key(item)]
        last[key(item)] = item
    return before


def _bound(
    kind: str, index: int, start: float, end: float, causes: list[tuple[float, str, str, int]]
) -> tuple[Step, list[tuple[str, str, int]]]:
    """The step, and what ended last before it started: (why, kind, index) of each that ended at that moment."""
    if not causes or start <= 0:
        return Step(kind, index, start, end, "start"), []
    latest = max(cause[0] for cause in causes)
    return Step(kind, index, start, end, "start"), [cause[1:] for cause in causes if cause[0] == latest]


def _chain(
    last: tuple[str, int],
    step_of: dict[str, Callable[[int], tuple[Step, list[tuple[str, str, int]]]]],
) -> list[Step]:
    """Back from the last step to one that waited for nothing.

    Ops of no length may seem to wait for each other at one instant, so that a way back can end in a circle:
    then another one is taken (depth first).
    """
    seen = {last}
    step, causes = step_of[last[0]](last[1])
    path = [(step, causes)]
    while path:
        step, causes = path[-1]
        if step.start <= 0 or not step_of[step.kind](step.index)[1]:
            break
        while causes and (causes[0][1], causes[0][2]) in seen:
            causes.pop(0)
        if not causes:
            path.pop()
            continue
        why, kind, index = causes.pop(0)
        seen.add((kind, index))
        path[-1] = (replace(step, because=why), causes)
        path.append(step_of[kind](index))
    return [step for step, _ in reversed(path)]


def waits(problem: Problem, placement: Placement, evaluation: Evaluation) -> list[Wait]:
    """Idle time of every device under ``concurrent``, by the device whose data it waited for; longest first.

    A pause belongs to the device that produced what arrived last for the op that ended the pause.
    """
    start, end, device = evaluation.start, evaluation.end, placement.device
    if not isinstance(problem.model, Concurrent) or start is None or end is None:
        return []
    graph = problem.graph
    in_ptr, in_tensor = graph.inputs
    arrival = {(t.tensor, t.target): t.end for t in evaluation.transfers}
    total: dict[tuple[int, int | None], float] = defaultdict(float)
    for d in range(problem.devices):
        free = 0.0
        for v in sorted(np.flatnonzero(device == d).tolist(), key=lambda v: (start[v], end[v])):
            if start[v] > free + NEAR * evaluation.cost:
                source, latest = d, -1.0
                for t in in_tensor[in_ptr[v] : in_ptr[v + 1]].tolist():
                    producer = int(graph.tensor_producer[t])
                    there = arrival.get((t, d), float(end[producer]))
                    if there > latest:
                        source, latest = int(device[producer]), there
                total[d, source] += float(start[v]) - free
            free = max(free, float(end[v]))
        if evaluation.cost > free * (1 + NEAR):
            total[d, None] += evaluation.cost - free
    found = [Wait(d, source, seconds) for (d, source), seconds in total.items()]
    return sorted(found, key=lambda wait: -wait.seconds)
