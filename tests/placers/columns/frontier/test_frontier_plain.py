"""The bound over all bundles on one page is below every placement, and ``frontier`` proves no more and no less."""

from __future__ import annotations

import math

import numpy as np
import pytest
from brute_force import least_cost
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import problems
from test_frontier import certificate_of

from loadmaster.placers.columns.frontier.plain import bundle_bound
from loadmaster.problem import Pipeline, Problem


@given(problems(Pipeline(), max_ops=6, devices=st.integers(1, 3), backward=True))
@settings(max_examples=30)
def test_no_placement_is_below_it(problem: Problem) -> None:
    best = least_cost(problem)
    assert bundle_bound(problem) <= best
    if problem.devices == 1 and not np.isfinite(problem.capacity).any():
        assert bundle_bound(problem) == best


@given(problems(Pipeline(), min_ops=2, max_ops=6, devices=st.integers(2, 3), constrained=False))
@settings(max_examples=20)
def test_the_fast_search_for_prices_ends_there(problem: Problem) -> None:
    bound = bundle_bound(problem)
    assert math.isfinite(bound)
    certificate, _ = certificate_of(problem, 0.2)
    if certificate.prices.any():  # else nothing costs anything
        assert certificate.value <= bound * (1 + 1e-9)
        assert certificate.value == pytest.approx(bound, rel=1e-4)
