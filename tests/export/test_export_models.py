"""Exports of plans for real models, in every form that a model comes in, each loaded by the program that it is for."""

import json
import subprocess
import sys

import numpy as np
import pytest
from small_onnx import branched_onnx
from typer.testing import CliRunner

from loadmaster.cli import app
from loadmaster.errors import InputError
from loadmaster.export import export, write_annotated, write_openvino
from loadmaster.graph import load_onnx, load_openvino
from loadmaster.hardware import Cluster, Device, Link
from loadmaster.plan import Plan
from loadmaster.problem import Concurrent, Pipeline, Placement, Problem, Solution

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # from inside torch's exporters
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.act = torch.nn.Linear(8, 16), torch.nn.Linear(16, 8), torch.nn.GELU()
        self.norm = torch.nn.LayerNorm(8)

    def forward(self, x):
        # Without the norm OpenVINO 2026.4 crashes in compiling it on a CPU without AVX512.
        return self.norm(x + self.act(self.fc2(self.act(self.fc1(x)))))


class Model(torch.nn.Module):
    """With a parameter of its own, a module that is called twice, and a Sequential."""

    def __init__(self):
        super().__init__()
        self.token = torch.nn.Parameter(torch.randn(1, 8))
        self.layers = torch.nn.ModuleList([Block() for _ in range(3)])
        self.head = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU())

    def forward(self, x):
        x = torch.cat([self.token, x], 0)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


X = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))
FORMS = ["old exporter", "new exporter", "IR", "module", "program"]


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Model().eval()


@pytest.fixture(scope="module")
def forms(tmp_path_factory):
    """Form -> what is read, and the network."""
    torch.manual_seed(0)
    model = Model().eval()
    ov = pytest.importorskip("openvino")
    folder = tmp_path_factory.mktemp("forms")
    torch.onnx.export(model, (X,), str(folder / "old.onnx"), dynamo=False)
    found = {"old exporter": (folder / "old.onnx", load_onnx(folder / "old.onnx"))}
    read = ov.convert_model(model, example_input=X)
    read.reshape([3, 8])
    ov.save_model(read, folder / "model.xml", compress_to_fp16=False)
    found["IR"] = (folder / "model.xml", load_openvino(folder / "model.xml"))
    found["module"] = (read, load_openvino(read))
    program = torch.export.export(model, (X,))
    found["program"] = (program, load_openvino(program))
    try:
        import onnxscript  # noqa: F401
    except ModuleNotFoundError:
        return found
    torch.onnx.export(model, (X,), str(folder / "new.onnx"), dynamo=True, verbose=False)
    found["new exporter"] = (folder / "new.onnx", load_onnx(folder / "new.onnx"))
    return found


def form_of(forms, name):
    if name not in forms:
        pytest.skip("the newer exporter needs onnxscript")
    return forms[name]


def halves(network, kinds=("xcpu", "ycpu"), model=None) -> Plan:
    """The first half of the ops on the first device, the second on the other."""
    graph = network.graph
    links = ((None, Link(1e-6, 1e9)), (Link(1e-6, 1e9), None))
    cluster = Cluster("two", tuple(Device(f"d{i}", kind) for i, kind in enumerate(kinds)), links)
    problem = Problem.make(graph, cluster, model or Concurrent(), time=np.full((graph.n, 2), 1e-6))
    device = (graph.position * 2 >= graph.n).astype(np.int32)
    return Plan.from_solution(problem, Solution(Placement(device), 1.0, 0.5, "guess", "hand"))


# -- OpenVINO ------------------------------------------------------------------------------------------------


APPLY = """
import json, sys
import numpy as np
import openvino as ov
core = ov.Core()
for name in ("XCPU", "YCPU"):  # two devices where there is no GPU
    core.register_plugin("openvino_intel_cpu_plugin", name)
# The lines of docs/how-to/apply-a-plan.md:
model = core.read_model("placed.xml")
affinity = json.load(open("placed.json"))
for node in model.get_ordered_ops():
    node.get_rt_info()["affinity"] = affinity[node.get_friendly_name()]
compiled = core.compile_model(model, "HETERO:XCPU,YCPU")
np.save("y.npy", compiled(np.load("x.npy"))[0])
print(compiled.get_property("HETERO_NUMBER_OF_SUBMODELS"), *sorted(set(affinity.values())), len(affinity))
"""


@pytest.mark.parametrize("form", FORMS)
def test_hetero_runs_the_written_model_by_its_devices(forms, model, form, tmp_path):
    pytest.importorskip("openvino")
    source, network = form_of(forms, form)
    count = write_openvino(halves(network), source, tmp_path / "placed.xml")
    np.save(tmp_path / "x.npy", X.numpy())
    done = subprocess.run(
        [sys.executable, "-c", APPLY], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["2", "XCPU", "YCPU", str(count)]
    # In whatever precision the CPU takes for itself, bf16 where it has that.
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), model(X).detach(), atol=0.02)


def test_devices_have_the_names_that_openvino_knows(forms):
    _, network = forms["old exporter"]
    found = json.loads(export(halves(network, ("gpu", "gpu")), "openvino"))
    assert set(found.values()) == {"GPU.0", "GPU.1"}
    assert set(json.loads(export(halves(network, ("acc", "cpu")), "openvino")).values()) == {"GPU", "CPU"}


def test_the_model_is_never_overwritten(forms, tmp_path):
    source, network = forms["IR"]
    with pytest.raises(InputError, match="is the model itself"):
        write_openvino(halves(network), source, source)
    with pytest.raises(InputError, match=r"ends in \.xml"):
        write_openvino(halves(network), source, tmp_path / "placed.json")
    source, network = forms["old exporter"]
    before = source.read_bytes()
    with pytest.raises(InputError, match="is the model itself"):
        write_annotated(halves(network), source, source.parent / ".." / source.parent.name / source.name)
    assert source.read_bytes() == before


# -- ONNX Runtime --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["old exporter", "new exporter"])
def test_onnx_runtime_loads_the_annotated_model_from_another_folder(forms, model, form, tmp_path):
    ort = pytest.importorskip("onnxruntime")
    source, network = form_of(forms, form)
    plan = halves(network, ("gpu", "cpu"))
    (tmp_path / "there").mkdir()
    assert write_annotated(plan, source, tmp_path / "there" / "annotated.onnx") == sum(
        bool(ports) for ports in network.ports
    )
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry(
        "session.layer_assignment_settings",
        json.loads(export(plan, "onnxruntime"))["session.layer_assignment_settings"],
    )
    session = ort.InferenceSession(
        str(tmp_path / "there" / "annotated.onnx"), options, providers=["CPUExecutionProvider"]
    )
    found = session.run(None, {session.get_inputs()[0].name: X.numpy()})[0]
    np.testing.assert_allclose(found, model(X).detach(), rtol=1e-4, atol=1e-5)


def test_external_weights_go_with_the_model_and_overwrite_nothing(tmp_path):
    onnx = pytest.importorskip("onnx")
    ort = pytest.importorskip("onnxruntime")
    whole = onnx.load(branched_onnx(tmp_path / "whole.onnx"))
    onnx.save(
        whole, tmp_path / "model.onnx", save_as_external_data=True, location="model.data", size_threshold=512
    )
    network = load_onnx(tmp_path / "model.onnx", {"x": (1, 8, 12, 12)})
    plan = halves(network)
    there = tmp_path / "there"
    there.mkdir()
    write_annotated(plan, tmp_path / "model.onnx", there / "model.onnx")
    x = {"x": np.ones((1, 8, 12, 12), np.float32)}
    providers = ["CPUExecutionProvider"]
    expected = ort.InferenceSession(str(tmp_path / "whole.onnx"), providers=providers).run(None, x)
    found = ort.InferenceSession(str(there / "model.onnx"), providers=providers).run(None, x)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b)
    write_annotated(
        plan, tmp_path / "model.onnx", tmp_path / "beside.onnx"
    )  # the same folder: the same weights
    (there / "model.data").write_bytes(b"others")
    with pytest.raises(InputError, match="is there already, with other weights"):
        write_annotated(plan, tmp_path / "model.onnx", there / "again.onnx")
    (tmp_path / "model.data").unlink()
    with pytest.raises(InputError, match=r"its weights in 'model\.data' are missing"):
        write_annotated(plan, tmp_path / "model.onnx", there / "again.onnx")


# -- torch ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_accelerate_accepts_the_device_map(forms, model, form):
    accelerate = pytest.importorskip("accelerate")
    source, network = form_of(forms, form)
    given = model if form in ("IR", "module") else source
    mapped = json.loads(export(halves(network, ("cpu", "gpu")), "device-map", given))
    accelerate.utils.check_device_map(model, mapped)
    names = {name for name, _ in model.named_modules()} | {name for name, _ in model.named_parameters()}
    assert set(mapped) <= names
    assert set(mapped.values()) == {"cpu", 0}
    on_cpus = json.loads(export(halves(network, ("cpu", "cpu")), "device-map", given))
    expected = model(X)
    dispatched = accelerate.dispatch_model(model, on_cpus, force_hooks=True)
    torch.testing.assert_close(dispatched(X), expected)


@pytest.mark.parametrize("form", FORMS)
def test_torch_splits_where_the_plan_does(forms, model, form):
    pipelining = pytest.importorskip("torch.distributed.pipelining")
    source, network = form_of(forms, form)
    given = model if form in ("IR", "module") else source
    plan = halves(network, ("gpu", "gpu"), Pipeline("chain"))
    modules = [m for m in _modules(plan, given) if m.startswith("layers")]
    assert {m.split(".")[1] for m in modules} == {"0", "1", "2"}
    problem = plan.problem()
    late = [("layers.1" in m or "layers.2" in m or m.startswith("head")) for m in _modules(plan, given)]
    device = np.zeros(problem.n, np.int32)
    device[late] = 1
    for v in network.outputs:
        device[v] = 1
    plan = Plan.from_solution(problem, Solution(Placement(device), 1.0, 0.5, "guess", "hand"))
    exported = json.loads(export(plan, "split-points", given))
    assert exported["split_spec"] == {"layers.1": "beginning"}
    spec = {name: pipelining.SplitPoint.BEGINNING for name in exported["split_spec"]}
    pipe = pipelining.pipeline(model, mb_args=(X,), split_spec=spec)
    assert pipe.num_stages == 2


def test_a_program_in_a_file_tells_its_modules(forms, tmp_path):
    source, network = forms["program"]
    torch.export.save(source, tmp_path / "model.pt2")
    plan = halves(network, ("gpu", "gpu"))
    for given in (tmp_path / "model.pt2", str(tmp_path / "model.pt2")):
        assert export(plan, "device-map", given) == export(plan, "device-map", source)
    with pytest.raises(InputError, match=r"give the program that it was made from \(model\.pt2\) as --model"):
        export(plan, "device-map")


def test_the_command_says_what_a_split_between_modules_changes(forms, tmp_path):
    source, network = forms["old exporter"]
    problem = halves(network, ("gpu", "gpu"), Pipeline("chain")).problem()
    inside = next(
        v for v, name in enumerate(problem.graph.names) if "layers.1/fc2" in name
    )  # before act, which is called twice
    late = problem.graph.position > problem.graph.position[inside]
    solution = Solution(Placement(late.astype(np.int32)), 1.0, 0.5, "guess", "hand")
    Plan.from_solution(problem, solution).save(tmp_path / "plan.json")
    command = ["export", str(tmp_path / "plan.json"), "-f", "split-points", "--model", str(source)]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert "torch splits between modules alone" in result.stderr
    assert json.loads(result.stdout)["moved"]["ops"] > 0


def _modules(plan, given):
    from loadmaster.export._modules import modules_of

    return modules_of(plan, given).of


def test_a_graph_without_modules_has_no_device_map(forms, tmp_path):
    source = branched_onnx(tmp_path / "model.onnx")
    plan = halves(load_onnx(source, {"x": (1, 8, 12, 12)}))
    program = halves(forms["program"][1])
    for format in ("device-map", "split-points"):
        with pytest.raises(InputError, match="no op belongs to a module of torch"):
            export(plan, format, source)
        with pytest.raises(InputError, match="no op belongs to a module of torch"):
            export(program, format)


def test_the_command_writes_every_format(forms, tmp_path):
    source, network = forms["old exporter"]
    halves(network, ("gpu", "cpu")).save(tmp_path / "plan.json")

    def call(*arguments):
        result = CliRunner().invoke(app, ["export", str(tmp_path / "plan.json"), *map(str, arguments)])
        assert result.exit_code == 0, result.output

    call("-f", "openvino", "--model", source, "-o", tmp_path / "placed.xml")
    call("-f", "onnxruntime", "--onnx", source, "-o", tmp_path / "annotated.onnx")
    call("-f", "device-map", "--model", source, "-o", tmp_path / "map.json")
    assert "token" in json.loads((tmp_path / "map.json").read_text())
    command = ["export", str(tmp_path / "plan.json"), "-f", "openvino", "--model", str(source)]
    refused = CliRunner().invoke(app, command)
    assert refused.exit_code == 2
    assert "needs an --output" in refused.stderr
