"""ONNX Runtime runs the same plans: cut into sessions, the outputs are those of the file as it is."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from small_networks import CLOCK
from small_onnx import branched_onnx
from typer.testing import CliRunner

import loadmaster
from loadmaster import api
from loadmaster.cli import app
from loadmaster.errors import InputError, RunError
from loadmaster.plan import Plan
from loadmaster.problem import Concurrent, Pipeline, Placement, Serial
from loadmaster.runtime import Piece, cut

ort = pytest.importorskip("onnxruntime")

from loadmaster.runtime.onnxruntime import FlatModel, OnnxRuntimeSession, profile_model, run_plan  # noqa: E402

SHAPES = {"x": (2, 8, 12, 12)}
SPECS = api.parse_devices(["A=cpu", "B=cpu"])


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return branched_onnx(tmp_path_factory.mktemp("onnx") / "net.onnx")


@pytest.fixture(scope="module")
def profile(model, tmp_path_factory):
    kept = api.cache(tmp_path_factory.mktemp("cache") / "cache.sqlite")
    found = profile_model(model, SPECS, SHAPES, cache=kept, clock=CLOCK)
    assert not found.cached
    assert profile_model(model, SPECS, SHAPES, cache=kept, clock=CLOCK).cached
    return found


def plan_for(profile, execution, placement=None) -> Plan:
    problem = profile.problem(model=execution, cut_fused=True)
    device = np.random.default_rng(3).integers(0, 2, problem.classes)[problem.class_of].astype(np.int32)
    placement = placement or Placement(device)
    solution = api.place(problem, "single", evaluations=10)
    document = Plan.from_solution(problem, solution).document
    cost = api.evaluate(problem, placement).cost
    return Plan({**document, "cost": cost, "placement": placement.to_names(problem)}, "a plan")


def expected(model, x):
    return ort.InferenceSession(str(model), providers=["CPUExecutionProvider"]).run(None, {"x": x})


def test_any_cut_gives_the_outputs_of_the_whole(model):
    flat = FlatModel(model, SHAPES)
    problem = api.problem(str(model), "2acc+1cpu", "concurrent", shapes=SHAPES)
    x = flat.draw(5)[0]
    whole = expected(model, x)
    for seed in range(6):
        device = np.random.default_rng(seed).integers(0, 3, problem.n).astype(np.int32)
        parts = flat.cut(cut(problem, Placement(device), joins=bool(seed % 2)))
        made = {"x": x}
        for part in parts:
            run = ort.InferenceSession(part.content, providers=["CPUExecutionProvider"])
            found = run.run(part.outputs, {name: made[name] for _, name in part.inputs})
            made.update(zip(part.outputs, found, strict=True))
        for name, value in zip(flat.outputs, whole, strict=True):
            np.testing.assert_allclose(made[name], value, rtol=1e-4, atol=1e-5)


def test_a_submodel_holds_the_weights_that_it_reads_alone(model):
    flat = FlatModel(model, SHAPES)
    ops = [op for op in flat.network.graph.names if flat.network.ports[flat.network.graph.index[op]]]
    parts = flat.cut([Piece("A", tuple(ops[:4])), Piece("B", tuple(ops[4:]))])
    held = [{t.name for t in onnx.load_from_string(part.content).graph.initializer} for part in parts]
    assert held[0]
    assert held[1]
    assert not held[0] & held[1]
    with pytest.raises(RunError, match=f"leaves out op '{ops[-1]}'"):
        flat.cut([Piece("A", tuple(ops[:-1]))])


def test_times_of_ops_add_up_to_whole_runs(profile):
    for found in profile.profiles.values():
        assert sum(found.seconds.values()) == pytest.approx(found.wall)
    problem = profile.problem()
    assert {device.model.split()[0] for device in problem.cluster.devices} == {"onnxruntime"}
    assert "ONNX Runtime" in problem.provenance
    fused = {op for group in next(iter(profile.profiles.values())).fused for op in group}
    assert "b0/left" in fused  # a convolution and its Relu run as one


@pytest.mark.parametrize("execution", [Serial(), Concurrent(), Pipeline()], ids=lambda m: m.name)
def test_a_plan_runs_verified_beside_its_baselines(model, profile, execution):
    plan = plan_for(profile, execution)
    found = run_plan(model, plan, shapes=SHAPES, samples=3, clock=CLOCK)
    names = [line.name for line in found.lines]
    assert names[:3] == ["plan", "A alone", "B alone"]
    assert any(name.startswith("ONNX Runtime on") for name in names) == (execution.name != "serial")
    assert all(line.verification is not None for line in found.lines)
    assert {span["device"] for span in found.spans} == {"A", "B"}
    assert found.engine["onnxruntime"] == ort.__version__


@pytest.mark.parametrize("execution", [Serial(), Concurrent(), Pipeline()], ids=lambda m: m.name)
def test_an_opened_plan_gives_the_outputs_of_the_model(model, profile, execution):
    plan = plan_for(profile, execution)
    x = np.random.default_rng(0).normal(size=SHAPES["x"]).astype(np.float32)
    with loadmaster.open(model, plan, shapes=SHAPES) as net:
        for found, value in zip(net(x), expected(model, x), strict=True):
            np.testing.assert_allclose(found, value, rtol=1e-4, atol=1e-5)
        assert len(list(net.stream([x, x, x, x]))) == 4


def test_a_device_alone_equals_the_file_as_it_is(model):
    with OnnxRuntimeSession(model, SPECS, SHAPES, clock=CLOCK) as session:
        found = session.alone("A").verify()
        assert found.error.relative <= found.tolerance < found.control


def test_what_onnx_runtime_has_not_is_refused(model, profile, tmp_path):
    plan = plan_for(profile, Concurrent())
    with pytest.raises(InputError, match="device 'A': this ONNX Runtime has no 'npu': choose from cpu"):
        run_plan(model, plan, api.parse_devices(["A=npu", "B=cpu"]), SHAPES)
    with pytest.raises(InputError, match="leave out precision=bf16"):
        run_plan(model, plan, api.parse_devices(["A=cpu:precision=bf16", "B=cpu"]), SHAPES)
    with pytest.raises(InputError, match="is a plan for another model"):
        run_plan(branched_onnx(tmp_path / "other.onnx", blocks=3), plan, shapes=SHAPES)
    with pytest.raises(InputError, match="ONNX Runtime runs ONNX models"):
        run_plan("model.xml", plan)
    with pytest.raises(InputError, match="'tflite' is unknown: choose one of openvino, onnxruntime"):
        api.run(model, plan, runtime="tflite")


def test_the_commands_take_the_runtime(model, tmp_path):
    def call(*arguments):
        outcome = CliRunner().invoke(app, [str(argument) for argument in arguments])
        assert outcome.exit_code == 0, outcome.output
        return outcome.stdout

    shape = ["--shape", "x=2x8x12x12"]
    common = ["--runtime", "onnxruntime", "--clock", CLOCK, *shape]
    devices = ["--device", "A=cpu", "--device", "B=cpu"]
    cache = ["--cache", tmp_path / "cache.sqlite"]
    problem, plan = tmp_path / "problem.json", tmp_path / "plan.json"
    call("profile", model, *devices, *common, *cache, "-o", problem)
    call("place", problem, "--method", "min-cut", "-o", plan)
    shown = json.loads(call("run", model, "--plan", plan, *common, "--samples", 3, "--json"))
    assert shown["onnxruntime"] == ort.__version__
    assert "ONNX Runtime" in call("run", model, "--plan", plan, *common, "--samples", 3)
    # A plan on paper devices, by the reader's own costs, needs to be told what they are.
    call(
        "place",
        model,
        *shape,
        "--model",
        "concurrent",
        "--evaluations",
        50,
        "--cluster",
        "2acc+1cpu",
        "-o",
        plan,
    )
    given = [x for name in ("acc0", "acc1", "cpu0") for x in ("--device", f"{name}=cpu")]
    call("run", model, "--plan", plan, *given, *common, "--samples", 3)


@pytest.mark.parametrize("execution", ["concurrent", "pipeline", "serial"])
def test_optimize_runs_by_onnx_runtime(model, tmp_path, execution):
    from loadmaster.optimize import optimize

    found = optimize(
        model,
        SPECS,
        SHAPES,
        budget=5.0,
        model=execution,
        samples=3,
        clock=CLOCK,
        cache=api.cache(tmp_path / "cache.sqlite"),
        runtime="onnxruntime",
    )
    assert found.engine["onnxruntime"] == ort.__version__
    assert any(line.name.startswith("ONNX Runtime on") for line in found.lines)
    again = run_plan(model, found.plan, shapes=SHAPES, samples=3, clock=CLOCK, baselines=False)
    assert again.lines[0].verification is not None
    assert not any("HETERO" in line.name for line in found.lines)
