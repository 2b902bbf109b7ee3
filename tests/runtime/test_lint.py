"""What is wrong or foolish about a plan is found, and a good one is not blamed."""

from __future__ import annotations

import math

import numpy as np

from loadmaster.graph import GraphBuilder, load_openvino
from loadmaster.hardware import Cluster, Device
from loadmaster.problem import Placement, Problem, Serial
from loadmaster.runtime import lint


def small_problem(kinds, arcs, times, link=1.0):
    builder = GraphBuilder("small")
    for i, kind in enumerate(kinds):
        builder.op(f"op{i}", kind)
    for tail in range(len(kinds)):
        heads = [b for a, b in arcs if a == tail]
        if heads:
            builder.tensor(tail, bytes=1, consumers=heads)
    latency = link * (1 - np.eye(2))
    cluster = Cluster("two", (Device("A"), Device("B")))
    return Problem.make(
        builder.build(), cluster, Serial(), time=times, latency=latency, rate=np.zeros((2, 2))
    )


def rules(problem, device, **more):
    return [finding.rule for finding in lint(problem, Placement(np.array(device, np.int32)), **more)]


def test_a_good_plan_is_not_blamed():
    chain = small_problem(["Relu"] * 3, [(0, 1), (1, 2)], [[1, 9], [9, 1], [9, 1]])
    assert rules(chain, [0, 1, 1]) == []


def test_pieces_that_wait_for_each_other_are_found():
    # Two pieces: {0, 1, 3} on A, joined by 0 -> 3, and 2 on B between 1 and 3: A's piece waits for itself.
    diamond = small_problem(["Relu"] * 4, [(0, 1), (1, 2), (2, 3), (0, 3)], [[1, 9], [1, 9], [9, 1], [1, 9]])
    assert rules(diamond, [0, 0, 1, 0]) == ["cycle"]


def test_what_comes_behind_a_cycle_is_not_blamed_for_it():
    arcs = [(0, 1), (1, 2), (2, 3), (0, 3), (3, 4)]
    problem = small_problem(["Relu"] * 5, arcs, [[1, 9], [1, 9], [9, 1], [1, 9], [9, 1]])
    (finding,) = lint(problem, Placement(np.array([0, 0, 1, 0, 1], np.int32)))
    assert set(finding.ops) == {"op0", "op1", "op2", "op3"}


def test_an_excursion_that_does_not_pay_is_ping_pong():
    chain = small_problem(["Relu"] * 3, [(0, 1), (1, 2)], [[1, 1], [1, 1], [1, 1]])
    assert rules(chain, [0, 1, 0]) == ["ping-pong"]
    worth = small_problem(["Relu"] * 3, [(0, 1), (1, 2)], [[1, 1], [9, 1], [1, 1]])
    assert rules(worth, [0, 1, 0]) == []


def test_constants_away_from_their_reader_are_found():
    problem = small_problem(["Constant", "Relu", "Relu"], [(0, 1), (1, 2)], [[0, 0], [9, 1], [9, 1]])
    assert rules(problem, [0, 1, 1]) == ["constant"]


def test_cutting_a_fused_group_is_found():
    chain = small_problem(["Relu"] * 2, [(0, 1)], [[1, 9], [9, 1]])
    assert rules(chain, [0, 1], fused=[[0, 1]]) == ["fused"]


def test_unsupported_ops_and_stale_plans_are_errors(network):
    chain = small_problem(["Relu"] * 2, [(0, 1)], [[1, math.inf], [1, 1]])
    assert rules(chain, [1, 1]) == ["unsupported"]
    found = lint(chain, Placement(np.zeros(2, np.int32)), load_openvino(network))
    assert [(f.rule, f.level) for f in found] == [("stale-hash", "error")]
