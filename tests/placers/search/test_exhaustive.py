"""Small problems are enumerated: the optimum is found by every method that searches, and proved."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from strategies import models, problems

from loadmaster.errors import InfeasibleError
from loadmaster.placers import PLACERS, Budget
from loadmaster.placers.frame.enumeration import placements_of
from loadmaster.placers.search.exhaustive import Exhaustive
from loadmaster.problem import (
    Concurrent,
    ExecutionModel,
    Offload,
    Pipeline,
    Placement,
    Problem,
    Serial,
    reference,
)

SEARCHING = [name for name, placer in PLACERS.items() if getattr(placer, "exhausts", False)]


def optimum(problem: Problem) -> float:
    """Least cost over all devices, and all calls where the model has several, by the plain reference."""
    best = math.inf
    for device in itertools.product(range(problem.devices), repeat=problem.n):
        calls: list[Placement] = [Placement(np.array(device, np.int32))]
        if isinstance(problem.model, Offload) and problem.model.max_calls > 1:
            numbers = itertools.product(range(problem.model.max_calls), repeat=problem.n)
            calls += [Placement(np.array(device, np.int32), call=np.array(c, np.int32)) for c in numbers]
        for placement in calls:
            found = reference.evaluate(problem, placement)
            if found.feasible:
                best = min(best, found.cost)
    return best


@given(problems(models(), max_ops=4, devices=st.integers(1, 3), backward=True))
def test_it_finds_the_optimum_and_proves_it(problem: Problem) -> None:
    assume(not (isinstance(problem.model, Offload) and problem.graph.backward.any()))
    best = optimum(problem)
    try:
        solution = Exhaustive().place(problem, budget=Budget())
    except InfeasibleError:
        assert best == math.inf
        return
    assert solution.cost == best
    if not isinstance(problem.model, Concurrent):
        assert solution.bound == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize(
    "model", [Serial(), Pipeline(), Pipeline("chain"), Offload(), Offload(2), Concurrent()], ids=str
)
@settings(max_examples=20)
@given(data=st.data())
def test_no_search_is_worse(model: ExecutionModel, data: st.DataObject) -> None:
    problem = data.draw(problems(model, min_ops=5, max_ops=8, devices=st.just(3)))
    try:
        best = Exhaustive().place(problem, budget=Budget()).cost
    except InfeasibleError:
        return
    enough = Budget(evaluations=int(placements_of(problem)) + 50)
    for name in SEARCHING:
        if PLACERS[name].supports(problem) is None:
            assert PLACERS[name].place(problem, budget=enough).cost <= best


def test_searching_methods_are_those_with_walks() -> None:
    assert set(SEARCHING) == {"local-search", "annealing", "beam", "min-cut", "multilevel"}


@given(problems(max_ops=8))
def test_placements_are_counted(problem: Problem) -> None:
    allowed = problem.class_allowed
    if not (isinstance(problem.model, Pipeline) and problem.model.contiguity == "chain"):
        assert placements_of(problem) == math.prod(allowed.sum(axis=1).tolist())


@given(problems(Serial(), min_ops=5, max_ops=5, devices=st.just(3)))
def test_a_budget_too_small_for_all_is_searched_as_before(problem: Problem) -> None:
    assume(placements_of(problem) > 20)
    try:
        solution = PLACERS["local-search"].place(problem, budget=Budget(evaluations=20))
    except InfeasibleError:
        return
    assert solution.evaluations <= 20
    assert solution.bound_by != "enumeration"
