"""Small ONNX models in files, for tests of ONNX Runtime and of exports."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper


def stored(name: str, array) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(array), name)


def branched_onnx(path: Path, *, channels: int = 8, blocks: int = 2) -> Path:
    """Blocks of two branches that join, with arithmetic on shapes and a constant If, as exporters write them."""
    generator = np.random.default_rng(0)
    nodes, weights = [], []

    def conv(source: str, name: str, width: int, out: int) -> str:
        weights.append(
            stored(f"{name}.w", generator.normal(size=(out, width, 3, 3)).astype(np.float32) * 0.15)
        )
        nodes.append(helper.make_node("Conv", [source, f"{name}.w"], [name], name=name, pads=[1] * 4))
        nodes.append(helper.make_node("Relu", [name], [f"{name}.relu"], name=f"{name}/relu"))
        return f"{name}.relu"

    at = "x"
    for i in range(blocks):
        left = conv(at, f"b{i}/left", channels, channels // 2)
        right = conv(conv(at, f"b{i}/right", channels, channels // 2), f"b{i}/right2", *[channels // 2] * 2)
        nodes.append(helper.make_node("Concat", [left, right], [f"b{i}"], name=f"b{i}/join", axis=1))
        at = f"b{i}"
    weights += [stored("zero", np.array([0])), stored("rest", np.array([-1])), stored("yes", np.array(True))]
    nodes += [
        helper.make_node("Shape", ["x"], ["sizes"], name="sizes"),
        helper.make_node("Gather", ["sizes", "zero"], ["batch"], name="batch"),
        helper.make_node("Concat", ["batch", "rest"], ["flat"], name="flat", axis=0),
        helper.make_node("Reshape", [at, "flat"], ["rows"], name="rows"),
    ]

    def branch(name: str, kind: str) -> onnx.GraphProto:
        out = helper.make_tensor_value_info(f"{name}.out", onnx.TensorProto.FLOAT, None)
        inner = helper.make_node(kind, ["rows"], [f"{name}.out"], name=f"{name}/{kind}")
        return helper.make_graph([inner], name, [], [out])

    nodes.append(
        helper.make_node(
            "If",
            ["yes"],
            ["y"],
            name="if",
            then_branch=branch("then", "Tanh"),
            else_branch=branch("else", "Neg"),
        )
    )
    graph = helper.make_graph(
        nodes,
        "branched",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", channels, 12, 12])],
        [
            helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None),
            helper.make_tensor_value_info("b0", onnx.TensorProto.FLOAT, None),
        ],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, str(path))
    return path
