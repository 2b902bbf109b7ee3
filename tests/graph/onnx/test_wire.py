"""A model without its weights is the same model, whatever its size; what is no message is refused."""

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper

from loadmaster.errors import InputError
from loadmaster.graph import load_onnx
from loadmaster.graph.onnx._file import tensors_of
from loadmaster.graph.onnx._wire import without_weights


def network(path, size=100):
    weight = numpy_helper.from_array(np.ones((size, size), np.float32), "w")
    inner = helper.make_graph(
        [helper.make_node("MatMul", ["x", "v"], ["z"])],
        "then",
        [],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.ones((size, size), np.float32), "v")],
    )
    nodes = [
        helper.make_node("If", ["c"], ["h"], then_branch=inner, else_branch=inner),
        helper.make_node("MatMul", ["h", "w"], ["y"], name="last", doc_string="d" * 20_000),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, size]),
        helper.make_tensor_value_info("c", TensorProto.BOOL, []),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    model = helper.make_model(helper.make_graph(nodes, "net", inputs, outputs, [weight]))
    path.write_bytes(model.SerializeToString())
    return model


def test_all_but_large_data_is_the_same(tmp_path):
    model = network(tmp_path / "net.onnx")
    found = onnx.load_from_string(without_weights(tmp_path / "net.onnx"))
    for tensor in (*tensors_of(model.graph), *tensors_of(found.graph)):
        assert tensor.raw_data == b"" or len(tensor.raw_data) == 40_000
        tensor.ClearField("raw_data")
    assert found == model
    small = network(tmp_path / "small.onnx", size=8)
    assert onnx.load_from_string(without_weights(tmp_path / "small.onnx")) == small


def test_it_is_what_the_frontend_reads(tmp_path):
    network(tmp_path / "net.onnx")
    graph = load_onnx(tmp_path / "net.onnx").graph
    assert graph.param_bytes.sum() >= 2 * 40_000


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 100,
        b"\x3a\xff\xff\xff\xff\x7f",
        b"\x3a\x7f" * 500,
        b"\x3b\x3c",
        b"\x3a\x05\x0a",
    ],
)
def test_what_is_no_message(tmp_path, content):
    (tmp_path / "net.onnx").write_bytes(content)
    with pytest.raises(InputError, match="is not an ONNX model"):
        without_weights(tmp_path / "net.onnx")


def test_too_many_messages(tmp_path, monkeypatch):
    network(tmp_path / "net.onnx")
    monkeypatch.setenv("LOADMASTER_LIMITS", "values=20")
    with pytest.raises(InputError, match="more than 20 messages"):
        without_weights(tmp_path / "net.onnx")


def test_data_outside_the_folder_is_not_read(tmp_path):
    (tmp_path / "secret").write_bytes(np.array([4, 25], np.int64).tobytes())
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "link").symlink_to(tmp_path / "secret")
    for location in ("../secret", str(tmp_path / "secret"), "link"):
        shape = TensorProto(
            name="s", data_type=TensorProto.INT64, dims=[2], data_location=TensorProto.EXTERNAL
        )
        shape.external_data.add(key="location", value=location)
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 100])
        y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
        graph = helper.make_graph([helper.make_node("Reshape", ["x", "s"], ["y"])], "net", [x], [y], [shape])
        file = tmp_path / "inside" / "net.onnx"
        file.write_bytes(helper.make_model(graph).SerializeToString())
        with pytest.raises(InputError, match="which is not in the model's folder"):
            load_onnx(file)


@pytest.mark.parametrize("version", [-1, 2**31, 2**62])
def test_a_version_that_is_none(tmp_path, version):
    model = network(tmp_path / "net.onnx", size=8)
    model.ir_version = version
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(InputError, match="its IR is of version"):
        load_onnx(tmp_path / "net.onnx")
