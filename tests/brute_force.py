"""The least cost of a small problem, by looking at every placement."""

from __future__ import annotations

import itertools

import numpy as np

from loadmaster.problem import Offload, Placement, Problem
from loadmaster.problem._evaluator import SimulatedEvaluator

__all__ = ["least_cost", "least_cost_with_calls", "least_cost_with_orders"]


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


def least_cost_with_orders(problem: Problem) -> float:
    """The same under ``concurrent``, with any order.

    An order that does not deadlock is as good as the sequence in which ops start, which is topological.
    """
    evaluator = SimulatedEvaluator(problem)
    tail, head = problem.graph.arcs
    orders = [np.argsort(p).astype(np.int32) for p in itertools.permutations(range(problem.n))]
    orders = [order for order in orders if (order[tail] < order[head]).all()]
    best = np.inf
    for device in itertools.product(range(problem.devices), repeat=problem.n):
        if evaluator.evaluate(Placement(np.array(device, np.int32))).cost < np.inf:
            for order in orders:
                best = min(best, evaluator.evaluate(Placement(np.array(device, np.int32), order=order)).value)
    return best


def _best(problem: Problem) -> tuple[float, np.ndarray]:
    rows = np.array(list(itertools.product(range(problem.devices), repeat=problem.classes)), np.int32)
    everything = rows[:, problem.class_of]
    cost, feasible = SimulatedEvaluator(problem).evaluate_batch(everything)
    return float(cost[feasible].min(initial=np.inf)), everything
