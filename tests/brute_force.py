"""The least cost of a small problem, by looking at every placement."""

from __future__ import annotations

import itertools

import numpy as np

from loadmaster.problem import Offload, Placement, Problem
from loadmaster.problem._evaluator import SimulatedEvaluator

__all__ = ["least_cost", "least_cost_with_calls"]


def least_cost(problem: Problem) -> float:
    """The least cost over all placements, infinite if none is feasible."""
    return _best(problem)[0]


def least_cost_with_calls(problem: Problem) -> float:
    """The same under ``offload``, with calls cut in every way: any numbering of them below ``max_calls``."""
    assert isinstance(problem.model, Offload)
    best, everything = _best(problem)
    if problem.model.max_calls > 1:
        evaluator = SimulatedEvaluator(problem)
        for device in everything:
            numbers = [range(1 if problem.pool[d] else problem.model.max_calls) for d in device]
            for call in itertools.product(*numbers):
                outcome = evaluator.evaluate(Placement(device, call=np.array(call, np.int32)))
                best = min(best, outcome.value)
    return best


def _best(problem: Problem) -> tuple[float, np.ndarray]:
    rows = np.array(list(itertools.product(range(problem.devices), repeat=problem.classes)), np.int32)
    everything = rows[:, problem.class_of]
    cost, feasible = SimulatedEvaluator(problem).evaluate_batch(everything)
    return float(cost[feasible].min(initial=np.inf)), everything
