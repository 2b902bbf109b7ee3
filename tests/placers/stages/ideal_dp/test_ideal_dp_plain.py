"""The recurrence over ideals on one page equals brute force, and ``ideal-dp`` equals it."""

from __future__ import annotations

import math

import pytest
from brute_force import least_cost
from chain_problems import SEEDS, random_problem, small_enough
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from loadmaster.errors import InfeasibleError
from loadmaster.placers import Budget
from loadmaster.placers.stages.ideal_dp import IdealDp
from loadmaster.placers.stages.ideal_dp.plain import best_chain, ideals_of
from loadmaster.problem import Pipeline

CHAINS = st.sampled_from([Pipeline("chain", "sum"), Pipeline("chain", "overlap")])


@settings(max_examples=60)
@given(seed=SEEDS, model=CHAINS)
def test_it_equals_brute_force(seed: int, model: Pipeline) -> None:
    problem = random_problem(seed, model, ops=5, devices=3)
    assume(small_enough(problem))
    assert best_chain(problem) == pytest.approx(least_cost(problem), rel=1e-12)


@settings(max_examples=40)
@given(seed=SEEDS, model=CHAINS)
def test_the_fast_program_equals_it(seed: int, model: Pipeline) -> None:
    problem = random_problem(seed, model, ops=7, devices=4)
    best = best_chain(problem)
    try:
        found = IdealDp().place(problem, budget=Budget())
    except InfeasibleError:
        assert math.isinf(best)
        return
    assert found.cost == pytest.approx(best, rel=1e-12)
    assert found.bound <= best
    assert found.optimal


def test_ideals_of_a_diamond() -> None:
    ideals = ideals_of(4, [(0, 1), (0, 2), (1, 3), (2, 3)])
    assert set(ideals) == {frozenset(s) for s in [(), (0,), (0, 1), (0, 2), (0, 1, 2), (0, 1, 2, 3)]}
    assert ideals_of(2, [(0, 1), (1, 0)]) == [frozenset(), frozenset({0, 1})]
