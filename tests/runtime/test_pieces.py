"""A placement is cut into few pieces that never wait for a later one."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from small_networks import problem_of
from strategies import problems

from loadmaster.problem import Pipeline, Placement
from loadmaster.runtime import cut


@settings(max_examples=60, deadline=None)
@given(problem=problems(), data=st.data())
def test_pieces_hold_every_op_once_and_never_wait_for_a_later_one(problem, data):
    device = data.draw(st.lists(st.integers(0, problem.devices - 1), min_size=problem.n, max_size=problem.n))
    pieces = cut(problem, Placement(np.array(device, np.int32)))
    home = {op: number for number, piece in enumerate(pieces) for op in piece.ops}
    assert sorted(op for piece in pieces for op in piece.ops) == sorted(problem.graph.names)
    for u, v in zip(*problem.graph.arcs, strict=True):
        assert home[problem.graph.names[u]] <= home[problem.graph.names[v]]
    for op, d in zip(problem.graph.names, device, strict=True):
        assert pieces[home[op]].device == problem.cluster.names[d]


def test_one_device_is_one_piece(model_file):
    problem = problem_of(model_file)
    assert len(cut(problem, Placement(np.zeros(problem.n, np.int32)))) == 1


def test_a_device_that_waits_is_not_held_up_by_what_it_does_not_need(model_file):
    problem = problem_of(model_file)
    device = [int("right" in name) for name in problem.graph.names]
    pieces = cut(problem, Placement(np.array(device, np.int32)))
    # Per block one piece of each device; every device joins for itself, so that no Concat is a piece of its own.
    assert [piece.device for piece in pieces].count("A") <= 4
    assert [piece.device for piece in pieces].count("B") == 3
    assert sum("block0/concat" in piece.ops for piece in pieces) == 2
    assert (
        sum(
            op == "block0/concat"
            for piece in cut(problem, Placement(np.array(device, np.int32)), joins=False)
            for op in piece.ops
        )
        == 1
    )


def test_a_chain_of_stages_is_one_submodel_per_device(model_file):
    problem = problem_of(model_file).with_model(Pipeline(contiguity="chain"))
    order = problem.graph.topological_order.tolist()
    device = np.zeros(problem.n, np.int32)
    device[order[problem.n // 2 :]] = 1
    assert [piece.device for piece in cut(problem, Placement(device))] == ["A", "B"]
