"""CP-SAT under ``concurrent``: equal to brute force over placements and orders, as the evaluator defines them."""

from __future__ import annotations

import numpy as np
import pytest
from brute_force import least_cost_with_orders
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from strategies import problems

from loadmaster.errors import InfeasibleError
from loadmaster.graph import layered
from loadmaster.hardware import accelerators, roofline
from loadmaster.placers import Budget
from loadmaster.placers.frame.feasible import first_feasible
from loadmaster.placers.frame.search import Search
from loadmaster.placers.solvers.concurrent.cpsat import solve_concurrent, too_large_to_schedule
from loadmaster.placers.solvers.concurrent.program import twin_devices
from loadmaster.placers.solvers.cp_sat import CpSat
from loadmaster.problem import Concurrent, Problem, Solution


def solve(problem: Problem, seconds: float = 20.0, workers: int = 1) -> Solution:
    with Search(problem, Budget(seconds=seconds), "cp-sat") as search:
        search.try_placement(first_feasible(problem))
        solve_concurrent(search, workers=workers)
    return search.solution(0, {})


@settings(max_examples=30, deadline=None)
@given(problems(Concurrent(), min_ops=2, max_ops=4, devices=st.sampled_from([2, 2, 3])))
def test_the_optimum_is_that_of_least_cost_with_orders(problem: Problem) -> None:
    best = least_cost_with_orders(problem)
    assume(np.isfinite(best))
    try:
        solution = solve(problem)
    except InfeasibleError:
        pytest.fail("there is a feasible placement")
    assert solution.cost == best
    assert solution.bound <= best
    assert solution.bound >= best * (1 - 1e-6)


@settings(max_examples=10, deadline=None)
@given(problems(Concurrent(), min_ops=5, max_ops=5, devices=st.just(2), constrained=False))
def test_the_optimum_of_five_ops_on_two_devices(problem: Problem) -> None:
    assert solve(problem).cost == least_cost_with_orders(problem)


@settings(max_examples=15, deadline=None)
@given(problems(Concurrent(memory="peak"), min_ops=2, max_ops=4, devices=st.just(2)))
def test_the_bound_holds_for_peak_memory_too(problem: Problem) -> None:
    best = least_cost_with_orders(problem)
    assume(np.isfinite(best))
    try:
        solution = solve(problem)
    except InfeasibleError:
        assume(False)  # only an order makes room
    assert solution.bound <= best
    assert solution.cost >= best


def test_fifteen_ops_are_solved_to_optimality() -> None:
    graph, cluster = layered(15, width=3, seed=3), accelerators(2, 1)
    problem = Problem.make(graph, cluster, Concurrent(), time=roofline(graph, cluster))
    solution = solve(problem, workers=4)
    assert solution.optimal
    assert solution.bound_by == "CP-SAT schedule" or solution.gap == 0


def test_devices_are_twins_only_if_nothing_tells_them_apart() -> None:
    graph, cluster = layered(6, seed=3), accelerators(3, 1)
    time = roofline(graph, cluster)
    problem = Problem.make(graph, cluster, Concurrent(), time=time)
    assert twin_devices(problem) == [[0, 1, 2]]
    pinned = Problem.make(graph, cluster, Concurrent(), time=time, pins={2: 1})
    assert twin_devices(pinned) == [[0, 2]]
    latency = problem.latency.copy()
    latency[0, 3] *= 2
    assert twin_devices(Problem.make(graph, cluster, Concurrent(), time=time, latency=latency)) == [[1, 2]]


def test_what_is_too_large_is_left_alone() -> None:
    graph, cluster = layered(2000), accelerators(2, 1)
    problem = Problem.make(graph, cluster, Concurrent(), time=roofline(graph, cluster))
    assert too_large_to_schedule(problem) is not None
    solution = solve(problem, seconds=1.0)
    assert solution.bound_by != "CP-SAT schedule"


def test_an_interrupt_keeps_the_best_so_far() -> None:
    graph, cluster = layered(40, width=5, seed=1), accelerators(2, 1)
    problem = Problem.make(graph, cluster, Concurrent(), time=roofline(graph, cluster))

    def interrupt(progress: object) -> None:
        raise KeyboardInterrupt

    search = Search(problem, Budget(), "cp-sat", on_progress=interrupt)
    with search:
        search.try_placement(first_feasible(problem))
        solve_concurrent(search, workers=1)
    assert search.stopped == "interrupted"
    assert search.best is not None


@pytest.mark.parametrize("seed", range(6))
def test_with_peak_memory_it_has_finished_only_with_a_proof(seed: int) -> None:
    """The program knows no lifetimes: its best schedule may not fit, and then nothing is proved of what does."""
    rng = np.random.default_rng(seed)
    graph = layered(7, width=3, seed=seed)
    cluster = accelerators(2, 0)
    problem = Problem.make(
        graph,
        cluster,
        Concurrent(memory="peak"),
        time=0.5 + rng.random((7, 2)),
        memory=np.ones(7),
        resident=np.zeros(7),
        capacity=np.full(2, 1.3 * float(graph.tensor_bytes.max())),
    )
    try:
        solution = CpSat().place(problem, budget=Budget(seconds=0.3))
    except InfeasibleError:
        return
    assert solution.stopped == "budget" or solution.gap <= 1e-6
