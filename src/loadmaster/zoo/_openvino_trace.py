"""Writing a network down once, and getting an OpenVINO model that runs, with the ops of its graph by name.

Weights are random, seeded by their name, and made to behave as trained ones do: the output follows the input, and
rounding on the way (bf16) changes it little. Naive random numbers fail in one of two ways: the part that all
activations have in common grows from layer to layer until the output hardly depends on the input, or, where it is
taken away, every layer enlarges small differences, and rounding with them. So

- filters are scaled by their fan-in, and opposite for every two inputs, so that what these have in common is lost in
  any precision;
- channels of convolutions come in mirrored pairs, max(s + x, 0) and max(s - x, 0): read with opposite weights, a pair
  passes on an odd function of x that is nearly straight, and enlarges nothing;
- filters on the image see its edges, not its brightness; residual branches add little to what goes around them.

A batch normalisation is what converters make of it: its factor is part of the convolution's weights, and a vector is
added.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from loadmaster.errors import InputError
from loadmaster.graph.openvino import openvino
from loadmaster.zoo._trace import Shape, Trace, Value, Weight

__all__ = ["OpenvinoTrace"]

SHIFT = 0.5
"""Added by a batch normalisation in front of max(x, 0), beside activations of deviation 1."""
BRANCH = 0.3
"""Deviation of what a residual branch adds, against what goes around it."""
BIAS = 0.05
"""Deviation of other added vectors."""
HEAD = 0.45
"""Deviation of the vector that ends a classifier."""
MASKED = -1e4
"""Added to the attention score of what must not be looked at."""

Array = npt.NDArray[np.float32]


def _mirrored_variance(shift: float) -> float:
    """Of max(shift + x, 0) - max(shift - x, 0), where x is normal with variance 1: what a pair passes on."""
    inside = math.erf(shift / math.sqrt(2))
    density = math.exp(-(shift**2) / 2) / math.sqrt(2 * math.pi)
    # Twice x where |x| < shift, else x and the shift with its sign.
    return 3 * (inside - 2 * shift * density) + 1 + (1 - inside) * shift**2 + 4 * shift * density


class OpenvinoTrace(Trace):
    """A :class:`Trace` that also builds the model; only inference."""

    def __init__(self, name: str, *, seed: int = 0, training: bool = False) -> None:
        if training:
            raise InputError(f"{name}: only inference can be exported: leave out training=1")
        super().__init__(name)
        self._ov = openvino(f"exporting {name}")
        from openvino import opset13

        self._ops = opset13
        self._name, self._seed = name, seed
        self._outputs: dict[tuple[int, int], Any] = {}
        self._parameters: list[Any] = []
        self._results: list[tuple[str, Any]] = []
        self._constants: dict[int, Any] = {}
        self._branches: set[int] = set()

    def model_file(self) -> Any:
        """The ``openvino.Model`` of what was recorded; outputs are what nobody reads."""
        ends = []
        for (op, _), output in self._outputs.items():
            if not output.get_target_inputs() and output.get_node().get_type_name() != "Parameter":
                ends.append((self.names[op], output))
        ends += self._results
        results = []
        for name, output in ends:
            result = self._ops.result(output)
            result.set_friendly_name(f"{name}/result")
            output.get_tensor().set_names({name})
            results.append(result)
        return self._ov.Model(results, self._parameters, self._name)

    # -- nodes -----------------------------------------------------------------------------------------------

    def _of(self, x: Value) -> Any:
        return self._outputs[x.op, x.port]

    def _set(self, y: Value, node: Any) -> Value:
        """Let a node stand for an op of the graph, and have its name."""
        node.set_friendly_name(self.names[y.op])
        self._outputs[y.op, y.port] = node.output(y.port)
        return y

    def _inner(self, y: Value, node: Any, what: str) -> Any:
        """Name a node that comes in front of the one that stands for ``y``."""
        node.set_friendly_name(f"{self.names[y.op]}/{what}")
        return node

    def _whole(self, y: Value, values: Sequence[int] | int, what: str) -> Any:
        """A constant of whole numbers."""
        return self._inner(y, self._ops.constant(np.array(values, np.int64)), what)

    def _real(self, y: Value, values: npt.ArrayLike, what: str) -> Any:
        return self._inner(y, self._ops.constant(np.array(values, np.float32)), what)

    def _random(self, name: str, shape: Shape) -> Array:
        generator = np.random.default_rng([self._seed, zlib.crc32(name.encode())])
        return generator.standard_normal(shape, np.float32)

    def _filters(self, y: Value, shape: Shape, *, gain: float, mirrored: bool = False) -> Any:
        """(outputs, …inputs) random numbers, opposite for every two inputs; ``mirrored``: for every two outputs, too.

        Of an odd number of inputs (the colours of an image) the mean over all positions is taken away.
        """
        values = self._random(self.names[y.op], shape)
        if shape[1] % 2 == 0:
            values[:, 1::2] = -values[:, ::2]
        elif len(shape) > 2:
            values -= values.mean(axis=tuple(range(2, len(shape))), keepdims=True)
        if mirrored and shape[0] % 2 == 0:
            values[1::2] = -values[::2]
        values *= gain / math.sqrt(math.prod(shape[1:]))
        return self._real(y, values, "weight")

    # -- sources ---------------------------------------------------------------------------------------------

    def input(self, *shape: int, ids: bool = False, name: str = "input") -> Value:
        x = super().input(*shape, name=name)
        node = self._ops.parameter(list(shape), np.int64 if ids else np.float32)
        node.output(0).get_tensor().set_names({self.names[x.op]})
        self._parameters.append(node)
        return self._set(x, node)

    def positions(self, *shape: int, first: int = 0, name: str = "position_ids") -> Value:
        y = super().positions(*shape, first=first, name=name)
        values = np.broadcast_to(np.arange(first, first + shape[-1], dtype=np.int64), shape)
        return self._set(y, self._ops.constant(np.ascontiguousarray(values)))

    def attention_mask(self, batch: int, tokens: int) -> Value:
        """From a mask of ones and zeros (batch, tokens), as tokenizers give it."""
        y = super().input(batch, 1, 1, tokens, name="mask_scores")
        ops = self._ops
        mask = ops.parameter([batch, tokens], np.int64)
        mask.set_friendly_name("mask")
        mask.output(0).get_tensor().set_names({"mask"})
        self._parameters.append(mask)
        rows = self._inner(y, ops.unsqueeze(mask, self._whole(y, 1, "axis1")), "rows")
        heads = self._inner(y, ops.unsqueeze(rows, self._whole(y, 2, "axis2")), "heads")
        real = self._inner(y, ops.convert(heads, "f32"), "real")
        hidden = self._inner(y, ops.subtract(self._real(y, 1.0, "one"), real), "hidden")
        return self._set(y, ops.multiply(hidden, self._real(y, MASKED, "score")))

    def output(self, x: Value, *, name: str) -> None:
        self._results.append((name, self._of(x)))

    # -- layers with weights ---------------------------------------------------------------------------------

    def conv(
        self,
        x: Value,
        channels: int,
        kernel: int | Shape,
        *,
        stride: int | Shape = 1,
        padding: str | int = "same",
        bias: bool = False,
        branch: bool = False,
        name: str = "conv",
    ) -> Value:
        y = super().conv(x, channels, kernel, stride=stride, padding=padding, name=name)
        axes = len(x.shape) - 2
        sizes = (kernel,) * axes if isinstance(kernel, int) else kernel
        strides = (stride,) * axes if isinstance(stride, int) else stride
        before, after = self._pads(x, y, sizes, strides, padding)
        gain = 1.0 if x.shape[1] % 2 else (_mirrored_variance(SHIFT) / 2) ** -0.5
        gain *= BRANCH if branch else 1.0
        filters = self._filters(y, (channels, x.shape[1], *sizes), gain=gain, mirrored=True)
        if branch:
            self._branches.add(y.op)
        node = self._ops.convolution(self._of(x), filters, list(strides), before, after, [1] * axes)
        self._set(y, node)
        return self.bias(y, axis=1, name=f"{name}_bias") if bias else y

    @staticmethod
    def _pads(
        x: Value, y: Value, sizes: Sequence[int], strides: Sequence[int], padding: str | int
    ) -> tuple[list[int], list[int]]:
        """As many positions in front as behind, as torch has them; behind what is needed, at least."""
        before, after = [], []
        for n, out, k, s in zip(x.shape[2:], y.shape[2:], sizes, strides, strict=True):
            front = (k - 1) // 2 if padding == "same" else 0 if padding == "valid" else int(padding)
            before.append(front)
            after.append(max((out - 1) * s + k - n - front, 0) if padding == "same" else front)
        return before, after

    def linear(
        self,
        x: Value,
        width: int,
        *,
        weight: Weight | None = None,
        bias: bool = True,
        branch: bool = False,
        name: str = "linear",
    ) -> Value:
        y = super().linear(x, width, weight=weight, bias=False, name=name)
        used = None if weight is None else self._constants.get(id(weight))
        if used is None:
            used = self._filters(y, (width, x.shape[-1]), gain=BRANCH if branch else 1.0)
        node = self._ops.matmul(self._of(x), used, False, True)
        self._set(y, node)
        if not bias:
            return y
        end = super().bias(y, name=f"{name}_bias")
        return self._added(y, end, -1, deviation=HEAD if len(x.shape) == 2 else BIAS)

    def bias(self, x: Value, *, axis: int = -1, weight: Weight | None = None, name: str = "bias") -> Value:
        y = super().bias(x, axis=axis, weight=weight, name=name)
        return self._added(x, y, axis)

    def _added(self, x: Value, y: Value, axis: int, *, mean: float = 0.0, deviation: float = BIAS) -> Value:
        shape = [1] * len(x.shape)
        shape[axis] = x.shape[axis]
        values = mean + deviation * self._random(self.names[y.op], tuple(shape))
        if mean and x.shape[axis] % 2 == 0:
            flat = values.reshape(-1)
            flat[1::2] = flat[::2]  # the same for a pair of mirrored channels
        return self._set(y, self._ops.add(self._of(x), self._real(y, values, "vector")))

    def norm(self, x: Value, kind: str = "Layer", *, name: str = "norm") -> Value:
        y = super().norm(x, kind, name=name)
        if kind == "Batch":
            return self._added(x, y, 1, mean=0.0 if x.op in self._branches else SHIFT)
        if kind != "Layer":
            raise InputError(f"{self._name}: {kind} normalisation cannot be exported")
        normed = self._inner(
            y, self._ops.mvn(self._of(x), self._whole(y, [-1], "axis"), True, 1e-12, "INSIDE_SQRT"), "normed"
        )
        width = (1,) * (len(x.shape) - 1) + (x.shape[-1],)
        factor = 1.0 + BIAS * self._random(f"{self.names[y.op]}/factor", width)
        scaled = self._inner(y, self._ops.multiply(normed, self._real(y, factor, "factor")), "scaled")
        vector = BIAS * self._random(self.names[y.op], width)
        return self._set(y, self._ops.add(scaled, self._real(y, vector, "vector")))

    def embedding(self, ids: Value, weight: Weight, *, name: str = "embedding") -> Value:
        y = super().embedding(ids, weight, name=name)
        if id(weight) not in self._constants:
            values = self._random(self.names[y.op], weight.shape)
            table = self._ops.constant(values)
            table.set_friendly_name(
                self.names[weight.table.op] if weight.table else f"{self.names[y.op]}_table"
            )
            self._constants[id(weight)] = table
        node = self._ops.gather(self._constants[id(weight)], self._of(ids), self._whole(y, 0, "axis"))
        return self._set(y, node)

    # -- layers without --------------------------------------------------------------------------------------

    def map(self, kind: str, *xs: Value, name: str = "") -> Value:
        y = super().map(kind, *xs, name=name)
        if len(xs) == 1 and kind in ("Add", "Mul"):
            return y  # with a constant: scale and shift know it
        ops = self._ops
        single = {"Relu": ops.relu, "Tanh": ops.tanh, "Sigmoid": ops.sigmoid}
        if kind in single:
            return self._set(y, single[kind](self._of(xs[0])))
        if kind == "Gelu":
            return self._set(y, ops.gelu(self._of(xs[0]), "erf"))
        if kind == "Softmax":
            return self._set(y, ops.softmax(self._of(xs[0]), len(y.shape) - 1))
        if kind not in ("Add", "Mul"):
            raise InputError(f"{self._name}: an op {kind} cannot be exported")
        binary = ops.add if kind == "Add" else ops.multiply
        total = self._of(xs[0])
        for i, x in enumerate(xs[1:]):
            total = binary(total, self._of(x))
            if i < len(xs) - 2:
                self._inner(y, total, f"part{i}")
        return self._set(y, total)

    def scale(self, x: Value, factor: float, *, name: str = "scale") -> Value:
        y = super().scale(x, factor, name=name)
        return self._set(y, self._ops.multiply(self._of(x), self._real(y, factor, "factor")))

    def shift(self, x: Value, by: float, *, name: str = "shift") -> Value:
        y = super().shift(x, by, name=name)
        return self._set(y, self._ops.add(self._of(x), self._real(y, by, "by")))

    def matmul(self, a: Value, b: Value, *, transposed: bool = False, name: str = "matmul") -> Value:
        y = super().matmul(a, b, transposed=transposed, name=name)
        right = self._of(b)
        if transposed:  # an op of its own, as in what torch exports
            order = [*range(len(b.shape) - 2), len(b.shape) - 1, len(b.shape) - 2]
            right = self._inner(y, self._ops.transpose(right, self._whole(y, order, "order")), "turned")
        return self._set(y, self._ops.matmul(self._of(a), right, False, False))

    def pool(
        self,
        x: Value,
        kind: str,
        kernel: int,
        *,
        stride: int = 1,
        padding: str | int = "same",
        name: str = "pool",
    ) -> Value:
        y = super().pool(x, kind, kernel, stride=stride, padding=padding, name=name)
        axes = len(x.shape) - 2
        sizes, strides = [kernel] * axes, [stride] * axes
        before, after = self._pads(x, y, sizes, strides, padding)
        if kind == "MaxPool":
            node = self._ops.max_pool(self._of(x), strides, [1] * axes, before, after, sizes)
        else:
            node = self._ops.avg_pool(self._of(x), strides, before, after, sizes, False)
        return self._set(y, node)

    def mean(self, x: Value, *, name: str = "mean") -> Value:
        y = super().mean(x, name=name)
        axes = self._whole(y, list(range(2, len(x.shape))), "axes")
        mean = self._inner(y, self._ops.reduce_mean(self._of(x), axes, True), "kept")
        return self._set(y, self._ops.reshape(mean, self._whole(y, list(y.shape), "shape"), False))

    def concat(self, xs: Sequence[Value], *, axis: int = 1, state: int = 0, name: str = "concat") -> Value:
        """``state`` comes in as an input, and the rows that join it are an output."""
        y = super().concat(xs, axis=axis, state=state, name=name)
        parts = [self._of(x) for x in xs]
        if state:
            shape = list(xs[0].shape)
            shape[axis] = state
            past = self._ops.parameter(shape, np.float32)
            past.set_friendly_name(f"{self.names[y.op]}/past")
            past.output(0).get_tensor().set_names({f"{self.names[y.op]}/past"})
            self._parameters.append(past)
            self._results.append((f"{self.names[y.op]}/new", parts[0]))
            parts = [past.output(0), *parts]
        return self._set(y, self._ops.concat(parts, axis))

    def split(self, x: Value, parts: int, *, axis: int = -1, name: str = "split") -> tuple[Value, ...]:
        ys = super().split(x, parts, axis=axis, name=name)
        node = self._ops.split(self._of(x), self._whole(ys[0], axis, "axis"), parts)
        return tuple(self._set(y, node) for y in ys)

    def slice(self, x: Value, *shape: int, name: str = "slice") -> Value:
        """The first position of axis 1, which goes."""
        y = super().slice(x, *shape, name=name)
        if shape != (x.shape[0], *x.shape[2:]):
            raise InputError(f"{self._name}: the part {self.names[y.op]!r} of a tensor cannot be exported")
        return self._set(
            y, self._ops.gather(self._of(x), self._whole(y, 0, "first"), self._whole(y, 1, "axis"))
        )

    def channel(self, x: Value, number: int, *, name: str = "channel") -> Value:
        y = Trace.slice(self, x, x.shape[0], 1, *x.shape[2:], name=name)
        taken = self._ops.gather(self._of(x), self._whole(y, number, "number"), self._whole(y, 1, "axis"))
        return self._set(y, self._ops.unsqueeze(self._inner(y, taken, "taken"), self._whole(y, 1, "kept")))

    def transpose(self, x: Value, *shape: int, name: str = "transpose") -> Value:
        """Heads of attention: (batch, tokens, width) to (batch, heads, tokens, part) or back."""
        y = super().transpose(x, *shape, name=name)
        if {len(x.shape), len(shape)} != {3, 4}:
            raise InputError(f"{self._name}: the transposition {self.names[y.op]!r} cannot be exported")
        order = self._whole(y, [0, 2, 1, 3], "order")
        if len(shape) == 4:
            batch, heads, tokens, part = shape
            apart = self._whole(y, [batch, tokens, heads, part], "shape")
            node = self._inner(y, self._ops.reshape(self._of(x), apart, False), "apart")
            return self._set(y, self._ops.transpose(node, order))
        node = self._inner(y, self._ops.transpose(self._of(x), order), "order_back")
        return self._set(y, self._ops.reshape(node, self._whole(y, list(shape), "shape"), False))
