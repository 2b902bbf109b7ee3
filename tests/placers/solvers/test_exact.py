"""CP-SAT and HiGHS find the optimum of small problems, and what they prove is true."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path

import numpy as np
import pytest
from brute_force import least_cost
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from strategies import problems

from loadmaster import api
from loadmaster.graph import GraphBuilder
from loadmaster.hardware import Cluster, Device
from loadmaster.placers import PLACERS
from loadmaster.placers.columns.frontier import Frontier
from loadmaster.placers.solvers.cp_sat import CpSat
from loadmaster.placers.solvers.milp import Milp
from loadmaster.placers.solvers.pipeline.program import program_of
from loadmaster.problem import Pipeline, Problem
from loadmaster.problem._evaluator import SimulatedEvaluator

SETTINGS = st.builds(
    Pipeline,
    st.sampled_from(["none", "none", "device"]),
    st.sampled_from(["sum", "sum", "overlap"]),
    st.sampled_from(["sum", "sum", "fw+bw"]),
)
SMALL = problems(SETTINGS, max_ops=6, devices=st.integers(2, 3), backward=True)


@given(SMALL)
@settings(max_examples=60)
def test_cp_sat_proves_the_optimum(problem: Problem) -> None:
    best = least_cost(problem)
    if np.isinf(best):
        return
    solution = api.place(problem, CpSat(), budget=20.0)
    assert solution.cost == pytest.approx(best, rel=1e-9)
    assert solution.optimal
    assert solution.bound <= best * (1 + 1e-12)


@given(SMALL)
@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
def test_highs_proves_the_optimum(problem: Problem) -> None:
    best = least_cost(problem)
    if np.isinf(best):
        return
    solution = api.place(problem, Milp(), budget=20.0)
    assert solution.cost == pytest.approx(best, rel=1e-9)
    assert solution.optimal
    assert solution.bound <= best * (1 + 1e-12)


@given(problems(SETTINGS, min_ops=3, max_ops=6, devices=st.integers(2, 3), backward=True))
@settings(max_examples=40)
def test_the_program_prices_every_placement_as_the_evaluator_does(problem: Problem) -> None:
    """With the loads of the completed assignment; no solver is involved."""
    program = program_of(problem, np.inf)
    evaluator = SimulatedEvaluator(problem)
    for at in itertools.islice(itertools.product(range(problem.devices), repeat=problem.classes), 200):
        chosen = np.array(at, np.int32)
        device = chosen[problem.class_of]
        outcome = evaluator.evaluate_batch(device[None])
        cost, feasible = float(outcome[0][0]), bool(outcome[1][0])
        values = program.assignment(chosen)
        load = np.zeros(program.terms)
        for row, term in enumerate(program.load_term):
            part = slice(program.load_ptr[row], program.load_ptr[row + 1])
            load[term] = max(load[term], float(program.load_cost[part] @ values[program.load_var[part]]))
        choices = zip(program.choice_ptr[:-1], program.choice_ptr[1:], strict=True)
        literals = values[np.where(program.clause < 0, ~program.clause, program.clause)] ^ (
            program.clause < 0
        )
        clauses = zip(program.clause_ptr[:-1], program.clause_ptr[1:], strict=True)
        memories = zip(program.memory_ptr[:-1], program.memory_ptr[1:], program.memory_limit, strict=True)
        fits = (
            all(values[program.choice[a:b]].sum() == 1 for a, b in choices)
            and all(literals[a:b].any() for a, b in clauses)
            and all(program.memory_size[a:b] @ values[program.memory_var[a:b]] <= m for a, b, m in memories)
        )
        assert fits == feasible
        if feasible:
            assert load.sum() == pytest.approx(cost, rel=1e-12)


def test_side_by_side_on_a_published_workload(workloads: Path) -> None:
    path = workloads / "msr" / "throughput" / "operators" / "resnet50_inference.json"
    before = threading.active_count()
    solution = api.place(api.problem(path), "exact", budget=60.0)
    assert 1e3 * solution.cost == pytest.approx(124.348850, rel=1e-6)
    assert solution.optimal
    assert threading.active_count() == before, "a solver is still at work"


def test_per_device_convexity_on_the_example_of_the_specification() -> None:
    """Two chains a -> b and c -> d on two devices: 5 where each device is convex, 6 as a chain of stages."""
    builder = GraphBuilder("two chains")
    for name in "abcd":
        builder.op(name, "op")
    builder.tensor("a", consumers=["b"])
    builder.tensor("c", consumers=["d"])
    cluster = Cluster("two", (Device("x", "acc"), Device("y", "acc")))
    time = np.repeat([[4.0], [2.0], [3.0], [1.0]], 2, axis=1)
    problem = Problem.make(builder.build(), cluster, Pipeline("device"), time=time)
    for name in ("exact", "cp-sat", "milp"):
        solution = api.place(problem, name, budget=20.0)
        assert solution.cost == 5.0
        assert solution.optimal
    chain = problem.with_model(Pipeline("chain"))
    assert api.place(chain, "ideal-dp", budget=20.0).cost == 6.0
    assert "ideal-dp" in str(PLACERS["exact"].supports(chain))


def test_frontier_leaves_wide_graphs_to_the_solvers_and_says_so(workloads: Path) -> None:
    path = workloads / "msr" / "throughput" / "operators" / "bert_l-3_inference.json"
    solution = api.place(api.problem(path), Frontier(max_states=10), budget=30.0)
    assert solution.optimal
    # Its bounds by cuts may be enough before a solver is.
    assert "too wide" in solution.bound_by or "share" in solution.bound_by
