"""Paths, loads and windows of a schedule at one glance: for proofs that ask again and again."""

from __future__ import annotations

import math

import numpy as np

from loadmaster.arrays import BoolArray, FloatArray
from loadmaster.problem._model import Concurrent
from loadmaster.problem._problem import Problem
from loadmaster.problem.bounds._load_dual import load_dual
from loadmaster.problem.bounds._schedule import Paths, placed_paths
from loadmaster.problem.bounds._view import View, class_sums, view_of
from loadmaster.problem.bounds._windows import best_window, best_windows

__all__ = ["glance"]

CONE, EFFORT = 16, 2e4
"""More ancestors are looked at for queueing than in other bounds: where classes are fixed, queues are longer."""


def glance(problem: Problem, below: float) -> float:
    """A bound on every placement under ``concurrent`` that costs less than ``below``, if there are any.

    The best of the placed critical path, the windows, and for each single device the busiest stretch of what can be
    nowhere else; without classes on devices where these alone take ``below``. The bounds are those of
    :func:`all_bounds`, but each is computed once: a few milliseconds for 1,000 ops. Not rounded down.
    """
    assert isinstance(problem.model, Concurrent)
    view = view_of(problem)
    if view is None:
        return 0.0
    paths = placed_paths(problem, view, CONE, EFFORT)
    bound = float(paths.through.min(axis=1).max())
    if bound >= below:
        return bound
    possible = np.isfinite(paths.through) & (paths.through < below)
    left = possible[view.of]
    time = np.where(left, view.time, math.inf)
    dual, weight = load_dual(class_sums(view.of, time), view.number)
    head, tail = (np.where(left, table, math.inf).min(axis=1) for table in (paths.head, paths.tail))
    window, _ = best_windows(time, head, tail, view.number, weight)
    return max(bound, dual, window, _alone(view, paths, time, left))


def _alone(view: View, paths: Paths, time: FloatArray, left: BoolArray) -> float:
    """The busiest stretch of any single device with the ops that must be there."""
    best, sure = 0.0, left.sum(axis=1) == 1
    for k in np.flatnonzero(view.number == 1).tolist():
        ops = np.flatnonzero(sure & left[:, k])
        if len(ops):
            best = max(best, best_window(paths.head[ops, k], paths.tail[ops, k], time[ops, k])[0])
    return best
