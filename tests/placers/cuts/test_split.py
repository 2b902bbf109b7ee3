"""What a split over like devices costs at least, against every placement."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from brute_force import least_cost
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import problems

from loadmaster.graph import GraphBuilder
from loadmaster.hardware import Cluster, Device
from loadmaster.placers import Budget
from loadmaster.placers.cuts._split import least_side, split_bounds
from loadmaster.placers.cuts.min_cut import MinCut
from loadmaster.problem import Problem, Serial
from loadmaster.problem.bounds import lower_bound


def alike(problem: Problem, share: float) -> Problem:
    """All devices but the first are made like the last, and hold ``share`` of the memory each."""
    like = np.array([0] + [problem.devices - 1] * (problem.devices - 1))
    capacity = np.full(problem.devices, share * float(problem.memory.sum()))
    capacity[0] = math.inf
    latency, rate = (table[np.ix_(like, like)].copy() for table in (problem.latency, problem.rate))
    for table in (latency, rate):
        table[1:, 1:] = table[0, -1] * 1.5
        np.fill_diagonal(table, 0.0)
    return replace(
        problem, time=problem.time[:, like], latency=latency, rate=rate, capacity=capacity,
        forbidden=problem.forbidden[:, like], pin=np.where(problem.pin > 0, -1, problem.pin).astype(np.int32),
    )  # fmt: skip


@given(
    problems(Serial(), max_ops=6, devices=st.integers(3, 4)),
    st.sampled_from([0.3, 0.4, 0.5, 0.6, 0.8, 0.95]),
)
@settings(max_examples=100)
def test_it_is_below_every_placement(problem, share):
    problem = alike(problem, share)
    best = least_cost(problem)
    if math.isinf(best):
        return
    before = -math.inf
    for value in split_bounds(problem, lambda: best * (1 + 1e-9), lambda: False, 60):
        assert before <= value <= best * (1 + 1e-11) + 1e-30
        before = value
    solution = MinCut().place(problem, budget=Budget())
    assert solution.bound <= best * (1 + 1e-12)


def ladder(rungs: int) -> Problem:
    """A forward and a backward chain with rungs between them, on three like devices and a slow one."""
    builder = GraphBuilder("ladder")
    for side in "fb":
        for i in range(rungs):
            builder.op(f"{side}{i}")
    for i in range(rungs):
        builder.tensor(f"f{i}", consumers=[f"b{i}"] + ([f"f{i + 1}"] if i + 1 < rungs else []))
        builder.tensor(f"b{i}", consumers=[f"b{i - 1}"] if i else [])
    graph = builder.build()
    devices = 4
    time = np.full((graph.n, devices), 1.0)
    time[:, 0] = 9.0
    cluster = Cluster("test", tuple(Device(f"d{i}", "acc") for i in range(devices)))
    latency = 1.0 - np.eye(devices)
    return Problem.make(
        graph, cluster, Serial(), time=time, latency=latency, rate=np.zeros((devices, devices)),
        memory=np.ones(graph.n), capacity=np.array([math.inf] + [1.2 * rungs] * (devices - 1)),
    )  # fmt: skip


def test_a_ladder_is_proved_optimal_by_it_alone():
    problem = ladder(20)
    assert lower_bound(problem).value == pytest.approx(40.0)
    *_, value = split_bounds(problem, lambda: 42.0, lambda: False, 1000)
    assert value == pytest.approx(42.0)  # one cut through both chains


def test_without_a_limit_nothing_is_said():
    problem = replace(ladder(4), capacity=np.full(4, math.inf))
    assert list(split_bounds(problem, lambda: 9.0, lambda: False, 100)) == []


@given(st.lists(st.floats(0.0, 1.0), min_size=2, max_size=5))
def test_some_division_of_the_devices_has_the_least_on_both_sides(held):
    total = sum(held)
    sums = [sum(h for i, h in enumerate(held) if mask >> i & 1) for mask in range(2 ** len(held))]
    assert max(min(s, total - s) for s in sums) >= least_side(total, 1.0, len(held)) - 1e-9
