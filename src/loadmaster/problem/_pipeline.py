"""Compiled evaluation of the ``pipeline`` execution model, whole placements and moves."""

from __future__ import annotations

import numpy as np
from numba import njit

from loadmaster.arrays import BoolArray, FloatArray, IntArray
from loadmaster.problem._constraints import chain_arcs, contiguity_violations, forward_arcs
from loadmaster.problem._evaluation import Evaluation
from loadmaster.problem._model import Pipeline
from loadmaster.problem._placement import Placement
from loadmaster.problem._problem import Problem
from loadmaster.problem.loads import Nets, cost_of, load_cost, nets_of, new_ledger, reset

__all__ = ["Contiguity", "PipelineSimulator", "contiguity_of"]

Contiguity = tuple[int, IntArray, IntArray]
"""(0 = none, 1 = device, 2 = chain; tails; heads): arcs between ops for ``device`` and between classes' first
members for ``chain``, sorted by the topological position of their tail."""


class PipelineSimulator:
    """Largest load of any device.

    Complexity: O(ops + edges + devices) per placement, and O(degree + devices) per move with a ledger
    (``_nets.py``).
    """

    def __init__(self, problem: Problem) -> None:
        assert isinstance(problem.model, Pipeline)
        self.problem = problem
        self.model = problem.model
        self.nets: Nets = nets_of(problem)
        self.contiguity = contiguity_of(problem)

    def costs(self, device: IntArray) -> tuple[FloatArray, BoolArray]:
        """(k,) costs of the (k, n) placements, and whether they are as contiguous as asked."""
        cost = np.empty(len(device))
        contiguous = np.ones(len(device), np.bool_)
        _costs(*self.nets, *new_ledger(self.nets), *self.contiguity, device, cost, contiguous)
        return cost, contiguous

    def cost(self, placement: Placement) -> tuple[float, bool]:
        """Cost of one placement, and whether it is as contiguous as asked."""
        cost, contiguous = self.costs(placement.device[None])
        return float(cost[0]), bool(contiguous[0])

    def evaluate(self, placement: Placement) -> Evaluation:
        """Loads per device."""
        problem, device = self.problem, placement.device
        ledger = new_ledger(self.nets)
        reset(*self.nets, *ledger, device)
        busy, comm = ledger.compute.sum(axis=0), ledger.comm.sum(axis=0)
        return Evaluation(
            cost=cost_of(self.nets, ledger),
            violations=tuple(contiguity_violations(problem, device)),
            busy=busy,
            comm=comm,
            load=busy + comm if self.model.comm == "sum" else np.maximum(busy, comm),
            memory=problem.memory_of(device),
        )


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
def _costs(  # type: ignore[no-untyped-def]
    kind, ops, touch, tensors, time, size, wire, latency, rate, device, count, compute, comm,
    contiguity, tail, head, placements, cost, contiguous,
):  # fmt: skip
    for row in range(placements.shape[0]):
        reset(
            kind,
            ops,
            touch,
            tensors,
            time,
            size,
            wire,
            latency,
            rate,
            device,
            count,
            compute,
            comm,
            placements[row],
        )
        cost[row] = load_cost(kind, compute, comm)
        contiguous[row] = is_contiguous(contiguity, tail, head, placements[row], time.shape[1])


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
