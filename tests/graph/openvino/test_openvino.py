"""Models through OpenVINO become graphs whose ops are the model's own nodes, one to one, in two countings."""

from __future__ import annotations

import numpy as np
import openvino as ov
import pytest
from onnx import parser
from openvino import opset13 as ops
from typer.testing import CliRunner

from loadmaster import api
from loadmaster.cli import app
from loadmaster.errors import InputError
from loadmaster.graph import load_onnx, load_openvino
from loadmaster.graph.openvino import openvino_model


def residual(shape=(1, 8, 12, 12)) -> ov.Model:
    """Two convolutions and a shortcut."""
    generator = np.random.default_rng(0)
    x = ops.parameter(list(shape), np.float32, name="x")
    y = x
    for i in range(2):
        weight = ops.constant(generator.normal(size=(8, 8, 3, 3)).astype(np.float32), name=f"weight{i}")
        y = ops.convolution(y, weight, [1, 1], [1, 1], [1, 1], [1, 1], name=f"conv{i}")
        y = ops.relu(y, name=f"relu{i}")
    total = ops.add(y, x, name="sum")
    return ov.Model([ops.result(total, name="out")], [x], "residual")


@pytest.fixture
def residual_file(tmp_path):
    path = tmp_path / "residual.xml"
    ov.save_model(residual(), str(path))
    return path


def refused(*arguments, **keywords) -> str:
    with pytest.raises(InputError) as error:
        load_openvino(*arguments, **keywords)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_ops_are_what_executes_and_layers_are_every_node(residual_file):
    network = load_openvino(residual_file)
    assert network.graph.names == ("x", "conv0", "relu0", "conv1", "relu1", "sum", "out")
    assert [network.graph.names[v] for v in (*network.inputs, *network.outputs)] == ["x", "out"]
    layers = load_openvino(residual_file, counting="layers").graph
    assert sorted(set(layers.names) - set(network.graph.names)) == [
        "weight0",
        "weight0_compressed",
        "weight1",
        "weight1_compressed",
    ]
    assert len(layers.arcs[0]) == len(network.graph.arcs[0]) + 4


def test_work_and_weights_are_counted(residual_file):
    graph = load_openvino(residual_file).graph
    conv = graph.index["conv0"]
    assert graph.flops[conv] == 2 * 8 * 8 * 9 * 12 * 12
    assert graph.param_bytes[conv] == 4 * 8 * 8 * 9
    assert graph.tensor_bytes.tolist() == [4 * 8 * 12 * 12] * 6


def test_names_are_those_of_the_model_that_is_run(residual_file):
    nodes = {node.get_friendly_name() for node in openvino_model(residual_file).get_ops()}
    assert set(load_openvino(residual_file).graph.names) <= nodes


def test_names_that_are_there_twice_become_unique_in_graph_and_model():
    x = ops.parameter([4], np.float32, name="x")
    y = ops.relu(ops.relu(x, name="same"), name="same")
    model = ov.Model([ops.result(y, name="out")], [x], "twice")
    assert load_openvino(model).graph.names == ("x", "same", "same_1", "out")
    assert [node.get_friendly_name() for node in openvino_model(model).get_ordered_ops()][1:3] == [
        "same",
        "same_1",
    ]
    assert [node.get_friendly_name() for node in model.get_ordered_ops()][1:3] == ["same", "same"]


def test_onnx_gives_the_same_graph_through_openvino_as_by_itself(tmp_path):
    text = """<ir_version: 8, opset_import: ["" : 18]>
    g (float[1,3,8,8] x) => (float[1,4,8,8] y) <float[4,3,1,1] w = {1,2,3,4,5,6,7,8,9,1,2,3}> {
        c = Conv(x, w)
        y = Relu(c)
    }"""
    path = tmp_path / "model.onnx"
    path.write_bytes(parser.parse_model(text).SerializeToString())
    ours, theirs = load_onnx(path).graph, api.load(f"openvino:{path}").graph
    assert theirs.flops.sum() == ours.flops.sum()
    assert theirs.param_bytes.sum() == ours.param_bytes.sum()
    assert theirs.n == ours.n == 4


def test_an_open_shape_must_be_given_and_is_used(tmp_path):
    path = tmp_path / "open.xml"
    x = ops.parameter([-1, 8], np.float32, name="tokens")
    ov.save_model(ov.Model([ops.result(ops.relu(x, name="relu"))], [x], "open"), str(path))
    assert "input 'tokens' is not fixed" in refused(path)
    assert load_openvino(path, ["tokens=5x8"]).graph.output_shapes[1] == ((5, 8),)
    assert load_openvino(path, {"0": (2, 8)}).graph.output_shapes[1] == ((2, 8),)
    assert "names no input: the inputs are tokens" in refused(path, ["nobody=5x8"])
    outcome = CliRunner().invoke(app, ["inspect", str(path), "--shape", "tokens=3x8", "--json"])
    assert outcome.exit_code == 0, outcome.output


def test_a_shape_that_depends_on_the_data_is_refused_by_name():
    x = ops.parameter([4], np.float32, name="x")
    model = ov.Model([ops.result(ops.non_zero(x, name="found"))], [x], "data")
    assert "at op 'found' (NonZero) depends on the data" in refused(model)


def test_a_shape_that_does_not_fit_is_refused(residual_file):
    assert "does not fit the model" in refused(residual_file, ["x=1x5x12x12"])


@pytest.mark.parametrize("damage", ["cut", "not xml", "not a net", "no weights", "short weights"])
def test_a_damaged_ir_is_refused_in_one_sentence(residual_file, damage, capfd):
    weights = residual_file.with_suffix(".bin")
    if damage == "cut":
        residual_file.write_text(residual_file.read_text()[:900])
    elif damage == "not xml":
        residual_file.write_bytes(b"\x00\x01\x02")
    elif damage == "not a net":
        residual_file.write_text("<html></html>")
    elif damage == "no weights":
        weights.unlink()
    else:
        weights.write_bytes(weights.read_bytes()[:-10])
    assert "residual." in refused(residual_file)
    assert capfd.readouterr().err == ""


def test_a_large_constant_that_two_ops_read_keeps_them_together():
    table = ops.constant(np.ones((1024, 1024), np.float32), name="table")
    x = ops.parameter([1, 1024], np.float32, name="x")
    y = ops.matmul(ops.matmul(x, table, False, True, name="first"), table, False, True, name="second")
    network = load_openvino(ov.Model([ops.result(y)], [x], "shared"))
    assert [sorted(network.graph.names[v] for v in group) for group in network.colocation] == [
        ["first", "second"]
    ]
    assert network.graph.param_bytes.sum() == 4 * 1024 * 1024


def test_shape_arithmetic_is_folded_away():
    x = ops.parameter([2, 6], np.float32, name="x")
    size = ops.shape_of(x, name="size")
    y = ops.reshape(
        x, ops.concat([ops.gather(size, [1], 0), ops.gather(size, [0], 0)], 0), False, name="turned"
    )
    network = load_openvino(ov.Model([ops.result(y, name="out")], [x], "shapes"))
    assert network.graph.names == ("x", "turned", "out")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("how", ["module", "exported"])
def test_pytorch_comes_through_openvino(how):
    import torch

    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 5)
    )
    net.eval()
    example = torch.zeros(1, 3, 8, 8)
    if how == "module":
        network = load_openvino(net, example=example)
    else:
        network = load_openvino(torch.export.export(net, (example,)))
    graph = network.graph
    convolution = graph.op_types.index("Convolution")
    assert graph.flops[convolution] == 2 * 4 * 36 * 27
    assert graph.op_types.count("MatMul") == 1
    assert graph.param_bytes.sum() >= 4 * sum(p.numel() for p in net.parameters())


def test_constants_that_the_folding_pass_cannot_compute_are_computed():
    """As Whisper's masks have them: BitwiseAnd of constants stays when OpenVINO folds."""
    x = ops.parameter([2, 3], np.float32, name="x")
    one, two = (ops.constant(np.array(row)) for row in ([True, False, True], [True, True, False]))
    mask = ops.bitwise_and(one, two)
    mask.set_friendly_name("mask")
    chosen = ops.select(mask, x, ops.constant(np.float32(0)))
    model = openvino_model(ov.Model([ops.relu(chosen)], [x], "masked"))
    kinds = [node.get_type_name() for node in model.get_ordered_ops()]
    assert "BitwiseAnd" not in kinds
    given = np.ones((2, 3), np.float32)
    found = ov.Core().compile_model(model, "CPU")([given])[0]
    np.testing.assert_array_equal(found, [[1, 0, 0]] * 2)


def test_shapes_behind_ops_that_openvino_does_not_fold_are_found():
    """As PP-OCR's recognisers have them: the sizes of a reshape go through Identity."""
    from openvino import opset16

    x = ops.parameter([2, 6], np.float32, name="x")
    size = opset16.identity(ops.shape_of(x))
    turned = opset16.identity(ops.concat([ops.gather(size, [1], 0), ops.gather(size, [0], 0)], 0))
    y = ops.reshape(ops.relu(x, name="positive"), turned, False, name="turned")
    again = opset16.identity(ops.shape_of(y))
    z = ops.reshape(y, ops.gather(again, [1, 0], 0), False, name="back")
    network = load_openvino(ov.Model([ops.result(z, name="out")], [x], "shapes"))
    assert network.graph.names == ("x", "positive", "turned", "back", "out")
