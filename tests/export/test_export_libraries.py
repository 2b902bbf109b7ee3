"""Exports, each loaded into the library that it is for."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from loadmaster import api
from loadmaster.cli import app
from loadmaster.errors import InputError
from loadmaster.export import export
from loadmaster.graph import GraphBuilder
from loadmaster.hardware import Cluster, Device
from loadmaster.plan import Plan
from loadmaster.problem import Pipeline, Placement, Problem, Solution

# -- ONNX Runtime --------------------------------------------------------------------------------------------


def onnx_plan(tmp_path):
    onnx = pytest.importorskip("onnx")
    text = '<ir_version: 10, opset_import: ["" : 21]> g (float[4,8] x) => (float[4,8] y) {'
    text += " h = Relu(x) s = Add(h, x) y = Tanh(s) }"
    model = onnx.parser.parse_model(text)
    for node in model.graph.node:
        node.name = f"node_{node.op_type}"
    onnx.save(model, tmp_path / "model.onnx")
    problem = api.problem(tmp_path / "model.onnx", "2acc+1cpu", pins=["node_Add=cpu0", "node_Relu=acc1"])
    plan = Plan.from_solution(problem, api.place(problem, "greedy", evaluations=20))
    plan.save(tmp_path / "plan.json")
    return plan


def test_onnx_runtime_reads_the_annotated_model_and_the_assignment(tmp_path):
    ort = pytest.importorskip("onnxruntime")
    onnx_plan(tmp_path)
    annotated = tmp_path / "annotated.onnx"
    command = ["export", str(tmp_path / "plan.json"), "-f", "onnxruntime"]
    result = CliRunner().invoke(app, [*command, "--onnx", str(tmp_path / "model.onnx"), "-o", str(annotated)])
    assert result.exit_code == 0, result.output
    exported = json.loads(CliRunner().invoke(app, command).stdout)
    setting = exported["session.layer_assignment_settings"]
    assert setting.endswith("cpu(=device2)")
    assert exported["layer_ann"]["node_Add"] == "device2"

    def session(path, value):
        options = ort.SessionOptions()
        options.log_severity_level = 4
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        if value is not None:
            options.add_session_config_entry("session.layer_assignment_settings", value)
            options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
        return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    x = np.arange(32, dtype=np.float32).reshape(4, 8) - 16
    placed = session(annotated, setting)
    np.testing.assert_array_equal(
        placed.run(None, {"x": x})[0], session(tmp_path / "model.onnx", None).run(None, {"x": x})[0]
    )
    nodes = [node.name for part in placed.get_provider_graph_assignment_info() for node in part.get_nodes()]
    assert sorted(nodes) == ["node_Add", "node_Relu", "node_Tanh"]
    with pytest.raises(Exception, match=r"(?i)layer|rule|device|invalid"):
        session(annotated, "nonsense(((")  # so the option is really looked at


def test_nodes_carry_the_annotation_of_their_device(tmp_path):
    onnx = pytest.importorskip("onnx")
    from loadmaster.export import annotate

    plan = onnx_plan(tmp_path)
    model = onnx.load(tmp_path / "model.onnx")
    assert annotate(plan, model) == annotate(plan, model) == 3
    device = dict(zip(plan.problem().graph.names, plan.placement().device.tolist(), strict=True))
    for node in model.graph.node:
        assert [(prop.key, prop.value) for prop in node.metadata_props] == [
            ("layer_ann", f"device{device[node.name]}")
        ]
    text = '<ir_version: 10, opset_import: ["" : 21]> g (float[1] a) => (float[1] b) { b = Relu(a) }'
    other = onnx.parser.parse_model(text)
    with pytest.raises(InputError, match="a different model"):
        annotate(plan, other)


# -- torch ---------------------------------------------------------------------------------------------------


def torch_model():
    torch = pytest.importorskip("torch")

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1 = torch.nn.Linear(8, 16)
            self.fc2 = torch.nn.Linear(16, 8)

        def forward(self, x):
            return x + self.fc2(torch.relu(self.fc1(x)))

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Linear(4, 8)
            self.layers = torch.nn.ModuleList([Block() for _ in range(4)])
            self.head = torch.nn.Linear(8, 2)

        def forward(self, x):
            x = self.embed(x)
            for layer in self.layers:
                x = layer(x)
            return self.head(x)

    torch.manual_seed(0)
    return torch, Model().eval()


OPS = [
    "/embed/MatMul",
    *(f"/layers.{i}/{op}" for i in range(4) for op in ("fc1/MatMul", "Relu", "fc2/MatMul", "Add")),
    "/head/MatMul",
]


def torch_plan(kinds, device):
    """A plan for the model above, its ops a chain."""
    builder = GraphBuilder("blocks")
    for i, name in enumerate(OPS):
        builder.op(name, param_bytes=4.0 * name.endswith("MatMul"))
        if i:
            builder.tensor(i - 1, bytes=4.0, consumers=[i])
    graph = builder.build()
    cluster = Cluster("small", tuple(Device(f"d{i}", kind) for i, kind in enumerate(kinds)))
    problem = Problem.make(
        graph,
        cluster,
        Pipeline("chain"),
        time=np.ones((graph.n, len(kinds))),
        latency=np.ones((len(kinds), len(kinds))),
        rate=np.ones((len(kinds), len(kinds))),
        send_latency=np.zeros(len(kinds)),
        send_rate=np.zeros(len(kinds)),
        recv_latency=np.zeros(len(kinds)),
        recv_rate=np.zeros(len(kinds)),
    )
    placement = Placement(np.array([device(name) for name in OPS], np.int32))
    return Plan.from_solution(problem, Solution(placement, 1.0, 0.5, "guess", "hand"))


def half(name):
    return int(name.startswith(("/layers.2", "/layers.3", "/head")))


def test_accelerate_accepts_the_device_map_and_runs_by_it():
    torch, model = torch_model()
    accelerate = pytest.importorskip("accelerate")
    mapped = json.loads(export(torch_plan(["cpu", "gpu"], half), "device-map"))
    assert mapped == {
        "embed": "cpu",
        "layers.0": "cpu",
        "layers.1": "cpu",
        "layers.2": 0,
        "layers.3": 0,
        "head": 0,
    }
    accelerate.utils.check_device_map(model, mapped)
    broken = {key: value for key, value in mapped.items() if key != "layers.3"}
    with pytest.raises(ValueError, match=r"layers\.3"):
        accelerate.utils.check_device_map(model, broken)
    # Without a GPU here: the same division over two CPU devices, with hooks as on several devices.
    x = torch.randn(3, 4)
    expected = model(x)
    on_cpus = json.loads(export(torch_plan(["cpu", "cpu"], half), "device-map"))
    dispatched = accelerate.dispatch_model(model, on_cpus, force_hooks=True)
    assert dispatched.hf_device_map == on_cpus
    torch.testing.assert_close(dispatched(x), expected)


def test_a_divided_module_goes_where_most_of_its_weights_are():
    plan = torch_plan(["cpu", "gpu"], lambda name: int(name == "/layers.1/Relu" or name.startswith("/head")))
    mapped = json.loads(export(plan, "device-map"))
    assert mapped["layers.1.fc1"] == mapped["layers.1.fc2"] == "cpu"
    assert mapped["head"] == 0


@pytest.mark.filterwarnings("ignore::FutureWarning")  # from inside torch.export
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_torch_pipelining_splits_where_the_plan_does():
    torch, model = torch_model()
    pipelining = pytest.importorskip("torch.distributed.pipelining")
    exported = json.loads(export(torch_plan(["gpu", "gpu"], half), "split-points"))
    assert exported["split_spec"] == {"layers.2": "beginning"}
    assert [stage["device"] for stage in exported["stages"]] == [0, 1]
    x = torch.randn(3, 4)
    spec = {name: pipelining.SplitPoint.BEGINNING for name in exported["split_spec"]}
    pipe = pipelining.pipeline(model, mb_args=(x,), split_spec=spec)
    assert pipe.num_stages == len(exported["stages"])
    value = x
    for stage, described in enumerate(exported["stages"]):
        module = pipe.get_stage_module(stage)
        held = {name.rsplit(".", 1)[0] for name, _ in module.named_parameters()}
        assert held == {
            name for name in described["modules"] if dict(model.named_modules())[name]._parameters
        }
        value = module(value)
    torch.testing.assert_close(value, model(x))


def test_data_that_flows_back_has_no_split_points():
    plan = torch_plan(["gpu", "gpu"], lambda name: int(name.startswith("/layers.1")))
    with pytest.raises(InputError, match=r"data flows from .* and back.*--contiguity chain"):
        export(plan, "split-points")


def test_a_stage_that_begins_inside_a_module_is_split_at_the_nearest_one():
    order = OPS.index("/layers.1/Add")
    plan = torch_plan(["gpu", "gpu"], lambda name: int(OPS.index(name) >= order))
    exported = json.loads(export(plan, "split-points"))
    assert exported["split_spec"] == {"layers.2": "beginning"}
    assert exported["moved"]["ops"] == 1
    assert 0 < exported["moved"]["time"] < 0.2
    as_placed = json.loads(export(torch_plan(["gpu", "gpu"], half), "split-points"))
    assert as_placed["moved"]["ops"] == 0
    assert as_placed["cost"]["placed"] == as_placed["cost"]["split"] == exported["cost"]["split"]


def test_more_stages_than_modules_have_no_split_points():
    plan = torch_plan(["gpu"] * len(OPS), OPS.index)
    with pytest.raises(InputError, match=r"has \d+ stages, and only \d+ modules begin"):
        export(plan, "split-points")


def test_a_name_without_a_slash_is_a_module_itself():
    problem = api.problem("zoo:layered-24")
    plan = Plan.from_solution(problem, api.place(problem, "single", evaluations=5))
    document = json.loads(export(plan, "device-map"))
    assert set(document) == set(problem.graph.names)
