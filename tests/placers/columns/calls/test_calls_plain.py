"""Chains and the bound along a line on one page hold what they promise, and ``calls`` finds the same."""

from __future__ import annotations

import math

import numpy as np
import pytest
from brute_force import least_cost
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import problems

from loadmaster.graph import GraphBuilder
from loadmaster.hardware import accelerators
from loadmaster.placers.columns.calls._bound import call_bound
from loadmaster.placers.columns.calls._chain import CallChains
from loadmaster.placers.columns.calls._lines import line_of, some_lines
from loadmaster.placers.columns.calls._states import accelerators_of
from loadmaster.placers.columns.calls.plain import best_chain, line_bound
from loadmaster.problem import Offload, Problem

SMALL = problems(Offload(), max_ops=6, devices=st.integers(1, 3))


@given(SMALL)
@settings(max_examples=40)
def test_the_optimum_is_between_the_two(problem: Problem) -> None:
    best = least_cost(problem)
    if math.isinf(best):
        return
    if not np.isfinite(problem.capacity[problem.pool]).any():
        assert best <= best_chain(problem)
    for path in some_lines(problem, np.zeros(1)):
        assert line_bound(problem, path.tolist(), best) <= best * (1 + 1e-9)


@given(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 2))
@settings(max_examples=60)
def test_on_a_line_of_ops_the_chain_is_the_optimum(seed: int, ops: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    builder = GraphBuilder("line")
    for i in range(ops):
        builder.op(f"op{i}")
    for i in range(ops - 1):
        builder.tensor(i, bytes=1.0, consumers=[i + 1])
    graph, cluster = builder.build(), accelerators(count, 1)
    values = np.array([0.0, 0.5, 1.0, 2.0, 4.0])
    problem = Problem.make(
        graph, cluster, Offload(), time=rng.choice(values, (ops, count + 1)), size=rng.choice(values, graph.tensors),
        memory=rng.choice(values, ops), capacity=[*rng.choice(values[1:], count), np.inf],
    )  # fmt: skip
    assert best_chain(problem) == pytest.approx(least_cost(problem), rel=1e-12)


@given(problems(Offload(), max_ops=6, devices=st.integers(1, 3), constrained=False))
@settings(max_examples=40)
def test_the_fast_chain_equals_it(problem: Problem) -> None:
    chains = CallChains(problem)
    if not chains.possible:
        return
    ideals = chains.lattice(10**6)
    assert ideals is not None
    found = chains.best(ideals, np.inf, lambda: None)
    assert (math.inf if found is None else found[0]) == pytest.approx(best_chain(problem), rel=1e-12)


@given(SMALL)
@settings(max_examples=40)
def test_the_fast_bound_along_a_line_ends_there(problem: Problem) -> None:
    limit = least_cost(problem)
    bundles, likes = accelerators_of(problem)
    if math.isinf(limit) or limit == 0.0 or not likes:
        return
    for path in some_lines(problem, np.zeros(1)):
        bound = line_bound(problem, path.tolist(), limit)
        fast = call_bound(
            bundles,
            likes,
            problem.class_memory,
            line_of(problem, path, limit),
            calls=1,
            limit=limit,
            most=10**6,
        )
        assert fast is not None
        while fast.step() and fast.rounds < 100:
            pass
        fast.close()
        assert fast.value <= bound + 1e-9 * limit
        assert fast.value == pytest.approx(bound, rel=1e-6, abs=1e-6 * limit)
