"""The bound of ``convex`` never exceeds the optimum, and is tight where the quick bounds are not."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from brute_force import least_cost
from chain_problems import SEEDS, random_problem, small_enough
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import problems

from loadmaster import api
from loadmaster.graph import GraphBuilder
from loadmaster.hardware import Cluster, Device
from loadmaster.placers import Budget
from loadmaster.placers.columns.convex import Convex
from loadmaster.placers.columns.convex._ascent import Ascent
from loadmaster.placers.columns.convex._order import ordered, with_few_ideals
from loadmaster.placers.columns.convex._sets import sets_of
from loadmaster.placers.columns.convex.plain import set_bound
from loadmaster.placers.stages._chain import rounding_of
from loadmaster.placers.stages.ideal_dp._ideals import lattice_of
from loadmaster.problem import Pipeline, Problem
from loadmaster.problem.bounds import lower_bound

MODELS = [
    Pipeline("device", comm, objective) for comm in ("sum", "overlap") for objective in ("sum", "fw+bw")
]


def bound_of(problem: Problem, limit: float, ideals: int = 100_000) -> float:
    """What is proved with all sets below a limit; 0 if there are too many ideals."""
    contracted = with_few_ideals(ordered(problem), ideals, ideals)
    if contracted is None:
        return 0.0
    lattice = lattice_of(contracted, ideals)
    assert lattice is not None
    assert lattice.ideals <= ideals
    sets = sets_of(contracted, lattice, limit, 10**7, lambda: None)
    assert sets is not None
    ascent = Ascent(contracted, lattice, sets, limit, lambda: limit, lambda bound: None)
    ascent.run(None, 300)
    return ascent.bound - rounding_of(contracted)


@pytest.mark.parametrize("model", MODELS)
@given(seed=SEEDS, slack=st.sampled_from([1.0, 1.01, 1.5, 10.0]), ideals=st.sampled_from([4, 16, 100_000]))
@settings(max_examples=75)
def test_the_bound_never_exceeds_the_optimum(model: Pipeline, seed: int, slack: float, ideals: int) -> None:
    problem = random_problem(seed, model, ops=7, devices=3)
    if not small_enough(problem):
        return
    best = least_cost(problem)
    if math.isfinite(best):
        assert bound_of(problem, best * slack, ideals) <= best * (1 + 1e-12)


@given(problems(st.sampled_from(MODELS), max_ops=6, devices=st.integers(1, 3), backward=True))
@settings(max_examples=100)
def test_nor_with_boundary_ops_and_other_links(problem: Problem) -> None:
    best = least_cost(problem)
    if math.isfinite(best):
        assert bound_of(problem, best * 1.2 + 1e-9) <= best * (1 + 1e-12) + 1e-15


@given(seed=SEEDS)
@settings(max_examples=60)
def test_it_is_the_bound_over_all_sets_where_each_class_has_one_forward_op(seed: int) -> None:
    problem = random_problem(seed, Pipeline("device"), ops=5, devices=3)
    forward = np.bincount(
        problem.class_of[~problem.graph.backward & ~problem.graph.boundary], minlength=problem.classes
    )
    best = least_cost(problem) if small_enough(problem) else math.inf
    if not math.isfinite(best) or best == 0.0 or (forward != 1).any():
        return
    found = bound_of(problem, best * 1.2)
    assert found == pytest.approx(set_bound(problem), rel=1e-4)


def strands(arms: int, length: int, devices: int) -> Problem:
    """Parallel chains between a first and a last op, in one graph, with transfers as long as an op."""
    b = GraphBuilder("strands")
    first, last = b.op("first"), b.op("last")
    for arm in range(arms):
        before = first
        for i in range(length):
            op = b.op(f"{arm}.{i}")
            b.tensor(before, bytes=1.0, consumers=[op])
            before = op
        b.tensor(before, bytes=1.0, consumers=[last])
    graph = b.build()
    nothing = np.zeros((devices, devices))
    return Problem.make(
        graph,
        Cluster("like", tuple(Device(f"d{d}", "acc") for d in range(devices))),
        Pipeline("device"),
        time=np.ones((graph.n, devices)),
        size=np.ones(len(graph.tensor_producer)),
        latency=nothing,
        rate=nothing,
        send_latency=np.zeros(devices),
        send_rate=np.ones(devices),
        recv_latency=np.zeros(devices),
        recv_rate=np.ones(devices),
        memory=np.zeros(graph.n),
        capacity=np.full(devices, np.inf),
    )


@pytest.mark.parametrize(("arms", "length", "devices"), [(1, 6, 2), (2, 3, 2), (2, 3, 3)])
def test_it_is_tight_where_the_quick_bounds_are_not(arms: int, length: int, devices: int) -> None:
    problem = strands(arms, length, devices)
    best = least_cost(problem)
    assert lower_bound(problem).value < 0.9 * best
    assert bound_of(problem, best) >= best * (1 - 1e-9)


def test_the_method_closes_the_gap() -> None:
    problem = strands(2, 3, 2)
    solution = Convex().place(problem, budget=Budget(evaluations=20_000))
    assert solution.cost == least_cost(problem)
    assert solution.bound == pytest.approx(solution.cost)
    assert solution.bound_by == "convex"


def test_it_says_what_it_is_for() -> None:
    problem = strands(1, 2, 2)
    assert Convex().supports(problem) is None
    assert "ideal-dp" in str(Convex().supports(problem.with_model(Pipeline("chain"))))
    assert "frontier" in str(Convex().supports(problem.with_model(Pipeline())))


def test_a_published_workload_is_nearly_closed(workloads: Path) -> None:
    problem = api.problem(
        workloads / "msr" / "throughput" / "layers" / "resnet50_training.json", model="pipeline:device"
    )
    assert lower_bound(problem).value < 0.97 * 0.0786318
    assert 0.0785 <= bound_of(problem, 0.0786319) <= 0.0786319
