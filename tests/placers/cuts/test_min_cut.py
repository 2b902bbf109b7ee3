"""A minimum cut is the optimum under ``serial`` for two devices, and its relatives come with valid bounds."""

from __future__ import annotations

import numpy as np
import pytest
from brute_force import least_cost
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import problems

from loadmaster.graph import layered
from loadmaster.hardware import accelerators, roofline
from loadmaster.placers import PLACERS, Budget
from loadmaster.placers.cuts._cut_graph import Arcs, minimum_cut
from loadmaster.placers.cuts._serial_relaxation import relax
from loadmaster.placers.cuts.min_cut import MinCut
from loadmaster.placers.frame.feasible import atoms_of
from loadmaster.problem import Pipeline, Problem, Serial


@given(problems(Serial(), max_ops=8, devices=st.just(2)))
@settings(max_examples=300)
def test_two_devices_are_solved_to_optimality(problem: Problem) -> None:
    best = least_cost(problem)
    if np.isinf(best):
        return
    solution = MinCut().place(problem, budget=Budget())
    assert solution.bound <= best * (1 + 1e-12)
    if not np.isfinite(problem.capacity).any():
        assert solution.cost == pytest.approx(best, rel=1e-12)
        assert solution.optimal


@given(problems(Serial(), max_ops=6, devices=st.integers(3, 4)))
def test_more_devices_come_with_a_valid_bound(problem: Problem) -> None:
    best = least_cost(problem)
    if np.isinf(best):
        return
    solution = MinCut().place(problem, budget=Budget())
    assert solution.bound <= best * (1 + 1e-12)
    assert best * (1 - 1e-12) <= solution.cost <= 1.5 * best
    relaxed = relax(problem, atoms_of(problem), 10**6, np.inf)
    assert relaxed is None or relaxed.bound <= best * (1 + 1e-12)


def test_a_cut_of_a_small_network() -> None:
    tail, head = np.array([-1, 0, 1, -1]), np.array([0, 1, -2, 1])
    cut = minimum_cut(Arcs(2, tail, head, np.array([3.0, 2.0, 4.0, 1.0])))
    assert cut.value == pytest.approx(3.0)
    assert cut.source_side.tolist() == [True, False]


def test_no_finite_cut_has_an_infinite_value() -> None:
    cut = minimum_cut(Arcs(1, np.array([-1, 0]), np.array([0, -2]), np.array([np.inf, np.inf])))
    assert np.isinf(cut.value)


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e9])
def test_costs_of_any_magnitude_are_exact_enough(scale: float) -> None:
    graph, cluster = layered(60, width=4, seed=3), accelerators(1, 1)
    problem = Problem.make(
        graph, cluster, Serial(), time=roofline(graph, cluster) * scale, latency=cluster.link_arrays()[0] * scale,
        rate=cluster.link_arrays()[1] * scale,
    )  # fmt: skip
    solution = MinCut().place(problem, budget=Budget())
    assert solution.gap < 1e-9


def test_local_search_finds_nothing_better() -> None:
    graph, cluster = layered(120, width=5, seed=4), accelerators(1, 1)
    problem = Problem.make(graph, cluster, Serial(), time=roofline(graph, cluster))
    solution = MinCut().place(problem, budget=Budget())
    found = PLACERS["local-search"].place(problem, budget=Budget(evaluations=50_000))
    assert solution.cost <= found.cost * (1 + 1e-12)
    assert solution.optimal


def test_it_is_for_serial_only() -> None:
    graph, cluster = layered(5, width=2), accelerators(1, 1)
    problem = Problem.make(graph, cluster, Pipeline(), time=roofline(graph, cluster))
    assert "--model serial" in str(MinCut().supports(problem))
