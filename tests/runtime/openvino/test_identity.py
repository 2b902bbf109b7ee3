"""A plan for an ONNX file runs on that file, whichever reader it is from, with the shapes it was made with."""

from __future__ import annotations

import numpy as np
import onnx
import openvino as ov
import pytest
from onnx import TensorProto, helper
from small_networks import CLOCK
from typer.testing import CliRunner
from unnamed_networks import write_unnamed

import loadmaster
from loadmaster import api
from loadmaster.cli import app
from loadmaster.errors import InputError
from loadmaster.graph import load_onnx, load_openvino
from loadmaster.plan import Plan
from loadmaster.runtime.openvino import fitted, parse_devices, run_plan

DEVICES = parse_devices(["acc0=cpu", "acc1=cpu", "cpu0=cpu"])


def alternating(path, shapes, model, devices=3) -> Plan:
    """A plan in the names of our own reader, whose ops are spread over the devices in stretches."""
    from loadmaster.problem import Placement, Solution, evaluate

    problem = api.problem(path, model=model, shapes=shapes)
    device = (problem.graph.position * devices // problem.n).astype(np.int32)
    placement = Placement(device)
    solution = Solution(
        placement=placement, cost=evaluate(problem, placement).cost, bound=0.0, bound_by="", method="test",
        evaluations=1, seconds=0.0, seed=0, parameters={}, history=(), found_by="test", stopped="finished",
    )  # fmt: skip
    return Plan.from_solution(problem, solution, shapes=shapes)


@pytest.mark.parametrize("model", ["serial", "concurrent", "pipeline"])
def test_a_plan_in_our_names_runs(tmp_path, model):
    path = write_unnamed(tmp_path / "net.onnx", rows="rows")
    plan = alternating(path, {"rows": (16,)}, model)
    plan.save(tmp_path / "plan.json")
    run = run_plan(path, Plan.load(tmp_path / "plan.json"), DEVICES, samples=3, baselines=False, clock=CLOCK)
    assert run.lines[0].verification is not None
    assert run.plan.submodels > 1


def test_ops_go_where_the_plan_says(tmp_path):
    path = write_unnamed(tmp_path / "net.onnx")
    plan = alternating(path, {}, "pipeline")
    network, theirs = fitted(path, plan)
    assert network.graph.digest == load_openvino(path).graph.digest
    where, there = plan.document["placement"], theirs.document["placement"]
    ours = load_onnx(path)
    assert set(there) == set(network.graph.names)
    for tensor in ("t0", "t2", "t6", "t8", "t11"):
        assert there[tensor] == where[ours.graph.names[ours.tensors[tensor]]]
    # Layer normalisation is one op here and three there.
    assert there["t1:MVN"] == there["t1:Multiply"] == where["t1"]


def test_open_takes_the_shapes_from_the_plan(tmp_path):
    path = write_unnamed(tmp_path / "net.onnx", rows="rows")
    plan = alternating(path, {"rows": (16,)}, "concurrent")
    x = np.random.default_rng(0).standard_normal((16, 32)).astype(np.float32)
    with loadmaster.open(path, plan, DEVICES) as net:
        y = net(x)
    whole = ov.compile_model(ov.Core().read_model(str(path)), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    assert np.allclose(y, whole(x)[0], atol=1e-4)


def test_place_then_run_on_the_command_line(tmp_path):
    path, plan = write_unnamed(tmp_path / "net.onnx", rows="rows"), tmp_path / "plan.json"
    place = ["place", str(path), "--shape", "rows=16", "--model", "pipeline", "--contiguity", "chain"]
    done = CliRunner().invoke(app, [*place, "--evaluations", "2000", "--method", "ideal-dp", "-o", str(plan)])
    assert done.exit_code == 0, done.output
    assert Plan.load(plan).shapes == {"rows": (16,)}
    devices = [part for name in ("acc0", "acc1", "cpu0") for part in ("--device", f"{name}=cpu")]
    run = ["run", str(path), "--plan", str(plan), *devices, "--samples", "3", "--clock", CLOCK]
    done = CliRunner().invoke(app, [*run, "--no-baselines", "--json"])
    assert done.exit_code == 0, done.output


def test_a_plan_for_another_model_is_still_refused(tmp_path):
    plan = alternating(write_unnamed(tmp_path / "net.onnx"), {}, "pipeline")
    with pytest.raises(InputError, match="plan for a different model"):
        fitted(write_unnamed(tmp_path / "other.onnx", width=8), plan)


def test_both_readers_take_shapes_by_input_and_by_dimension(tmp_path):
    path = write_unnamed(tmp_path / "net.onnx", rows="rows")
    for read in (load_onnx, load_openvino):
        assert read(path, ["x=16x32"]).graph.digest == read(path, ["rows=16"]).graph.digest
        with pytest.raises(InputError, match="dimension 'columns'"):
            read(path, ["columns=16"])
    with pytest.raises(InputError, match="is not fixed"):
        load_openvino(path)


def save(path, nodes, inputs, outputs, initializers=()):
    graph = helper.make_graph(nodes, "small", inputs, outputs, initializers)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    onnx.save(made, path)
    return path


def value(name, shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def test_question_marks_are_dimensions_of_their_own(tmp_path):
    node = helper.make_node
    nodes = [
        node("Relu", ["a"], ["r"]),
        node("ReduceSum", ["b"], ["s"], keepdims=0),
        node("Add", ["r", "s"], ["y"]),
    ]
    path = save(
        tmp_path / "paddle.onnx",
        nodes,
        [value("a", ["?", 3, "?"]), value("b", ["?", "?"])],
        [value("y", ["?", 3, "?"])],
    )
    given = ["a=2x3x8", "b=4x5"]
    assert load_onnx(path, given).graph.n == 6
    assert load_openvino(path, given).graph.names
    with pytest.raises(InputError, match="open"):
        load_onnx(path, ["a=2x3x8"])
    with pytest.raises(InputError, match=r"no tensor or dimension '\?'"):
        load_onnx(path, ["?=3"])


@pytest.mark.parametrize("model", ["serial", "concurrent", "pipeline"])
def test_scalar_inputs_run(tmp_path, model):
    node = helper.make_node
    nodes = [
        node("Mul", ["x", "factor"], ["m"]),
        node("Tanh", ["m"], ["t"]),
        node("Add", ["t", "factor"], ["y"]),
    ]
    path = save(
        tmp_path / "scalar.onnx", nodes, [value("x", [4, 8]), value("factor", [])], [value("y", [4, 8])]
    )
    plan = alternating(path, {}, model)
    run = run_plan(path, plan, DEVICES, samples=3, baselines=False, clock=CLOCK)
    assert run.lines[0].verification is not None
    if model == "concurrent":
        with loadmaster.open(path, plan, DEVICES) as net:
            y = net(np.ones((4, 8), np.float32), 2.0)
        assert np.allclose(y, np.tanh(2.0) + 2.0, atol=1e-5)


def test_shapes_are_set_before_openvino_checks_the_model(tmp_path):
    nodes = [helper.make_node("GlobalLpPool", ["x"], ["y"])]
    path = save(tmp_path / "open.onnx", nodes, [value("x", [None] * 4)], [value("y", None)])
    with pytest.raises(RuntimeError, match="must be static"):
        ov.Core().read_model(str(path))
    assert load_openvino(path, ["x=2x3x4x4"]).graph.names[0] == "x"
    with pytest.raises(InputError, match=r"OpenVINO cannot convert the op that makes .* \(GlobalLpPool"):
        load_openvino(path)
