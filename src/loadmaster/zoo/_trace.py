"""Writing a network down like its forward pass, and getting its operator graph.

Everything is float32 (token ids count four bytes, too). A multiply-add is two floating point operations.
Images are (batch, channels, height, width), sequences (batch, tokens, width) or (batch, channels, tokens).
Op types are ONNX's where it has the op.

``bytes_written`` is what an op allocates; an op that works in place books its traffic as read. A weight that
several ops read (unrolled in time, tied) is stored once, as ``param_bytes`` of the first of them; the others
read it as any input, and all of them are one colocation group. A table of which rows are looked up is an op
of its own, so that the look-up is not taken to read all of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from loadmaster.errors import InputError
from loadmaster.files import check_limit, limit
from loadmaster.graph import GraphBuilder, Network
from loadmaster.graph.onnx import FLOPS_PER_ELEMENT

__all__ = ["BYTES", "Step", "Trace", "Tracer", "Value", "Weight", "ZooModel"]

BYTES = 4
"""Size of an element."""

Shape = tuple[int, ...]


@dataclass(frozen=True, eq=False, repr=False)
class ZooModel(Network):
    """A model of the zoo; ops that share a weight are its readers, their gradients and its update.

    Attributes
    ----------
    family : e.g. ``"gnmt"``.
    parameters : number of trained weights, tied ones counted once.
    macs : multiply-adds of the convolutions and matrix products of the forward pass.
    """

    family: str = ""
    parameters: int = 0
    macs: int = 0

    def __repr__(self) -> str:
        return f"ZooModel({self.graph!r}, {self.parameters:,} parameters)"


@dataclass(eq=False, slots=True)
class Weight:
    """A trained tensor and the ops that touch it."""

    shape: Shape
    ops: list[int] = field(default_factory=list)
    table: Value | None = None
    """Where rows are looked up: the op that holds the table."""

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


class Value(NamedTuple):
    """One output of an op."""

    op: int
    port: int
    shape: Shape
    trained: bool
    """Whether it depends on a weight, so that a gradient flows back into it."""

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


class Step(NamedTuple):
    """One op of the forward pass, as the backward pass needs to know it."""

    name: str
    kind: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    weight: Weight | None
    flops: float


class Trace:
    """Records the ops of a network.

    >>> t = Trace("tiny")
    >>> x = t.input(1, 3, 8, 8)
    >>> with t.scope("block1"):
    ...     x = t.relu(t.conv(x, 16, 3, stride=2))
    >>> t.model("tiny")
    ZooModel(Graph('tiny', 3 ops, 2 tensors, 2 edges), 432 parameters)

    With ``training`` the ops that only training has (dropout) are recorded, and :meth:`loss` starts the
    backward pass.
    """

    def __init__(self, name: str, *, training: bool = False) -> None:
        self.training = training
        self.steps: list[Step] = []
        self.weights: list[Weight] = []
        self.names: list[str] = []
        self._builder = GraphBuilder(name)
        self._most = limit("layers")
        self._readers: list[list[dict[int, None]]] = []
        self._sizes: list[list[int]] = []
        self._scope = ""
        self._seen: dict[str, int] = {}
        self._inputs: list[int] = []
        self._macs = 0

    # -- names -----------------------------------------------------------------------------------------------

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Ops recorded inside are called ``name/…``; scopes nest."""
        outer, self._scope = self._scope, f"{self._scope}{name}/"
        yield
        self._scope = outer

    def _unique(self, name: str) -> str:
        """The name within the scope; the second of its kind gets ``_1``."""
        full = self._scope + name
        count = self._seen.get(full, 0)
        self._seen[full] = count + 1
        return f"{full}_{count}" if count else full

    # -- recording -------------------------------------------------------------------------------------------

    def emit(
        self,
        name: str,
        kind: str,
        inputs: Sequence[Value],
        shapes: Sequence[Shape],
        *,
        flops: float = 0,
        reads: float | None = None,
        also_reads: float = 0,
        writes: float | None = None,
        stores: float = 0,
        trained: bool = False,
        backward: bool = False,
    ) -> tuple[Value, ...]:
        """Add an op to the graph; ``reads``, ``also_reads``, ``writes`` and ``stores`` are numbers of
        elements."""
        if len(self.names) == self._most:
            check_limit(
                "layers", self._most + 1, f"{self._builder.name}: the graph has more than {self._most:,} ops"
            )
        sizes = [math.prod(shape) for shape in shapes]
        if any(n < 1 for shape in shapes for n in shape):
            raise InputError(
                f"{self._builder.name}: the input is too small: nothing is left of it at op {name!r}"
            )
        read = sum(x.size for x in inputs) if reads is None else reads
        v = self._builder.op(
            name,
            kind,
            shapes=shapes,
            flops=float(flops),
            bytes_read=float(BYTES * (read + also_reads)),
            bytes_written=float(BYTES * (sum(sizes) if writes is None else writes)),
            param_bytes=float(BYTES * stores),
            backward=backward,
            boundary=kind == "Parameter",
        )
        self.names.append(name)
        for x in inputs:
            self._readers[x.op][x.port][v] = None
        self._readers.append([{} for _ in shapes])
        self._sizes.append(sizes)
        return tuple([Value(v, port, shape, trained) for port, shape in enumerate(shapes)])

    def op(
        self,
        kind: str,
        inputs: Sequence[Value],
        shapes: Sequence[Shape],
        *,
        flops: float = 0,
        reads: float | None = None,
        weight: Weight | None = None,
        weight_reads: int | None = None,
        state: int = 0,
        name: str = "",
    ) -> tuple[Value, ...]:
        """Record an op of the forward pass.

        ``reads``: elements read of the inputs (default: all). ``weight_reads``: elements read of a weight
        that is stored elsewhere (default: all). ``state``: elements that stay on the device from one run to
        the next (a cache).
        """
        stores, also = state, 0
        if weight is not None:
            if weight.ops:
                also = weight.size if weight_reads is None else weight_reads
            else:
                stores += weight.size
        trained = weight is not None or any(x.trained for x in inputs)
        full = self._unique(name or kind.lower())
        outputs = self.emit(
            full,
            kind,
            inputs,
            shapes,
            flops=flops,
            reads=reads,
            also_reads=also,
            stores=stores,
            trained=trained,
        )
        if weight is not None:
            weight.ops.append(outputs[0].op)
        if kind in ("Conv", "ConvTranspose", "MatMul"):
            self._macs += int(flops) // 2
        self.steps.append(Step(full, kind, tuple(inputs), outputs, weight, flops))
        return outputs

    def weight(self, *shape: int) -> Weight:
        """A trained tensor; it is stored with the first op that uses it."""
        self.weights.append(Weight(shape))
        return self.weights[-1]

    # -- sources ---------------------------------------------------------------------------------------------

    def input(self, *shape: int, ids: bool = False, name: str = "input") -> Value:
        """Something that comes from the host; ``ids`` are whole numbers (rows of a table)."""
        (x,) = self.op("Parameter", [], [shape], name=name)
        self._inputs.append(x.op)
        return x

    def zeros(self, *shape: int, name: str = "zeros") -> Value:
        """A constant made on the device."""
        return self.op("Constant", [], [shape], name=name)[0]

    def positions(self, *shape: int, first: int = 0, name: str = "position_ids") -> Value:
        """The numbers from ``first`` on, along the last axis."""
        return self.zeros(*shape, name=name)

    def attention_mask(self, batch: int, tokens: int) -> Value:
        """What is added to attention scores so that padding is not looked at, from the host."""
        return self.input(batch, 1, 1, tokens, name="mask")

    def output(self, x: Value, *, name: str) -> None:
        """Say that something which other ops read is also a result."""

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
        """Convolution over the axes after the second; dilation changes neither shapes nor work under
        ``same``.

        ``branch``: its output is added to what went around it; that matters to weights alone.
        """
        axes = len(x.shape) - 2
        sizes, strides = _tuple(kernel, axes), _tuple(stride, axes)
        places = [_positions(n, k, s, padding) for n, k, s in zip(x.shape[2:], sizes, strides, strict=True)]
        out = (x.shape[0], channels, *places)
        weight = self.weight(channels, x.shape[1], *sizes)
        flops = 2 * math.prod(out) * x.shape[1] * math.prod(sizes)
        (y,) = self.op("Conv", [x], [out], flops=flops, weight=weight, name=name)
        return self.bias(y, axis=1, name=f"{name}_bias") if bias else y

    def conv_transpose(self, x: Value, channels: int, kernel: int, *, name: str = "up") -> Value:
        """Convolution that enlarges each axis by its kernel (stride = kernel), with a bias."""
        out = (x.shape[0], channels, *(n * kernel for n in x.shape[2:]))
        taps = kernel ** (len(x.shape) - 2)
        weight = self.weight(x.shape[1], channels, taps)
        (y,) = self.op(
            "ConvTranspose", [x], [out], flops=2 * x.size * channels * taps, weight=weight, name=name
        )
        return self.bias(y, axis=1, name=f"{name}_bias")

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
        """A matrix product over the last axis, and a bias; ``branch`` as in :meth:`conv`."""
        used = weight or self.weight(x.shape[-1], width)
        flops = 2 * x.size * width
        (y,) = self.op("MatMul", [x], [(*x.shape[:-1], width)], flops=flops, weight=used, name=name)
        return self.bias(y, name=f"{name}_bias") if bias else y

    def bias(self, x: Value, *, axis: int = -1, weight: Weight | None = None, name: str = "bias") -> Value:
        """Add a trained vector along an axis."""
        used = weight or self.weight(x.shape[axis])
        return self.op("Add", [x], [x.shape], flops=x.size, weight=used, name=name)[0]

    def norm(self, x: Value, kind: str = "Layer", *, name: str = "norm") -> Value:
        """``Batch`` normalisation over channels, ``Layer`` or ``RMS`` normalisation over the last axis."""
        shape = {"Batch": (2, x.shape[1]), "Layer": (2, x.shape[-1]), "RMS": (x.shape[-1],)}[kind]
        full = f"{kind}Normalization"
        flops = FLOPS_PER_ELEMENT[full] * x.size
        return self.op(full, [x], [x.shape], flops=flops, weight=self.weight(*shape), name=name)[0]

    def embedding(self, ids: Value, weight: Weight, *, name: str = "embedding") -> Value:
        """One row of the table per id."""
        if weight.table is None:
            (weight.table,) = self.emit(
                self._unique(f"{name}_table"), "Constant", [], [weight.shape], writes=0, stores=weight.size
            )
            weight.ops.append(weight.table.op)
        out = (*ids.shape, weight.shape[1])
        rows = math.prod(out)
        inputs = [ids, weight.table]
        return self.op(
            "Gather", inputs, [out], reads=ids.size + rows, weight=weight, weight_reads=0, name=name
        )[0]

    # -- layers without --------------------------------------------------------------------------------------

    def map(self, kind: str, *xs: Value, name: str = "") -> Value:
        """An element-wise op, with broadcasting; ``Add`` and ``Mul`` of one value are with a constant."""
        shape = _broadcast([x.shape for x in xs])
        flops = FLOPS_PER_ELEMENT.get(kind, 1) * math.prod(shape)
        return self.op(kind, xs, [shape], flops=flops, name=name)[0]

    def add(self, *xs: Value, name: str = "add") -> Value:
        """The sum."""
        return self.map("Add", *xs, name=name)

    def mul(self, a: Value, b: Value, *, name: str = "mul") -> Value:
        """The product, element by element."""
        return self.map("Mul", a, b, name=name)

    def scale(self, x: Value, factor: float, *, name: str = "scale") -> Value:
        """The product with a constant."""
        return self.map("Mul", x, name=name)

    def shift(self, x: Value, by: float, *, name: str = "shift") -> Value:
        """The sum with a constant."""
        return self.map("Add", x, name=name)

    def channel(self, x: Value, number: int, *, name: str = "channel") -> Value:
        """One position of axis 1, which stays."""
        return self.slice(x, x.shape[0], 1, *x.shape[2:], name=name)

    def relu(self, x: Value, *, name: str = "relu") -> Value:
        """max(x, 0)."""
        return self.map("Relu", x, name=name)

    def softmax(self, x: Value, *, name: str = "softmax") -> Value:
        """Over the last axis."""
        return self.map("Softmax", x, name=name)

    def matmul(self, a: Value, b: Value, *, transposed: bool = False, name: str = "matmul") -> Value:
        """The product of two activations over the last two axes; ``transposed``: b is (…, columns, inner)."""
        columns = b.shape[-2] if transposed else b.shape[-1]
        out = (*a.shape[:-1], columns)
        return self.op("MatMul", [a, b], [out], flops=2 * a.size * columns, name=name)[0]

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
        """``MaxPool`` or ``AveragePool`` over the axes after the second."""
        out = (*x.shape[:2], *(_positions(n, kernel, stride, padding) for n in x.shape[2:]))
        flops = math.prod(out) * kernel ** (len(x.shape) - 2)
        return self.op(kind, [x], [out], flops=flops, name=name)[0]

    def mean(self, x: Value, *, name: str = "mean") -> Value:
        """The mean over all axes after the second."""
        return self.op("ReduceMean", [x], [x.shape[:2]], flops=x.size, name=name)[0]

    def concat(self, xs: Sequence[Value], *, axis: int = 1, state: int = 0, name: str = "concat") -> Value:
        """Join along an axis, in front of it ``state`` positions that stayed on the device from the last
        run."""
        shape = list(xs[0].shape)
        shape[axis] = sum(x.shape[axis] for x in xs) + state
        kept = state * math.prod(shape) // shape[axis]
        return self.op("Concat", xs, [tuple(shape)], state=kept, name=name)[0]

    def split(self, x: Value, parts: int, *, axis: int = -1, name: str = "split") -> tuple[Value, ...]:
        """Equal parts along an axis."""
        shape = list(x.shape)
        shape[axis] //= parts
        return self.op("Split", [x], [tuple(shape)] * parts, name=name)

    def unstack(self, x: Value, *, name: str = "unstack") -> tuple[Value, ...]:
        """The positions of axis 1, one by one."""
        return self.op("Split", [x], [(x.shape[0], *x.shape[2:])] * x.shape[1], name=name)

    def stack(self, xs: Sequence[Value], *, name: str = "stack") -> Value:
        """The inverse of :meth:`unstack`."""
        return self.op("Concat", xs, [(xs[0].shape[0], len(xs), *xs[0].shape[1:])], name=name)[0]

    def slice(self, x: Value, *shape: int, name: str = "slice") -> Value:
        """A part of this shape."""
        return self.op("Slice", [x], [shape], reads=math.prod(shape), name=name)[0]

    def transpose(self, x: Value, *shape: int, name: str = "transpose") -> Value:
        """The same elements in another order and shape."""
        return self.op("Transpose", [x], [shape], name=name)[0]

    def dropout(self, x: Value, *, name: str = "dropout") -> Value:
        """A random mask and its product with x; nothing outside training."""
        if not self.training:
            return x
        (mask,) = self.op("Bernoulli", [], [x.shape], flops=4 * x.size, name=f"{name}_mask")
        return self.mul(x, mask, name=name)

    def loss(self, logits: Value, *, axis: int = -1, name: str = "loss") -> None:
        """Softmax cross entropy over an axis against labels from the host: the start of the backward pass."""
        shape = list(logits.shape)
        del shape[axis]
        labels = self.input(*shape, name=f"{name}_labels")
        flops = FLOPS_PER_ELEMENT["Softmax"] * logits.size
        # The second output is the probabilities, which the gradient needs.
        self.op("SoftmaxCrossEntropyLoss", [logits, labels], [(1,), logits.shape], flops=flops, name=name)

    # -- the result ------------------------------------------------------------------------------------------

    def model(self, family: str) -> ZooModel:
        """The graph of what was recorded, with the backward pass if there was a loss."""
        from loadmaster.zoo._backward import differentiate

        differentiate(self)
        for v, ports in enumerate(self._readers):
            for size, readers in zip(self._sizes[v], ports, strict=True):
                if readers:
                    self._builder.tensor(v, bytes=float(BYTES * size), consumers=readers)
        return ZooModel(
            graph=self._builder.build(),
            family=family,
            colocation=tuple(tuple(weight.ops) for weight in self.weights if len(weight.ops) > 1),
            inputs=tuple(self._inputs),
            parameters=sum(weight.size for weight in self.weights),
            macs=self._macs,
        )


def _tuple(value: int | Shape, axes: int) -> Shape:
    return (value,) * axes if isinstance(value, int) else value


def _positions(size: int, kernel: int, stride: int, padding: str | int) -> int:
    """Number of positions of a window along an axis."""
    if padding == "same":
        return -(-size // stride)
    margin = 0 if padding == "valid" else int(padding)
    return (size + 2 * margin - kernel) // stride + 1


def _broadcast(shapes: Sequence[Shape]) -> Shape:
    rank = max(len(shape) for shape in shapes)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(max(sizes) for sizes in zip(*padded, strict=True))


Tracer = Callable[..., Trace]
"""What a network is written down with: :class:`Trace`, or something that makes more of the same calls."""
