"""Work that is spread over like devices is carried between them: a bound on every pipeline."""

from __future__ import annotations

import math

import numpy as np
import pytest
from brute_force import least_cost
from hypothesis import given, settings
from hypothesis import strategies as st
from like_devices import LOADS, like
from strategies import problems

from loadmaster import api
from loadmaster.graph import GraphBuilder
from loadmaster.hardware import Cluster, Device
from loadmaster.placers.cuts._fair_share import fair_share_bounds
from loadmaster.placers.cuts._spreading import Flows, spreading_bounds
from loadmaster.problem import Pipeline, Problem
from loadmaster.problem.bounds import load_dual, lower_bound, view_of


@given(
    problems(LOADS, max_ops=6, devices=st.integers(2, 4), backward=True),
    st.integers(0, 2),
    st.sampled_from([1.0, 1.1, 1.5]),
    st.integers(0, 2**31),
)
@settings(max_examples=300)
def test_it_is_below_every_placement(problem, first, known, seed):
    problem = like(problem, first)
    best = least_cost(problem)
    if math.isinf(best):
        return
    for start in (0.0, lower_bound(problem).value):
        before = -math.inf
        for value in spreading_bounds(problem, start, lambda: known * best, lambda: False, 600, seed):
            assert before <= value <= best * (1 + 1e-11) + 1e-30
            before = value


@given(
    problems(LOADS, max_ops=6, devices=st.integers(2, 4), backward=True),
    st.integers(0, 2),
    st.sampled_from([0.5, 1.0, 1.2, 2.0, 5.0, 100.0]),
    st.sampled_from([0.0, 0.5, 1.0, 2.0]),
    st.integers(0, 2**31),
)
@settings(max_examples=300)
def test_flows_of_any_size_and_any_weights_prove_something(problem, first, larger, weight, seed):
    """Also flows that some tensors cannot carry: what is too much is paid at every border that it may cross."""
    problem = like(problem, first)
    best, view = least_cost(problem), view_of(problem)
    if math.isinf(best) or view is None:
        return
    value, weights = load_dual(view.cost, view.number)
    kind = int(np.argmax(weights * view.number))
    if value <= 0 or view.number[kind] < 2:
        return
    flows = Flows(problem, view, kind, weight * np.ones(len(weights) - 1), value, seed)
    if not len(flows.nets.capacity):
        return
    for _ in range(3):
        for _ in range(4):
            flows.route(best)
        flows.look()
        flows.scale *= larger
        assert flows.proved()[0] <= best * (1 + 1e-11) + 1e-30


@pytest.mark.parametrize("larger", [1.0, 2.0, 5.0, 50.0])
def test_what_a_tensor_cannot_carry_proves_nothing(larger):
    """Two ops of a second each with a tensor of 10 ms: 1.01 s on two devices, and the flows prove nearly that."""
    chain = GraphBuilder("chain")
    first, second = chain.op("first"), chain.op("second")
    chain.tensor(first, bytes=1.0, consumers=[second])
    nothing, free = np.zeros((2, 2)), np.zeros(2)
    problem = Problem.make(
        chain.build(),
        Cluster("twins", (Device("a", "acc"), Device("b", "acc"))),
        Pipeline(),
        time=np.ones((2, 2)),
        size=np.ones(1),
        latency=nothing,
        rate=nothing,
        send_latency=free,
        send_rate=np.full(2, 0.01),
        recv_latency=free,
        recv_rate=np.full(2, 0.01),
        memory=free,
        capacity=np.full(2, np.inf),
    )
    assert least_cost(problem) == pytest.approx(1.01)
    view = view_of(problem)
    flows = Flows(problem, view, 0, np.zeros(0), 1.0, 0)
    flows.route(1.01)
    flows.look()
    flows.scale *= larger
    bound, _ = flows.proved()
    assert (1.0098 if larger == 1.0 else 0.0) < bound <= 1.01


def test_it_sees_both_borders_of_a_stage():
    """Fair share sees one: a device in the middle of a chain sends and receives."""
    problem = api.problem("zoo:wavenet-36", "p100-4", model="pipeline")
    quick = lower_bound(problem).value
    *_, share = fair_share_bounds(problem, quick, lambda: 0.2081, lambda: False, 300)
    *_, spread = spreading_bounds(problem, quick, lambda: 0.2081, lambda: False, 20_000)
    assert quick < share < spread
    assert spread == pytest.approx(0.1985, rel=0.003)


def test_the_same_seed_gives_the_same_bounds():
    problem = api.problem("zoo:transformer-xl-2", "p100-2", model="pipeline")
    runs = [list(spreading_bounds(problem, 0.0, lambda: 0.08, lambda: False, 2000, 3)) for _ in range(2)]
    assert runs[0]
    assert runs[0] == runs[1]


def test_one_device_of_each_kind_has_nobody_to_share_with():
    problem = api.problem("zoo:resnet-50", "hsdag", model="pipeline")
    assert not list(spreading_bounds(problem, 0.0, lambda: 1.0, lambda: False, 1000))


def test_it_stops_when_it_is_told_to():
    problem = api.problem("zoo:transformer-xl-2", "p100-2", model="pipeline")
    asked = 0

    def over() -> bool:
        nonlocal asked
        asked += 1
        return asked > 3

    list(spreading_bounds(problem, 0.0, lambda: 0.08, over, 10**9))
    assert asked == 4
