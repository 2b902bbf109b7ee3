"""Problems of a few ops: what every search must find, whatever constrains it.

``python -m benchmarks.small_problems`` runs many more of the same draws.
"""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import models, problems

from loadmaster import api
from loadmaster.errors import InfeasibleError, NoPlacementError
from loadmaster.placers import PLACERS, Budget
from loadmaster.placers.frame.branching import branch
from loadmaster.placers.frame.enumeration import placements_of
from loadmaster.placers.frame.search import OutOfBudget, Search
from loadmaster.placers.search.exhaustive import Exhaustive
from loadmaster.problem import Concurrent, Offload, Placement, Problem
from loadmaster.testing import brute_force, drawn_problem, optimum

EVALUATIONS = 20_000
SEARCHING = [name for name, placer in PLACERS.items() if getattr(placer, "exhausts", False)]
CERTAIN = 1e-9
"""Costs are added up in different orders."""


def least(problem: Problem) -> float:
    try:
        return brute_force(problem)[1]
    except InfeasibleError:
        return math.inf


@given(problems(models(), max_ops=5, devices=st.integers(2, 4), backward=True))
def test_the_optimum_by_pruning_is_that_of_brute_force(problem: Problem) -> None:
    best = least(problem)
    if math.isinf(best):
        with pytest.raises(InfeasibleError):
            optimum(problem)
    else:
        assert optimum(problem) == pytest.approx(best, rel=CERTAIN)
        assert optimum(problem, 2 * best + 1) == pytest.approx(best, rel=CERTAIN)


@given(problems(models(), max_ops=5, devices=st.integers(2, 4), backward=True))
def test_branch_and_bound_overlooks_nothing(problem: Problem) -> None:
    """From nothing at all, so that no search helps; and no bound is above the optimum."""
    best = least(problem)
    search = Search(problem, Budget(), "test")
    try:
        certain = branch(search)
    except OutOfBudget:  # a bound says that there is nothing left to find
        certain = False
    assert search.cost == pytest.approx(best, rel=CERTAIN)
    several = isinstance(problem.model, Offload) and problem.model.max_calls > 1
    if not several:
        assert search.bound.value <= best * (1 + CERTAIN)
    assert not certain or not isinstance(problem.model, Concurrent)


@pytest.mark.parametrize("draw", range(22))
def test_every_search_is_within_10_percent_of_the_optimum(draw: int) -> None:
    problem = drawn_problem(draw, seed=1)
    found = {
        name: api.place(problem, name, evaluations=EVALUATIONS, seed=draw)
        for name in SEARCHING
        if PLACERS[name].supports(problem) is None
    }
    device = min(found.values(), key=lambda solution: solution.cost).placement.device
    plain = api.evaluate(problem, Placement(device))  # without the order that it may have
    best = optimum(problem, plain.cost if plain.feasible else math.inf)
    far = {name: solution.cost / best for name, solution in found.items() if solution.cost > 1.1 * best}
    assert not far
    if not isinstance(problem.model, Concurrent | Offload):
        assert all(solution.bound <= best * (1 + CERTAIN) for solution in found.values())


@settings(max_examples=20)
@given(st.integers(0, 2**30))
def test_drawn_problems_are_what_they_say(number: int) -> None:
    problem = drawn_problem(number)
    assert 8 <= problem.n <= 12
    assert problem.devices >= 3
    assert placements_of(problem) >= 100_000
    same = drawn_problem(number)
    assert (same.time == problem.time).all()
    try:
        Exhaustive().place(problem, budget=Budget(evaluations=1))
    except NoPlacementError:
        pytest.fail("it has no feasible placement")
