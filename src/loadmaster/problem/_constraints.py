"""Which constraints a placement breaks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from loadmaster.arrays import IntArray
from loadmaster.graph.order import topological_order
from loadmaster.problem._evaluation import Violation
from loadmaster.problem._model import Pipeline
from loadmaster.problem._problem import Problem

__all__ = [
    "capacity_violations",
    "chain_arcs",
    "contiguity_violations",
    "forward_arcs",
    "placement_violations",
]


def placement_violations(problem: Problem, device: IntArray) -> Iterator[Violation]:
    """Unsupported and forbidden ops, surplus devices, pins, colocation: all but what the execution model
    brings."""
    op, name = problem.graph.names, problem.cluster.names
    rows = np.arange(problem.n)
    for v in np.flatnonzero(np.isinf(problem.time[rows, device])).tolist():
        d = int(device[v])
        yield Violation("unsupported", f"op {op[v]!r} is not supported on device {name[d]!r}", (v,), d)
    for v in np.flatnonzero(problem.forbidden[rows, device]).tolist():
        d = int(device[v])
        yield Violation("forbidden", f"op {op[v]!r} is forbidden on device {name[d]!r}", (v,), d)
    for v in np.flatnonzero((problem.pin >= 0) & (problem.pin != device)).tolist():
        want, d = int(problem.pin[v]), int(device[v])
        yield Violation("pin", f"op {op[v]!r} is pinned to {name[want]!r} but is on {name[d]!r}", (v,), d)
    for d in problem.surplus:
        users = np.flatnonzero(device == d)
        if len(users):
            text = f"device {name[d]!r} is used but is not one of the problem's devices"
            yield Violation("surplus", text, tuple(users.tolist()), d)
    if problem.classes < problem.n:
        ptr, member = problem.members
        first = device[member[ptr[:-1]]]
        split = np.unique(problem.class_of[first[problem.class_of] != device])
        for c in split.tolist():
            ops = member[ptr[c] : ptr[c + 1]].tolist()
            shown = ", ".join(repr(op[v]) for v in ops[:4]) + (", …" if len(ops) > 4 else "")
            yield Violation("colocation", f"the colocated ops {shown} are split", tuple(ops))


def capacity_violations(problem: Problem, memory: npt.NDArray[np.float64]) -> Iterator[Violation]:
    """Devices that hold more than they can; ``memory`` (D,) is the sum or the peak, as the model says."""
    for d in np.flatnonzero(memory > problem.capacity).tolist():
        name, most = problem.cluster.names[d], problem.capacity[d]
        text = f"device {name!r} holds {memory[d]:.6g} bytes, but its capacity is {most:.6g}"
        yield Violation("capacity", text, device=d)


def forward_arcs(problem: Problem) -> tuple[IntArray, IntArray]:
    """The arcs between forward ops."""
    tail, head = problem.graph.arcs
    keep = ~problem.graph.backward[tail] & ~problem.graph.backward[head]
    return tail[keep], head[keep]


def chain_arcs(problem: Problem) -> tuple[IntArray, IntArray]:
    """The arcs between colocation classes that ``contiguity="chain"`` looks at, sorted and distinct.

    These are the arcs between forward ops, and for classes that have backward ops only ("orphans") the arcs
    between backward ops mirrored: an arc u -> v that touches an orphan class becomes class(v) -> class(u).
    This is the graph whose ideals the dynamic program of Tarnawski et al. walks through.
    """
    graph, of = problem.graph, problem.class_of
    tail, head = forward_arcs(problem)
    pairs = [np.stack([of[tail], of[head]])]
    if graph.backward.any():
        has_forward = np.zeros(problem.classes, np.bool_)
        has_forward[of[~graph.backward]] = True
        a, b = graph.arcs
        both = graph.backward[a] & graph.backward[b]
        orphan = ~has_forward[of[a]] | ~has_forward[of[b]]
        pairs.append(np.stack([of[b[both & orphan]], of[a[both & orphan]]]))
    arcs = np.concatenate(pairs, axis=1)
    arcs = np.unique(arcs[:, arcs[0] != arcs[1]], axis=1)
    return arcs[0].astype(np.int32), arcs[1].astype(np.int32)


def contiguity_violations(problem: Problem, device: IntArray) -> Iterator[Violation]:
    """What the ``contiguity`` setting of the pipeline model finds wrong."""
    model = problem.model
    if not isinstance(model, Pipeline) or model.contiguity == "none":
        return
    names = problem.cluster.names
    if model.contiguity == "device":
        for d, v in _not_convex(problem, device):
            back = problem.graph.names[v]
            text = f"the forward ops on device {names[d]!r} are not convex: a path leaves and comes back to {back!r}"
            yield Violation("contiguity", text, (v,), d)
        return
    tail, head = chain_arcs(problem)
    ptr, member = problem.members
    at = device[member[ptr[:-1]]] if problem.n else np.zeros(0, np.int32)
    quotient = np.unique(np.stack([at[tail], at[head]]), axis=1)
    quotient = quotient[:, quotient[0] != quotient[1]]
    order = topological_order(problem.devices, quotient[0], quotient[1])
    if len(order) < problem.devices:
        around = sorted(set(range(problem.devices)) - set(order.tolist()))
        text = "the devices wait for each other in a circle: " + ", ".join(repr(names[d]) for d in around)
        yield Violation("contiguity", text)


def _not_convex(problem: Problem, device: IntArray) -> Iterator[tuple[int, int]]:
    """(device, op): op is reached from the device's own forward ops over a forward op elsewhere."""
    tail, head = forward_arcs(problem)
    position = problem.graph.position
    order = np.argsort(position[tail], kind="stable")
    # left[v]: bitset of devices that a path to v has left (been on, then been elsewhere).
    left = [0] * problem.n
    seen = [0] * problem.n
    found: set[int] = set()
    where = device.tolist()
    for a, b in zip(tail[order].tolist(), head[order].tolist(), strict=True):
        seen[a] |= 1 << where[a]
        seen[b] |= seen[a]
        left[b] |= (seen[a] & ~(1 << where[b])) | left[a]
        if left[b] >> where[b] & 1 and where[b] not in found:
            found.add(where[b])
            yield where[b], b
