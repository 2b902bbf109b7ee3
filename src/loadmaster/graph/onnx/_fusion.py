"""Ops that runtimes run together with the convolution or product before them, so that nothing goes through memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Sequence

from loadmaster.graph.onnx._step import Step
from loadmaster.graph.onnx._value import Value

__all__ = ["fused"]

LEADERS = frozenset(
    [
        "Conv",
        "ConvInteger",
        "ConvTranspose",
        "Gemm",
        "MatMul",
        "MatMulInteger",
        "QLinearConv",
        "QLinearMatMul",
    ]
)
"""What other ops are fused into."""

FOLLOWERS = frozenset(
    [
        "Add",
        "BatchNormalization",
        "Clip",
        "Div",
        "Elu",
        "Gelu",
        "HardSigmoid",
        "HardSwish",
        "LeakyRelu",
        "Mish",
        "Mul",
        "PRelu",
        "Relu",
        "Sigmoid",
        "Softplus",
        "Sub",
        "Swish",
        "Tanh",
    ]
)
"""Element by element, so that they can be applied while the results are at hand."""

JOINS = frozenset(["Add"])
"""Of the followers, those that may take another tensor than a constant: the sum of a residual connection."""


def fused(steps: Sequence[Step], live: Iterable[int], kept: Container[Value]) -> dict[int, Value]:
    """Which steps are fused into what comes before, with the input that they then need not read.

    A step is fused where it works element by element on the result of a convolution, of a matrix product, or of
    another step that is fused into one, as the only reader of that. ``kept`` are values that must be in memory anyway:
    the outputs of the model.
    """
    reads = Counter(value for s in live for value in steps[s].inputs if value is not None)
    found: dict[int, Value] = {}
    for s in live:
        step = steps[s]
        if step.domain != "" or step.op.type not in FOLLOWERS:
            continue
        changing = [value for value in step.inputs if value is not None and not value.roots]
        made = [value for value in step.outputs if value is not None]
        if len(made) != 1 or len(changing) > (2 if step.op.type in JOINS else 1):
            continue
        for value in changing:
            before = steps[value.step] if value.step >= 0 else None
            if (
                before is not None
                and (value.step in found or (before.domain == "" and before.op.type in LEADERS))
                and reads[value] == 1
                and value not in kept
                and value.tensor.shape == made[0].tensor.shape
            ):
                found[s] = value
                break
    return found
