"""Least loads are those of the best set; heavy classes that must share bound every pipeline."""

from __future__ import annotations

import itertools
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
from loadmaster.placers.columns.frontier import Frontier
from loadmaster.placers.cuts._sharing import LeastLoads, sharing_bound
from loadmaster.problem import Pipeline, Placement, Problem, reference
from loadmaster.problem.bounds import lower_bound, view_of

PIPELINE = st.builds(
    Pipeline, st.sampled_from(["none", "device", "chain"]), st.just("sum"), st.sampled_from(["sum", "fw+bw"])
)


@given(problems(PIPELINE, max_ops=6, devices=st.integers(1, 4), backward=True), st.booleans())
@settings(max_examples=100)
def test_it_is_below_every_placement(problem, like):
    if like:
        first = np.zeros(problem.devices, np.int64)
        ends = {
            name: getattr(problem, name)[first]
            for name in ("send_latency", "send_rate", "recv_latency", "recv_rate")
        }
        problem = replace(problem, time=problem.time[:, first], forbidden=problem.forbidden[:, first], **ends)
    best = least_cost(problem)
    if math.isfinite(best) and best > 0:
        assert sharing_bound(problem, 0.0, 2.0 * best) <= best * (1 + 1e-11)
        assert sharing_bound(problem, 0.0, best) <= best


@given(problems(st.just(Pipeline()), max_ops=6, devices=st.just(2)), st.data())
@settings(max_examples=100)
def test_a_least_load_is_that_of_the_best_set(problem, data):
    """Against the loads of all placements on two devices; the other device takes whatever is not in the set."""
    problem = replace(
        problem, capacity=np.full(2, math.inf), pin=np.full(problem.n, -1, np.int32),
        forbidden=np.zeros((problem.n, 2), bool), time=np.where(np.isinf(problem.time), 1.0, problem.time),
    )  # fmt: skip
    view = view_of(problem)
    if view is None:
        return
    chosen = tuple(data.draw(st.sets(st.integers(0, len(view.cost) - 1), min_size=1, max_size=2)))
    best = math.inf
    for at in itertools.product(range(2), repeat=len(view.cost)):
        if all(at[c] == 0 for c in chosen):
            placement = Placement(np.array(at, np.int32)[view.of])
            best = min(best, float(reference.evaluate(problem, placement).load[0]))
    kind = next(k for k, devices in enumerate(view.kinds) if 0 in devices)
    assert LeastLoads(problem, view).of(kind, chosen) == pytest.approx(best, rel=1e-9, abs=1e-12)


def test_one_class_more_than_devices_pays_for_its_neighbours_too():
    """Three classes of 4 s on two devices, in a ring of tensors of 1 s: two share, and two tensors cross."""
    builder = GraphBuilder("three")
    for name in "abc":
        builder.op(name)
    builder.tensor("a", bytes=1.0, consumers=["b"])
    builder.tensor("b", bytes=1.0, consumers=["c"])
    builder.tensor("a", bytes=1.0, consumers=["c"])
    graph = builder.build()
    cluster = Cluster("test", (Device("d0", "acc"), Device("d1", "acc")))
    ends = {
        "send_latency": np.zeros(2),
        "send_rate": np.ones(2),
        "recv_latency": np.zeros(2),
        "recv_rate": np.ones(2),
    }
    problem = Problem.make(graph, cluster, Pipeline(), time=np.full((3, 2), 4.0), **ends)
    assert lower_bound(problem).value == pytest.approx(8.0)
    assert sharing_bound(problem, 8.0, 10.0) == pytest.approx(10.0) == least_cost(problem)
    assert Frontier().place(problem, budget=Budget(evaluations=20_000)).optimal
