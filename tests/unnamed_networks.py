"""ONNX models as other exporters write them: ops without names, and ops that OpenVINO makes of several."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def write_unnamed(path: Path, *, rows: int | str = 64, width: int = 32, last: str = "") -> Path:
    """A network of two branches whose nodes have no names; ``last`` is that of the last node."""
    generator = np.random.default_rng(0)

    def weight(name, *shape):
        return numpy_helper.from_array(generator.standard_normal(shape).astype(np.float32) * 0.3, name)

    weights = [weight(f"w{i}", width, width) for i in range(4)] + [weight("g", width), weight("b", width)]
    node = helper.make_node
    nodes = [
        node("MatMul", ["x", "w0"], ["t0"]),
        node("LayerNormalization", ["t0", "g", "b"], ["t1"], axis=-1),
        node("MatMul", ["t1", "w1"], ["t2"]),
        node("LayerNormalization", ["t2", "g", "b"], ["t3"], axis=-1),
        node("MatMul", ["x", "w2"], ["t4"], name="other branch"),
        node("MeanVarianceNormalization", ["t4"], ["t5"], axes=[1]),
        node("MatMul", ["t5", "w3"], ["t6"]),
        node("LayerNormalization", ["t6", "g", "b"], ["t7"], axis=-1),
        node("Add", ["t3", "t7"], ["t8"]),
        node("Split", ["t8"], ["t9", "t10"], axis=1, num_outputs=2),
        node("Concat", ["t10", "t9"], ["t11"], axis=1),
        node("Tanh", ["t11"], ["t12"], name=last),
        node("Mul", ["t12", "t11"], ["y"]),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "unnamed",
        [value("x", TensorProto.FLOAT, [rows, width])],
        [value("y", TensorProto.FLOAT, [rows, width])],
        weights,
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    onnx.checker.check_model(made)
    onnx.save(made, path)
    return path
