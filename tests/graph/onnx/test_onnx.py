"""ONNX models become graphs with true shapes, work and weights, or are refused in one sentence."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper, parser
from onnx.reference import ReferenceEvaluator
from typer.testing import CliRunner

from loadmaster import api, zoo
from loadmaster.cli import app
from loadmaster.errors import InputError
from loadmaster.graph import Given, Graph, Network, load_onnx, load_openvino
from loadmaster.graph.onnx import _observe, parse_shapes, simplified_onnx
from loadmaster.graph.onnx._observe import Observer
from loadmaster.plan import Plan

SHIPPED = Path(onnx.__file__).parent / "backend" / "test" / "data"
"""Models that come with the onnx package."""
HEADER = '<ir_version: 8, opset_import: ["" : 18, "custom" : 1]>\n'


def write(path: Path, model: str | onnx.ModelProto, **weights: np.ndarray) -> Path:
    """Save a model, given as text or as an object, with initializers added."""
    if isinstance(model, str):
        model = parser.parse_model(HEADER + model)
    for name, array in weights.items():
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    onnx.save(model, path)
    return path


@pytest.fixture
def load(tmp_path):
    """Load a model from its text."""

    def load(model, shapes=(), *, io=True, **weights) -> Network:
        return load_onnx(write(tmp_path / "model.onnx", model, **weights), shapes, io=io)

    return load


@pytest.fixture
def refused(load):
    """The one sentence with which a model is refused."""

    def refused(*arguments, **keywords) -> str:
        with pytest.raises(InputError) as error:
            load(*arguments, **keywords)
        assert "\n" not in str(error.value)
        return str(error.value)

    return refused


def floats(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def edges(graph: Graph) -> set[tuple[str, str]]:
    tail, head = graph.arcs
    return {(graph.names[u], graph.names[v]) for u, v in zip(tail, head, strict=True)}


def of(graph: Graph, what: str) -> dict[str, float]:
    """A number by name of the op, where it is not zero."""
    return {name: x for name, x in zip(graph.names, getattr(graph, what).tolist(), strict=True) if x}


# -- real models ---------------------------------------------------------------------------------------------


@cache
def shipped(name: str) -> Network:
    return load_onnx(SHIPPED / "light" / f"light_{name}.onnx")


ALEXNET = (
    54**2 * 96 * 3 * 11**2  # of 224 x 224 pixels; the paper's 227 would make it 55
    + 26**2 * 256 * 48 * 5**2
    + 12**2 * 9 * (384 * 256 + 384 * 192 + 256 * 192)
    + 9216 * 4096
    + 4096 * 4096
    + 4096 * 1000
)


@pytest.mark.parametrize(
    ("name", "parameters", "statistics", "macs"),
    [
        ("bvlc_alexnet", 60_965_224, 0, ALEXNET),  # Krizhevsky et al. 2012, with two groups
        ("vgg19", 143_667_240, 0, 19_632_062_464),  # Simonyan and Zisserman 2015, configuration E
        ("squeezenet", 1_235_496, 0, 349_151_936),  # Iandola et al. 2016, version 1.1
        ("resnet50", 25_557_032, 53_120, 0),  # He et al. 2016; the statistics are those of its normalisations
    ],
)
def test_known_networks_have_the_published_sizes(name, parameters, statistics, macs):
    graph = shipped(name).graph
    shapes = 16 * graph.op_types.count("Reshape")  # the shape itself is a constant, too
    assert graph.param_bytes.sum() == 4 * (parameters + statistics) + shapes
    heavy = np.array([kind in ("Conv", "Gemm") for kind in graph.op_types])
    biases = sum(np.prod(s[0]) for s, h in zip(graph.output_shapes, heavy, strict=True) if h)
    if macs:
        assert graph.flops[heavy].sum() == 2 * macs + biases


def test_a_resnet_from_onnx_is_the_resnet_of_the_zoo():
    """Two frontends, two sets of rules, one architecture."""
    ours, theirs = zoo.model("resnet-50"), shipped("resnet50").graph
    weighted = np.array([kind in ("Conv", "Gemm") for kind in theirs.op_types])
    assert theirs.flops[weighted].sum() - 1000 == 2 * ours.macs
    counts, expected = Counter(theirs.op_types), Counter(ours.graph.op_types)
    assert counts["Conv"] == expected["Conv"]
    assert counts["BatchNormalization"] == expected["BatchNormalization"]
    assert counts["Relu"] == expected["Relu"]


@pytest.mark.parametrize("name", ["densenet121", "inception_v1", "inception_v2", "shufflenet", "resnet50"])
def test_shapes_are_those_of_onnx(name):
    """We infer node by node, onnx the whole model at once."""
    path = SHIPPED / "light" / f"light_{name}.onnx"
    whole = onnx.shape_inference.infer_shapes(onnx.load(path), data_prop=True).graph
    known = {
        info.name: tuple(dim.dim_value for dim in info.type.tensor_type.shape.dim)
        for info in (*whole.value_info, *whole.output)
    }
    graph = shipped(name).graph
    compared = 0
    for v, op in enumerate(graph.names):
        node = next((node for node in whole.node if op in (node.name, node.output[0])), None)
        if node is not None and node.output[0] in known:
            assert graph.output_shapes[v][0] == known[node.output[0]]
            compared += 1
    assert compared > 0.9 * graph.n


@cache
def converted() -> list[Path]:
    return sorted(SHIPPED.glob("*/*/model.onnx"))


def test_models_exported_from_torch_give_the_shapes_of_their_recorded_outputs():
    good, refused = 0, []
    for path in converted():
        recorded = sorted(path.parent.glob("test_data_set_0/output_*.pb"))
        if path.parent.parent.name == "real" or not recorded:
            continue
        try:
            network = load_onnx(path)
        except InputError as error:
            refused.append(str(error))
            continue
        outputs = [TensorProto.FromString(file.read_bytes()) for file in recorded]
        shapes = [network.graph.output_shapes[v][0] for v in network.outputs]
        assert shapes == [tuple(output.dims) for output in outputs], path
        good += 1
    assert good > 100
    assert [
        text for text in refused if not any(word in text for word in ("sequence", "strings", "'n'"))
    ] == []


DATA_DEPENDENT = {"Compress", "ImageDecoder", "NonMaxSuppression", "NonZero", "Unique", "MaxUnpool"}
REFUSED = (
    "strings",
    "sequence",
    "optional",
    "has a graph inside",
    "condition that depends on the data",
    "'Range'",
)


@pytest.fixture
def unobserved(monkeypatch):
    """As where ONNX Runtime is not installed: no shape is taken from a run."""
    monkeypatch.setattr(Observer, "see", lambda *_: None)


def test_every_operator_gives_the_shapes_of_its_conformance_tests(tmp_path, unobserved):
    """ONNX's own conformance tests, some 1,800: their small inputs made constants, as exporters write them."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = collect_testcases(None)
    seen, wrong = Counter(), []
    for case in cases:
        inputs, outputs = case.data_sets[0]
        model = onnx.ModelProto()
        model.CopyFrom(case.model)
        for info in model.graph.output:
            if info.type.HasField("tensor_type"):
                info.type.tensor_type.ClearField("shape")
        for info, value in list(zip(model.graph.input, inputs, strict=False))[::-1]:
            array = np.asarray(value) if isinstance(value, np.ndarray | np.generic) else None
            if array is not None and array.ndim <= 1 and array.size <= 64 and array.dtype != object:
                model.graph.initializer.append(numpy_helper.from_array(array, info.name))
                model.graph.input.remove(info)
        try:
            network = load_onnx(write(tmp_path / "model.onnx", model))
        except InputError as error:
            kinds = {node.op_type for node in model.graph.node}
            depends = "is unknown" in str(error) and kinds & DATA_DEPENDENT
            if not depends and not any(word in str(error) for word in REFUSED):
                wrong.append((case.name, str(error)))
            continue
        expected = [tuple(o.dims) if isinstance(o, TensorProto) else np.shape(o) for o in outputs]
        found = [network.graph.output_shapes[v][0] for v in network.outputs]
        if found != expected:
            wrong.append((case.name, f"{found} instead of {expected}"))
        seen.update(node.op_type for node in model.graph.node)
    assert wrong == []
    standard = {
        schema.name for schema in onnx.defs.get_all_schemas() if schema.domain == "" and not schema.deprecated
    }
    unseen = {
        name
        for name in standard
        if not seen[name] and not name.startswith(("Sequence", "String", "Optional"))
    }
    untested = {"GlobalLpPool", "MaxRoiPool", "Multinomial", "RegexFullMatch", "Loop", "Scan"}
    untested |= {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
    assert unseen <= untested | DATA_DEPENDENT | {"ConcatFromSequence", "SplitToSequence"}


# -- small models, by hand -----------------------------------------------------------------------------------

BLOCK = """
block (float[N, 64, 14, 14] x) => (float[N, 64, 14, 14] y) {
    [conv1] a = Conv <pads = [1, 1, 1, 1]> (x, w1)
    [norm1] b = BatchNormalization (a, s, s, s, s)
    [relu1] c = Relu (b)
    [conv2] d = Conv <pads = [1, 1, 1, 1]> (c, w2, bias)
    [add] e = Add (d, x)
    [relu2] y = Relu (e)
}
"""


BLOCK_WEIGHTS = {"w1": floats(64, 64, 3, 3), "w2": floats(64, 64, 3, 3), "s": floats(64), "bias": floats(64)}


def resnet_block(load, batch=2, **keywords):
    return load(BLOCK, [f"N={batch}"], **BLOCK_WEIGHTS, **keywords)


def test_a_residual_block_in_closed_form(load):
    network = resnet_block(load, batch=2)
    graph, pixels = network.graph, 2 * 64 * 14 * 14
    assert graph.name == "model"
    assert graph.names == ("x", "conv1", "norm1", "relu1", "conv2", "add", "relu2", "y")
    assert graph.op_types[0] == "Parameter"
    assert graph.op_types[-1] == "Result"
    assert of(graph, "flops") == {
        "conv1": 2 * pixels * 64 * 9,
        "norm1": 4 * pixels,
        "relu1": pixels,
        "conv2": 2 * pixels * 64 * 9 + pixels,
        "add": pixels,
        "relu2": pixels,
    }
    assert of(graph, "param_bytes") == {"conv1": 147_456, "norm1": 256, "conv2": 147_456 + 256}
    # What follows a convolution is applied to its results before they are written.
    assert of(graph, "bytes_written") == dict.fromkeys(["x", "conv1", "conv2"], 4 * pixels)
    assert of(graph, "bytes_read") == dict.fromkeys(["conv1", "conv2", "add"], 4 * pixels)
    assert edges(graph) == {
        ("x", "conv1"),
        ("x", "add"),
        ("conv1", "norm1"),
        ("norm1", "relu1"),
        ("relu1", "conv2"),
        ("conv2", "add"),
        ("add", "relu2"),
        ("relu2", "y"),
    }
    assert graph.tensor_bytes.tolist() == [4 * pixels] * 7
    assert network.notes == ()


def test_inputs_are_pinned_to_the_host_and_outputs_if_asked(load, tmp_path):
    network = resnet_block(load)
    assert [network.graph.names[v] for v in (*network.inputs, *network.outputs)] == ["x", "y"]
    assert np.flatnonzero(network.graph.boundary).tolist() == [*network.inputs, *network.outputs]
    problem = api.problem(network, "p100-2")
    assert np.flatnonzero(problem.pin >= 0).tolist() == list(network.inputs)
    problem = api.problem(network, "p100-2", pin_outputs=True)
    pinned = {network.graph.names[v]: int(problem.pin[v]) for v in np.flatnonzero(problem.pin >= 0)}
    assert pinned == {"x": problem.cluster.host, "y": problem.cluster.host}
    assert problem.time[list(network.inputs + network.outputs)].max() == 0.0
    bare = resnet_block(load, io=False)
    assert bare.graph.names == network.graph.names[1:-1]
    assert of(bare.graph, "bytes_read") == of(network.graph, "bytes_read")


ATTENTION = """
block (float[B, S, 64] x) => (float[B, S, 64] y) {
    [shape] sh = Shape (x)
    zero = Constant <value = int64 {0}> ()
    one = Constant <value = int64 {1}> ()
    [batch] b0 = Gather (sh, zero)
    [length] s0 = Gather (sh, one)
    [batch1] b1 = Unsqueeze (b0, zero1)
    [length1] s1 = Unsqueeze (s0, zero1)
    [heads_shape] hs = Concat <axis = 0> (b1, s1, heads)
    [flat_shape] fs = Concat <axis = 0> (b1, s1, minus)
    [q] q = MatMul (x, wq)
    [k] k = MatMul (x, wk)
    [v] v = MatMul (x, wv)
    [q4] q4 = Reshape (q, hs)
    [k4] k4 = Reshape (k, hs)
    [v4] v4 = Reshape (v, hs)
    [qt] qt = Transpose <perm = [0, 2, 1, 3]> (q4)
    [kt] kt = Transpose <perm = [0, 2, 3, 1]> (k4)
    [vt] vt = Transpose <perm = [0, 2, 1, 3]> (v4)
    [scores] sc = MatMul (qt, kt)
    [scaled] sd = Div (sc, root)
    [soft] so = Softmax (sd)
    [mixed] mi = MatMul (so, vt)
    [back] ba = Transpose <perm = [0, 2, 1, 3]> (mi)
    [flat] fl = Reshape (ba, fs)
    [out] ou = MatMul (fl, wo)
    [sum] su = Add (ou, x)
    [norm] y = LayerNormalization (su, g, be)
}
"""


def attention(load, *shapes):
    weights = {name: floats(64, 64) for name in ("wq", "wk", "wv", "wo")}
    weights |= {"g": floats(64), "be": floats(64), "root": np.float32(4), "zero1": ints(0)}
    return load(ATTENTION, shapes, heads=ints(4, 16), minus=ints(-1), **weights)


def test_a_transformer_block_in_closed_form(load):
    graph = attention(load, "B=2", "S=10").graph
    tokens, scores = 2 * 10, 2 * 4 * 10 * 10
    assert of(graph, "flops") == {
        **dict.fromkeys(["q", "k", "v", "out"], 2 * tokens * 64 * 64),
        "scores": 2 * scores * 16,
        "scaled": scores,
        "soft": 5 * scores,
        "mixed": 2 * scores * 16,
        "sum": tokens * 64,
        "norm": 8 * tokens * 64,
    }


def test_arithmetic_on_shapes_is_constant(load):
    """What an exporter writes to keep dimensions open is neither an op nor an edge once they are known."""
    graph = attention(load, "x=2x10x64").graph
    assert not {"Shape", "Gather", "Unsqueeze", "Concat", "Constant"} & set(graph.op_types)
    assert dict(zip(graph.names, graph.output_shapes, strict=True))["q4"] == ((2, 10, 4, 16),)
    assert dict(zip(graph.names, graph.output_shapes, strict=True))["flat"] == ((2, 10, 64),)
    assert {u for u, v in edges(graph) if v == "q4"} == {"q"}


def test_shapes_come_out_of_whatever_arithmetic_there_is(load):
    """How torch writes ``mask.expand(-1, 4, s, s)``: ONNX's own data propagation gives up on it."""
    text = """
    g (float[B, S] x) => (float[B, 4, S, S] y) {
        sh = Shape (x)
        s0 = Gather (sh, one)
        s1 = Unsqueeze (s0, zero)
        half = Div (s0, one)
        want = Concat <axis = 0> (minus, four, s1, s1)
        rank = Shape (want)
        ones = ConstantOfShape <value = int64[1] {1}> (rank)
        negative = Mul (ones, minus)
        unset = Equal (want, negative)
        shape = Where (unset, ones, want)
        first = Unsqueeze (x, axes)
        [positions] p = Range (start, half, delta)
        pf = Cast <to = 1> (p)
        [shifted] sx = Add (first, pf)
        [expand] y = Expand (sx, shape)
    }"""
    numbers = {"one": np.int64(1), "zero": ints(0), "minus": ints(-1), "four": ints(4), "axes": ints(1, 2)}
    numbers |= {"start": np.int64(0), "delta": np.int64(1)}
    graph = load(text, ["x=2x6"], **numbers).graph
    assert graph.names == ("x", "first", "shifted", "expand", "y")
    assert graph.output_shapes[graph.index["expand"]] == ((2, 4, 6, 6),)
    assert graph.param_bytes[graph.index["shifted"]] == 6 * 4


def test_a_recurrent_layer_with_several_outputs(load):
    text = """
    rnn (float[7, 3, 4] x) => (float[7, 1, 3, 5] y, float[1, 3, 5] h) {
        [lstm] y, h0, c0 = LSTM <hidden_size = 5> (x, w, r, b)
        [relu] h = Relu (h0)
    }"""
    graph = load(text, w=floats(1, 20, 4), r=floats(1, 20, 5), b=floats(1, 40)).graph
    assert of(graph, "flops") == {"lstm": 7 * 3 * (2 * 20 * (4 + 5) + 5 * (28 + 8)), "relu": 15}
    assert of(graph, "param_bytes") == {"lstm": 4 * (80 + 100 + 40)}
    # A tensor for each port that somebody reads: the last cell state has no reader.
    assert graph.output_shapes[graph.index["lstm"]] == ((7, 1, 3, 5), (1, 3, 5))
    made = [t for t in range(graph.tensors) if graph.names[graph.tensor_producer[t]] == "lstm"]
    assert [(graph.tensor_bytes[t], [graph.names[v] for v in graph.consumers(t)]) for t in made] == [
        (4 * 7 * 3 * 5, ["y"]),
        (4 * 3 * 5, ["relu"]),
    ]


def test_a_tensor_that_is_read_twice_by_one_op_is_one_edge(load):
    graph = load("g (float[2, 3] x) => (float[2, 3] y) { y = Mul (x, x) }").graph
    assert graph.edges == 2
    assert of(graph, "bytes_read") == {"y": 24.0}


def test_dropout_does_nothing_outside_training(load):
    text = "g (float[2, 3] x) => (float[2, 3] y) { [a] t, mask = Dropout (x)\n [b] y = Relu (t) }"
    graph = load(text).graph
    assert graph.op_types == ("Parameter", "Identity", "Relu", "Result")
    assert graph.bytes_written[graph.index["a"]] == 0


def test_elements_narrower_than_a_byte(load):
    text = HEADER.replace("18", "21") + "g (int4[3, 5] x) => (float[3, 5] y) { [cast] y = Cast <to = 1> (x) }"
    graph = load(parser.parse_model(text)).graph
    assert graph.tensor_bytes.tolist() == [8, 60]


# -- names ---------------------------------------------------------------------------------------------------


def test_names_are_those_of_the_nodes_made_unique(load):
    text = """
    g (float[2] x) => (float[2] y) {
        a = Relu (x)
        [same] b = Relu (a)
        [same] c = Relu (b)
        [a] d = Relu (c)
        [same_1] e = Relu (d)
        [x] y = Relu (e)
    }"""
    graph = load(text).graph
    # Nodes keep their names; the input, the output and a node without a name step aside.
    assert graph.names == ("x_1", "a_1", "same", "same_2", "a", "same_1", "x", "y")
    assert len(set(graph.names)) == graph.n


# -- constants -----------------------------------------------------------------------------------------------


def test_constants_are_weights_of_their_readers(load):
    text = """
    g (float[2, 3] x) => (float[2, 4] y) {
        k = Constant <value = float[3] {1.0, 2.0, 3.0}> ()
        [scale] a = Mul (x, k)
        [transpose] t = Transpose (w)
        [cast] c = Cast <to = 1> (t)
        [product] y = MatMul (a, c)
    }"""
    graph = load(text, w=np.zeros((4, 3), np.float16)).graph
    assert graph.names == ("x", "scale", "product", "y")
    assert of(graph, "param_bytes") == {"scale": 12, "product": 48}


def test_a_large_weight_of_several_readers_is_stored_once_and_keeps_them_together(load):
    text = """
    g (float[8, 1024] x) => (float[8, 1024] y) {
        [first] a = MatMul (x, w)
        [second] b = MatMul (a, w)
        [third] y = MatMul (b, other)
    }"""
    network = load(text, w=floats(1024, 1024), other=floats(1024, 1024))
    graph, size = network.graph, 4 * 1024 * 1024
    assert network.colocation == ((graph.index["first"], graph.index["second"]),)
    assert of(graph, "param_bytes") == {"first": size, "third": size}
    assert graph.bytes_read[graph.index["second"]] == size + 4 * 8 * 1024
    problem = api.problem(network, "2acc+1cpu")
    assert problem.class_of[graph.index["first"]] == problem.class_of[graph.index["second"]]


def test_a_small_constant_is_copied_to_its_readers(load):
    """Nobody is kept together by an epsilon."""
    text = "g (float[8] x) => (float[8] y) { [a] t = Add (x, eps)\n [b] y = Add (t, eps) }"
    network = load(text, eps=np.float32(1e-5))
    assert network.colocation == ()
    assert of(network.graph, "param_bytes") == {"a": 4, "b": 4}


def test_a_table_is_not_read_whole_by_a_look_up(load):
    text = """
    g (int64[2, 5] ids) => (float[2, 5, 30000] y) {
        [embed] e = Gather (table, ids)
        [tied] t = Transpose <perm = [1, 0]> (table)
        [logits] y = MatMul (e, t)
    }"""
    network = load(text, table=floats(30000, 64))
    graph, size, rows = network.graph, 4 * 30000 * 64, 4 * 2 * 5 * 64
    assert graph.names == ("ids", "table", "embed", "logits", "y")
    assert graph.op_types[1] == "Constant"
    assert of(graph, "param_bytes") == {"table": size}
    assert graph.bytes_read[graph.index["embed"]] == 8 * 2 * 5 + rows
    assert graph.bytes_read[graph.index["logits"]] == rows + size
    assert ("table", "embed") in edges(graph)
    problem = api.problem(network, "p100-2")
    together = problem.class_of[[graph.index[name] for name in ("table", "embed", "logits")]]
    assert len(set(together.tolist())) == 1
    # As in the zoo: looking up takes the time of the rows, not of the table.
    assert problem.time[graph.index["embed"]].max() < 0.1 * problem.time[graph.index["logits"]].max()


def test_compressed_weights_stay_compressed(load):
    text = """
    g (float[2, 1024] x) => (float[2, 1024] y) {
        [decompress] w = DequantizeLinear (q, s, z)
        [product] y = MatMul (x, w)
    }"""
    graph = load(text, q=np.zeros((1024, 1024), np.int8), s=np.float32(1), z=np.int8(0)).graph
    assert of(graph, "param_bytes") == {"product": 1024 * 1024 + 4 + 1}
    assert of(graph, "flops") == {"product": 2 * 2 * 1024 * 1024}


def test_a_constant_output_is_kept_by_the_result(load):
    graph = load("g (float[2] x) => (float[2] y, float[3] z) { y = Relu (x) }", z=floats(3)).graph
    assert of(graph, "param_bytes") == {"z": 12}


def test_sparse_weights_take_what_they_store(tmp_path):
    values = helper.make_tensor("w", TensorProto.FLOAT, [3], [1.0, 2.0, 3.0])
    sparse = helper.make_sparse_tensor(
        values, helper.make_tensor("i", TensorProto.INT64, [3], [0, 5, 9]), [10, 10]
    )
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [10, 10]) for name in "xy")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y])
    graph.sparse_initializer.append(sparse)
    found = load_onnx(write(tmp_path / "m.onnx", helper.make_model(graph))).graph
    assert of(found, "param_bytes") == {"y": 3 * 4 + 3 * 8}


def test_what_no_output_needs_is_left_out_and_said(load):
    text = """
    g (float[2, 3] x) => (float[6] y) {
        [dead] a = Exp (x)
        [dead_too] b = Loop_like (a)
        [only_its_shape] c = Concat <axis = 0> (x, x)
        s = Shape (c)
        [kept] y = Reshape (x, minus)
    }"""
    network = load(text.replace("Loop_like", "custom.Thing"), minus=ints(-1))
    assert network.graph.names == ("x", "kept", "y")
    assert network.notes == ("4 unused nodes left out",)


# -- external data -------------------------------------------------------------------------------------------


@pytest.fixture
def external(tmp_path):
    """A model whose tensors, the small ones too, are in a file of their own."""
    text = "g (float[4, 6] x) => (float[Z, 3] y) { [flat] a = Reshape (x, s)\n [product] y = MatMul (a, w) }"
    model = parser.parse_model(HEADER + text)
    model.graph.initializer.append(numpy_helper.from_array(ints(2, 12), "s"))
    model.graph.initializer.append(numpy_helper.from_array(floats(12, 3000)[:, :3].repeat(1000, 1), "w"))
    path = tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    return path


def test_external_weights_count_without_being_read(external):
    graph = load_onnx(external).graph
    assert of(graph, "param_bytes") == {"flat": 16, "product": 4 * 12 * 3000}
    file = external.parent / "weights.bin"
    with file.open("r+b") as stream:
        stream.truncate(64)  # the shape is in front; of the weights nothing is left
    assert load_onnx(external).graph == graph


def test_a_missing_external_file_is_named_where_a_shape_depends_on_it(external):
    (external.parent / "weights.bin").unlink()
    with pytest.raises(InputError) as error:
        load_onnx(external)
    assert "node 'flat' (Reshape)" in str(error.value)
    assert "'s' in the file 'weights.bin'" in str(error.value)
    assert load_onnx(external, {"a": (2, 12)}).graph.output_shapes[1] == ((2, 12),)


# -- functions and control flow ------------------------------------------------------------------------------

FUNCTION = """
g (float[2, 3] x) => (float[2, 3] y) {
    [first] t = custom.twice (x)
    [second] y = custom.twice (t)
}
<domain: "custom", opset_import: ["" : VERSION]>
twice (a) => (b) {
    [inner] c = Relu (a)
    b = Add (c, a)
}
"""


def test_functions_are_inlined(load):
    graph = load(FUNCTION.replace("VERSION", "18")).graph
    assert Counter(graph.op_types) == {"Relu": 2, "Add": 2, "Parameter": 1, "Result": 1}
    assert graph.flops.sum() == 4 * 6


def test_a_function_for_another_operator_set_is_refused_by_name(refused):
    assert "the function custom.twice cannot be inlined" in refused(FUNCTION.replace("VERSION", "11"))


IF = """
g (float[2, 3] x, bool data) => (float[2, 3] y) {
    shape = Shape (x)
    rank = Size (shape)
    two = Constant <value = int64 {2}> ()
    known = Equal (rank, two)
    [branch] z = If (CONDITION) <
        then_branch = yes () => (float[2, 3] t) { [a] u = Exp (x)
            [b] t = Add (u, k) },
        else_branch = no () => (float[2, 3] t) { [c] t = Relu (x) }
    >
    [last] y = Neg (z)
}
"""


def test_a_branch_that_is_known_is_taken(load):
    graph = load(IF.replace("CONDITION", "known"), k=floats(3)).graph
    assert graph.names == ("x", "data", "a", "b", "last", "y")
    assert ("b", "last") in edges(graph)
    assert of(graph, "param_bytes") == {"b": 12}
    other = load(IF.replace("CONDITION", "known").replace("int64 {2}", "int64 {3}"), k=floats(3)).graph
    assert other.names == ("x", "data", "c", "last", "y")


def test_a_branch_that_depends_on_data_is_one_op_with_the_longer_branch_inside(load):
    graph = load(IF.replace("CONDITION", "data"), k=floats(3)).graph
    assert graph.names == ("x", "data", "branch", "last", "y")
    assert {("data", "branch"), ("x", "branch"), ("branch", "last")} <= edges(graph)
    at = graph.index["branch"]
    assert graph.flops[at] == 6 * 4 + 6  # Exp and Add
    assert graph.param_bytes[at] == 12  # what the one branch reads beside
    assert graph.output_shapes[at] == ((2, 3),)


def loop_model(path, rounds=None, scanned=False):
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["s", "w"], ["t"]),
            helper.make_node("Identity", ["c"], ["d"]),
            helper.make_node("Relu", ["t"], ["u"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            helper.make_tensor_value_info("s", TensorProto.FLOAT, [2, 3]),
        ],
        [
            helper.make_tensor_value_info("d", TensorProto.BOOL, []),
            helper.make_tensor_value_info("t", TensorProto.FLOAT, [2, 3]),
            *([helper.make_tensor_value_info("u", TensorProto.FLOAT, None)] if scanned else []),
        ],
        [numpy_helper.from_array(np.eye(3, dtype=np.float32), "w")],
    )
    outputs = ["y", "all"] if scanned else ["y"]
    node = helper.make_node("Loop", ["n", "", "x"], outputs, name="again", body=body)
    infos = [helper.make_tensor_value_info("x", 1, [2, 3])]
    if rounds is None:
        infos.append(helper.make_tensor_value_info("n", TensorProto.INT64, []))
    graph = helper.make_graph(
        [node], "g", infos, [helper.make_tensor_value_info(o, 1, None) for o in outputs]
    )
    if rounds is not None:
        graph.initializer.append(numpy_helper.from_array(np.array(rounds), "n"))
    # Old enough for any ONNX Runtime.
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    return write(path, model)


def test_a_loop_is_one_op_with_all_its_rounds(tmp_path):
    graph = load_onnx(loop_model(tmp_path / "m.onnx", rounds=5, scanned=True)).graph
    at = graph.index["again"]
    assert graph.op_types[at] == "Loop"
    assert graph.flops[at] == 5 * (2 * 2 * 3 * 3 + 6)
    assert graph.param_bytes[at] == 9 * 4 + 8  # the weight, and the number of rounds
    assert graph.output_shapes[at] == ((2, 3), (5, 2, 3))
    theirs = load_openvino(tmp_path / "m.onnx").graph
    loop = [v for v, kind in enumerate(theirs.op_types) if kind in ("Loop", "TensorIterator")]
    assert len(loop) == 1
    assert theirs.param_bytes[loop[0]] >= 9 * 4


def test_a_loop_whose_length_depends_on_data_counts_one_round(tmp_path, unobserved):
    graph = load_onnx(loop_model(tmp_path / "m.onnx")).graph
    assert graph.flops[graph.index["again"]] == 2 * 2 * 3 * 3
    with pytest.raises(InputError, match=r"node 'again' \(Loop\): the shape of its output 'all' is unknown"):
        load_onnx(loop_model(tmp_path / "m.onnx", scanned=True))
    network = load_onnx(loop_model(tmp_path / "m.onnx", scanned=True), {"all": (4, 2, 3)})
    assert network.graph.output_shapes[network.graph.index["again"]] == ((2, 3), (4, 2, 3))


COUNTED = """
g (float[4, 5] x, float[6, 5] w) => (float[M, 6] y) {
    [where] n = NonZero (x)
    [turn] t = Transpose (n)
    [cast] c = Cast <to = 1> (t)
    [apart] y = com.microsoft.CDist (x, w)
    [last] z = Relu (c)
}
"""


def test_a_shape_that_no_rule_tells_is_seen_in_one_run(tmp_path):
    """Of a loop whose length an input says, of an op that depends on data, of one whose rule only its engine has."""
    network = load_onnx(loop_model(tmp_path / "loop.onnx", scanned=True))
    assert network.graph.output_shapes[network.graph.index["again"]] == ((2, 3), (3, 2, 3))
    assert network.notes == ("1 shape (Loop) taken from one run on drawn inputs: they depend on data",)
    model = onnx.parser.parse_graph(COUNTED)
    model.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, None))
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    whole = helper.make_model(model, opset_imports=opsets, ir_version=8)
    for source in (whole, write(tmp_path / "m.onnx", whole)):
        graph = load_onnx(source).graph
        assert graph.output_shapes[graph.index["apart"]] == ((4, 6),)
        assert graph.output_shapes[graph.index["last"]] == ((20, 2),)  # a normal number is never zero
    assert load_onnx(whole).graph.digest == graph.digest


def test_a_loop_without_end_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(_observe, "SECONDS", 2)
    model = onnx.load(loop_model(tmp_path / "m.onnx", scanned=True))
    model.graph.initializer.append(numpy_helper.from_array(np.array(2**60), "many"))
    model.graph.node.insert(0, helper.make_node("Mul", ["n", "many"], ["rounds"]))
    model.graph.node[1].input[0] = "rounds"
    with pytest.raises(InputError, match="the shape of its output 'all' is unknown"):
        load_onnx(write(tmp_path / "endless.onnx", model))


# -- values --------------------------------------------------------------------------------------------------

RATED = """
g (float[2, 3] x, int64 rate) => (float[2, N] y) {
    fast = Constant <value = int64 {16000}> ()
    known = Equal (rate, fast)
    [branch] y = If (known) <
        then_branch = yes () => (float[2, 3] t) { [a] t = Exp (x) },
        else_branch = no () => (float[2, 6] t) { [c] t = Concat <axis = 1> (x, x) }
    >
}
"""


@pytest.mark.parametrize("values", [{"rate": 16000}, ["rate=16000"], {"rate": np.int64(16000)}])
def test_an_input_with_a_value_is_a_constant_and_decides_branches(tmp_path, values):
    path = write(tmp_path / "m.onnx", RATED)
    assert load_onnx(path, values=values).graph.names == ("x", "a", "y")
    assert load_onnx(path, values={"rate": 8000}).graph.names == ("x", "c", "y")
    assert load_openvino(path, values=values).graph.op_types.count("Exp") == 1
    assert load_openvino(path, values={"rate": 8000}).graph.op_types.count("Concat") == 1


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (["rate=much"], "the value 'rate=much' must be a number"),
        (["rate"], "the value 'rate' must be written NAME=NUMBER"),
        (["rate=1", "rate=2"], "'rate' appears twice"),
        (["rate=1.5"], "the value rate=1.5 does not fit the input, which holds int64"),
        (["rate=1,2"], "does not fit the input, whose shape is scalar"),
        (["other=1"], "the value of 'other' is given, but"),
    ],
)
@pytest.mark.parametrize("reader", [load_onnx, load_openvino])
def test_a_value_that_does_not_fit_is_refused(tmp_path, reader, values, said):
    with pytest.raises(InputError) as error:
        reader(write(tmp_path / "m.onnx", RATED), values=values)
    assert said in str(error.value)
    assert error.value.option == "--value"


def test_values_are_typed_by_the_input_and_fill_its_shape(tmp_path):
    text = "g (float[2, 3] x, float[3] scale) => (float[2, 3] y) { [a] y = Mul (x, scale) }"
    path = write(tmp_path / "m.onnx", text)
    for value in ("scale=2", "scale=[1,2,3]", "scale=1,2.5,3"):
        graph = load_onnx(path, values=[value]).graph
        assert graph.names == ("x", "a", "y")
        assert graph.param_bytes[1] == 12
    with pytest.raises(InputError, match="says its shape, too"):
        load_onnx(path, {"scale": (3,)}, values={"scale": 1})


def test_inlined_branches_that_share_names_compute_the_same(tmp_path):
    """Two branches with equal names inside, one output of the model straight from a branch, one name from outside."""
    text = """
    g (float[2, 3] x, bool one, bool two) => (float[2, 3] y, float[2, 3] z) {
        [first] p = If (one) <
            then_branch = a () => (float[2, 3] t) { u = Exp (x)
                t = Neg (u) },
            else_branch = b () => (float[2, 3] t) { t = Relu (x) } >
        [second] z = If (two) <
            then_branch = c () => (float[2, 3] t) { u = Abs (p)
                t = Sqrt (u) },
            else_branch = d () => (float[2, 3] t) { t = Relu (p) } >
        y = Add (p, z)
    }
    """
    path = write(tmp_path / "m.onnx", text)
    x = np.random.default_rng(0).normal(size=(2, 3)).astype(np.float32)
    whole = onnx.load(path)
    for one in (True, False):
        for two in (True, False):
            expected = ReferenceEvaluator(whole).run(
                None, {"x": x, "one": np.array(one), "two": np.array(two)}
            )
            flat = simplified_onnx(path, Given((), {"one": one, "two": two}))
            assert not any(node.op_type == "If" for node in flat.graph.node)
            onnx.checker.check_model(flat, full_check=True)
            for a, b in zip(expected, ReferenceEvaluator(flat).run(None, {"x": x}), strict=True):
                assert np.array_equal(a, b)


# -- fusion --------------------------------------------------------------------------------------------------

CONVOLUTIONS = """
g (float[1, 3, 32, 32] x) => (float[1, 8, 32, 32] y) {
    [conv1] a = Conv <pads = [1, 1, 1, 1]> (x, w1)
    [norm1] b = BatchNormalization (a, s, s, s, s)
    [relu1] c = Relu (b)
    [conv2] d = Conv <pads = [1, 1, 1, 1]> (c, w2)
    [norm2] e = BatchNormalization (d, s, s, s, s)
    [sum] f = Add (e, c)
    [relu2] y = Relu (f)
}
"""
FUSED = ("norm1", "relu1", "norm2", "sum", "relu2")


def test_fused_ops_move_nothing_and_all_else_is_as_openvino_counts_it(tmp_path):
    weights = {"w1": floats(8, 3, 3, 3) + 1, "w2": floats(8, 8, 3, 3) + 1, "s": floats(8) + 1}
    path = write(tmp_path / "m.onnx", CONVOLUTIONS, **weights)
    ours, theirs = load_onnx(path).graph, load_openvino(path).graph
    pixels = 4 * 8 * 32 * 32
    assert ours.flops.sum() == theirs.flops.sum()
    assert all(ours.bytes_written[ours.index[name]] == 0 for name in FUSED)
    assert of(ours, "bytes_read") == {"conv1": 4 * 3 * 32 * 32, "conv2": pixels, "sum": pixels}  # the skip
    # Read and written by the five followers one by one, the sum reads two tensors.
    moved = theirs.bytes_read.sum() + theirs.bytes_written.sum()
    assert moved - (ours.bytes_read.sum() + ours.bytes_written.sum()) == 2 * len(FUSED) * pixels
    slow, fast = api.problem(load_openvino(path)).time.sum(), api.problem(load_onnx(path)).time.sum()
    assert fast < slow


def test_what_somebody_else_reads_or_the_model_gives_back_is_not_fused(load):
    text = """
    g (float[2, 4] x) => (float[2, 4] y, float[2, 4] z) {
        [product] a = MatMul (x, w)
        [kept] y = Relu (a)
        [twice] b = Sigmoid (y)
        [mixed] z = Mul (b, x)
    }
    """
    graph = load(text, w=floats(4, 4)).graph
    assert of(graph, "bytes_read") == {"product": 32, "twice": 32, "mixed": 64}


# -- operators of ONNX Runtime's -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("node", "shape"),
    [
        ("FastGelu (x)", (2, 4)),
        ("FusedMatMul <transB = 1> (x, w)", (2, 5)),
        ("QLinearAdd (x, s, o, x, s, o, s, o)", (2, 4)),
        ("MatMulNBits <K = 4, N = 7, bits = 4, block_size = 32> (x, w)", (2, 7)),
    ],
)
def test_contrib_operators_have_shapes_and_work(tmp_path, node, shape):
    text = f"""<ir_version: 8, opset_import: ["" : 18, "com.microsoft" : 1]>
    g (float[2, 4] x, float[5, 4] w, float s, float o) => (float[2, N] y) {{ [it] y = com.microsoft.{node} }}"""
    network = load_onnx(write(tmp_path / "m.onnx", onnx.parser.parse_model(text)))
    at = network.graph.index["it"]
    assert network.graph.output_shapes[at] == (shape,)
    assert network.graph.flops[at] > 0
    assert network.notes == ()


def test_a_fused_product_may_move_the_first_dimension_behind_the_batch(tmp_path):
    # What ONNX Runtime makes of a Transpose before a MatMul, as in attention: (rows, batch, heads, width).
    text = """<ir_version: 8, opset_import: ["" : 18, "com.microsoft" : 1]>
    g (float[9, 2, 4, 8] x, float[9, 2, 4, 8] w, float[9, 4] v) => (float[A, B, C, D] y, float[E, F] z) {
        [it] y = com.microsoft.FusedMatMul <transBatchA = 1, transBatchB = 1, transB = 1> (x, w)
        [plain] z = com.microsoft.FusedMatMul <transBatchA = 1, transA = 1> (v, v)
    }"""
    graph = load_onnx(write(tmp_path / "m.onnx", onnx.parser.parse_model(text))).graph
    assert graph.output_shapes[graph.index["it"]] == ((2, 4, 9, 9),)
    assert of(graph, "flops") == {"it": 2 * 2 * 4 * 9 * 9 * 8, "plain": 2 * 4 * 4 * 9}


def test_maps_are_refused_with_what_to_do(tmp_path):
    text = """<ir_version: 8, opset_import: ["" : 18, "ai.onnx.ml" : 3]>
    g (float[1, 2] x) => (seq(map(int64, float)) y) {
        [zip] y = ai.onnx.ml.ZipMap <classlabels_int64s = [0, 1]> (x)
    }"""
    with pytest.raises(InputError, match=r"'zip' \(ZipMap\) produces a .*: convert the model without it"):
        load_onnx(write(tmp_path / "m.onnx", onnx.parser.parse_model(text)))


def test_a_contrib_operator_that_is_not_known_is_named(tmp_path):
    text = """<ir_version: 8, opset_import: ["" : 18, "com.microsoft" : 1]>
    g (float[2, 4] x) => (float[2, N] y) { [it] y = com.microsoft.Magic (x) }"""
    with pytest.raises(InputError, match=r"node 'it' \(Magic\): the shape of its output 'y' is unknown"):
        load_onnx(write(tmp_path / "m.onnx", onnx.parser.parse_model(text)))


# -- open sizes ----------------------------------------------------------------------------------------------

OPEN = "g (float[batch, 3, height, W] image, float[batch, 7] more) => (float[M, N] y) { [a] y = Flatten (image) }"


def test_an_open_dimension_is_named_with_its_input(refused):
    text = refused(OPEN)
    assert "input 'image': dimension 0 ('batch') of its shape batchx3xheightxW is open" in text
    assert "give it as the shape 'image=?x3x?x?' or 'batch=…'" in text


def test_shapes_and_named_dimensions_can_be_given(load):
    whole = load(OPEN, ["image=2x3x8x9"])
    assert whole.graph.output_shapes[0] == ((2, 3, 8, 9),)
    assert whole.graph.output_shapes[1] == ((2, 7),)  # the batch of one is the batch of the other
    assert load(OPEN, ["batch=2", "height=8", "W=9"]).graph == whole.graph
    assert load(OPEN, {"image": (2, 3, 8, 9), "batch": (2,)}).graph == whole.graph


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (["image=2x4x8x9"], "dimension 1 of the input is 3 in"),
        (["image=2x3x8"], "the input has 4 dimensions (batchx3xheightxW)"),
        (["image=2x3x8x9", "more=3x7"], "dimension 0 ('batch') of the input is 2 in"),
        (["image=2x3x8x9", "batch=3"], "dimension 0 ('batch') of the input is 3 in"),
        (["imag=2x3x8x9"], "has no tensor or dimension 'imag': its inputs are 'image', 'more'"),
        (["batch=2x3"], "'batch' is one dimension, so it takes one size"),
        (["image=2x3x8x9", "y=2x3"], "the shape 'y=2x3': the tensor has the shape 2x216"),
        (["image"], "the shape 'image' must be written NAME=SIZExSIZEx…"),
        (["image=2,3,8,9"], "must be written NAME=SIZExSIZEx…"),
        (["batch=1", "batch=2"], "'batch' appears twice"),
        ([{"batch": (-1,)}], "sizes must be >= 0"),
    ],
)
def test_a_wrong_shape_is_refused(refused, shapes, message):
    given_shapes = shapes[0] if isinstance(shapes[0], dict) else shapes
    assert message in refused(OPEN, given_shapes)


def test_an_input_without_any_shape_needs_one(tmp_path):
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, None)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    path = write(tmp_path / "m.onnx", helper.make_model(graph))
    with pytest.raises(InputError, match="input 'x' has no shape: give it as the shape 'x=…'"):
        load_onnx(path)
    assert load_onnx(path, ["x=4x5"]).graph.output_shapes[0] == ((4, 5),)


def test_a_size_that_depends_on_data_is_asked_for(load, refused, unobserved):
    text = """
    g (float[4, 5] x) => (float[R, Q] y) {
        [where] n = NonZero (x)
        [turn] t = Transpose (n)
        [cast] y = Cast <to = 1> (t)
    }"""
    message = refused(text)
    assert "node 'where' (NonZero): the shape of its output 'n' is unknown" in message
    assert "the shape 'n=2x?'" in message
    graph = load(text, ["n=2x6"]).graph
    assert graph.output_shapes[graph.index["cast"]] == ((6, 2),)


def test_shapes_are_written_as_on_the_command_line():
    assert parse_shapes(["a:0=1x3", "b=c=7"]) == {"a:0": (1, 3), "b=c": (7,)}
    assert parse_shapes({"x": [1, 2]}) == {"x": (1, 2)}


# -- unknown operators ---------------------------------------------------------------------------------------


def test_an_unknown_operator_counts_by_its_bytes_and_is_noted(load, refused):
    text = """
    g (float[2, 3] x) => (float[2, 5] y) {
        [mine] a = custom.Magic (x, w)
        [theirs] b = custom.Magic (a, w)
        [other] c = custom.Trick (b)
        [last] y = Relu (c)
    }"""
    message = refused(text, w=floats(7))
    assert (
        "node 'mine' (Magic): the shape of its output 'a' is unknown: give it as the shape 'a=…'" in message
    )
    network = load(text, ["a=2x4", "b=2x4", "c=2x5"], w=floats(7))
    assert of(network.graph, "flops") == {"last": 10}
    assert network.graph.bytes_written[network.graph.index["mine"]] == 32
    assert of(network.graph, "param_bytes") == {"mine": 28, "theirs": 28}
    unknown = "3 ops (custom.Magic, custom.Trick) counted by bytes alone, because their work is unknown"
    guessed = "3 outputs (Magic, Trick) assumed to have the type of the first input"
    assert network.notes == (unknown, guessed)
    assert unknown in api.problem(network, "2acc+1cpu").provenance


def test_declared_shapes_help_with_unknown_operators(load):
    text = """
    g (float[batch, 3] x) => (float16[batch, 5] y) { [mine] y = custom.Magic (x) }"""
    network = load(text, ["batch=4"])
    assert network.graph.output_shapes[1] == ((4, 5),)
    assert network.graph.bytes_written[1] == 4 * 5 * 2
    assert len(network.notes) == 1


def test_constants_do_not_pass_through_unknown_operators(load):
    """It might draw random numbers."""
    network = load(
        "g (float[3] x) => (float[3] y) { c = custom.Noise (w)\n [add] y = Add (x, c) }", ["c=3"], w=floats(3)
    )
    assert "c" in network.graph.names


def test_random_numbers_are_not_constants(load):
    graph = load(
        "g (float[3] x) => (float[3] y) { r = RandomNormal <shape = [3]> ()\n [add] y = Add (x, r) }"
    ).graph
    assert ("r", "add") in edges(graph)


# -- files that are no models --------------------------------------------------------------------------------


@cache
def resnet_bytes() -> bytes:
    text = HEADER.replace(', "custom" : 1', "") + BLOCK.replace("N,", "1,").replace("64", "2")
    model = parser.parse_model(text)
    for name, shape in {"w1": (2, 2, 3, 3), "w2": (2, 2, 3, 3), "s": (2,), "bias": (2,)}.items():
        model.graph.initializer.append(numpy_helper.from_array(floats(*shape), name))
    return model.SerializeToString()


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("damaged") / "model.onnx"


def test_a_model_that_is_cut_anywhere_is_refused(scratch):
    whole = resnet_bytes()
    for length in range(len(whole)):
        scratch.write_bytes(whole[:length])
        with pytest.raises(InputError, match=r"model\.onnx: is not a"):
            load_onnx(scratch)
    scratch.write_bytes(whole)
    load_onnx(scratch)


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4))
@settings(max_examples=300)
def test_a_damaged_model_is_refused_in_a_sentence_or_still_makes_sense(scratch, changes):
    damaged = bytearray(resnet_bytes())
    for place, value in changes:
        damaged[place % len(damaged)] = value
    scratch.write_bytes(damaged)
    try:
        network = load_onnx(scratch)
    except InputError:
        return
    assert np.isfinite(network.graph.flops).all()


@given(st.binary(max_size=100))
def test_bytes_at_random_are_no_model(scratch, data):
    scratch.write_bytes(data)
    with pytest.raises(InputError):
        load_onnx(scratch)


def test_files_that_cannot_be_read_are_named(tmp_path):
    with pytest.raises(InputError, match=r"nothing\.onnx: there is no such file"):
        load_onnx(tmp_path / "nothing.onnx")
    folder = tmp_path / "folder.onnx"
    folder.mkdir()
    with pytest.raises(InputError, match=r"folder\.onnx: cannot be read"):
        load_onnx(folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "g (float[2, 3] x, float[4, 5] w) => (float[N] y) { [p] y = MatMul (x, w) }",
            "node 'p' (MatMul) does not fit",
        ),
        (
            "g (float[2] x) => (float[2] y) { [r] y = Relu (z) }",
            "node 'r' (Relu) reads 'z', which no earlier node produces",
        ),
        (
            "g (float[2] x) => (float[2] y) { y = Relu (x)\n [r] y = Relu (x) }",
            "produces 'y', which already exists",
        ),
        ("g (float[2] x) => (float[2] y) { z = Relu (x) }", "no node produces the output 'y'"),
        ("g (string[2] x) => (string[2] y) { y = Identity (x) }", "input 'x' holds strings"),
        ("g (seq(float[2]) x) => (float[2] y) { y = Identity (x) }", "input 'x' is a sequence"),
    ],
)
def test_models_that_make_no_sense_are_refused(refused, text, message):
    assert message in refused(text)


# -- around it -----------------------------------------------------------------------------------------------


def test_without_the_package_the_remedy_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(InputError, match=r"needs the package onnx: pip install 'loadmaster\[onnx\]'"):
        load_onnx(tmp_path / "model.onnx")


def test_the_package_is_imported_only_for_models():
    code = "import sys; from loadmaster import api; api.load('zoo:layered-5'); print('onnx' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_model_is_known_by_its_suffix(tmp_path):
    path = write(tmp_path / "Model.ONNX", OPEN)
    assert isinstance(api.load(path, ["image=2x3x8x9"]), Network)
    with pytest.raises(InputError, match="which is not an ONNX model, nor one of OpenVINO or PyTorch"):
        api.load("zoo:layered-5", ["x=1"])
    with pytest.raises(InputError, match="loaded already"):
        api.problem(zoo.model("layered-5"), shapes=["x=1"])


def test_a_model_is_placed_and_its_plan_evaluated_on_the_command_line(tmp_path):
    model, plan = write(tmp_path / "block.onnx", BLOCK, **BLOCK_WEIGHTS), tmp_path / "plan.json"
    common = [str(model), "--shape", "N=8"]

    def run(*arguments):
        done = CliRunner().invoke(app, [str(argument) for argument in arguments])
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    seen = run("inspect", *common, "--cluster", "p100-2", "--json")
    assert seen["op_types"]["Conv"] == 2
    assert seen["pinned_ops"] == 1
    placed = run("place", *common, "--cluster", "p100-2", "--method", "heft", "-o", plan, "--json")
    assert set(placed["placement"]) == {"x", "conv1", "norm1", "relu1", "conv2", "add", "relu2", "y"}
    assert Plan.load(plan).graph_name == "block"
    again = run("evaluate", *common, "--placement", plan, "--json")
    assert again["cost"] == placed["cost"]
    compared = run("compare", *common, "--methods", "single,heft", "--evaluations", "5", "--json")
    assert [entry["method"] for entry in compared] == ["single", "heft"]
    other = CliRunner().invoke(app, ["evaluate", str(model), "--shape", "N=4", "--placement", str(plan)])
    assert other.exit_code == 2
    assert "is a plan for a different model" in other.stderr
    left_open = CliRunner().invoke(app, ["inspect", str(model)])
    assert left_open.exit_code == 2
    assert left_open.stderr.count("\n") == 1
