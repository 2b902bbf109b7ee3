"""CP-SAT on ``offload`` finds and proves the optimum of small problems."""

from __future__ import annotations

import numpy as np
from brute_force import least_cost_with_calls
from hypothesis import given, settings
from hypothesis import strategies as st
from ortools.sat.python import cp_model
from strategies import problems

from loadmaster.graph import layered
from loadmaster.hardware import accelerators, roofline
from loadmaster.placers import Budget
from loadmaster.placers.columns.calls import Calls
from loadmaster.placers.frame.feasible import first_feasible
from loadmaster.placers.frame.search import Search
from loadmaster.placers.solvers.offload import OffloadProgram, solve_offload
from loadmaster.problem import Offload, Problem


@given(
    st.one_of(
        problems(Offload(), max_ops=6, devices=st.integers(1, 3)),
        problems(Offload(max_calls=2), max_ops=4, devices=st.integers(1, 3)),
    )
)
@settings(max_examples=60)
def test_it_equals_brute_force(problem: Problem) -> None:
    best = least_cost_with_calls(problem)
    if np.isinf(best):
        return
    with Search(problem, Budget(seconds=20.0), "cp-sat") as search:
        search.try_placement(first_feasible(problem))
        solve_offload(search)
    assert search.bound.value <= best * (1 + 1e-12)
    assert search.cost >= best * (1 - 1e-12)
    assert search.bound.value >= best * (1 - 1e-6)


def test_the_hint_is_a_solution() -> None:
    graph = layered(20, width=3, seed=2)
    cluster = accelerators(3, 1)
    problem = Problem.make(
        graph,
        cluster,
        Offload(2),
        time=roofline(graph, cluster),
        memory=np.ones(20),
        capacity=[5, 5, 5, np.inf],
    )
    best = Calls().place(problem, budget=Budget(evaluations=20_000))
    program = OffloadProgram(problem, best.cost)
    program.hint(best.placement)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.fix_variables_to_their_hinted_value = True
    assert solver.solve(program.model) in (cp_model.OPTIMAL, cp_model.FEASIBLE)


def test_two_calls_of_one_accelerator_are_proved() -> None:
    graph = layered(10, width=2, seed=5)
    cluster = accelerators(2, 1)
    costs = []
    for calls in (1, 2):
        problem = Problem.make(
            graph,
            cluster,
            Offload(calls),
            time=roofline(graph, cluster),
            memory=np.ones(10),
            capacity=[3, 3, np.inf],
        )
        with Search(problem, Budget(seconds=60.0), "cp-sat") as search:
            search.try_placement(first_feasible(problem))
            assert solve_offload(search, workers=2)
        assert search.bound.value >= search.cost * (1 - 1e-6)
        costs.append(search.cost)
    assert costs[1] <= costs[0]
