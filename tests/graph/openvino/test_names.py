"""A model has the same op names and the same hash whenever, and wherever, it is read."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import numpy as np
import onnx
import openvino as ov
import pytest
from onnx import helper, numpy_helper
from small_networks import write_network
from unnamed_networks import write_unnamed

from loadmaster.graph import load_openvino
from loadmaster.graph.openvino import openvino_model


@pytest.fixture(scope="module")
def unnamed(tmp_path_factory):
    return write_unnamed(tmp_path_factory.mktemp("unnamed") / "unnamed.onnx")


def test_twenty_readings_between_other_models_give_the_same_names_and_hash(unnamed, tmp_path):
    other = write_network(tmp_path / "other.xml", blocks=1)
    first = load_openvino(unnamed).graph
    for at in range(20):
        if at % 3 == 0:
            ov.Core().read_model(str(other))
        graph = load_openvino(unnamed).graph
        assert graph.names == first.names
        assert graph.digest == first.digest
    layers = {load_openvino(unnamed, counting="layers").graph.digest for _ in range(3)}
    assert len(layers) == 1


def test_another_process_gives_the_same_names_and_hash(unnamed):
    code = (
        "import json, sys\n"
        "from loadmaster.graph import load_openvino\n"
        "for _ in range(int(sys.argv[2])): graph = load_openvino(sys.argv[1]).graph\n"
        "print(json.dumps([list(graph.names), graph.digest]))\n"
    )
    here = load_openvino(unnamed).graph
    for readings in ("1", "3"):
        done = subprocess.run(
            [sys.executable, "-c", code, str(unnamed), readings],
            capture_output=True,
            text=True,
            check=True,
            env=os.environ,
        )
        assert json.loads(done.stdout) == [list(here.names), here.digest]


def test_names_of_the_file_stay_and_others_are_called_after_their_reader(unnamed):
    names = load_openvino(unnamed).graph.names
    assert {"x", "t0", "t1", "other branch", "t12"} <= set(names)
    assert {"t1:MVN", "t1:Multiply", "t3:MVN"} <= set(names)
    assert not [name for name in names if re.fullmatch(r"[A-Z]\w*_[0-9]+", name)]
    nodes = {node.get_friendly_name() for node in openvino_model(unnamed).get_ops()}
    assert set(names) <= nodes


def test_a_name_of_the_file_that_looks_like_a_number_of_openvino_s_stays(tmp_path):
    path = tmp_path / "lucky.onnx"
    digests = set()
    # The counter runs through these names while the file is read again and again.
    number = max(
        int(node.get_name().rpartition("_")[2])
        for node in ov.Core().read_model(str(write_unnamed(path))).get_ops()
    )
    write_unnamed(path, last=f"Multiply_{number + 400}")
    for _ in range(12):
        graph = load_openvino(path).graph
        assert f"Multiply_{number + 400}" in graph.names
        digests.add(graph.digest)
    assert len(digests) == 1


def test_a_name_of_the_file_that_another_node_happens_to_get_stays(tmp_path):
    """OpenVINO numbers what it makes of a Gemm: some get what another node is called, and one of both gets a ``_1``."""
    number = int(re.search(r"\d+$", ov.opset13.constant(0.0).get_name())[0])
    own = [f"Multiply_{number + step}" for step in range(150)]
    nodes, last = [], "x"
    for at, name in enumerate(own):
        nodes += [
            helper.make_node("Gemm", [last, "w", "c"], [f"a{at}"]),
            helper.make_node("MatMul", [f"a{at}", "w"], [f"b{at}"], name=name),
        ]
        last = f"b{at}"
    shape = [helper.make_tensor_value_info(port, 1, [2, 2]) for port in ("x", last)]
    weights = [
        numpy_helper.from_array(np.ones(sizes, np.float32), name)
        for name, sizes in (("w", (2, 2)), ("c", (2,)))
    ]
    graph = helper.make_graph(nodes, "g", shape[:1], shape[1:], weights)
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    names = [node.get_friendly_name() for node in ov.Core().read_model(path).get_ordered_ops()]
    assert any(re.search(r"_\d+_\d+$", name) for name in names) or len(set(names)) < len(names)
    first, second = load_openvino(path).graph, load_openvino(path).graph
    assert first == second
    assert set(own[:-1]) <= set(first.names)  # the last one is called after the output


def test_an_openvino_model_in_memory_has_the_names_of_its_file(unnamed):
    names = load_openvino(unnamed).graph.names
    assert load_openvino(ov.Core().read_model(str(unnamed))).graph.names == names
