"""The bound of ``frontier`` never exceeds the optimum, and closes the gap on published workloads."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import problems

from loadmaster import api
from loadmaster.placers import Budget
from loadmaster.placers.frontier import Frontier
from loadmaster.problem import Pipeline, Problem
from loadmaster.problem._evaluator import SimulatedEvaluator


@given(
    problems(
        st.builds(Pipeline, st.sampled_from(["none", "none", "device", "chain"])),
        max_ops=6,
        devices=st.integers(1, 3),
        backward=True,
    )
)
@settings(max_examples=60)
def test_the_bound_never_exceeds_the_optimum(problem: Problem) -> None:
    everything = np.array(list(itertools.product(range(problem.devices), repeat=problem.n)), np.int32)
    cost, feasible = SimulatedEvaluator(problem).evaluate_batch(everything)
    if not feasible.any():
        return
    best = float(cost[feasible].min())
    solution = Frontier().place(problem, budget=Budget(seconds=0.3))
    assert solution.bound <= best * (1 + 1e-12)
    assert solution.cost >= best * (1 - 1e-12)


@pytest.mark.parametrize(
    ("name", "best", "gap"),
    [("layers/bert24_inference", 17.714719, 0.01), ("layers/gnmt_inference", 31.687311, 0.01)],
)
def test_published_workloads_are_nearly_closed(workloads: Path, name: str, best: float, gap: float) -> None:
    problem = api.problem(workloads / "msr" / "throughput" / f"{name}.json", model="pipeline")
    solution = Frontier().place(problem, budget=Budget(seconds=30.0))
    assert 1e3 * solution.cost <= best * 1.002
    assert 1e3 * solution.bound <= best * (1 + 1e-6)
    assert solution.gap <= gap
