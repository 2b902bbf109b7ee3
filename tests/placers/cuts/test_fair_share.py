"""Some device does its fair share: a bound on every pipeline, and prices that no set exceeds."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from brute_force import least_cost
from hypothesis import given, settings
from hypothesis import strategies as st
from like_devices import LOADS, like
from strategies import problems

from loadmaster import api
from loadmaster.placers.cuts._fair_share import fair_share_bounds
from loadmaster.placers.cuts._sharing import LeastLoads
from loadmaster.problem import Pipeline, Placement, reference
from loadmaster.problem.bounds import lower_bound, view_of


@given(
    problems(LOADS, max_ops=6, devices=st.integers(1, 4), backward=True),
    st.integers(0, 4),
    st.sampled_from([1.0, 1.1, 1.5]),
)
@settings(max_examples=150)
def test_it_is_below_every_placement(problem, first, known):
    problem = like(problem, first)
    best = least_cost(problem)
    if math.isinf(best):
        return
    before = -math.inf
    for value in fair_share_bounds(problem, 0.0, lambda: known * best, lambda: False, 80):
        assert before <= value <= best * (1 + 1e-11) + 1e-30
        before = value


@given(problems(st.just(Pipeline()), max_ops=5, devices=st.just(2)), st.floats(0.1, 1.0))
@settings(max_examples=100)
def test_no_set_is_worth_more_than_its_load(problem, weight):
    problem = replace(
        problem, capacity=np.full(2, math.inf), pin=np.full(problem.n, -1, np.int32),
        forbidden=np.zeros((problem.n, 2), bool), time=np.where(np.isinf(problem.time), 1.0, problem.time),
    )  # fmt: skip
    view = view_of(problem)
    if view is None:
        return
    kind = next(k for k, devices in enumerate(view.kinds) if 0 in devices)
    elsewhere = 0.3 * view.cost[:, -1]
    price = LeastLoads(problem, view).prices(kind, weight, elsewhere)
    assert (price <= elsewhere * (1 + 1e-9)).all()
    for at in itertools.product(range(2), repeat=len(view.cost)):
        inside = np.array(at) == 0
        load = reference.evaluate(problem, Placement(np.array(at, np.int32)[view.of])).load[0]
        assert price[inside].sum() <= weight * load * (1 + 1e-9) + 1e-12


def test_it_is_far_better_than_the_quick_bounds_on_a_transformer():
    problem = api.problem("zoo:transformer-xl-8", "p100-8", model="pipeline")
    assert lower_bound(problem).value < 0.0676
    *_, value = fair_share_bounds(problem, 0.0, lambda: 0.08, lambda: False, 300)
    assert value == pytest.approx(0.0732, rel=0.003)
