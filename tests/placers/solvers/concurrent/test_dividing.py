"""Heavy classes fixed on devices one by one: a bound on every placement, whatever its order."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from brute_force import least_cost, least_cost_with_orders
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import problems

from loadmaster import api
from loadmaster.placers import PLACERS
from loadmaster.placers.frame.search import Budget
from loadmaster.placers.solvers.concurrent.dividing import dividing_bounds
from loadmaster.problem import Concurrent
from loadmaster.problem.bounds import glance, lower_bound

CONCURRENT = st.builds(Concurrent, st.sampled_from(["event", "static"]), st.sampled_from(["sum", "peak"]))


def like(problem, first):
    """All devices from ``first`` on are made like that one, and nothing is pinned there."""
    of = np.minimum(np.arange(problem.devices), first)
    pin = np.where(problem.pin >= first, -1, problem.pin).astype(np.int32)
    latency, rate = problem.latency.copy(), problem.rate.copy()
    for table in (latency, rate):
        table[first:, first:] = table.max(initial=0.0)
        for d in range(first):
            table[d, first:], table[first:, d] = table[d, first], table[first, d]
        np.fill_diagonal(table, 0.0)
    return replace(
        problem, time=problem.time[:, of], forbidden=problem.forbidden[:, of], pin=pin, latency=latency, rate=rate
    )  # fmt: skip


def rising(problem, known, target, nodes):
    values = [known, *dividing_bounds(problem, known, lambda: target, lambda: False, nodes)]
    assert values == sorted(values)
    return values[-1]


@given(
    problems(CONCURRENT, max_ops=6, devices=st.integers(1, 4), backward=True),
    st.integers(0, 2),
    st.sampled_from([1.0, 1.2, 2.0]),
)
@settings(max_examples=150, deadline=None)
def test_it_is_below_every_placement(problem, first, factor):
    problem = like(problem, min(first, problem.devices - 1))
    best = least_cost(problem)
    if math.isinf(best):
        return
    for known in (0.0, lower_bound(problem).value):
        assert rising(problem, known, factor * best, 60) <= best


@given(problems(CONCURRENT, min_ops=2, max_ops=4, devices=st.integers(1, 3)), st.sampled_from([1.0, 1.3]))
@settings(max_examples=60, deadline=None)
def test_it_is_below_every_placement_with_an_order(problem, factor):
    best = least_cost_with_orders(problem)
    if math.isinf(best):
        return
    assert rising(problem, 0.0, factor * best, 200) <= best


@given(problems(CONCURRENT, max_ops=5, devices=st.integers(1, 3)), st.sampled_from([1.001, 1.5, math.inf]))
@settings(max_examples=100, deadline=None)
def test_a_glance_refutes_only_what_there_is_not(problem, factor):
    best = least_cost(problem)
    if math.isfinite(best) and best > 0:
        assert glance(problem, factor * best) <= best * (1 + 1e-11)


def test_it_repeats_itself():
    problem = api.problem("zoo:transformer-xl-2", "p100-2", model="concurrent")
    assert rising(problem, 0.0, 0.094, 200) == rising(problem, 0.0, 0.094, 200)


@pytest.mark.parametrize(
    ("model", "cost", "nodes", "least"),
    [("transformer-xl-2", 0.094, 800, 0.0865), ("unet?batch=4&training=1", 0.628, 800, 0.593)],
)
def test_it_is_far_better_than_the_quick_bounds_on_two_gpus(model, cost, nodes, least):
    problem = api.problem(f"zoo:{model}", "p100-2", model="concurrent")
    known = lower_bound(problem).value
    assert known < least
    assert least <= rising(problem, known, cost, nodes) <= cost


def test_cp_sat_reports_it():
    problem = api.problem("zoo:transformer-xl-2", "p100-2", model="concurrent")
    solution = PLACERS["cp-sat"].place(problem, budget=Budget(seconds=2.0))
    assert solution.bound_by == "divided heavy classes"
    assert solution.bound <= solution.cost
