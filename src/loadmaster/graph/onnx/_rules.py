"""Floating point operations of the ONNX operators whose work takes more than a factor per element."""

from __future__ import annotations

import math
from collections.abc import Callable

from loadmaster.graph.onnx._op import Op

__all__ = ["RULES", "SOFTMAX", "SWISH"]

SOFTMAX, SWISH = 5, 5
"""Per element."""


def _n_ary(op: Op) -> float:
    given = sum(tensor is not None for tensor in op.inputs)
    return (given - (op.type != "Mean")) * op.output.size


def _pow(op: Op) -> float:
    """Squares, cubes and roots are products and roots; any other power is an exponential of a logarithm."""
    exponent = op.values.get(1)
    common = {2.0: 1, 1.0: 0, 0.5: 1, 3.0: 2, -1.0: 1, -0.5: 2}
    per = 9 if exponent is None or exponent.size != 1 else common.get(float(exponent.item()), 9)
    return per * op.output.size


def _dropout(op: Op) -> float:
    training = op.values.get(2)
    return 5 * op.output.size if training is not None and bool(training.any()) else 0


def _conv(op: Op) -> float:
    return 2 * _filtered(op) + op.has(2) * op.output.size


def _filtered(op: Op, weight: int = 1) -> int:
    """Multiply-adds: every element of the output takes one filter (filters, channels / groups, *kernel)."""
    return op.output.size * math.prod(op.input(weight).shape[1:])


def _conv_transpose(op: Op) -> float:
    """Every element of the input takes one filter (channels, filters / groups, *kernel)."""
    return 2 * op.input(0).size * math.prod(op.input(1).shape[1:]) + op.has(2) * op.output.size


def _deform_conv(op: Op) -> float:
    """A convolution over samples, each interpolated between four neighbours (and masked)."""
    x, filters, y = op.input(0), op.input(1), op.output
    samples = y.size // y.shape[1] * x.shape[1] * math.prod(filters.shape[2:])
    return 2 * _filtered(op) + op.has(3) * y.size + (8 + op.has(4)) * samples


def _qlinear_conv(op: Op) -> float:
    """With what brings the sums back to eight bits."""
    return 2 * _filtered(op, weight=3) + (3 + op.has(8)) * op.output.size


def _causal_conv(op: Op) -> float:
    active = op.attributes.get("activation", "none") != "none"
    return _conv(op) + active * SWISH * op.output.size


def _matmul(op: Op) -> float:
    return 2 * op.output.size * op.input(0).shape[-1]


def _qlinear_matmul(op: Op) -> float:
    return _matmul(op) + 3 * op.output.size


def _gemm(op: Op) -> float:
    inner = op.input(0).shape[0 if op.attributes.get("transA", 0) else 1]
    scaled = op.attributes.get("alpha", 1.0) != 1.0
    return (2 * inner + scaled + op.has(2)) * op.output.size


def _einsum(op: Op) -> float:
    """The operands are joined from left to right; an index is summed over as soon as nobody needs it."""
    left, arrow, result = str(op.attributes["equation"]).replace(" ", "").partition("->")
    operands = [_indices(term, len(op.input(i).shape)) for i, term in enumerate(left.split(","))]
    size: dict[str, int] = {}
    for i, names in enumerate(operands):
        for name, length in zip(names, op.input(i).shape, strict=True):
            size[name] = max(length, size.get(name, 0))
    if arrow:
        kept = set(_indices(result, len(op.output.shape)))
    else:
        every = [name for names in operands for name in names]
        kept = {name for name in every if every.count(name) == 1 or name.startswith("...")}
    total, joined = 0, set[str]()
    for i, names in enumerate(operands):
        joined |= set(names)
        needed = kept.union(*operands[i + 1 :])
        total += math.prod(size[name] for name in joined) * ((i > 0) + (not joined <= needed))
        joined &= needed
    return total


def _indices(term: str, rank: int) -> list[str]:
    """The indices of an operand; those of an ellipsis are numbered from the right, as they broadcast."""
    before, dots, after = term.partition("...")
    covered = range(rank - len(before) - len(after), 0, -1) if dots else ()
    return [*before, *(f"...{k}" for k in covered), *after]


def _recurrent(op: Op) -> float:
    """Two products per gate and step, and the cell per hidden unit: its sums, activations and products."""
    x, w = op.input(0), op.input(1)
    gates, cell = {"LSTM": (4, 28 + 6 * op.has(7)), "GRU": (3, 19), "RNN": (1, 6)}[op.type]
    hidden = w.shape[1] // gates
    step = 2 * gates * hidden * (w.shape[2] + hidden) + hidden * (cell + gates * (1 + op.has(3)))
    return w.shape[0] * math.prod(x.shape[:2]) * step


def _attention(op: Op) -> float:
    """Scores, softmax and the weighted sum, for every query and every key that the window lets it see."""
    q, k, v = op.input(0), op.input(1), op.input(2)
    heads, kv_heads = op.attributes.get("q_num_heads", 0), op.attributes.get("kv_num_heads", 0)
    if len(q.shape) == 4:
        rows, width, keys, out = math.prod(q.shape[:3]), q.shape[3], k.shape[2], v.shape[3]
    else:
        rows, width = q.shape[0] * q.shape[1] * heads, q.shape[2] // heads
        keys, out = k.shape[1], v.shape[2] // kv_heads
    keys += op.input(4).shape[2] if op.has(4) else 0
    left, right = op.attributes.get("left_window_size", -1), op.attributes.get("right_window_size", -1)
    if op.attributes.get("is_causal", 0) and left >= 0:
        right = 0
    if left >= 0 and right >= 0:
        keys = min(keys, left + right + 1)
    capped = 8 if op.attributes.get("softcap", 0.0) else 0
    return rows * keys * (2 * width + 2 * out + SOFTMAX + 1 + op.has(3) + capped)


def _linear_attention(op: Op) -> float:
    """A read of the state per query head, an update of it per key head; the rule says what the update
    takes."""
    state = next(tensor for tensor in reversed(op.outputs) if tensor is not None).shape
    tokens, rule = math.prod(op.input(0).shape[:2]), str(op.attributes.get("update_rule", "gated_delta"))
    update = 2 + ("gated" in rule) + 2 * ("delta" in rule)
    heads = op.attributes["q_num_heads"]
    return tokens * state[2] * state[3] * (2 * heads + update * state[1])


def _pool(op: Op) -> float:
    return (1 + (op.type == "LpPool")) * op.output.size * math.prod(op.attributes["kernel_shape"])


def _lrn(op: Op) -> float:
    return (2 * op.attributes["size"] + 12) * op.output.size


def _resize(op: Op) -> float:
    """Multiply-adds with the neighbours along every axis that changes."""
    taps = {"nearest": 0, "linear": 2, "bilinear": 2, "cubic": 4}[op.attributes.get("mode", "nearest")]
    axes = sum(a != b for a, b in zip(op.input(0).shape, op.output.shape, strict=True))
    return 2 * taps**axes * op.output.size if taps and axes else 0


def _grid_sample(op: Op) -> float:
    mode = op.attributes.get("mode", "linear")
    taps = {"nearest": 0, "cubic": 4, "bicubic": 4}.get(mode, 2)
    return 2 * taps ** (len(op.input(0).shape) - 2) * op.output.size if taps else 0


def _affine_grid(op: Op) -> float:
    return 2 * (op.output.shape[-1] + 1) * op.output.size


def _roi_align(op: Op) -> float:
    """Four neighbours per sample; where the number of samples follows from the region, two each way."""
    return 9 * (op.attributes.get("sampling_ratio", 0) or 2) ** 2 * op.output.size


def _scatter(op: Op) -> float:
    return op.input(2).size if op.attributes.get("reduction", "none") != "none" else 0


def _top_k(op: Op) -> float:
    """A heap of the k best."""
    k = op.output.shape[op.attributes.get("axis", -1)]
    return op.input(0).size * math.ceil(math.log2(k + 1))


def _unique(op: Op) -> float:
    return op.input(0).size * math.ceil(math.log2(op.input(0).size + 1))


def _det(op: Op) -> float:
    return op.input(0).size * op.input(0).shape[-1] * 2 / 3


def _dft(op: Op) -> float:
    """Cooley and Tukey's 5 n log n per transform."""
    y = op.output.shape
    axis = int(op.values[2].item()) if 2 in op.values else op.attributes.get("axis", -2)
    length = _signal(y[axis], op) if op.has(1) else op.input(0).shape[axis]
    return op.output.size // max(y[-1] * y[axis], 1) * _transform(length)


def _stft(op: Op) -> float:
    """A transform per frame, after the window."""
    y = op.output.shape
    return y[0] * y[1] * (_transform(length := _signal(y[2], op)) + op.has(2) * length)


def _signal(bins: int, op: Op) -> int:
    """Length of a signal of which a transform gives so many bins, or half as many."""
    return 2 * (bins - 1) if op.attributes.get("onesided", 0) else bins


def _transform(length: int) -> float:
    return 5 * length * math.log2(length) if length > 1 else 0


def _nll_loss(op: Op) -> float:
    return 2 * op.input(1).size


RULES: dict[str, Callable[[Op], float]] = {
    "Max": _n_ary,
    "Mean": _n_ary,
    "Min": _n_ary,
    "Sum": _n_ary,
    "AveragePool": _pool,
    "LpPool": _pool,
    "MaxPool": _pool,
    "GRU": _recurrent,
    "LSTM": _recurrent,
    "RNN": _recurrent,
    "MatMul": _matmul,
    "MatMulInteger": _matmul,
    "Resize": _resize,
    "Upsample": _resize,
    "Scatter": _scatter,
    "ScatterElements": _scatter,
    "ScatterND": _scatter,
    "AffineGrid": _affine_grid,
    "Attention": _attention,
    "CausalConvWithState": _causal_conv,
    "Conv": _conv,
    "ConvInteger": lambda op: 2 * _filtered(op),
    "ConvTranspose": _conv_transpose,
    "DFT": _dft,
    "DeformConv": _deform_conv,
    "Det": _det,
    "Dropout": _dropout,
    "Einsum": _einsum,
    "Gemm": _gemm,
    "GridSample": _grid_sample,
    "LRN": _lrn,
    "LinearAttention": _linear_attention,
    "NegativeLogLikelihoodLoss": _nll_loss,
    "Pow": _pow,
    "QLinearConv": _qlinear_conv,
    "QLinearMatMul": _qlinear_matmul,
    "RoiAlign": _roi_align,
    "STFT": _stft,
    "TopK": _top_k,
    "Unique": _unique,
}
"""Operators whose work takes more than a factor."""
