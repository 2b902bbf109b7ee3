"""Work and traffic of the operators of ONNX, from shapes and attributes alone.

A multiply-add is two floating point operations, in integers too. What is counted is the definition of the
operator, not what a clever kernel saves: positions of padding and of a causal mask count, convolutions are
not Winograd's. Element-wise functions count as in the zoo: a comparison, a division and a square root are one
operation, an exponential, a logarithm and a trigonometric function four.
"""

from __future__ import annotations

from loadmaster.graph.onnx._op import Op
from loadmaster.graph.onnx._rules import RULES, SOFTMAX, SWISH

__all__ = ["ALIASES", "FLOPS_PER_ELEMENT", "UNCOUNTED", "flops", "reads", "writes"]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _factors(table: dict[int, str]) -> dict[str, int]:
    return {name: factor for factor, names in table.items() for name in names.split()}


ALIASES = _words("BitCast Flatten Identity Reshape Squeeze Unsqueeze")
"""Only the shape or the reading of the bits changes: nothing is computed or moved."""

MOVES = _words("""
    Cast CastLike CenterCropPad Compress Concat ConstantOfShape DepthToSpace Expand EyeLike Gather
    GatherElements GatherND MaxUnpool OneHot Pad ReverseSequence Shape Size Slice SpaceToDepth Split
    TensorScatter Tile Transpose Trilu
""")
"""Bytes are moved, nothing is computed."""

UNCOUNTED = _words("""
    ImageDecoder MaxRoiPool NonMaxSuppression RegexFullMatch StringConcat StringNormalizer StringSplit
    TfIdfVectorizer
""")
"""Standard operators whose work depends on the data: only their bytes count."""

FLOPS_PER_ELEMENT = _factors(
    {
        1: """
            Abs Add And BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Ceil Div Equal Floor Greater
            GreaterOrEqual IsInf IsNaN Less LessOrEqual Mod Mul Neg Not Or Range Reciprocal Relu Round Sign
            Sqrt Sub ThresholdedRelu Where Xor
        """,
        2: "Clip DequantizeLinear Hardmax LeakyRelu PRelu Shrink",
        3: "LpNormalization QuantizeLinear RotaryEmbedding Softsign",
        4: """
            Acos Acosh Asin Asinh Atan Atanh BatchNormalization Bernoulli Cos Cosh Erf Exp HammingWindow
            HannWindow HardSigmoid Log MelWeightMatrix RMSNormalization RandomNormal RandomNormalLike
            RandomUniform RandomUniformLike Sigmoid Sin Sinh Tan
        """,
        5: "HardSwish LogSoftmax",
        6: "Celu Elu Selu SwiGLU Tanh",
        8: """
            BlackmanWindow Gelu GroupNormalization InstanceNormalization LayerNormalization
            MeanVarianceNormalization
        """,
        9: "Softplus",
        16: "Mish",
    }
) | {"Softmax": SOFTMAX, "Swish": SWISH}
"""Per element of the output."""

FLOPS_PER_INPUT_ELEMENT = _factors(
    {
        1: """
            ArgMax ArgMin Col2Im CumProd CumSum GlobalAveragePool GlobalMaxPool Multinomial NonZero
            ReduceLogSum ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum
        """,
        2: "GlobalLpPool ReduceL1 ReduceL2 ReduceSumSquare",
        5: "DynamicQuantizeLinear ReduceLogSumExp SoftmaxCrossEntropyLoss",
    }
)
"""Per element of the first input."""

PICKS = _words("CenterCropPad Compress Gather GatherElements GatherND Slice")
"""Of the first input no more is read than comes out."""

SHAPE_ONLY = {
    "CastLike": 1,
    "EyeLike": 0,
    "RandomNormalLike": 0,
    "RandomUniformLike": 0,
    "Shape": 0,
    "Size": 0,
}
"""The input of which nothing but shape or type matters."""


def flops(op: Op) -> float | None:
    """Floating point operations of one run, or None where the operator is not known.

    >>> from loadmaster.graph.onnx._op import Tensor
    >>> flops(Op("MatMul", (Tensor((2, 3)), Tensor((3, 5))), (Tensor((2, 5)),)))
    60.0
    """
    if op.type in ALIASES or op.type in MOVES:
        return 0.0
    if op.type in FLOPS_PER_ELEMENT:
        return float(FLOPS_PER_ELEMENT[op.type] * op.output.size)
    if op.type in FLOPS_PER_INPUT_ELEMENT:
        return float(FLOPS_PER_INPUT_ELEMENT[op.type] * op.input(0).size)
    rule = RULES.get(op.type)
    return None if rule is None else float(rule(op))


def reads(op: Op) -> list[int]:
    """Bytes read of each input: all of it, but for operators that pick a part or look at the shape alone."""
    read = [0 if tensor is None or op.type in ALIASES else tensor.bytes for tensor in op.inputs]
    if op.type in PICKS:
        read[0] = min(read[0], op.output.bytes)
    if op.type in SHAPE_ONLY:
        read[SHAPE_ONLY[op.type]] = 0
    return read


def writes(op: Op) -> int:
    """Bytes written."""
    return 0 if op.type in ALIASES else sum(tensor.bytes for tensor in op.outputs if tensor is not None)
