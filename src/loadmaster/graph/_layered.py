"""Random layered graphs, for tests and benchmarks."""

from __future__ import annotations

import math

import numpy as np

from loadmaster.arrays import FloatArray
from loadmaster.errors import InputError
from loadmaster.files import check_limit
from loadmaster.graph._builder import GraphBuilder
from loadmaster.graph._graph import Graph

__all__ = ["layered"]


def layered(
    n: int,
    *,
    width: int = 8,
    degree: float = 2.0,
    skip: float = 0.1,
    spread: float = 1.0,
    intensity: float = 100.0,
    seed: int = 0,
) -> Graph:
    """A random DAG in layers.

    Parameters
    ----------
    n : number of ops.
    width : mean number of ops in a layer.
    degree : mean number of inputs of an op (at least one, but for the first layer).
    skip : share of the edges that come from any earlier layer instead of the one before.
    spread : standard deviation of the logarithm of flops and bytes (0 = all ops alike).
    intensity : mean flops per byte written.
    seed : makes the graph repeat.
    """
    if n < 0 or width < 1 or degree < 0 or not 0 <= skip <= 1 or spread < 0:
        raise InputError(
            f"layered needs n >= 0, width >= 1, degree >= 0, 0 <= skip <= 1 and spread >= 0, "
            f"not n={n}, width={width}, degree={degree}, skip={skip}, spread={spread}"
        )
    check_limit("values", n * degree, f"layered is asked for {n:,} ops of {degree:g} inputs each")
    rng = np.random.default_rng(seed)
    kinds = ("MatMul", "Conv", "Add", "Relu", "Concat", "Softmax")
    written = 1e5 * _exp(spread * rng.standard_normal(n))
    flops = written * intensity * _exp(spread * rng.standard_normal(n))
    layers: list[range] = []
    made = 0
    while made < n:
        size = min(n - made, int(rng.integers(1, 2 * width)) if width > 1 else 1)
        layers.append(range(made, made + size))
        made += size
    reads: list[list[int]] = [[] for _ in range(n)]
    for depth, layer in enumerate(layers):
        if depth == 0:
            continue
        before = layers[depth - 1]
        for v in layer:
            wanted = 1 + int(rng.poisson(max(degree - 1.0, 0.0)))
            chosen = set()
            for _ in range(wanted):
                source = (
                    rng.integers(0, layer.start)
                    if rng.random() < skip
                    else rng.integers(before.start, before.stop)
                )
                chosen.add(int(source))
            for u in sorted(chosen):
                reads[u].append(v)
    builder = GraphBuilder(f"layered-{n}")
    kind = rng.integers(0, len(kinds), n)
    inputs = np.zeros(n)
    for u, targets in enumerate(reads):
        inputs[targets] += written[u]
    for v in range(n):
        builder.op(
            f"op{v}",
            kinds[kind[v]],
            shapes=[(int(written[v] // 4),)],
            flops=float(flops[v]),
            bytes_read=float(inputs[v]),
            bytes_written=float(written[v]),
            param_bytes=float(written[v] * rng.random() * 4),
        )
    for u, targets in enumerate(reads):
        if targets:
            builder.tensor(u, bytes=float(written[u]), consumers=targets)
    return builder.build()


def _exp(values: FloatArray) -> FloatArray:
    """Of the C library: numpy's differs in the last digit on CPUs with AVX-512, and graphs would, too."""
    return np.fromiter(map(math.exp, values.tolist()), np.float64, len(values))
