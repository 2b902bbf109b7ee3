"""Exact methods with boundary ops find what trying all placements finds, under every contiguity."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from boundary_flags import boundary_problems
from hypothesis import given, settings
from hypothesis import strategies as st

from loadmaster.errors import InfeasibleError
from loadmaster.placers import Budget, get_placer
from loadmaster.placers.frame.feasible import first_feasible
from loadmaster.placers.stages.ideal_dp import plain
from loadmaster.problem import Pipeline, evaluate
from loadmaster.problem.bounds import lower_bound
from loadmaster.testing import brute_force

SETTINGS = (st.sampled_from(["sum", "overlap"]), st.sampled_from(["sum", "fw+bw"]))
CHAINS = st.builds(Pipeline, st.just("chain"), *SETTINGS)
ANY = st.builds(Pipeline, st.sampled_from(["none", "device", "chain"]), *SETTINGS)


def best_of(problem):
    try:
        return brute_force(problem)[1]
    except InfeasibleError:
        return None


def placed(problem, method):
    """Its solution; None where it says that there is none."""
    try:
        return get_placer(method).place(problem, budget=Budget(seconds=20.0))
    except InfeasibleError:
        return None


def check(problem, method, *, exact):
    wanted, found = best_of(problem), placed(problem, method)
    if wanted is None or found is None:
        assert wanted is None
        assert found is None
        return
    assert evaluate(problem, found.placement).feasible
    assert found.bound <= wanted + 1e-9
    assert found.cost >= wanted - 1e-9
    if exact:
        assert found.cost == pytest.approx(wanted)
    if found.optimal:
        assert found.cost == pytest.approx(wanted)


@given(boundary_problems(CHAINS, max_ops=7, backward=True, devices=st.integers(1, 3)))
@settings(max_examples=150)
def test_the_dynamic_program_is_exact(problem):
    check(problem, "ideal-dp", exact=True)


@given(boundary_problems(CHAINS, max_ops=6, devices=st.integers(1, 3)))
@settings(max_examples=60)
def test_so_is_the_plain_one(problem):
    wanted = best_of(problem)
    found = plain.best_chain(problem.with_model(replace(problem.model, objective="sum")))
    if problem.model.objective == "sum":
        assert found == (math.inf if wanted is None else pytest.approx(wanted))


@pytest.mark.parametrize(
    "method", ["linear-dp", "pipedream", "balanced", "local-search", "greedy", "metis", "exhaustive"]
)
@given(data=st.data())
@settings(max_examples=25)
def test_other_methods_keep_to_them(method, data):
    problem = data.draw(boundary_problems(ANY, max_ops=6, devices=st.integers(1, 3)))
    if get_placer(method).supports(problem) is None:
        check(problem, method, exact=method == "exhaustive")


@pytest.mark.parametrize("method", ["cp-sat", "frontier"])
@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_solvers_are_exact(method, data):
    problem = data.draw(boundary_problems(ANY, max_ops=6, devices=st.integers(1, 3)))
    if get_placer(method).supports(problem) is None:
        check(problem, method, exact=method == "cp-sat")


@given(boundary_problems(ANY, max_ops=6, backward=True, devices=st.integers(1, 3)))
@settings(max_examples=100)
def test_bounds_stay_valid_and_feasibility_is_decided(problem):
    wanted = best_of(problem)
    if wanted is None:
        with pytest.raises(InfeasibleError):
            first_feasible(problem)
        return
    assert lower_bound(problem).value <= wanted + 1e-9
    assert evaluate(problem, first_feasible(problem)).feasible
