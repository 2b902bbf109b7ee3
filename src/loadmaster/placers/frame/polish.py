"""The last touch on a placement: pieces that lie alone between ops of other devices are moved to a neighbour.

A search that only looks at the cost leaves such pieces wherever they cost nothing: off the critical path, or on a
device that is not the busiest. They would cost transfers for nothing, and the linter calls them foolish.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from loadmaster.arrays import IntArray
from loadmaster.problem import Placement, Problem, SimulatedEvaluator

__all__ = ["MOST_TRIES", "polish"]

MOST_TRIES = 400
"""Evaluations that it may take; there are rarely more than a few dozen such pieces."""


def polish(
    problem: Problem,
    placement: Placement,
    cost: float,
    *,
    evaluations: int = MOST_TRIES,
    over: Callable[[], bool] = lambda: False,
) -> tuple[Placement, float, int]:
    """A placement that costs no more, with fewer pieces where that is free; its cost; and the evaluations used.

    A piece is what hangs together on one device. One that is read and reads, and whose neighbours are all on one other
    device, is moved there if the exact cost does not rise: it then is a part of theirs, so that the pieces become
    fewer with every move, and the end comes. Pieces are tried in topological order. O(tries * evaluation).

    >>> # a Sigmoid on the CPU between ops of the GPU goes to the GPU
    """
    evaluator = SimulatedEvaluator(problem)
    best, used, again = placement, 0, True
    refused: set[tuple[int, ...]] = set()
    while again:
        again = False
        for ops, there in _lonely(problem, best.device):
            if used + (1 if best.order is None else 2) > evaluations or over():
                return best, cost, used
            key = (there, *ops.tolist())
            moved = np.flatnonzero(np.isin(problem.class_of, problem.class_of[ops]))
            if key in refused or not problem.allowed[moved, there].all():
                continue
            device = best.device.copy()
            device[moved] = there
            # In its place among the ops there, or else as the execution model orders them.
            kept = replace(best, device=device, call=None)
            for tried in (kept,) if best.order is None else (kept, replace(kept, order=None)):
                found = evaluator.evaluate(tried)
                used += 1
                if found.feasible and found.cost <= cost:
                    best, cost, again = tried, found.cost, True
                    break
            if again:
                break
            refused.add(key)
    return best, cost, used


def _lonely(problem: Problem, device: IntArray) -> list[tuple[IntArray, int]]:
    """Pieces with neighbours before and behind that are all on one other device, and that device."""
    graph = problem.graph
    tail, head = graph.arcs
    same = device[tail] == device[head]
    inside = coo_matrix((np.ones(int(same.sum())), (tail[same], head[same])), (graph.n, graph.n))
    count, piece = connected_components(inside, directed=False)
    tail, head = tail[~same], head[~same]
    before, behind = np.zeros(count, bool), np.zeros(count, bool)
    before[piece[head]] = behind[piece[tail]] = True
    low, high = np.full(count, problem.devices), np.full(count, -1)
    for mine, other in ((head, tail), (tail, head)):
        np.minimum.at(low, piece[mine], device[other])
        np.maximum.at(high, piece[mine], device[other])
    chosen = np.flatnonzero(before & behind & (low == high))
    by_piece = np.argsort(piece, kind="stable").astype(np.int32)
    end = np.cumsum(np.bincount(piece, minlength=count))
    found = [
        (by_piece[end[number - 1] if number else 0 : end[number]], int(low[number])) for number in chosen
    ]
    return sorted(found, key=lambda entry: int(graph.position[entry[0]].min()))
