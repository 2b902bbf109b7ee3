"""Some device does its fair share and pays for its transfers on top: a bound on ``pipeline``, by branching over cuts.

Give every class c a price π_c >= 0. If a placement costs less than v, the devices of other kinds can hold only so much
of all prices; so some device of the kind in question holds classes S with π(S) >= share, an equal part of the rest. Its
load, compute and transfers over its border, is at least

    min { load(S) : π(S) >= share },

whatever the other devices do. Without the condition that S is a set the minimum would be that of an equal part of
everything, with no transfers; so classes are fixed in S or outside one by one (branch and bound). In a node the share
has a price (Lagrange), and the least load for that price is a minimum cut.

Prices are such that nobody can hold much: a set on a device of the kind is worth at most its load times a weight, on
another device at most its compute times a weight; the weights of all devices add up to 1 (as in the load dual).
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from loadmaster.arrays import BoolArray, FloatArray
from loadmaster.placers.cuts._cut_graph import minimum_cut
from loadmaster.placers.cuts._sharing import LeastLoads
from loadmaster.problem import Problem
from loadmaster.problem.bounds import View, load_dual, view_of

__all__ = ["fair_share_bounds"]

INSIDE, FREE, OUTSIDE = 1, 0, -1
Fixed = npt.NDArray[np.int8]
FACTORS = (1.0, 0.7, 0.4, 0.2, 0.1)
"""Shares of the weights of the load dual that other kinds of devices have: with transfers they are worth less."""
STEP = 0.01
"""The first value above the bound known that is to be ruled out, relative to it; then steps of twice the size."""
PRICES = 8
"""Cuts for the price of a node, at most."""


def fair_share_bounds(
    problem: Problem, known: float, target: Callable[[], float], over: Callable[[], bool], cuts: int
) -> Iterator[float]:
    """Rising lower bounds on the cost of any pipeline whose transfers add to the load, until ``target`` is met.

    Values a little above what is ``known`` are ruled out first: they leave other devices less.

    known : a bound that holds already.
    target : the cost of a known placement, asked again and again; it may fall.
    over : whether to stop.
    cuts : at most so many minimum cuts of a node per class and two per tensor.
    """
    view = view_of(problem)
    if view is None or not math.isfinite(target()):
        return
    value, weight = load_dual(view.cost, view.number)
    if value <= 0:
        return
    kind = int(np.argmax(weight * view.number))
    loads, step, known = LeastLoads(problem, view), STEP, max(known, value)
    while known < target() and not over():
        assumed = min(target(), known * (1.0 + step))
        price, share, least = np.zeros(0), 0.0, 0.0
        for factor in FACTORS:
            if over():
                return
            found = _prices(view, loads, kind, factor * weight, assumed)
            if found[2] > least:
                price, share, least = found
        if share <= 0:
            return
        reached = 0.0
        for bound in _Tree(loads, kind, price, share, assumed, over, cuts).bounds():
            reached = min(bound, assumed)
            if reached > known:
                yield reached
        if reached < assumed:
            return
        known, step = assumed, 2.0 * step


def _prices(
    view: View, loads: LeastLoads, kind: int, weight: FloatArray, cost: float
) -> tuple[FloatArray, float, float]:
    """Prices, the share of each device of the kind, and what is proved by them at once.

    The others take ``weight`` per second of load at most, and the kind what is left.
    """
    number = view.number
    others = float((weight * number).sum() - weight[kind] * number[kind])
    own = (1.0 - others) / float(number[kind])
    finite = np.isfinite(view.cost)
    apart = np.where(finite, np.where(finite, view.cost, 0.0) * weight, math.inf)
    apart[:, kind] = math.inf
    price = loads.prices(kind, own, apart.min(axis=1))
    share = (float(price.sum()) - others * cost) / float(number[kind]) * (1.0 - 1e-9)
    return price, share, share / own


class _Solved(NamedTuple):
    """A node: its bound, what is fixed, and the sets just below and above the best price."""

    bound: float
    fixed: Fixed
    low: BoolArray
    high: BoolArray


class _Tree:
    """Branch and bound, the least bound first."""

    def __init__(
        self,
        loads: LeastLoads,
        kind: int,
        price: FloatArray,
        share: float,
        target: float,
        over: Callable[[], bool],
        cuts: int,
    ) -> None:
        self.loads, self.kind, self.price, self.share = loads, kind, price, share
        self.target, self._over, self._cuts = target, over, cuts

    def over(self) -> bool:
        return self._over() or self.loads.made >= self._cuts

    def bounds(self) -> Iterator[float]:
        """The bound after each step that raised it."""
        number = itertools.count()
        root = self._solve(np.zeros(len(self.price), np.int8), -math.inf)
        heap = [(root.bound, next(number), root)]
        best = root.bound
        yield best
        while heap[0][0] < self.target and not self.over():
            _, _, node = heapq.heappop(heap)
            c = self._branch(node)
            if c < 0:
                return
            for label in (INSIDE, OUTSIDE):
                if self.over():
                    return
                fixed = node.fixed.copy()
                fixed[c] = label
                child = self._solve(fixed, node.bound)
                heapq.heappush(heap, (child.bound, next(number), child))
            if heap[0][0] > best:
                best = heap[0][0]
                yield best

    def _branch(self, node: _Solved) -> int:
        """The class that would load a device most, of those that the two sets disagree about; -1 if there is none."""
        free = node.fixed == FREE
        unsure = free & (node.low != node.high)
        if not unsure.any():
            unsure = free
        if not unsure.any():
            return -1
        alone = np.where(np.isfinite(self.loads.alone[:, self.kind]), self.loads.alone[:, self.kind], 0.0)
        return int(np.where(unsure, alone, -1.0).argmax())

    def _solve(self, fixed: Fixed, known: float) -> _Solved:
        """The best of some prices per share that is lacking, by the tangents of a concave function (Kelley 1960)."""
        target = self.target
        if float(self.price[fixed != OUTSIDE].sum()) < self.share:
            return _Solved(math.inf, fixed, fixed > 0, fixed > 0)
        bound, low, high = known, fixed > 0, fixed != OUTSIDE
        left: tuple[float, float, float] | None = None
        right: tuple[float, float, float] | None = None
        rate = (
            max(target, 1e-300) / self.share
        )  # the price at which a share of load as large as its bound is even
        for _ in range(PRICES):
            value, inside = self._cut(fixed, rate)
            if value == math.inf:
                return _Solved(math.inf, fixed, fixed > 0, fixed > 0)
            bound = max(bound, value)
            slope = self.share - float(self.price[inside].sum())
            if slope > 0:
                left, low = (rate, value, slope), inside
            else:
                right, high = (rate, value, slope), inside
            if bound >= target or slope == 0 or self.over():
                break
            if left is None:
                rate *= 0.7
            elif right is None:
                rate *= 1.4
            else:
                rate = (right[1] - left[1] + left[2] * left[0] - right[2] * right[0]) / (left[2] - right[2])
                if left[1] + left[2] * (rate - left[0]) <= bound + 1e-5 * abs(bound):
                    break
        return _Solved(bound, fixed, low, high)

    def _cut(self, fixed: Fixed, rate: float) -> tuple[float, BoolArray]:
        """min over S of load(S) + rate · (share - π(S)), and the S."""
        gain = rate * self.price
        arcs = self.loads.network(
            self.kind, np.flatnonzero(fixed == INSIDE), np.flatnonzero(fixed == OUTSIDE), gain
        )
        self.loads.made += 1
        cut = minimum_cut(arcs)
        value = cut.value - float(gain.sum()) + rate * self.share
        size = cut.value + float(gain.sum()) + rate * self.share
        return value - 1e-12 * size, cut.source_side[: len(self.price)]
