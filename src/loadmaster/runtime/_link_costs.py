"""What a cut costs: latency and bandwidth between devices, fitted to measured splits."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from loadmaster.arrays import FloatArray, IntArray
from loadmaster.graph import Graph
from loadmaster.problem import classes_of
from loadmaster.runtime._session import Session

__all__ = ["LinkFit", "fit_link", "measure_link", "split_features", "splits"]

SEGMENTS = (2, 3, 5, 8, 12, 18, 26, 40)
"""Into how many pieces in topological order the splits of a calibration cut the model."""
SCATTERED = (0.1, 0.3, 0.5)
"""Shares of groups that further splits move to the second device, at random."""


@dataclass(frozen=True)
class LinkFit:
    """``latency + bytes * rate`` seconds for every tensor that is brought to another device.

    ``residuals`` are (predicted - measured) / measured of the splits that it was fitted to.
    """

    latency: float
    rate: float
    residuals: Sequence[float]
    cuts: Sequence[int]
    """Tensors that each split brought to the other device."""
    scale: float = 1.0
    """Whole runs on one device while calibrating, against while profiling."""
    made: float = 0.0

    @property
    def median_residual(self) -> float:
        """Of the absolute values."""
        return float(np.median(np.abs(self.residuals))) if len(self.residuals) else 0.0

    def document(self) -> dict[str, Any]:
        """As plain values; ``LinkFit(**document)`` gives it back."""
        return asdict(self)


def splits(graph: Graph, groups: Sequence[Sequence[int]], *, seed: int = 0) -> list[IntArray]:
    """(n,) of 0 and 1 each: placements on two devices, from one cut to hundreds; groups stay whole."""
    class_of = classes_of(graph.n, groups)
    count = int(class_of.max()) + 1 if graph.n else 0
    first = np.full(count, graph.n, np.int64)
    np.minimum.at(first, class_of, graph.position)
    rank = np.empty(count, np.int64)
    rank[np.argsort(first)] = np.arange(count)
    found: list[npt.NDArray[Any]] = [
        ((rank * pieces // count) % 2)[class_of] for pieces in SEGMENTS if pieces <= count
    ]
    generator = np.random.default_rng(seed)
    for share in SCATTERED:
        found.append((generator.random(count) < share)[class_of])
    return [split.astype(np.int32) for split in found]


def split_features(graph: Graph, device: IntArray) -> tuple[int, float]:
    """Tensors brought to another device, counted once per destination, and their bytes.

    Inputs and results stay in host memory, so they are brought nowhere.
    """
    data = np.array([kind in ("Parameter", "Result") for kind in graph.op_types])
    source = device[graph.tensor_producer[graph.edge_tensor]]
    target = device[graph.consumer_op]
    cut = (source != target) & ~data[graph.tensor_producer[graph.edge_tensor]] & ~data[graph.consumer_op]
    pairs = np.unique(np.stack([graph.edge_tensor[cut], target[cut]], axis=1), axis=0)
    return len(pairs), float(graph.tensor_bytes[pairs[:, 0]].sum())


def fit_link(
    computed: FloatArray, measured: FloatArray, cuts: FloatArray, size: FloatArray
) -> tuple[float, float]:
    """Latency and rate >= 0 that make ``computed + cuts * latency + size * rate`` closest to ``measured``,
    in relative terms."""
    from scipy.optimize import nnls

    columns = np.stack([cuts, size], axis=1) / measured[:, None]
    scale = np.maximum(columns.max(axis=0), 1e-300)
    found, _ = nnls(columns / scale, (measured - computed) / measured)
    latency, rate = (found / scale).tolist()
    return latency, rate


def measure_link(
    session: Session,
    graph: Graph,
    groups: Sequence[Sequence[int]],
    pair: tuple[str, str],
    seconds: Mapping[str, FloatArray],
    *,
    samples: int = 7,
) -> LinkFit:
    """Run splits between two devices, and fit what they cost beyond their ops.

    ``seconds``: device -> (n,) seconds of ops. Each split is measured beside the first device alone, so that a
    machine that became slower or faster since profiling does not look like the price of a cut.
    """
    alone = session.alone(pair[0])
    total = float(seconds[pair[0]].sum())
    computed, measured, cuts, size, scales = [], [], [], [], []
    for device in splits(graph, groups):
        placement = {name: pair[d] for name, d in zip(graph.names, device.tolist(), strict=True)}
        candidate = session.placed(placement)
        base, found = session.measure([alone, candidate], samples=samples)
        candidate.close()
        scale = total / base.median
        ops = np.where(device == 0, seconds[pair[0]], seconds[pair[1]]).sum()
        count, moved = split_features(graph, device)
        computed.append(float(ops))
        measured.append(found.median * scale)
        cuts.append(float(count))
        size.append(moved)
        scales.append(1 / scale)
    alone.close()
    arrays = [np.array(values) for values in (computed, measured, cuts, size)]
    latency, rate = fit_link(*arrays)
    predicted = arrays[0] + arrays[2] * latency + arrays[3] * rate
    residuals = (predicted - arrays[1]) / arrays[1]
    return LinkFit(
        latency,
        rate,
        residuals.tolist(),
        [int(c) for c in cuts],
        float(np.median(scales)),
        time.time(),
    )
