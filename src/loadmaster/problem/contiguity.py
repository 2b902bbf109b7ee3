"""Contiguity, the setting of the ``pipeline`` model: which arcs it looks at, a compiled check, and what a
placement breaks.

``device``: no path between forward ops leaves a device and comes back. ``chain``: the devices, as the quotient
of the colocation classes, wait for each other in no circle. Boundary ops, the inputs and outputs of a model, are
where the user's data is and no work: both settings look at the graph as if it did not have them. A search checks
thousands of placements a second with :func:`is_contiguous`; :func:`contiguity_violations` says in words what is wrong
with one.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numba import njit

from loadmaster.arrays import BoolArray, IntArray
from loadmaster.graph.order import distinct_pairs, topological_order
from loadmaster.problem._evaluation import Violation
from loadmaster.problem._model import Pipeline
from loadmaster.problem._problem import Problem

__all__ = [
    "Contiguity",
    "chain_arcs",
    "contiguity_of",
    "contiguity_violations",
    "forward_arcs",
    "is_contiguous",
]

Contiguity = tuple[int, IntArray, IntArray]
"""(0 = none, 1 = device, 2 = chain; tails; heads): arcs between ops for ``device`` and between classes' first
members for ``chain``, sorted by the topological position of their tail."""


def forward_arcs(problem: Problem) -> tuple[IntArray, IntArray]:
    """The arcs between forward ops, those of boundary ops left out."""
    tail, head = problem.graph.arcs
    forward = _forward(problem)
    keep = forward[tail] & forward[head]
    return tail[keep], head[keep]


def _forward(problem: Problem) -> BoolArray:
    """(n,) ops of the forward pass that are work."""
    return ~problem.graph.backward & ~problem.graph.boundary


def chain_arcs(problem: Problem) -> tuple[IntArray, IntArray]:
    """The arcs between colocation classes that ``contiguity="chain"`` looks at, sorted and distinct.

    These are the arcs between forward ops, and for classes that have backward ops only ("orphans") the arcs
    between backward ops mirrored: an arc u -> v that touches an orphan class becomes class(v) -> class(u).
    This is the graph whose ideals the dynamic program of Tarnawski et al. walks through. Arcs of boundary ops are
    left out. With microbatches every arc between backward ops counts mirrored: gradients go back the way that the
    activations came.
    """
    graph, of = problem.graph, problem.class_of
    model = problem.model
    every = isinstance(model, Pipeline) and model.microbatches > 0
    tail, head = forward_arcs(problem)
    pairs = [np.stack([of[tail], of[head]])]
    if graph.backward.any():
        has_forward = np.zeros(problem.classes, np.bool_)
        has_forward[of[_forward(problem)]] = True
        a, b = graph.arcs
        backward = graph.backward & ~graph.boundary
        both = backward[a] & backward[b]
        orphan = ~has_forward[of[a]] | ~has_forward[of[b]] | every
        pairs.append(np.stack([of[b[both & orphan]], of[a[both & orphan]]]))
    arcs = np.concatenate(pairs, axis=1)
    apart = arcs[0] != arcs[1]
    tail, head = distinct_pairs(arcs[0, apart], arcs[1, apart])
    return tail, head


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


def contiguity_of(problem: Problem) -> Contiguity:
    """What the kernels need to check the problem's ``contiguity`` setting."""
    kind = problem.model.contiguity if isinstance(problem.model, Pipeline) else "none"
    nothing = np.zeros(0, np.int32)
    if kind == "none" or problem.n == 0:
        return 0, nothing, nothing
    if kind == "chain":
        tail, head = chain_arcs(problem)
        ptr, member = problem.members
        first = member[ptr[:-1]]
        return 2, np.ascontiguousarray(first[tail]), np.ascontiguousarray(first[head])
    tail, head = forward_arcs(problem)
    order = np.argsort(problem.graph.position[tail], kind="stable")
    return 1, np.ascontiguousarray(tail[order]), np.ascontiguousarray(head[order])


@njit(cache=True, nogil=True)
def is_contiguous(kind, tail, head, device, devices):  # type: ignore[no-untyped-def]
    """Whether a placement satisfies the contiguity given as in :data:`Contiguity`."""
    if kind == 0:
        return True
    if kind == 1:
        return _convex(tail, head, device, devices)
    return _acyclic(tail, head, device, devices)


@njit(cache=True, nogil=True)
def _convex(tail, head, device, devices):  # type: ignore[no-untyped-def]
    """No path leaves a device and comes back to it.

    ``seen[v]``: devices on any path up to v; ``left[v]``: those that such a path has also left. Both are
    bitsets of ``words`` 64-bit words. The arcs come by topological position of their tail, so a tail's sets
    are complete.
    """
    words = (devices + 63) // 64
    seen = np.zeros((len(device), words), np.uint64)
    left = np.zeros((len(device), words), np.uint64)
    one = np.uint64(1)
    for i in range(len(tail)):
        a, b = tail[i], head[i]
        da, db = device[a], device[b]
        seen[a, da >> 6] |= one << np.uint64(da & 63)
        for w in range(words):
            seen[b, w] |= seen[a, w]
            here = one << np.uint64(db & 63) if db >> 6 == w else np.uint64(0)
            left[b, w] |= (seen[a, w] & ~here) | left[a, w]
        if left[b, db >> 6] >> np.uint64(db & 63) & one:
            return False
    return True


@njit(cache=True, nogil=True)
def _acyclic(tail, head, device, devices):  # type: ignore[no-untyped-def]
    """The quotient graph of the devices has no cycle."""
    arc = np.zeros((devices, devices), np.bool_)
    for i in range(len(tail)):
        arc[device[tail[i]], device[head[i]]] = True
    waiting = np.zeros(devices, np.int32)
    for a in range(devices):
        for b in range(devices):
            if a != b and arc[a, b]:
                waiting[b] += 1
    stack = np.empty(devices, np.int32)
    top = 0
    for d in range(devices):
        if waiting[d] == 0:
            stack[top] = d
            top += 1
    done = 0
    while top:
        top -= 1
        a = stack[top]
        done += 1
        for b in range(devices):
            if a != b and arc[a, b]:
                waiting[b] -= 1
                if waiting[b] == 0:
                    stack[top] = b
                    top += 1
    return done == devices
