"""``calls``: its bound never exceeds the optimum of small problems, and closes the gap on published workloads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from brute_force import least_cost_with_calls
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import problems

from loadmaster import api
from loadmaster.errors import InfeasibleError
from loadmaster.graph import layered
from loadmaster.hardware import accelerators, roofline
from loadmaster.placers import Budget
from loadmaster.placers.columns.calls import Calls, chain_calls, prove_calls
from loadmaster.placers.columns.calls._bound import call_bound
from loadmaster.placers.columns.calls._chain import CallChains
from loadmaster.placers.columns.calls._lines import line_of, some_lines
from loadmaster.placers.columns.calls._states import accelerators_of
from loadmaster.placers.frame.search import Search
from loadmaster.problem import Offload, Placement, Problem
from loadmaster.problem._evaluator import SimulatedEvaluator

single = problems(Offload(), max_ops=6, devices=st.integers(1, 3))
several = problems(Offload(max_calls=2), max_ops=4, devices=st.integers(1, 3))


@given(st.one_of(single, single, several))
@settings(max_examples=60)
def test_the_bound_never_exceeds_the_optimum_and_the_value_is_never_below(problem: Problem) -> None:
    best = least_cost_with_calls(problem)
    if np.isinf(best):
        return
    solution = Calls().place(problem, budget=Budget(evaluations=10_000))
    assert solution.bound <= best * (1 + 1e-12)
    assert solution.cost >= best * (1 - 1e-12)


@given(st.one_of(single, single, several), st.integers(0, 2**32 - 1))
@settings(max_examples=80)
def test_any_worths_on_any_line_give_a_valid_bound(problem: Problem, seed: int) -> None:
    best = least_cost_with_calls(problem)
    if np.isinf(best):
        return
    rng = np.random.default_rng(seed)
    model = problem.model
    assert isinstance(model, Offload)
    if model.max_calls > 1 and problem.classes < problem.n:
        return
    bundles, likes = accelerators_of(problem)
    limit = best * float(rng.choice([1.0, 1.5, 10.0])) + 1e-6
    for ops in some_lines(problem, rng.random(2)):
        line = line_of(problem, ops, limit)
        found = call_bound(
            bundles, likes, problem.class_memory, line, calls=model.max_calls, limit=limit, most=10**6
        )
        assert found is not None
        for _ in range(3):
            found.price(line.seconds - limit * rng.random(problem.classes) * rng.integers(0, 2))
        while found.step() and found.rounds < 30:
            pass
        found.close()
        assert found.value <= best * (1 + 1e-12)


@given(problems(Offload(), max_ops=6, devices=st.integers(1, 3), constrained=False))
@settings(max_examples=60)
def test_the_best_chain_costs_at_most_what_it_says(problem: Problem) -> None:
    chains = CallChains(problem)
    if not chains.possible:
        return
    ideals = chains.lattice(10**6)
    assert ideals is not None
    found = chains.best(ideals, np.inf, lambda: None)
    if found is None:
        return
    outcome = SimulatedEvaluator(problem).evaluate(Placement(found[1]))
    assert outcome.feasible
    assert outcome.cost <= found[0] * (1 + 1e-12)
    for number in range(4):
        linear = chains.best(chains.prefixes(number, 1), np.inf, lambda: None)
        assert linear is None or linear[0] >= found[0] * (1 - 1e-12)


def test_single_calls_on_a_chain_are_solved_to_optimality() -> None:
    graph = layered(12, width=1, seed=3)
    cluster = accelerators(2, 1)
    problem = Problem.make(
        graph, cluster, Offload(), time=roofline(graph, cluster), memory=np.ones(12), capacity=[4, 4, np.inf]
    )
    solution = Calls().place(problem, budget=Budget(evaluations=20_000))
    assert solution.gap <= 1e-6
    assert solution.bound_by == "calls"


def test_more_calls_are_never_worse() -> None:
    graph = layered(30, width=3, seed=4)
    cluster = accelerators(2, 1)
    memory, capacity = np.ones(30), [6.0, 6.0, np.inf]
    cost = []
    for calls in (1, 2, 3):
        problem = Problem.make(
            graph, cluster, Offload(calls), time=roofline(graph, cluster), memory=memory, capacity=capacity
        )
        cost.append(Calls().place(problem, budget=Budget(evaluations=40_000)).cost)
    assert cost == sorted(cost, reverse=True)


def test_an_infeasible_problem_is_an_error() -> None:
    graph = layered(4, seed=1)
    cluster = accelerators(1, 0)
    problem = Problem.make(
        graph, cluster, Offload(), time=roofline(graph, cluster), memory=np.ones(4), capacity=[3.0]
    )
    with pytest.raises(InfeasibleError):
        Calls().place(problem, budget=Budget(seconds=1.0))


@pytest.mark.parametrize("name", ["layers/resnet50", "operators/bert_l-3", "layers/bert24"])
def test_published_workloads_are_closed(workloads: Path, name: str) -> None:
    problem = api.problem(workloads / "msr" / "latency" / f"{name}_inference.json", model="offload")
    best = {"layers/resnet50": 1156.881, "operators/bert_l-3": 408.474, "layers/bert24": 100.2185}[name]
    with Search(problem, Budget(seconds=60.0), "calls") as search:
        search.try_device(np.full(problem.n, problem.devices - 1, np.int32))
        chain_calls(search, Calls(), 0)
        prove_calls(search, Calls(), 0)
    assert 1e3 * search.cost <= best * 1.005
    assert 1e3 * search.bound.value <= best * (1 + 1e-6)
    assert search.bound.value >= 0.995 * search.cost
