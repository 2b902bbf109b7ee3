"""Operators of ONNX Runtime's own domain that optimised and quantised models hold: their shapes and their work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx

from loadmaster.graph.onnx._costs import FLOPS_PER_ELEMENT
from loadmaster.graph.onnx._infer import Guess, attributes
from loadmaster.graph.onnx._op import Op, Tensor
from loadmaster.graph.onnx._rules import RULES, SOFTMAX
from loadmaster.graph.onnx._value import Value

__all__ = ["DOMAIN", "contrib_flops", "contrib_outputs"]

DOMAIN = "com.microsoft"

Shape = tuple[int, ...]

LIKE_FIRST = {
    "BiasAdd": 2,
    "BiasGelu": 9,
    "BiasSoftmax": SOFTMAX + 1,
    "BiasSplitGelu": 9,
    "DequantizeLinear": 2,
    "FastGelu": 8,
    "Gelu": 8,
    "GroupNorm": 8,
    "QLinearLeakyRelu": 6,
    "QLinearSigmoid": 8,
    "QLinearSoftmax": SOFTMAX + 4,
    "QuantizeLinear": 3,
    "QuickGelu": 5,
    "RotaryEmbedding": 3,
    "SimplifiedLayerNormalization": 4,
    "SkipGroupNorm": 9,
    "SkipLayerNormalization": 9,
    "SkipSimplifiedLayerNormalization": 5,
}
"""Operators whose outputs have the shape of the first input -> operations per element."""

STANDARD = {"FusedConv": "Conv", "FusedGemm": "Gemm"}
"""Operators that are a standard one with an activation behind it."""


def contrib_outputs(node: Any, domain: str, inputs: Sequence[Value | None]) -> dict[str, Guess]:
    """What is known of a node's outputs, by name; nothing for operators that are not known."""
    if domain != DOMAIN:
        return {}
    given = attributes(node, domain, 1)
    try:
        shape = _shape(node.op_type, [None if v is None else v.tensor.shape for v in inputs], given)
        elem = _element_type(node.op_type, inputs, given)
    except (ArithmeticError, LookupError, TypeError, ValueError):  # what the file declares has to do
        return {}
    if shape is None:
        return {}
    found = {node.output[0]: Guess(elem, shape)}
    if node.op_type.startswith("Skip") and len(node.output) > 3:  # the sum before it is normalised
        found[node.output[3]] = Guess(elem, shape)
    return found


def contrib_flops(op: Op, domain: str) -> float | None:
    """Floating point operations of one run, counted as those of the standard operators; None where not known."""
    if domain != DOMAIN:
        return None
    if op.type in LIKE_FIRST:
        return float(LIKE_FIRST[op.type] * op.output.size)
    if op.type in STANDARD:
        return float(RULES[STANDARD[op.type]](op) + op.output.size)
    if op.type in WORK:
        return float(WORK[op.type](op))
    factor = FLOPS_PER_ELEMENT.get(op.type)
    return None if factor is None else float(factor * op.output.size)


def _element_type(kind: str, inputs: Sequence[Value | None], given: dict[str, Any]) -> int:
    first = inputs[0]
    assert first is not None
    if kind in ("DequantizeLinear", "MatMulIntegerToFloat"):
        scale = inputs[2 if kind == "MatMulIntegerToFloat" else 1]
        return onnx.TensorProto.FLOAT if scale is None else scale.elem
    if kind in ("QuantizeLinear", "QLinearSoftmax"):
        zero = inputs[2] if kind == "QuantizeLinear" and len(inputs) > 2 else None
        return onnx.TensorProto.UINT8 if zero is None else zero.elem
    return first.elem


# -- shapes --------------------------------------------------------------------------------------------------


def _shape(kind: str, shapes: Sequence[Shape | None], given: dict[str, Any]) -> Shape | None:
    first = shapes[0]
    if first is None:
        return None
    if kind == "BiasSplitGelu":
        return (*first[:-1], first[-1] // 2)
    if kind in LIKE_FIRST:
        return first
    if kind in ("FusedMatMul", "TransposeMatMul"):
        return _product(_factor(first, given, "A"), _factor(_given(shapes, 1), given, "B"))
    if kind in ("MatMulIntegerToFloat", "DynamicQuantizeMatMul"):
        return _product(first, _given(shapes, 1))
    if kind == "MatMulNBits":
        return (*first[:-1], int(given["N"]))
    if kind in ("QLinearAdd", "QLinearMul"):
        return _broadcast(first, _given(shapes, 3))
    if kind == "QLinearConcat":
        return _joined([_given(shapes, i) for i in range(2, len(shapes), 3)], int(given["axis"]))
    if kind == "QLinearGlobalAveragePool":
        last = bool(given.get("channels_last"))
        return (
            (first[0], *[1] * (len(first) - 2), first[-1]) if last else (*first[:2], *[1] * (len(first) - 2))
        )
    if kind == "FusedConv":
        return _convolved(first, _given(shapes, 1), given)
    if kind == "FusedGemm":
        rows = first[1] if given.get("transA") else first[0]
        other = _given(shapes, 1)
        return (rows, other[0] if given.get("transB") else other[1])
    if kind == "MultiHeadAttention" and len(first) == 3:
        value = shapes[2] if len(shapes) > 2 else None
        return (*first[:2], first[2] if value is None or len(value) != 3 else value[2])
    if kind == "GroupQueryAttention" and len(shapes) > 1 and shapes[1] is not None:
        return first
    if kind == "Attention":
        sizes = given.get("qkv_hidden_sizes") or []
        return (*first[:2], int(sizes[2]) if len(sizes) == 3 else _given(shapes, 1)[1] // 3)
    return None


def _given(shapes: Sequence[Shape | None], at: int) -> Shape:
    found = shapes[at]
    if found is None:
        raise LookupError
    return found


def _factor(shape: Shape, given: Mapping[str, Any], which: str) -> Shape:
    """A factor of FusedMatMul as it is multiplied: with ``transBatchA`` its first dimension goes behind those of the
    batch, with ``transA`` its last two change places."""
    if given.get(f"transBatch{which}") and len(shape) > 2:
        shape = (*shape[1:-1], shape[0], shape[-1])
    return (*shape[:-2], shape[-1], shape[-2]) if given.get(f"trans{which}") and len(shape) > 1 else shape


def _broadcast(one: Shape, other: Shape) -> Shape:
    rank = max(len(one), len(other))
    pairs = zip((1,) * (rank - len(one)) + one, (1,) * (rank - len(other)) + other, strict=True)
    return tuple(b if a == 1 else a for a, b in pairs)


def _product(one: Shape, other: Shape) -> Shape:
    if len(one) < 2 or len(other) < 2 or one[-1] != other[-2]:
        raise ValueError
    return (*_broadcast(one[:-2], other[:-2]), one[-2], other[-1])


def _joined(parts: Sequence[Shape], axis: int) -> Shape:
    shape = list(parts[0])
    shape[axis] = sum(part[axis] for part in parts)
    return tuple(shape)


def _convolved(x: Shape, filters: Shape, given: dict[str, Any]) -> Shape | None:
    if str(given.get("auto_pad", "NOTSET")) not in ("NOTSET", "VALID"):
        return None
    space = len(x) - 2
    kernel = list(given.get("kernel_shape") or filters[2:])
    stride, dilation = (list(given.get(key) or [1] * space) for key in ("strides", "dilations"))
    pads = list(given.get("pads") or [0] * (2 * space))
    sizes = [
        (x[2 + i] + pads[i] + pads[space + i] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1
        for i in range(space)
    ]
    return (x[0], filters[0], *sizes)


# -- work ----------------------------------------------------------------------------------------------------


def _matmul(op: Op) -> float:
    return 2.0 * op.output.size * _factor(op.input(0).shape, op.attributes, "A")[-1]


def _joint_attention(op: Op) -> float:
    """Scores, softmax and the weighted sum of all heads; the keys are as many as the queries or as those given."""
    batch, rows, width = op.input(0).shape[:3]
    second = op.input(1).shape if op.has(1) and len(op.input(1).shape) == 3 else op.input(0).shape
    heads = int(op.attributes.get("num_heads", 1))
    return batch * rows * second[1] * (4.0 * width + (SOFTMAX + 1) * heads)


def _attention(op: Op) -> float:
    """With the projection of its input to queries, keys and values."""
    x, weights = op.input(0), op.input(1)
    batch, rows, _ = x.shape
    heads, width = int(op.attributes.get("num_heads", 1)), op.output.shape[-1]
    projection = 2.0 * x.size * weights.shape[1]
    return projection + batch * rows * rows * (4.0 * width + (SOFTMAX + 1) * heads)


def _elements_of_first(op: Op) -> float:
    return float(_tensor(op.inputs[0]).size)


def _tensor(tensor: Tensor | None) -> Tensor:
    return tensor or Tensor(())


WORK: dict[str, Callable[[Op], float]] = {
    "Attention": _attention,
    "DynamicQuantizeMatMul": _matmul,
    "FusedMatMul": _matmul,
    "GroupQueryAttention": _joint_attention,
    "MatMulIntegerToFloat": _matmul,
    "MatMulNBits": lambda op: 2.0 * op.output.size * int(op.attributes["K"]),
    "MultiHeadAttention": _joint_attention,
    "QLinearAdd": lambda op: 7.0 * op.output.size,
    "QLinearConcat": lambda op: 3.0 * op.output.size,
    "QLinearGlobalAveragePool": _elements_of_first,
    "QLinearMul": lambda op: 7.0 * op.output.size,
    "TransposeMatMul": _matmul,
}
"""Operators whose work takes more than a factor per element."""
