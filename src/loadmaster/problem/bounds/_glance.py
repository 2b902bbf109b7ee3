"""Paths, loads and windows of a schedule at one glance: for proofs that ask again and again."""

from __future__ import annotations

import math

import numpy as np

from loadmaster.arrays import BoolArray, FloatArray, IntArray
from loadmaster.problem._model import Concurrent
from loadmaster.problem._problem import Problem
from loadmaster.problem.bounds._apart import NOWHERE, Apart
from loadmaster.problem.bounds._load_dual import load_dual
from loadmaster.problem.bounds._schedule import Paths, paths_along, ways_of
from loadmaster.problem.bounds._view import Devices, View, between_kinds, links_of, view_of
from loadmaster.problem.bounds._windows import best_window, best_windows

__all__ = ["Glances", "glance"]

CONE, EFFORT = 16, 2e4
"""More ancestors are looked at for queueing than in other bounds: where classes are fixed, queues are longer."""


def glance(problem: Problem, below: float) -> float:
    """A bound on every placement under ``concurrent`` that costs less than ``below``, if there are any.

    The best of the placed critical path, the windows, and for each single device the busiest stretch of what can be
    nowhere else; without classes on devices where these alone take ``below``. The bounds are those of
    :func:`all_bounds`, but each is computed once: a few milliseconds for 1,000 ops. Not rounded down.
    """
    return Glances(problem)(np.full(problem.classes, -1, np.int32), below)


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
        self._views: dict[tuple[int, ...], tuple[list[Devices], View]] = {}

    def __call__(self, device: IntArray, below: float) -> float:
        """``device``: (classes,) where each class is, or -1."""
        if self._root is None:
            return 0.0
        view = self.view(device)
        busy = np.ones(len(view.kinds), np.bool_)
        paths = paths_along(view, self._ways, (busy, CONE, EFFORT))
        bound = float(paths.through.min(axis=1).max())
        if bound >= below:
            return bound
        possible = np.isfinite(paths.through) & (paths.through < below)
        left = possible[view.of]
        time = np.where(left, view.time, math.inf)
        dual, weight = load_dual(np.where(possible, view.cost, math.inf), view.number)
        head, tail = (np.where(left, table, math.inf).min(axis=1) for table in (paths.head, paths.tail))
        window, _ = best_windows(time, head, tail, view.number, weight)
        return max(bound, dual, window, _alone(view, paths, time, left))

    def view(self, device: IntArray) -> View:
        """The problem with classes on these devices: a device that has some is a kind of its own."""
        kinds, view = self._view_with(tuple(np.unique(device[device >= 0]).tolist()))
        first = np.array([kind[0] for kind in kinds])
        placed = np.flatnonzero(device >= 0)
        if not len(placed):
            return view
        elsewhere = (device >= 0)[:, None] & (device[:, None] != first)
        time = np.where(elsewhere[self._class_of], math.inf, view.time)
        # View.of numbers the classes that have members, in the same order.
        cost = np.where(elsewhere[self._members], math.inf, view.cost)
        return view._replace(time=time, cost=cost)

    def _view_with(self, used: tuple[int, ...]) -> tuple[list[Devices], View]:
        root = self._root
        assert root is not None
        if used not in self._views:
            kinds: list[Devices] = []
            for kind in root.kinds:
                taken = np.isin(kind, used)
                kinds += [kind[i : i + 1] for i in np.flatnonzero(taken).tolist()]
                kinds += [kind[~taken]] if not taken.all() else []
            where = [next(k for k, like in enumerate(root.kinds) if kind[0] in like) for kind in kinds]
            latency, rate = self._links
            self._views[used] = kinds, View(
                of=root.of,
                time=np.ascontiguousarray(root.time[:, where]),
                cost=np.ascontiguousarray(root.cost[:, where]),
                number=np.array([float(len(kind)) for kind in kinds]),
                kinds=kinds,
                latency=between_kinds(latency, kinds, math.inf),
                rate=between_kinds(rate, kinds, 0.0),
            )
        return self._views[used]


def _alone(view: View, paths: Paths, time: FloatArray, left: BoolArray) -> float:
    """The busiest stretch of any single device with the ops that must be there."""
    best, sure = 0.0, left.sum(axis=1) == 1
    for k in np.flatnonzero(view.number == 1).tolist():
        ops = np.flatnonzero(sure & left[:, k])
        if len(ops):
            best = max(best, best_window(paths.head[ops, k], paths.tail[ops, k], time[ops, k])[0])
    return best
