"""Paths, loads and windows of a schedule at one glance: for proofs that ask again and again."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from loadmaster.arrays import BoolArray, FloatArray, IntArray
from loadmaster.problem._model import Concurrent
from loadmaster.problem._problem import Problem
from loadmaster.problem.bounds._apart import NOWHERE, Apart
from loadmaster.problem.bounds._load_dual import load_dual
from loadmaster.problem.bounds._paths import Links, linked, path_along, ways_of
from loadmaster.problem.bounds._schedule import Paths, class_extremes
from loadmaster.problem.bounds._view import Devices, View, between_kinds, links_of, view_of
from loadmaster.problem.bounds._windows import best_window, best_windows

__all__ = ["Glances", "glance"]

CONE, EFFORT = 16, 2e4
"""More ancestors are looked at for queueing than in other bounds: where classes are fixed, queues are longer."""


def glance(problem: Problem, below: float) -> float:
    """A bound on every placement under ``concurrent`` that costs less than ``below``, if there are any.

    The best of the placed critical path, the windows, and for each single device the busiest stretch of what can be
    nowhere else; without ops on devices where these alone take ``below``, and what that means for others. The bounds
    are those of :func:`all_bounds`, but each is computed once: a few milliseconds for 1,000 ops. Not rounded down.
    """
    return Glances(problem)(np.full(problem.classes, -1, np.int32), below)


class _Look(NamedTuple):
    """The problem where some devices have classes: like devices, links onward and back.

    first : (K,) first device of each kind.
    like : (K,) the kind that it is of where nothing is fixed.
    """

    view: View
    there: Links
    back: Links
    first: Devices
    like: IntArray


class Glances:
    """:func:`glance` for one problem again and again, each time with some classes on given devices.

    apart : pairs of ops that are known to be apart.
    """

    def __init__(self, problem: Problem, apart: Apart = NOWHERE) -> None:
        assert isinstance(problem.model, Concurrent)
        self._root = view_of(problem)
        self._ways = ways_of(problem, apart)
        self._class_of, self._members = problem.class_of, np.unique(problem.class_of)
        self._links = links_of(problem)
        self._looks: dict[tuple[int, ...], _Look] = {}
        if self._root is not None:
            root, queue = self._root, (np.ones(len(self._root.kinds), np.bool_), CONE, EFFORT)
            never = np.full(root.time.shape, math.inf)
            free = path_along(root, self._ways[1], linked(root.latency.T, root.rate.T), queue, never)
            self._free_tail = np.where(free < math.inf, free, 0.0)

    def __call__(self, device: IntArray, below: float) -> float:
        """``device``: (classes,) where each class is, or -1."""
        if self._root is None:
            return 0.0
        look = self._look(device)
        view, free = look.view, self._free_tail
        queue = (np.ones(len(view.kinds), np.bool_), CONE, EFFORT)
        head = path_along(view, self._ways[0], look.there, queue, below - free[:, look.like])
        # Where an op of a class cannot be, none of the class can.
        none = class_extremes(view, head, np.maximum, 0.0) == math.inf
        time = np.where(none[view.of], math.inf, view.time)
        latest = below - np.where(head < math.inf, head, 0.0)
        tail = path_along(view._replace(time=time), self._ways[1], look.back, queue, latest)
        through = class_extremes(view, head + time + tail, np.maximum, 0.0)
        bound = float(through.min(axis=1).max())
        if bound >= below:
            return bound
        possible = through < below
        left = possible[view.of]
        time = np.where(left, view.time, math.inf)
        dual, weight = load_dual(np.where(possible, view.cost, math.inf), view.number)
        soonest, shortest = (np.where(left, table, math.inf).min(axis=1) for table in (head, tail))
        window, _ = best_windows(time, soonest, shortest, view.number, weight)
        return max(bound, dual, window, _alone(view, Paths(head, tail, through), time, left))

    def kinds(self, device: IntArray) -> list[Devices]:
        """The devices that are alike with classes on these: one that has some is a kind of its own."""
        return self._look(device).view.kinds

    def _look(self, device: IntArray) -> _Look:
        look = self._with(tuple(np.unique(device[device >= 0]).tolist()))
        placed = device >= 0
        if not placed.any():
            return look
        elsewhere = placed[:, None] & (device[:, None] != look.first)
        time = np.where(elsewhere[self._class_of], math.inf, look.view.time)
        # The view numbers the classes that have members, in the same order.
        cost = np.where(elsewhere[self._members], math.inf, look.view.cost)
        return look._replace(view=look.view._replace(time=time, cost=cost))

    def _with(self, used: tuple[int, ...]) -> _Look:
        root = self._root
        assert root is not None
        if used not in self._looks:
            kinds: list[Devices] = []
            for kind in root.kinds:
                taken = np.isin(kind, used)
                kinds += [kind[i : i + 1] for i in np.flatnonzero(taken).tolist()]
                kinds += [kind[~taken]] if not taken.all() else []
            like = np.array([next(k for k, a in enumerate(root.kinds) if kind[0] in a) for kind in kinds])
            latency, rate = self._links
            view = View(
                of=root.of,
                time=np.ascontiguousarray(root.time[:, like]),
                cost=np.ascontiguousarray(root.cost[:, like]),
                number=np.array([float(len(kind)) for kind in kinds]),
                kinds=kinds,
                latency=between_kinds(latency, kinds, math.inf),
                rate=between_kinds(rate, kinds, 0.0),
            )
            there, back = linked(view.latency, view.rate), linked(view.latency.T, view.rate.T)
            self._looks[used] = _Look(view, there, back, np.array([kind[0] for kind in kinds]), like)
        return self._looks[used]


def _alone(view: View, paths: Paths, time: FloatArray, left: BoolArray) -> float:
    """The busiest stretch of any single device with the ops that must be there."""
    best, sure = 0.0, left.sum(axis=1) == 1
    for k in np.flatnonzero(view.number == 1).tolist():
        ops = np.flatnonzero(sure & left[:, k])
        if len(ops):
            best = max(best, best_window(paths.head[ops, k], paths.tail[ops, k], time[ops, k])[0])
    return best
