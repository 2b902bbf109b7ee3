"""Graphs to try things on, by name: ``zoo:layered-1000?width=4&seed=3``."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import get_type_hints
from urllib.parse import parse_qsl

import msgspec

from loadmaster.errors import InputError
from loadmaster.graph import Graph, GraphBuilder, layered

__all__ = ["graph", "inception_like", "names", "transformer_like"]

LARGEST = 1_000_000
"""Number behind a family's name that is still taken for what the user meant."""


def graph(name: str) -> Graph:
    """The graph called ``family-number``, with parameters of the family after a question mark.

    >>> graph("inception-like-3")
    Graph('inception-like-3', 32 ops, 31 tensors, 40 edges)
    """
    match = re.fullmatch(r"([a-z-]+)-(\d+)(?:\?(.*))?", name)
    if not match or match[1] not in FAMILIES:
        raise InputError(f"the zoo has no graph {name!r}: give e.g. {', '.join(names())}")
    make, number = FAMILIES[match[1]], int(match[2])
    if number > LARGEST:
        raise InputError(f"the zoo makes graphs up to {match[1]}-{LARGEST}, not {name!r}")
    hints = {key: hint for key, hint in get_type_hints(make).items() if key not in ("n", "return")}
    parameters = {}
    for key, text in parse_qsl(match[3] or "", keep_blank_values=True):
        if key not in hints:
            raise InputError(
                f"zoo:{name}: {match[1]} has no parameter {key!r}: choose from {', '.join(hints)}"
            )
        try:
            parameters[key] = msgspec.convert(text, hints[key], strict=False)
        except msgspec.ValidationError:
            raise InputError(
                f"zoo:{name}: {key} must be of type {hints[key].__name__}, not {text!r}"
            ) from None
    return make(number, **parameters)


def names() -> list[str]:
    """An example of every family."""
    return ["layered-1000", "inception-like-9", "transformer-like-12"]


def inception_like(n: int, *, channels: int = 256, size: int = 35) -> Graph:
    """A stem and ``n`` blocks of four parallel branches of convolutions that end in a Concat.

    Parameters
    ----------
    n : number of blocks.
    channels : channels between blocks; a quarter of them per branch.
    size : height and width of the feature maps.
    """
    _positive(channels=channels, size=size)
    net = _Network(f"inception-like-{n}")

    def conv(name: str, source: int, inputs: int, outputs: int, kernel: int) -> int:
        weights = inputs * outputs * kernel * kernel
        return net.op(
            name, "Conv", [source], (1, outputs, size, size), flops=2 * weights * size**2, weights=weights
        )

    last = net.op("stem/image", "Parameter", [], (1, 3, size, size))
    last = conv("stem/conv1", last, 3, 32, 3)
    last = conv("stem/conv2", last, 32, 64, 3)
    last = net.op("stem/pool", "MaxPool", [last], (1, 64, size, size), flops=9 * 64 * size**2)
    width, quarter = 64, max(1, channels // 4)
    for i in range(n):
        block = f"block{i}"
        one = conv(f"{block}/1x1", last, width, quarter, 1)
        three = conv(f"{block}/3x3/reduce", last, width, quarter, 1)
        three = conv(f"{block}/3x3/conv", three, quarter, quarter, 3)
        double = conv(f"{block}/double/reduce", last, width, quarter, 1)
        double = conv(f"{block}/double/conv1", double, quarter, quarter, 3)
        double = conv(f"{block}/double/conv2", double, quarter, quarter, 3)
        pool = net.op(f"{block}/pool", "AvgPool", [last], (1, width, size, size), flops=9 * width * size**2)
        pool = conv(f"{block}/pool/project", pool, width, quarter, 1)
        width = 4 * quarter
        last = net.op(f"{block}/concat", "Concat", [one, three, double, pool], (1, width, size, size))
    net.op("result", "Result", [last], (1, width, size, size))
    return net.build()


def transformer_like(n: int, *, width: int = 768, heads: int = 12, tokens: int = 128) -> Graph:
    """An encoder of ``n`` layers: q, k, v, attention head by head, residuals and an MLP.

    Parameters
    ----------
    n : number of layers.
    width : size of an embedding.
    heads : attention heads per layer.
    tokens : length of the sequence.
    """
    _positive(width=width, heads=heads, tokens=tokens)
    net = _Network(f"transformer-like-{n}")
    part = max(1, width // heads)

    def linear(name: str, source: int, inputs: int, outputs: int) -> int:
        weights = inputs * outputs
        return net.op(
            name, "MatMul", [source], (tokens, outputs), flops=2 * weights * tokens, weights=weights
        )

    def pointwise(name: str, kind: str, sources: Sequence[int], outputs: int, cost: float) -> int:
        return net.op(name, kind, sources, (tokens, outputs), flops=cost * tokens * outputs)

    last = net.op("tokens", "Parameter", [], (tokens,))
    last = net.op("embedding", "Gather", [last], (tokens, width), weights=30_000 * width)
    for i in range(n):
        layer = f"layer{i}"
        q, k, v = (linear(f"{layer}/{letter}", last, width, width) for letter in "qkv")
        seen = []
        for h in range(heads):
            head = f"{layer}/head{h}"
            attention = 2 * tokens * tokens * part
            scores = net.op(f"{head}/scores", "MatMul", [q, k], (tokens, tokens), flops=attention)
            weights = pointwise(f"{head}/softmax", "Softmax", [scores], tokens, 5)
            seen.append(net.op(f"{head}/mix", "MatMul", [weights, v], (tokens, part), flops=attention))
        joined = pointwise(f"{layer}/concat", "Concat", seen, width, 0)
        attended = linear(f"{layer}/project", joined, width, width)
        last = pointwise(f"{layer}/residual1", "Add", [attended, last], width, 1)
        last = pointwise(f"{layer}/norm1", "LayerNorm", [last], width, 8)
        hidden = linear(f"{layer}/mlp/up", last, width, 4 * width)
        hidden = pointwise(f"{layer}/mlp/gelu", "Gelu", [hidden], 4 * width, 8)
        hidden = linear(f"{layer}/mlp/down", hidden, 4 * width, width)
        last = pointwise(f"{layer}/residual2", "Add", [hidden, last], width, 1)
        last = pointwise(f"{layer}/norm2", "LayerNorm", [last], width, 8)
    net.op("result", "Result", [last], (tokens, width))
    return net.build()


FAMILIES: dict[str, Callable[..., Graph]] = {
    "layered": layered,
    "inception-like": inception_like,
    "transformer-like": transformer_like,
}
"""Family -> function of the number behind its name."""


class _Network:
    """Ops of one float32 output each, with the bytes they move."""

    def __init__(self, name: str) -> None:
        self._builder = GraphBuilder(name)
        self._bytes: list[float] = []
        self._readers: list[list[int]] = []

    def op(
        self,
        name: str,
        kind: str,
        inputs: Sequence[int],
        shape: Sequence[int],
        *,
        flops: float = 0,
        weights: float = 0,
    ) -> int:
        written = 4.0 * math.prod(shape)
        read = sum(self._bytes[u] for u in inputs)
        v = self._builder.op(
            name,
            kind,
            shapes=[shape],
            flops=float(flops),
            bytes_read=read,
            bytes_written=written,
            param_bytes=4.0 * weights,
        )
        self._bytes.append(written)
        self._readers.append([])
        for u in inputs:
            self._readers[u].append(v)
        return v

    def build(self) -> Graph:
        for v, readers in enumerate(self._readers):
            if readers:
                self._builder.tensor(v, bytes=self._bytes[v], consumers=readers)
        return self._builder.build()


def _positive(**numbers: int) -> None:
    for name, number in numbers.items():
        if number < 1:
            raise InputError(f"{name} must be >= 1, not {number}")
