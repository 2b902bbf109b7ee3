"""Bounds on ``concurrent`` and ``offload``: paths over (op, device), loads, and both together."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from loadmaster.arrays import BoolArray, FloatArray, IntArray
from loadmaster.problem._model import Concurrent, Offload
from loadmaster.problem._problem import Problem
from loadmaster.problem.bounds._apart import NOWHERE, Apart
from loadmaster.problem.bounds._bound import Bound
from loadmaster.problem.bounds._crowding import crowding
from loadmaster.problem.bounds._load_dual import load_dual, tightened
from loadmaster.problem.bounds._paths import linked, op_arcs, path_along, starts, ways_of
from loadmaster.problem.bounds._view import Arcs, View
from loadmaster.problem.bounds._windows import best_window, best_windows

__all__ = ["Paths", "class_extremes", "placed_paths", "schedule_bounds"]


CONE = 8
"""How many ancestors of an op are looked at for queueing; more hardly help as long as nothing is fixed."""
EFFORT = 2e3
"""Combinations of arcs between these ancestors and kinds that are looked at for an op."""
MOST_PRICED = 2e6
"""Combinations of arcs and two kinds of devices for which prices of memory are looked for."""
HEAVY = 0.6
"""Two classes are looked at together if their sum is this part of the bound known."""
PRICED_ROUNDS = 4
"""Rounds of seven prices of memory each."""


class Paths(NamedTuple):
    """Longest paths over pairs (op, kind).

    head, tail : (n, K) seconds before which op v cannot start on kind k, and that remain after it; infinite
        where it may not go.
    through : (C, K) a lower bound on the cost of every placement that puts class c on kind k.
    """

    head: FloatArray
    tail: FloatArray
    through: FloatArray


def placed_paths(
    problem: Problem, view: View, cone: int = CONE, effort: float = EFFORT, apart: Apart = NOWHERE
) -> Paths:
    """The longest paths to and from every pair; with up to ``cone`` ancestors that queue."""
    onward, back = ways_of(problem, apart)
    queue, never = (~_pool(problem, view), cone, effort), np.full(view.time.shape, math.inf)
    head = path_along(view, onward, linked(view.latency, view.rate), queue, never)
    tail = path_along(view, back, linked(view.latency.T, view.rate.T), queue, never)
    return Paths(head, tail, class_extremes(view, head + view.time + tail, np.maximum, 0.0))


def _pool(problem: Problem, view: View) -> BoolArray:
    """(K,) True for kinds that run any number of ops at once."""
    return np.array(
        [isinstance(problem.model, Offload) and bool(problem.pool[kind[0]]) for kind in view.kinds], np.bool_
    )


def schedule_bounds(problem: Problem, view: View) -> list[Bound]:
    """Paths and loads, apart and together.

    All of it rests on three facts: an op takes its time, it starts after its inputs have been computed and
    brought over, and a device runs one op at a time. They hold for ``offload`` too, except that the pool runs
    any number of ops: picture a call as fetching for and running its ops one by one in topological order,
    then sending. That takes as long as the call does, and nothing outside can tell the difference.
    """
    pool = _pool(problem, view)
    busy = ~pool
    head, tail, through = placed_paths(problem, view)
    arcs, order = op_arcs(problem), problem.graph.topological_order.copy()
    bounds = [
        Bound(_critical_path(view, order, arcs), "critical path"),
        Bound(float(through.min(axis=1).max()), "placed critical path"),
    ]
    if len(view.cost) < problem.n:
        # One device runs the class, op after op: after the earliest of their heads, before the shortest tail.
        before = class_extremes(view, head, np.minimum, math.inf)
        behind = class_extremes(view, tail, np.minimum, math.inf)
        through = np.maximum(through, np.where(pool, 0.0, before + view.cost + behind))
        bounds.append(Bound(float(through.min(axis=1).max()), "largest class"))
    if isinstance(problem.model, Offload):
        bounds.append(Bound(_crowded_path(problem, view, order, arcs), "crowded critical path"))
    if not busy.any():
        return bounds
    number = view.number[busy]
    weights: list[FloatArray | None] = [None, None]

    def loads(left: BoolArray) -> float:
        """The load dual of what the pool does not take."""
        rows = ~np.logical_or.reduce(left[:, pool], axis=1)
        cost = np.where(left, view.cost, math.inf)[rows][:, busy]
        value, weights[0] = load_dual(cost, number, weights[0])
        return value

    def windows(left: BoolArray) -> float:
        value = loads(left)
        assert weights[0] is not None
        rows = ~np.logical_or.reduce(left[:, pool], axis=1)[view.of]
        left = left[view.of[rows]]
        window, weights[1] = best_windows(
            np.where(left, view.time[rows], math.inf)[:, busy],
            np.where(left, head[rows], math.inf).min(axis=1),
            np.where(left, tail[rows], math.inf).min(axis=1),
            number,
            weights[0] if weights[1] is None else weights[1],
        )
        return max(value, window)

    everything = np.isfinite(through)
    bounds.append(Bound(loads(everything), "load dual"))
    bounds.append(Bound(windows(everything), "windows"))
    best = max(bound.value for bound in bounds)
    if len(view.cost) < problem.n and isinstance(problem.model, Concurrent):
        pairs = _Pairs(view, head, tail, HEAVY * best)
        bounds.append(Bound(crowding(view.cost, through, view.number, pairs), "crowding and windows"))
        best = max(best, bounds[-1].value)
    return [*bounds, Bound(tightened(through, windows, best), "pruned windows")]


class _Pairs:
    """Two classes on one device: what comes before, in and after the busiest stretch of their ops."""

    def __init__(self, view: View, head: FloatArray, tail: FloatArray, least: float) -> None:
        self._view, self._head, self._tail, self._least = view, head, tail, least

    def __call__(self, classes: npt.NDArray[np.intp]) -> FloatArray:
        """(M, M, K) a bound for two of the classes on one device of a kind; plain sums where they are small."""
        view = self._view
        cost = view.cost[classes]
        pair: FloatArray = cost[:, None] + cost[None, :]
        worth = np.isfinite(pair) & (pair >= self._least)
        if not worth.any():
            return pair
        order = np.argsort(view.of, kind="stable")
        end = np.cumsum(np.bincount(view.of, minlength=len(view.cost)))
        ops = [
            order[end[c] - size : end[c]]
            for c, size in zip(classes, np.diff(end, prepend=0)[classes], strict=True)
        ]
        for a, b, k in np.argwhere(worth).tolist():
            if a < b:
                both = np.concatenate([ops[a], ops[b]])
                window = best_window(self._head[both, k], self._tail[both, k], view.time[both, k])[0]
                pair[a, b, k] = pair[b, a, k] = max(float(pair[a, b, k]), window)
        return pair


def class_extremes(view: View, values: FloatArray, extreme: np.ufunc, start: float) -> FloatArray:
    """(C, K) the least or largest of the (n, K) values of each class."""
    if len(view.cost) == len(values):
        out = np.empty_like(values)
        out[view.of] = values
        return out
    out = np.full_like(view.cost, start)
    extreme.at(out, view.of, values)
    return out


def _critical_path(view: View, order: IntArray, arcs: Arcs) -> float:
    """The longest path with every op at its smallest time and no transfers."""
    time = view.time.min(axis=1, keepdims=True)
    links = linked(np.zeros((1, 1)), np.zeros((1, 1)))
    n = len(time)
    rest = (np.ones(1, np.bool_), view.of, 0, np.full((n, 1), math.inf))
    head = starts(order, arcs.into(n), NOWHERE.into(n), time, links, *rest)
    return float((head + time).max())


def _crowded_path(problem: Problem, view: View, order: IntArray, arcs: Arcs) -> float:
    """The longest placed path if memory costs something, less what all memory costs; 0 if there is enough.

    At a price of λ >= 0 per byte, any path of a feasible placement costs at most its time and λ times what the
    devices hold together: a Lagrangian dual of the capacities. The best price is looked for among the prices
    at which some op is as well off on a device with limited memory as elsewhere.
    """
    room = np.array([float(problem.capacity[kind].sum()) for kind in view.kinds])
    limited = room < float(problem.memory.sum())
    if not limited.any() or limited.all() or len(arcs.tail) * len(room) ** 2 > MOST_PRICED:
        return 0.0
    inside, outside = view.time[:, limited].min(axis=1), view.time[:, ~limited].min(axis=1)
    known = np.isfinite(inside) & np.isfinite(outside) & (outside > inside) & (problem.memory > 0)
    if not known.any():
        return 0.0
    ratio = np.sort((outside[known] - inside[known]) / problem.memory[known])
    into, links = arcs.into(len(view.time)), linked(view.latency, view.rate)
    paid, apart = float(room[limited].sum()), NOWHERE.into(problem.n)
    never = np.full(view.time.shape, math.inf)

    def at(price: float) -> float:
        time = view.time + price * problem.memory[:, None] * limited
        start = starts(order, into, apart, time, links, np.zeros(len(room), np.bool_), view.of, 0, never)
        # The difference of two sums loses what rounding added to either.
        longest = float((start + time).min(axis=1).max())
        return longest * (1.0 - 1e-11) - price * paid * (1.0 + 1e-11)

    low, high = 0, len(ratio) - 1
    best = 0.0
    for _ in range(PRICED_ROUNDS):
        tried = np.unique(np.linspace(low, high, 7).astype(np.int64))
        values = [at(float(ratio[i])) for i in tried.tolist()]
        i = int(np.argmax(values))
        best = max(best, values[i])
        low, high = int(tried[max(i - 1, 0)]), int(tried[min(i + 1, len(tried) - 1)])
        if high - low <= 2:
            break
    return best
