"""From counters to a problem."""

from __future__ import annotations

import json

import numpy as np
import pytest
from small_networks import CLOCK, DEVICES, halves, write_network

from loadmaster import api
from loadmaster.errors import InputError
from loadmaster.graph import GraphBuilder
from loadmaster.plan import is_profile, parse_profile, problem_document
from loadmaster.problem import Serial
from loadmaster.runtime._link_costs import split_features
from loadmaster.runtime.openvino import parse_devices, profile_model
from loadmaster.runtime.openvino._device_profile import map_counters


def test_all_time_is_mapped_and_fused_ops_are_one_group(profile, graph):
    found = profile.profiles["A"]
    assert found.unmapped < 0.02
    assert sum(found.seconds.values()) == pytest.approx(found.wall)
    together = [set(group) for group in found.fused]
    assert any({"block0/conv0", "block0/add0", "block0/relu0"} <= group for group in together)


def test_the_problem_is_measured_serial_and_keeps_groups_together(problem, profile):
    assert isinstance(problem.model, Serial)
    assert (problem.origin == 2).all()
    index = problem.graph.index
    assert problem.class_of[index["block0/conv0"]] == problem.class_of[index["block0/relu0"]]
    assert profile.problem(cut_fused=True).classes > problem.classes


def test_inputs_and_results_cost_nothing_wherever_they_are(problem):
    index = problem.graph.index
    assert problem.class_of[index["features"]] == problem.class_of[index["block2/sum"]]
    assert problem.class_of[index["image"]] == problem.class_of[index["block0/conv0"]]
    placement = halves(problem)
    tensors, size = split_features(problem.graph, placement.device)
    moved = tensors * problem.latency[0, 1] + size * problem.rate[0, 1]
    ops = problem.time[np.arange(problem.n), placement.device].sum()
    assert api.evaluate(problem, placement).cost == pytest.approx(ops + moved)


def test_a_profile_comes_from_the_cache_until_the_weights_change(network, cache, profile, tmp_path):
    again = profile_model(network, parse_devices(DEVICES[:2]), cache=cache, clock=CLOCK)
    assert again.cached
    assert not profile.cached
    assert again.problem() == profile.problem()
    other = write_network(tmp_path / "net.xml", seed=9)
    assert not profile_model(other, parse_devices(DEVICES[:1]), cache=cache, clock=CLOCK).cached


def test_a_profile_file_is_the_problem_bit_for_bit(problem, tmp_path):
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(problem_document(problem)))
    assert api.load(path) == problem
    data = json.loads(path.read_text())
    assert is_profile(data)
    data["problem"]["hash"] = "0" * 64
    with pytest.raises(InputError, match="the profile is damaged"):
        parse_profile(data, "it")


def counters(nodes):
    keys = ("name", "kind", "seconds", "originals", "readers")
    return {"nodes": [dict(zip(keys, node, strict=True)) for node in nodes], "wall": [1.0, 2.0, 9.0]}


def chain(*names):
    builder = GraphBuilder("chain")
    for i, name in enumerate(names):
        builder.op(
            name, "MatMul" if name.startswith("mm") else "Add", flops=100.0 if name.startswith("mm") else 1.0
        )
        if i:
            builder.tensor(i - 1, bytes=8, consumers=[i])
    return builder.build()


def test_nodes_of_the_devices_own_making_belong_to_who_reads_them():
    graph = chain("a", "mm", "b", "c")
    found = map_counters(
        counters(
            [
                ("in", "Reorder", 1.0, [], ["x"]),
                ("x", "FullyConnected", 5.0, ["a", "mm", "b"], ["c"]),
                ("c", "Eltwise", 2.0, ["c"], ["out"]),
                ("out", "Reorder", 2.0, [], []),
            ]
        ),
        graph,
        "cpu",
    )
    assert found.seconds == pytest.approx({"mm": 1.2, "c": 0.8})
    assert list(found.fused) == [["a", "mm", "b"]]
    assert (found.by_position, found.unmapped) == pytest.approx((0.3, 0.0))


def test_an_op_that_left_no_trace_joins_its_reader():
    """A MatMul that a device runs under the name of the bias behind it."""
    found = map_counters(
        counters([("a", "E", 1.0, ["a"], ["b"]), ("b", "FullyConnected", 4.0, ["b"], [])]),
        chain("a", "mm", "b"),
        "cpu",
    )
    assert list(found.fused) == [["mm", "b"]]


def test_time_that_belongs_to_nobody_is_said():
    found = map_counters(
        counters([("a", "E", 3.0, ["a"], []), ("z", "E", 1.0, ["gone"], [])]), chain("a"), "cpu"
    )
    assert found.unmapped == pytest.approx(0.25)
