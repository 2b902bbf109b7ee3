"""On which device each of the heaviest classes is: a bound on ``concurrent``, by branch and bound over windows.

The quick bounds let every op choose its place anew for each path, and every class be in parts on like devices. Once
classes are fixed, both stop: a path that enters and leaves them pays for its transfers, and what shares a device
queues. So classes are fixed one by one, the heaviest first, each on every device in turn (on one of those that are
still alike). A node is bounded by paths and windows (:func:`glance`); every placement belongs to some open node, so
the least bound of the open nodes holds at any time.

A node is bounded destructively: what costs less than a value a little above its bound uses no device that alone costs
more. If that refutes the value, the node has it as its bound and waits; if not, its next class is fixed.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from loadmaster.arrays import IntArray
from loadmaster.problem import Problem
from loadmaster.problem.bounds import glance, view_of

__all__ = ["dividing_bounds"]

SLACK = 1e-9
"""Bounds of nodes are rounded down by this part: more than floating point can have added to them."""
STEP = 0.02
"""A value so much above the bound of a node is to be refuted first, relative to it."""

Fixed = tuple[int, ...]
"""The devices of the first classes."""


class _Node(NamedTuple):
    bound: float
    number: int
    fixed: Fixed
    branch: bool
    """Whether the next class has to be fixed, for the last value could not be refuted."""


def dividing_bounds(
    problem: Problem, known: float, target: Callable[[], float], over: Callable[[], bool], nodes: int
) -> Iterator[float]:
    """Rising lower bounds on the cost of any placement under ``concurrent``, until ``target`` is met.

    Memory is relaxed, except that nothing goes where it alone does not fit; so devices that are alike in their times
    and links may be exchanged.

    known : a bound that holds already.
    target : the cost of a known placement, asked again and again; it may fall.
    over : whether to stop.
    nodes : nodes are bounded at most so often.

    Complexity: that of :func:`glance` each time; a node has one child per kind of devices.
    """
    order, number, made = _heaviest(problem), itertools.count(), 0
    heap = [_Node(max(known, 0.0), next(number), (), branch=False)]
    while heap[0].bound < target() and not over():
        node = heapq.heappop(heap)
        below = min(target(), node.bound * (1.0 + STEP)) if node.bound > 0 else target()
        tried = [node.fixed]
        if node.branch:
            if len(node.fixed) == len(order):
                return
            tried = _children(problem, order, node.fixed)
        for fixed in tried:
            if over() or made >= nodes:
                return
            made += 1
            value = glance(_with(problem, order, fixed), below / (1.0 - 2.0 * SLACK)) * (1.0 - SLACK)
            bound = max(node.bound, min(value, below))
            heapq.heappush(heap, _Node(bound, next(number), fixed, branch=value < below))
        if not heap:  # a class that no device may run: there is no feasible placement
            return
        if heap[0].bound > known:
            known = heap[0].bound
            yield min(known, target())


def _heaviest(problem: Problem) -> IntArray:
    """The classes that take time, the heaviest first; their weight is the median over the devices."""
    finite = np.where(np.isfinite(problem.time), problem.time, 0.0)
    cost = np.stack([np.bincount(problem.class_of, column, problem.classes) for column in finite.T], axis=1)
    weight = np.median(cost, axis=1)
    return np.argsort(-weight, kind="stable")[: int((weight > 0).sum())].astype(np.int32)


def _with(problem: Problem, order: IntArray, fixed: Fixed) -> Problem:
    """The problem with the first classes of the order on the given devices."""
    device = np.full(problem.classes, -1, np.int32)
    device[order[: len(fixed)]] = fixed
    device = device[problem.class_of]
    return replace(problem, pin=np.where(device >= 0, device, problem.pin))


def _children(problem: Problem, order: IntArray, fixed: Fixed) -> list[Fixed]:
    """The next class on one device of each kind that it may be on."""
    view = view_of(_with(problem, order, fixed))
    assert view is not None
    allowed = problem.class_allowed[order[len(fixed)]]
    return [(*fixed, int(kind[0])) for kind in view.kinds if allowed[kind[0]]]
