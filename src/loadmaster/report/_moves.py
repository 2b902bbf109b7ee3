"""What it would cost to move one op, with everything else left where it is."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from loadmaster.problem import Placement, Problem, SimulatedEvaluator

__all__ = ["move_costs"]

EFFORT = 60_000_000
"""Ops that may be simulated in all: some seconds. Beyond, only the most important classes are looked at."""
BATCH = 2_000_000


def move_costs(
    problem: Problem,
    placement: Placement,
    *,
    classes: npt.NDArray[np.integer] | None = None,
    effort: int = EFFORT,
) -> npt.NDArray[np.float64]:
    """(n, D) cost of the whole placement after moving the op, with its colocation class, to that device.

    Infinite where the move breaks a constraint; NaN where it was not computed, because the effort would be too
    large. A given ``order`` is kept; calls of ``offload`` are cut anew.

    Parameters
    ----------
    classes : colocation classes, most important first; by default all, by falling mean time.
    """
    cost = np.full((problem.classes, problem.devices), np.nan)
    evaluator = SimulatedEvaluator(problem)
    if classes is None:
        weight = np.bincount(problem.class_of, problem.mean_time, problem.classes)
        classes = np.argsort(-weight, kind="stable")
    ptr, member = problem.members
    home = placement.device[member[ptr[:-1]]]
    base = Placement(placement.device, placement.order)
    now = evaluator.evaluate(base if placement.call is None else placement)
    cost[np.arange(problem.classes), home] = now.value
    cost[~problem.class_allowed] = np.inf
    cost[np.arange(problem.classes), home] = now.value
    affordable = effort // max(problem.n, 1)
    moves = [(c, d) for c in classes.tolist() for d in range(problem.devices) if np.isnan(cost[c, d])]
    moves = moves[:affordable]
    rows = max(1, BATCH // max(problem.n, 1))
    for begin in range(0, len(moves), rows):
        part = moves[begin : begin + rows]
        device = np.repeat(placement.device[None], len(part), axis=0)
        for i, (c, d) in enumerate(part):
            device[i, member[ptr[c] : ptr[c + 1]]] = d
        if placement.order is None:
            found, feasible = evaluator.evaluate_batch(device)
            values = np.where(feasible, found, np.inf)
        else:
            values = np.array([evaluator.evaluate(Placement(row, placement.order)).value for row in device])
        for (c, d), value in zip(part, values.tolist(), strict=True):
            cost[c, d] = value
    return cost[problem.class_of]
