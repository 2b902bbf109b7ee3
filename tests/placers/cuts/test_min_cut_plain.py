"""The network of two devices on one page equals brute force, and ``min-cut`` equals it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from brute_force import least_cost
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import problems

from loadmaster.graph import layered
from loadmaster.hardware import accelerators, roofline
from loadmaster.placers import Budget
from loadmaster.placers.cuts.min_cut import MinCut
from loadmaster.placers.cuts.plain import best_placement
from loadmaster.problem import Placement, Problem, Serial, reference


@given(problems(Serial(), max_ops=8, devices=st.just(2)))
@settings(max_examples=100)
def test_it_equals_brute_force(problem: Problem) -> None:
    if np.isfinite(problem.capacity).any():
        return
    cost, device = best_placement(problem)
    assert cost == least_cost(problem)
    if math.isfinite(cost):
        evaluation = reference.evaluate(problem, Placement(np.array(device, np.int32)))
        assert evaluation.feasible
        assert evaluation.cost == pytest.approx(cost, rel=1e-12)


@given(seed=st.integers(0, 1000), width=st.integers(1, 5))
@settings(max_examples=25)
def test_the_fast_cut_equals_it(seed: int, width: int) -> None:
    graph, cluster = layered(25, width=width, seed=seed), accelerators(1, 1)
    problem = Problem.make(graph, cluster, Serial(), time=roofline(graph, cluster))
    found = MinCut().place(problem, budget=Budget())
    assert found.cost == pytest.approx(best_placement(problem)[0], rel=1e-9)
    assert found.optimal
