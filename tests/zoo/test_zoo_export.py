"""Models of the zoo that run: layer counts as published, weights that matter, the names of the graph zoo."""

from __future__ import annotations

import json

import numpy as np
import openvino as ov
import pytest
from typer.testing import CliRunner

from loadmaster import zoo
from loadmaster.cli import app
from loadmaster.errors import InputError
from loadmaster.graph import load_openvino
from loadmaster.runtime._verifying import difference
from loadmaster.runtime.openvino import Devices, available, draw_inputs, parse_devices
from loadmaster.zoo._export import EXPORTABLE, export_model, exported

SMALL = {
    "resnet-50": "resnet-50?size=64",
    "inception-v3": "inception-v3?size=107",
    "bert-base": "bert-base?layers=2&seq=16&vocabulary=400",
    "gpt2-decode": "gpt2-decode?layers=2&width=96&heads=6&seq=17&vocabulary=300",
    "two-tower": "two-tower?size=48",
}
PUBLISHED = {
    "resnet-50?size=64": (396, 411, 0),
    "inception-v3?size=107": (728, 764, 2),
    "bert-base?seq=8&vocabulary=64": (1009, 1071, 20),
}
"""Name -> IR layers, edges and the distance allowed. Sizes that change neither are small."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_ir_layers_and_edges_are_those_of_the_hsdag_paper(name, tmp_path):
    path = tmp_path / "model.xml"
    export_model(name, path)
    layers, edges, distance = PUBLISHED[name]
    graph = load_openvino(path, counting="layers").graph
    assert abs(graph.n - layers) <= distance
    assert abs(len(graph.arcs[0]) - edges) <= distance


def draw(model, generator):
    return {
        port.any_name: generator.integers(0, 2, port.shape)
        if port.element_type == ov.Type.i64
        else generator.normal(size=port.shape).astype(np.float32)
        for port in model.inputs
    }


@pytest.mark.parametrize("name", SMALL)
def test_the_output_follows_the_input(name):
    """Replacing the input moves the main output clearly: no weight folds away, the signal gets through."""
    compiled = ov.Core().compile_model(exported(SMALL[name]), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    generator = np.random.default_rng(1)
    first = compiled(draw(compiled, generator))[0].copy()
    second = compiled(draw(compiled, generator))[0].copy()
    assert np.isfinite(first).all()
    assert np.abs(first - second).max() > 0.02 * np.abs(first).max()


def outputs(model, precision, seeds):
    compiled = ov.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": precision})
    return [[np.array(found) for found in compiled(draw_inputs(model, seed)).values()] for seed in seeds]


@pytest.mark.parametrize("name", SMALL)
def test_bf16_changes_the_outputs_little_and_another_input_much(name):
    """As trained weights do: what a plan gets wrong is not lost among what bf16 rounds."""
    if "bf16" not in available()[0]["precisions"]:
        with pytest.raises(InputError, match=r"device 'B'.*cannot compute in bf16"):
            Devices(parse_devices(["B=cpu:precision=bf16"]))
        return
    model = exported(SMALL[name])
    exact = outputs(model, "f32", (1, 2, 3))
    rounded = outputs(model, "bf16", (1, 2, 3))
    assert max(difference(a, b).relative for a, b in zip(rounded, exact, strict=True)) < 0.03
    assert min(difference(exact[a], exact[b]).relative for a, b in ((1, 0), (2, 0), (2, 1))) > 0.3


@pytest.mark.parametrize("name", SMALL)
def test_the_ops_bear_the_names_of_the_graph_zoo(name):
    names = set(load_openvino(exported(SMALL[name])).graph.names)
    graph = zoo.graph(SMALL[name])
    missing = {op for op in graph.names if op not in names}
    # Constants and what is computed from them alone are folded; the mask comes as tokenizers give it.
    assert all("position" in op or op.endswith("_table") or "mask" in op for op in missing), missing


def test_weights_are_those_of_the_seed(tmp_path):
    first, again, other = (tmp_path / f"{i}.xml" for i in range(3))
    export_model(SMALL["gpt2-decode"], first, seed=3)
    export_model(SMALL["gpt2-decode"], again, seed=3)
    export_model(SMALL["gpt2-decode"], other, seed=4)
    assert first.with_suffix(".bin").read_bytes() == again.with_suffix(".bin").read_bytes()
    assert first.with_suffix(".bin").read_bytes() != other.with_suffix(".bin").read_bytes()


def test_work_agrees_with_the_graph_zoo():
    for name in ("resnet-50?size=64", "two-tower?size=48"):
        graph = load_openvino(exported(name)).graph
        products = [v for v in range(graph.n) if graph.op_types[v] in ("Convolution", "MatMul")]
        assert graph.flops[products].sum() == 2 * zoo.model(name).macs


def test_the_command_writes_the_model_and_says_what_is_in_it(tmp_path):
    path = tmp_path / "model.xml"
    outcome = CliRunner().invoke(app, ["zoo", "export", SMALL["resnet-50"], str(path), "--json"])
    assert outcome.exit_code == 0, outcome.output
    document = json.loads(outcome.stdout)
    assert (document["layers"], document["layer_edges"]) == (396, 411)
    assert document["hash"] == load_openvino(path).graph.digest


def test_the_list_says_what_runs():
    outcome = CliRunner().invoke(app, ["zoo", "--json"])
    runs = {entry["name"] for entry in json.loads(outcome.stdout) if entry["runs"]}
    assert runs == set(EXPORTABLE) & set(zoo.names())


@pytest.mark.parametrize(
    ("name", "path", "reason"),
    [
        ("gnmt-2", "model.xml", "no runnable model 'gnmt-2'"),
        ("resnet-50", "model.onnx", "must be called *.xml"),
        ("resnet-50?training=1", "model.xml", "only inference can be exported"),
        ("resnet-50?depth=3", "model.xml", "no parameter 'depth'"),
        ("resnet-50", "nowhere/model.xml", "there is no folder"),
    ],
)
def test_what_cannot_be_written_is_refused(name, path, reason, tmp_path):
    with pytest.raises(InputError) as error:
        export_model(name, tmp_path / path)
    assert reason in str(error.value)
