"""What OpenVINO cannot read is refused in one sentence that names the op, and never ends the process."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from loadmaster import api
from loadmaster.errors import InputError
from loadmaster.graph import load_openvino
from loadmaster.graph.openvino import _onnx as reading

pytest.importorskip("openvino")


def write(path, nodes, inputs, outputs, stored=(), opsets=(("", 17),)):
    graph = helper.make_graph(nodes, "net", inputs, outputs, initializer=list(stored))
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid(*entry) for entry in opsets], ir_version=9
    )
    onnx.save(model, path)
    return path


def write_stft(path):
    """STFT of a signal of two dimensions: allowed, read by ONNX Runtime, not by OpenVINO."""
    value = helper.make_tensor_value_info
    stored = [
        numpy_helper.from_array(np.array(4), "step"),
        numpy_helper.from_array(np.hanning(8).astype(np.float32), "window"),
    ]
    return write(
        path,
        [
            helper.make_node("STFT", ["x", "step", "window"], ["image"], name="spectrum"),
            helper.make_node("ReduceSumSquare", ["image"], ["y"], name="power", axes=[-1]),
        ],
        [value("x", TensorProto.FLOAT, [1, "n"])],
        [value("y", TensorProto.FLOAT, None)],
        stored,
    )


def test_an_op_that_cannot_be_converted_is_named_with_what_to_do(tmp_path):
    path = write_stft(tmp_path / "stft.onnx")
    with pytest.raises(
        InputError, match=r"cannot convert the op that makes 'image' \(STFT: .*\): ONNX Run"
    ) as e:
        load_openvino(path, {"n": (64,)})
    assert e.value.option == "--runtime onnxruntime"
    assert api.load(path, {"n": (64,)}).graph.n == 4  # our own reader has no trouble


def test_a_custom_op_is_named(tmp_path):
    value = helper.make_tensor_value_info
    path = write(
        tmp_path / "custom.onnx",
        [helper.make_node("Wobble", ["x"], ["y"], name="wobbling", domain="our.ops")],
        [value("x", TensorProto.FLOAT, [1, 4])],
        [value("y", TensorProto.FLOAT, [1, 4])],
        opsets=(("", 17), ("our.ops", 1)),
    )
    with pytest.raises(InputError, match="Wobble"):
        load_openvino(path)


def test_a_crash_of_the_frontend_is_a_refusal(tmp_path, monkeypatch):
    value, node = helper.make_tensor_value_info, helper.make_node
    body = helper.make_graph(
        [node("Identity", ["state"], ["same"]), node("Identity", ["row"], ["out"])],
        "body",
        [value("state", TensorProto.FLOAT, [2]), value("row", TensorProto.FLOAT, [2])],
        [value("same", TensorProto.FLOAT, [2]), value("out", TensorProto.FLOAT, [2])],
    )
    path = write(
        tmp_path / "scan.onnx",
        [node("Scan", ["s", "x"], ["t", "y"], name="rows", num_scan_inputs=1, body=body)],
        [value("s", TensorProto.FLOAT, [2]), value("x", TensorProto.FLOAT, [3, 2])],
        [value("t", TensorProto.FLOAT, [2]), value("y", TensorProto.FLOAT, [3, 2])],
    )
    monkeypatch.setattr(reading, "PROBE", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    reading._kills.cache_clear()
    with pytest.raises(InputError, match=r"OpenVINO crashes on it \(its op 'rows' is a Scan\)"):
        load_openvino(path)
    reading._kills.cache_clear()
