"""The linear relaxation of ``concurrent`` is a bound, and never worse than the path and the load alone."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from strategies import problems

from loadmaster.graph import layered
from loadmaster.hardware import accelerators, roofline
from loadmaster.placers import PLACERS, Budget
from loadmaster.problem import Concurrent, Placement, Problem
from loadmaster.problem._evaluator import SimulatedEvaluator
from loadmaster.problem.bounds import all_bounds
from loadmaster.problem.bounds._linear import linear_bound


def brute_force(problem: Problem) -> float:
    """The least cost of any placement with any order."""
    evaluator = SimulatedEvaluator(problem)
    tail, head = problem.graph.arcs
    orders = [np.argsort(p).astype(np.int32) for p in permutations(range(problem.n))]
    orders = [order for order in orders if (order[tail] < order[head]).all()]
    best = np.inf
    for device in product(range(problem.devices), repeat=problem.n):
        if evaluator.evaluate(Placement(np.array(device, np.int32))).cost < np.inf:
            for order in orders:
                best = min(best, evaluator.evaluate(Placement(np.array(device, np.int32), order=order)).value)
    return best


@settings(max_examples=60, deadline=None)
@given(
    problems(Concurrent(), min_ops=2, max_ops=4, devices=st.sampled_from([2, 3]), constrained=False),
    st.sampled_from([1.0, 1.5, np.inf]),
)
def test_no_placement_is_better(problem: Problem, factor: float) -> None:
    best = brute_force(problem)
    assume(best > 0)
    assert linear_bound(problem).value <= best
    assert linear_bound(problem, known=best * factor).value <= best


@settings(max_examples=20, deadline=None)
@given(problems(Concurrent(), min_ops=3, max_ops=4, devices=st.just(2)))
def test_no_placement_is_better_with_constraints(problem: Problem) -> None:
    assert linear_bound(problem).value <= brute_force(problem)


@pytest.mark.parametrize("seed", range(8))
def test_no_searched_placement_is_better(seed: int) -> None:
    graph, cluster = layered(12 + 6 * seed, width=4, seed=seed), accelerators(1 + seed % 3, 1)
    problem = Problem.make(graph, cluster, Concurrent(), time=roofline(graph, cluster))
    best = PLACERS["local-search"].place(problem, budget=Budget(evaluations=3000)).cost
    bound = linear_bound(problem).value
    assert bound <= best
    assert linear_bound(problem, known=best).value <= best
    simple = [b.value for b in all_bounds(problem) if b.name in {"placed critical path", "load dual"}]
    assert bound >= max(simple) * (1 - 1e-6)
