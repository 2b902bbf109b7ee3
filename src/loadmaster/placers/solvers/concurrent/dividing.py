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
from typing import NamedTuple

import numpy as np

from loadmaster.arrays import IntArray
from loadmaster.problem import Problem
from loadmaster.problem.bounds import NOWHERE, Apart, Glances

__all__ = ["SLACK", "Division", "dividing_bounds"]

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


class Division:
    """The tree: open nodes by their bound. Any number of them may be looked at, now or later.

    known : a bound that holds already.
    apart : pairs of ops that are known to be apart.
    """

    def __init__(self, problem: Problem, known: float, apart: Apart = NOWHERE) -> None:
        self._problem, self._order, self._number = problem, _heaviest(problem), itertools.count()
        self._glances = Glances(problem, apart)
        self._heap = [_Node(max(known, 0.0), next(self._number), (), branch=False)]
        self.made, self.ops = 0, problem.n
        self.ended = False
        """Whether nothing is left to be looked at: all classes are fixed in the node of least bound."""

    @property
    def bound(self) -> float:
        """No placement costs less."""
        return self._heap[0].bound

    def advance(self, target: float, over: Callable[[], bool]) -> None:
        """Look at the node of least bound; what is not below ``target`` may be left aside."""
        node = self._heap[0]
        below = min(target, node.bound * (1.0 + STEP)) if node.bound > 0 else target
        tried = [node.fixed]
        if node.branch:
            if len(node.fixed) == len(self._order):
                self.ended = True
                return
            tried = self._children(node.fixed)
        made: list[_Node] = []
        for fixed in tried:
            if over():
                return
            self.made += 1
            value = self._glances(self._devices(fixed), below / (1.0 - 2.0 * SLACK)) * (1.0 - SLACK)
            bound = max(node.bound, min(value, below))
            made.append(_Node(bound, next(self._number), fixed, branch=value < below))
        if not made and len(self._heap) == 1:
            self.ended = True  # a class that no device may run: there is no feasible placement
            return
        heapq.heappop(self._heap)
        for child in made:
            heapq.heappush(self._heap, child)

    def _devices(self, fixed: Fixed) -> IntArray:
        """(classes,) the devices of the first classes of the order, -1 for others."""
        device = np.full(self._problem.classes, -1, np.int32)
        device[self._order[: len(fixed)]] = fixed
        return device

    def _children(self, fixed: Fixed) -> list[Fixed]:
        """The next class on one device of each kind that it may be on."""
        allowed = self._problem.class_allowed[self._order[len(fixed)]]
        kinds = self._glances.kinds(self._devices(fixed))
        return [(*fixed, int(kind[0])) for kind in kinds if allowed[kind[0]]]


def dividing_bounds(
    problem: Problem,
    known: float,
    target: Callable[[], float],
    over: Callable[[], bool],
    nodes: int,
    apart: Apart = NOWHERE,
) -> Iterator[float]:
    """Rising lower bounds on the cost of any placement under ``concurrent``, until ``target`` is met.

    Memory is relaxed, except that nothing goes where it alone does not fit; so devices that are alike in their times
    and links may be exchanged.

    known : a bound that holds already.
    target : the cost of a known placement, asked again and again; it may fall.
    over : whether to stop.
    nodes : nodes are bounded at most so often.
    apart : pairs of ops that are known to be apart.

    Complexity: that of :func:`glance` each time; a node has one child per kind of devices.
    """
    division = Division(problem, known, apart)
    while division.bound < target() and not division.ended and not over():
        division.advance(target(), lambda: over() or division.made >= nodes)
        if division.made >= nodes:
            division.ended = True
        if division.bound > known:
            known = division.bound
            yield min(known, target())


def _heaviest(problem: Problem) -> IntArray:
    """The classes that take time, the heaviest first; their weight is the median over the devices."""
    finite = np.where(np.isfinite(problem.time), problem.time, 0.0)
    cost = np.stack([np.bincount(problem.class_of, column, problem.classes) for column in finite.T], axis=1)
    weight = np.median(cost, axis=1)
    return np.argsort(-weight, kind="stable")[: int((weight > 0).sum())].astype(np.int32)
