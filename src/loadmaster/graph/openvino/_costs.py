"""Work and traffic of OpenVINO's operators, counted as those of ONNX (:mod:`loadmaster.graph.onnx._costs`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from loadmaster.graph.onnx._costs import FLOPS_PER_ELEMENT

__all__ = ["ALIASES", "flops", "reads"]

Shape = Sequence[int]

ALIASES = frozenset(["Identity", "Reshape", "Squeeze", "Unsqueeze", "Parameter", "Result", "Constant"])
"""Nothing is computed or moved."""

PICKS = frozenset(["Gather", "GatherElements", "GatherND", "Slice", "StridedSlice"])
"""Of the first input no more is read than comes out."""

MOVES = frozenset(
    [
        "Convert",
        "ConvertLike",
        "Concat",
        "Split",
        "VariadicSplit",
        "Transpose",
        "Broadcast",
        "Tile",
        "Pad",
        "Gather",
        "GatherElements",
        "GatherND",
        "Slice",
        "StridedSlice",
        "ReadValue",
        "Assign",
        "ShapeOf",
        "Range",
        "DepthToSpace",
        "SpaceToDepth",
        "ShuffleChannels",
        "ScatterUpdate",
        "ScatterNDUpdate",
        "ScatterElementsUpdate",
        "Reverse",
        "ReverseSequence",
        "OneHot",
        "Roll",
    ]
)
"""Bytes are moved, nothing is computed."""

SAME_AS = {
    "Multiply": "Mul",
    "Subtract": "Sub",
    "Divide": "Div",
    "Power": "Pow",
    "Negative": "Neg",
    "SoftMax": "Softmax",
    "MVN": "LayerNormalization",
    "RMS": "RMSNormalization",
    "BatchNormInference": "BatchNormalization",
    "GroupNormalization": "GroupNormalization",
    "HSwish": "HardSwish",
    "HSigmoid": "HardSigmoid",
    "SoftPlus": "Softplus",
    "Clamp": "Clip",
    "PReLU": "PRelu",
    "Select": "Where",
    "Ceiling": "Ceil",
    "LogicalAnd": "And",
    "LogicalOr": "Or",
    "LogicalNot": "Not",
    "LogicalXor": "Xor",
    "GreaterEqual": "GreaterOrEqual",
    "LessEqual": "LessOrEqual",
    "NotEqual": "Equal",
    "FloorMod": "Mod",
    "Maximum": "Add",
    "Minimum": "Add",
    "SquaredDifference": "Add",
    "FakeQuantize": "QuantizeLinear",
}
"""OpenVINO's type -> the operator of ONNX that works as hard."""


def flops(
    kind: str, inputs: Sequence[Shape], outputs: Sequence[Shape], attributes: dict[str, Any]
) -> float | None:
    """Floating point operations of one run, a multiply-add as two; None where the operator is not known.

    >>> flops("MatMul", [(2, 3), (3, 5)], [(2, 5)], {})
    60.0
    """
    out = math.prod(outputs[0]) if outputs else 0
    if kind in ALIASES or kind in MOVES:
        return 0.0
    if kind == "Convolution":
        return 2.0 * out * math.prod(inputs[1][1:])
    if kind == "GroupConvolution":
        return 2.0 * out * math.prod(inputs[1][2:])
    if kind == "ConvolutionBackpropData":
        return 2.0 * math.prod(inputs[0]) * math.prod(inputs[1][1:])
    if kind == "GroupConvolutionBackpropData":
        return 2.0 * math.prod(inputs[0]) * math.prod(inputs[1][2:])
    if kind == "MatMul":
        inner = inputs[0][-2] if attributes.get("transpose_a") and len(inputs[0]) > 1 else inputs[0][-1]
        return 2.0 * out * inner
    if kind == "ScaledDotProductAttention":
        q, k, v = inputs[:3]
        scores = math.prod(q[:-1]) * k[-2]
        return float(scores * (2 * q[-1] + 5 + 2 * v[-1]))
    if kind in ("MaxPool", "AvgPool"):
        return float(out * math.prod(attributes.get("kernel", [1])))
    if kind.startswith("Reduce") or kind in ("CumSum", "TopK", "AdaptiveAvgPool", "AdaptiveMaxPool"):
        return float(math.prod(inputs[0]))
    if kind in ("LSTMCell", "GRUCell", "RNNCell", "LSTMSequence", "GRUSequence", "RNNSequence"):
        steps = inputs[0][1] if kind.endswith("Sequence") else 1
        weights = sum(
            math.prod(shape) for shape in inputs if len(shape) == (3 if kind.endswith("Sequence") else 2)
        )
        return 2.0 * inputs[0][0] * steps * max(weights - math.prod(inputs[0]), 0)
    factor = FLOPS_PER_ELEMENT.get(SAME_AS.get(kind, kind))
    if kind == "Power":
        factor = 4
    return None if factor is None else float(factor * out)


def reads(kind: str, inputs: Sequence[float], output: float) -> list[float]:
    """Bytes read of each input."""
    if kind in ALIASES or kind == "ShapeOf":
        return [0.0] * len(inputs)
    read = list(inputs)
    if kind in PICKS and read:
        read[0] = min(read[0], output)
    return read
