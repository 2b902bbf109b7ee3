"""Beam search, and the walk over placement and order behind it."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import problems

from loadmaster.graph import layered
from loadmaster.hardware import accelerators, roofline
from loadmaster.placers import PLACERS, Budget
from loadmaster.placers.search._order_walk import OrderWalk
from loadmaster.problem import Concurrent, Problem
from loadmaster.problem._evaluator import SimulatedEvaluator


@settings(max_examples=60, deadline=None)
@given(problems(Concurrent(), max_ops=10, constrained=False), st.integers(0, 99), st.integers(1, 60))
def test_a_walk_knows_what_its_placement_costs(problem: Problem, seed: int, evaluations: int) -> None:
    device = np.where(np.isfinite(problem.time), problem.time, np.inf).argmin(axis=1).astype(np.int32)
    walk = OrderWalk(problem, device, problem.graph.position.astype(float), seed)
    made = walk.advance(evaluations)
    assert made <= evaluations
    assert walk.cost == SimulatedEvaluator(problem).evaluate(walk.placement).cost
    before = walk.cost
    walk.advance(evaluations)
    assert walk.cost <= before


@settings(max_examples=20, deadline=None)
@given(problems(Concurrent(), max_ops=10))
def test_a_walk_keeps_constraints(problem: Problem) -> None:
    evaluator = SimulatedEvaluator(problem)
    rng = np.random.default_rng(0)
    for _ in range(20):
        choice = rng.integers(0, problem.devices, problem.classes).astype(np.int32)[problem.class_of]
        if evaluator.evaluate_batch(choice)[1][0]:
            walk = OrderWalk(problem, choice, problem.graph.position.astype(float), 1)
            walk.advance(100)
            assert evaluator.evaluate(walk.placement).feasible


def test_beam_is_at_least_as_good_as_the_schedules_it_begins_with() -> None:
    for seed in range(4):
        graph, cluster = layered(60, width=5, seed=seed), accelerators(2, 1)
        problem = Problem.make(graph, cluster, Concurrent(), time=roofline(graph, cluster))
        cost = {
            name: PLACERS[name].place(problem, budget=Budget(evaluations=500)).cost
            for name in ("beam", "heft", "lookahead")
        }
        assert cost["beam"] <= min(cost.values())
