"""The literature's baselines do what their papers say, on examples small enough to follow by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import problems

from loadmaster.graph import Graph, GraphBuilder
from loadmaster.hardware import Cluster, Device, accelerators
from loadmaster.placers import PLACERS, Budget
from loadmaster.placers.rules._insertion import ready_order
from loadmaster.placers.rules.accelerate import Accelerate
from loadmaster.placers.rules.m_sct import arc_links, relaxed_favourites
from loadmaster.placers.rules.openvino import OpenVino
from loadmaster.placers.rules.peft import optimistic_costs
from loadmaster.problem import Concurrent, Placement, Problem, Serial, Solution
from loadmaster.problem._evaluator import SimulatedEvaluator


def chain(n: int, param_bytes: float = 1.0) -> Graph:
    b = GraphBuilder("chain")
    ops = [b.op(f"op{i}", param_bytes=param_bytes) for i in range(n)]
    for i in range(n - 1):
        b.tensor(ops[i], bytes=0.0, consumers=[ops[i + 1]])
    return b.build()


def fork(children: int) -> Graph:
    """One op whose tensor all others read, and one that reads them all."""
    b = GraphBuilder("fork")
    root, ends = b.op("root"), b.op("end")
    leaves = [b.op(f"leaf{i}") for i in range(children)]
    b.tensor(root, bytes=1.0, consumers=leaves)
    for leaf in leaves:
        b.tensor(leaf, bytes=1.0, consumers=[ends])
    return b.build()


def flat(graph: Graph, devices: int, time: np.ndarray, link: float, **more: object) -> Problem:
    """All transfers take ``link`` seconds."""
    latency, none = np.full((devices, devices), link), np.zeros((devices, devices))
    cluster = accelerators(devices, 0)
    return Problem.make(graph, cluster, Concurrent(), time=time, latency=latency, rate=none, **more)  # type: ignore[arg-type]


def place(name: str, problem: Problem) -> Solution:
    return PLACERS[name].place(problem, budget=Budget())


def test_m_topo_gives_every_device_its_share_of_memory() -> None:
    # Four ops of one byte on two devices: a share is 2 bytes plus the largest op.
    problem = flat(chain(4), 2, np.ones((4, 2)), 1.0, memory=np.ones(4))
    assert place("m-topo", problem).placement.device.tolist() == [0, 0, 0, 1]


def test_m_etf_starts_ops_as_early_as_it_can() -> None:
    # Transfers take less than a leaf, so the second leaf starts earlier on the other device.
    problem = flat(fork(2), 2, np.full((4, 2), 2.0), 1.0)
    solution = place("m-etf", problem)
    assert len(set(solution.placement.device[2:].tolist())) == 2
    assert solution.cost == 7.0


def test_m_etf_looks_at_starts_and_not_at_finishes() -> None:
    # The slow device is free first, so the second leaf goes there, whatever it takes.
    time = np.array([[1.0, 9.0]] * 4)
    time[0] = 1.0, 1.0
    problem = flat(fork(2), 2, time, 0.5)
    assert 1 in place("m-etf", problem).placement.device[2:].tolist()
    assert set(place("heft", problem).placement.device.tolist()) == {0}


def test_m_sct_keeps_the_device_for_the_favourite_child() -> None:
    # a -> b and c -> b, with c late and elsewhere; d is ready at once but would hold b up.
    b = GraphBuilder("sct")
    first, other, joint, alone = (b.op(name) for name in ("first", "other", "joint", "alone"))
    b.tensor(first, bytes=10.0, consumers=[joint])
    b.tensor(other, bytes=0.0, consumers=[joint])
    graph = b.build()
    time = np.array([[1.0, 1.0], [1.5, 1.5], [9.0, 9.0], [3.0, 3.0]])
    problem = Problem.make(
        graph,
        accelerators(2, 0),
        Concurrent(),
        time=time,
        latency=np.zeros((2, 2)),
        rate=np.full((2, 2), 0.5),
    )
    favourite = relaxed_favourites(problem, arc_links(problem), 0.1)
    assert favourite[first] == joint
    assert favourite[alone] == -1
    solution = place("m-sct", problem)
    assert solution.placement.device[first] == solution.placement.device[joint]
    assert solution.cost == 10.5
    assert place("m-etf", problem).cost > solution.cost


@settings(max_examples=40)
@given(problems(Concurrent(), max_ops=10))
def test_favourites_are_the_only_ones_of_parent_and_child(problem: Problem) -> None:
    favourite = relaxed_favourites(problem, arc_links(problem), 0.1)
    chosen = favourite[favourite >= 0].tolist()
    assert len(chosen) == len(set(chosen))
    ptr, successor = problem.graph.successors
    for v in np.flatnonzero(favourite >= 0):
        assert favourite[v] in successor[ptr[v] : ptr[v + 1]]


def test_the_optimistic_cost_table_is_that_of_the_paper() -> None:
    # root -> leaf -> end: from the end backwards, a transfer of 2 or the slower device.
    b = GraphBuilder("line")
    root, leaf, end = (b.op(name) for name in ("root", "leaf", "end"))
    b.tensor(root, bytes=1.0, consumers=[leaf])
    b.tensor(leaf, bytes=1.0, consumers=[end])
    problem = flat(b.build(), 2, np.array([[1.0, 1.0], [5.0, 1.0], [1.0, 2.0]]), 2.0)
    table = optimistic_costs(problem)
    assert table[end].tolist() == [0.0, 0.0]
    assert table[leaf].tolist() == [1.0, 2.0]
    assert table[root].tolist() == [min(5 + 1, 1 + 2 + 2), 3.0]


def test_cpop_runs_the_critical_path_on_one_device() -> None:
    time = np.array([[1.0, 2.0], [1.0, 2.0], [8.0, 4.0], [1.0, 1.0]])
    problem = flat(fork(2), 2, time, 0.25)
    device = place("cpop", problem).placement.device
    assert device[0] == device[1] == device[2] == 1


def test_lookahead_sees_what_heft_does_not() -> None:
    # The first op is faster on device 0, its long child only on device 1: HEFT pays for the transfer.
    b = GraphBuilder("greedy trap")
    first, second = b.op("first"), b.op("second")
    b.tensor(first, bytes=1.0, consumers=[second])
    problem = flat(b.build(), 2, np.array([[1.0, 2.0], [20.0, 4.0]]), 5.0)
    assert place("heft", problem).cost == 10.0
    assert place("lookahead", problem).cost == 6.0


def test_openvino_takes_the_first_device_that_supports_an_op() -> None:
    cluster = Cluster("mixed", (Device("cpu", "cpu"), Device("gpu", "gpu"), Device("npu", "npu")))
    time = np.array([[1.0, np.inf, 9.0], [1.0, 9.0, 9.0], [1.0, np.inf, np.inf]])
    problem = Problem.make(chain(3), cluster, Serial(), time=time)

    def devices(*priority: str) -> list[int]:
        solution = OpenVino(priority).place(problem, budget=Budget())
        return solution.placement.device.tolist()

    assert devices() == [2, 1, 0]
    assert devices("npu") == [2, 2, 0]
    assert devices("cpu") == [0, 0, 0]
    why = OpenVino(("tpu",)).supports(problem)
    assert why is not None
    assert "'tpu'" in why


def test_accelerate_fills_accelerators_by_memory_in_model_order() -> None:
    problem = Problem.make(
        chain(8),
        accelerators(2, 1),
        Serial(),
        time=np.ones((8, 3)),
        memory=np.ones(8),
        capacity=[6.0, 8.0, np.inf],
    )
    sequential = Accelerate(balanced=False).place(problem, budget=Budget()).placement.device
    assert sequential.tolist() == [0] * 6 + [1] * 2
    balanced = place("accelerate", problem).placement.device
    assert balanced.tolist() == [0] * 5 + [1] * 3


@pytest.mark.parametrize(
    "name", ["lookahead", "peft", "cpop", "m-etf", "m-sct", "m-topo", "openvino", "accelerate"]
)
@settings(max_examples=25)
@given(data=st.data())
def test_what_is_reported_is_what_the_evaluator_says(name: str, data: st.DataObject) -> None:
    problem = data.draw(problems(Concurrent(), max_ops=10, constrained=False))
    solution = place(name, problem)
    assert SimulatedEvaluator(problem).evaluate(solution.placement).value == solution.cost
    if solution.placement.order is not None:
        assert (
            solution.cost <= SimulatedEvaluator(problem).evaluate(Placement(solution.placement.device)).cost
        )


@given(problems(Concurrent(), max_ops=10), st.integers(0, 99))
def test_ready_ops_are_taken_by_priority(problem: Problem, seed: int) -> None:
    priority = np.random.default_rng(seed).integers(0, 4, problem.n).astype(float)
    order = ready_order(problem, priority).tolist()
    ptr, predecessor = problem.graph.predecessors
    done: set[int] = set()
    for v in order:
        ready = [
            u for u in range(problem.n) if u not in done and done.issuperset(predecessor[ptr[u] : ptr[u + 1]])
        ]
        assert v == min(ready, key=lambda u: (-priority[u], problem.graph.position[u]))
        done.add(v)
    assert len(done) == problem.n
