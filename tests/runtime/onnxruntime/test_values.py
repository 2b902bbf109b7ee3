"""Inputs whose value never changes: ONNX Runtime runs plans without the branches that they decide against."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from small_networks import CLOCK

import loadmaster
from loadmaster import api
from loadmaster.errors import InputError
from loadmaster.plan import Plan

ort = pytest.importorskip("onnxruntime")

from loadmaster.runtime.onnxruntime import FlatModel, run_plan  # noqa: E402

SPECS = api.parse_devices(["acc0=cpu", "acc1=cpu", "cpu0=cpu"])


def write_rates(path):
    """A model with another branch for each sample rate, as Silero's has; both branches use the same names."""
    value, node = helper.make_tensor_value_info, helper.make_node
    generator = np.random.default_rng(0)

    def branch(rate):
        weights = [
            numpy_helper.from_array(generator.standard_normal((8, 8)).astype(np.float32), name)
            for name in ("w0", "w1")
        ]
        nodes = [
            node("MatMul", ["x", "w0"], ["a"], name="first"),
            node("Tanh", ["a"], ["b"], name="second"),
            node("MatMul", ["b", "w1"], ["c"], name="third"),
        ]
        return helper.make_graph(
            nodes, f"at{rate}", [], [value("c", TensorProto.FLOAT, [4, 8])], initializer=weights
        )

    nodes = [
        node("Equal", ["sr", "rate"], ["high"], name="high"),
        node("If", ["high"], ["y"], name="rates", then_branch=branch(16), else_branch=branch(8)),
        node("Relu", ["y"], ["z"], name="last"),
    ]
    graph = helper.make_graph(
        nodes,
        "rates",
        [value("x", TensorProto.FLOAT, ["rows", 8]), value("sr", TensorProto.INT64, [])],
        [value("z", TensorProto.FLOAT, [4, 8])],
        initializer=[numpy_helper.from_array(np.array(16000), "rate")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_rates(tmp_path_factory.mktemp("rates") / "rates.onnx")


def plan_of(model, rate: int) -> Plan:
    """One op after another on three devices, with the shape and the value that it was made with."""
    given = {"shapes": {"x": (4, 8)}, "values": {"sr": rate}}
    problem = api.problem(str(model), "2acc+1cpu", "pipeline", **given)
    solution = api.place(problem, "single", evaluations=10)
    kinds = zip(problem.graph.names, problem.graph.op_types, strict=True)
    names = {op: "cpu0" if kind == "Parameter" else f"acc{v % 2}" for v, (op, kind) in enumerate(kinds)}
    return Plan({**Plan.from_solution(problem, solution, **given).document, "placement": names}, "a plan")


@pytest.mark.parametrize("rate", [16000, 8000])
@pytest.mark.parametrize("runtime", ["onnxruntime", "openvino"])
def test_a_plan_brings_its_value_and_gives_the_outputs_of_the_file(model, rate, runtime):
    x = np.random.default_rng(1).standard_normal((4, 8)).astype(np.float32)
    whole = ort.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    right = whole.run(None, {"x": x, "sr": np.array(rate)})[0]
    with loadmaster.open(model, plan_of(model, rate), SPECS, runtime=runtime) as net:
        assert net.submodels > 1
        np.testing.assert_allclose(net(x), right, rtol=1e-4, atol=1e-5)


def test_a_run_is_verified_against_the_file_that_gets_the_value(model):
    run = run_plan(model, plan_of(model, 8000), SPECS, samples=3, baselines=False, clock=CLOCK)
    assert run.lines[0].verification is not None


def test_a_value_is_no_input_any_more(model):
    flat = FlatModel(model, loadmaster.graph.Given({"x": (4, 8)}, {"sr": 16000}))
    assert [name for name, _, _ in flat.inputs] == ["x"]
    assert flat.values["sr"] == 16000


def test_a_value_that_does_not_fit_is_refused(model):
    with pytest.raises(InputError, match=r"the value sr=1\.5 does not fit the input, which holds int64"):
        FlatModel(model, loadmaster.graph.Given({"x": (4, 8)}, {"sr": 1.5}))
    with pytest.raises(InputError, match="'rate' is given, but its inputs are"):
        FlatModel(model, loadmaster.graph.Given({"x": (4, 8)}, {"rate": 1}))
