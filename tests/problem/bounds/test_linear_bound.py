"""The linear relaxation of ``concurrent`` is a bound, and never worse than the path and the load alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from brute_force import least_cost_with_orders
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from strategies import problems

from loadmaster.graph import layered
from loadmaster.hardware import accelerators, roofline
from loadmaster.placers import PLACERS, Budget
from loadmaster.problem import Concurrent, Problem
from loadmaster.problem.bounds import all_bounds
from loadmaster.problem.bounds._linear import linear_bound


@settings(max_examples=60, deadline=None)
@given(
    problems(Concurrent(), min_ops=2, max_ops=4, devices=st.sampled_from([2, 3]), constrained=False),
    st.sampled_from([1.0, 1.5, np.inf]),
)
def test_no_placement_is_better(problem: Problem, factor: float) -> None:
    best = least_cost_with_orders(problem)
    assume(best > 0)
    assert linear_bound(problem).value <= best
    assert linear_bound(problem, known=best * factor).value <= best


@settings(max_examples=20, deadline=None)
@given(problems(Concurrent(), min_ops=3, max_ops=4, devices=st.just(2)))
def test_no_placement_is_better_with_constraints(problem: Problem) -> None:
    assert linear_bound(problem).value <= least_cost_with_orders(problem)


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


@settings(max_examples=60, deadline=None)
@given(
    problems(Concurrent(), min_ops=2, max_ops=4, devices=st.sampled_from([2, 3]), constrained=False),
    st.lists(st.integers(1, 8), min_size=4, max_size=4),
    st.sampled_from([0.4, 0.6, 0.9]),
    st.sampled_from(["sum", "peak"]),
)
def test_no_placement_that_fits_is_better(
    problem: Problem, memory: list[int], room: float, counted: Literal["sum", "peak"]
) -> None:
    taken = np.array(memory[: problem.n], np.float64)
    capacity = np.full(problem.devices, room * taken.sum())
    capacity[-1] = np.inf
    short = replace(problem, model=Concurrent(memory=counted), memory=taken, capacity=capacity)
    assert linear_bound(short).value <= least_cost_with_orders(short)


def test_what_does_not_fit_on_the_fast_device_counts() -> None:
    graph, cluster = layered(40, width=4, seed=1), accelerators(1, 1)
    problem = Problem.make(graph, cluster, Concurrent(), time=roofline(graph, cluster))
    memory = np.ones(problem.n)
    short = replace(problem, memory=memory, capacity=np.array([10.0, np.inf]))
    best = PLACERS["local-search"].place(short, budget=Budget(evaluations=3000)).cost
    assert linear_bound(replace(problem, memory=memory)).value < 0.9 * linear_bound(short).value
    assert linear_bound(short).value <= best
