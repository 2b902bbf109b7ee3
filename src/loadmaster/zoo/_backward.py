"""The backward pass of a traced network: reverse-mode differentiation, op by op.

Each forward op has at most a handful of gradient ops, listed in :data:`RULES`: by the chain rule the
gradient of an input is a function of the gradient of the output and of what the forward pass saved. So a
matrix product or a convolution gives two products of the same size, one for its input and one for its
weight: the usual factor of two. Gradients of a value that is read more than once are added up; gradients of
a weight are accumulated in place, as they come; at the end each weight is updated where it lives (plain
stochastic gradient descent).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from loadmaster.zoo._trace import Step, Trace, Value, Weight

__all__ = ["differentiate"]

W = -1
"""In a rule: the weight of the op."""
Y = -2
"""In a rule: the last output of the op."""
ALL = -3
"""In a rule: every input."""


class Rule(NamedTuple):
    """One gradient op: what it computes, and what it reads besides the gradient of the op's outputs."""

    name: str
    kind: str
    gives: tuple[int, ...]
    reads: tuple[int, ...] = ()


def _product(kind: str) -> tuple[Rule, ...]:
    """A linear map of an input by a weight."""
    return Rule("grad_input", kind, gives=(0,), reads=(W,)), Rule("grad_weight", kind, gives=(W,), reads=(0,))


def _factors(kind: str) -> tuple[Rule, ...]:
    """A linear map of either of two inputs."""
    return Rule("grad_a", kind, gives=(0,), reads=(1,)), Rule("grad_b", kind, gives=(1,), reads=(0,))


def _unary(kind: str, *reads: int) -> tuple[Rule, ...]:
    return (Rule("grad", kind, gives=(0,), reads=reads),)


def _norm(kind: str) -> tuple[Rule, ...]:
    """Both gradients come out of one op, as in the usual libraries."""
    return (Rule("grad", kind, gives=(0, W), reads=(0, W)),)


RULES: dict[str, tuple[Rule, ...]] = {
    "Conv": _product("ConvGrad"),
    "ConvTranspose": _product("ConvTransposeGrad"),
    "MatMul": _product("MatMul"),
    "MatMul of two": _factors("MatMul"),
    "Mul of two": _factors("Mul"),
    "Mul": _unary("Mul"),
    "Add": (),
    "Add a weight": (Rule("grad_bias", "ReduceSum", gives=(W,)),),
    "Gather": (Rule("grad_weight", "GatherGrad", gives=(W,), reads=(0,)),),
    "BatchNormalization": _norm("BatchNormalizationGrad"),
    "LayerNormalization": _norm("LayerNormalizationGrad"),
    "RMSNormalization": _norm("RMSNormalizationGrad"),
    "Relu": _unary("ReluGrad", Y),
    "Sigmoid": _unary("SigmoidGrad", Y),
    "Tanh": _unary("TanhGrad", Y),
    "Softmax": _unary("SoftmaxGrad", Y),
    "Gelu": _unary("GeluGrad", 0),
    "MaxPool": _unary("MaxPoolGrad", 0, Y),
    "AveragePool": _unary("AveragePoolGrad"),
    "ReduceMean": _unary("Expand"),
    "Split": _unary("Concat"),
    "Slice": _unary("Pad"),
    "Transpose": _unary("Transpose"),
    "Concat": (Rule("grad", "Split", gives=(ALL,)),),
    "SoftmaxCrossEntropyLoss": _unary("SoftmaxCrossEntropyLossGrad", Y, 1),
}
"""Gradient ops by the type of the forward op."""


def _rules(step: Step) -> tuple[Rule, ...]:
    if step.kind in ("MatMul", "Mul") and len(step.inputs) == 2:
        return RULES[f"{step.kind} of two"]
    if step.kind == "Add" and step.weight is not None:
        return RULES["Add a weight"]
    return RULES[step.kind]


def differentiate(t: Trace) -> None:
    """Append the backward pass of everything that leads to a loss. Linear in the number of ops."""
    incoming: dict[tuple[int, int], list[Value]] = defaultdict(list)
    accumulated: dict[Weight, Value] = {}
    for step in reversed(t.steps):
        if not step.outputs[0].trained:
            continue
        gradients: list[Value] = []
        for port, output in enumerate(step.outputs):
            parts = incoming.pop((output.op, port), [])
            gradients += _sum(t, step, parts, port)
        if not gradients and step.kind != "SoftmaxCrossEntropyLoss":
            continue
        if step.kind == "Add":
            # The gradient of a sum is the gradient of each summand: no op is needed.
            for x in step.inputs:
                if x.trained:
                    incoming[x.op, x.port] += _reduce(t, step, gradients[0], x)
        for rule in _rules(step):
            _apply(t, step, rule, gradients, incoming, accumulated)
    for weight, gradient in accumulated.items():
        _update(t, weight, gradient)


def _sum(t: Trace, step: Step, parts: Sequence[Value], port: int) -> Sequence[Value]:
    if len(parts) < 2:
        return parts
    name = f"{step.name}/grad_sum{port if len(step.outputs) > 1 else ''}"
    shape = parts[0].shape
    return t.emit(name, "Sum", parts, [shape], flops=(len(parts) - 1) * parts[0].size, backward=True)


def _reduce(t: Trace, step: Step, gradient: Value, x: Value) -> Sequence[Value]:
    """The gradient of a summand: summed over the axes along which it was repeated."""
    if x.shape == gradient.shape:
        return [gradient]
    name = f"{step.name}/grad_reduce{step.inputs.index(x)}"
    return t.emit(name, "ReduceSum", [gradient], [x.shape], flops=gradient.size, backward=True)


def _apply(
    t: Trace,
    step: Step,
    rule: Rule,
    gradients: Sequence[Value],
    incoming: dict[tuple[int, int], list[Value]],
    accumulated: dict[Weight, Value],
) -> None:
    wanted = range(len(step.inputs)) if rule.gives == (ALL,) else rule.gives
    targets = [i for i in wanted if i == W or step.inputs[i].trained]
    if not targets:
        return
    weight, reads = step.weight, list(gradients)
    reads += [step.outputs[-1] if i == Y else step.inputs[i] for i in rule.reads if i != W]
    also = weight.size if weight is not None and W in rule.reads else 0
    shapes, in_place = [], 0
    for i in targets:
        if i != W:
            shapes.append(step.inputs[i].shape)
            continue
        assert weight is not None
        earlier = accumulated.get(weight)
        shapes.append(_gradient_shape(step, weight, gradients[0], earlier))
        if earlier is not None:
            reads.append(earlier)
            if earlier.shape == weight.shape:
                in_place = weight.size
    outputs = t.emit(
        f"{step.name}/{rule.name}",
        rule.kind,
        reads,
        shapes,
        flops=gradients[0].size if step.kind == "Gather" else step.flops,
        also_reads=also + in_place,
        writes=sum(math.prod(shape) for shape in shapes) - in_place,
        backward=True,
    )
    if weight is not None and (W in targets or W in rule.reads):
        weight.ops.append(outputs[0].op)
    for i, output in zip(targets, outputs, strict=True):
        if i == W:
            assert weight is not None
            accumulated[weight] = output
        else:
            incoming[step.inputs[i].op, step.inputs[i].port].append(output)


def _gradient_shape(step: Step, weight: Weight, gradient: Value, earlier: Value | None) -> tuple[int, ...]:
    """Of the gradient of a weight: a table's is a list of rows, until it meets one of the whole table."""
    if step.kind != "Gather" or (earlier is not None and earlier.shape == weight.shape):
        return weight.shape
    width = weight.shape[1]
    rows = gradient.size // width + (0 if earlier is None else earlier.size // width)
    return (rows, width)


def _update(t: Trace, weight: Weight, gradient: Value) -> None:
    """Subtract the scaled gradient from the weight, in place."""
    name = f"{t.names[weight.ops[0]]}/update"
    weight.ops.append(len(t.names))
    work = 2 * gradient.size
    t.emit(name, "ApplyGradient", [gradient], [], flops=work, also_reads=work, backward=True)
