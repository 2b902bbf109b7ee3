"""Op times from first principles."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from loadmaster.arrays import FloatArray
from loadmaster.errors import InputError
from loadmaster.files import check_limit
from loadmaster.graph import Graph, constant_valued
from loadmaster.hardware._cluster import Cluster, Device
from loadmaster.hardware._op_kinds import KINDS, TRAFFIC_KINDS, op_kinds

__all__ = ["roofline"]


def roofline(graph: Graph, cluster: Cluster, *, precision: str = "fp32") -> FloatArray:
    """(ops, devices) seconds: ``launch + max(flops / speed, weights / weight bandwidth + activations /
    bandwidth)``.

    ``speed`` is the device's peak in that precision times the efficiency of the kind of op (:func:`op_kind`),
    and is reached by large ops only: an op with few elements of output cannot fill the machine, so arithmetic
    takes ``1 + saturation / elements`` times as long. Elementwise ops, reductions and copies reach their
    kind's share of the memory bandwidth, all others the share ``bandwidth``. Nothing runs for inputs,
    constants and results, and nothing is moved when only a shape changes: their time is 0. ``precision``
    chooses the peak; the bytes are those of the graph.

    Weights are an op's own ``param_bytes`` and what it reads from constants.

    References
    ----------
    S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual performance model", CACM 2009.
    """
    pairs = graph.n * len(cluster)
    check_limit("pairs", pairs, f"{graph.n:,} ops on {len(cluster):,} devices are {pairs:,} times")
    kinds = op_kinds(graph)
    idle = np.isin(kinds, [KINDS.index("data"), KINDS.index("view")])
    weights, activations, elements = _weights_read(graph)
    time = np.empty((graph.n, len(cluster)))
    for d, device in enumerate(cluster.devices):
        peak = device.peak(precision)
        if peak is None or device.bandwidth is None:
            raise InputError(
                f"device {device.name!r} has no flops or bandwidth, so op times cannot be estimated"
            )
        compute, bandwidth, saturation = _by_kind(device, kinds)
        with np.errstate(all="ignore"):  # what comes out is checked
            arithmetic = graph.flops / (peak * compute)
            large = elements > 0
            arithmetic[large] *= 1.0 + saturation[large] / elements[large]
            traffic = weights / ((device.weight_bandwidth or device.bandwidth) * bandwidth)
            traffic += activations / (device.bandwidth * bandwidth)
            time[:, d] = np.where(idle, 0.0, device.launch + np.maximum(arithmetic, traffic))
        beyond = np.flatnonzero(~np.isfinite(time[:, d]))  # infinite would mean: not supported
        if len(beyond):
            raise InputError(
                f"op {graph.names[beyond[0]]!r} on device {device.name!r}: its estimated time overflows: the op has "
                "too much work, or the device is too slow"
            )
    return time


def _weights_read(graph: Graph) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(ops,) bytes of weights and of activations that an op moves, and elements of its outputs (0 where
    unknown)."""
    with np.errstate(over="ignore"):  # whatever overflows makes an infinite time, which is refused
        return _weights_and_activations(graph)


def _weights_and_activations(graph: Graph) -> tuple[FloatArray, FloatArray, FloatArray]:
    weights = graph.param_bytes.copy()
    from_constant = constant_valued(graph)[graph.tensor_producer[graph.edge_tensor]]
    if from_constant.any():
        reader, size = graph.consumer_op[from_constant], graph.tensor_bytes[graph.edge_tensor[from_constant]]
        constants = np.minimum(np.bincount(reader, size, graph.n), graph.bytes_read)
        weights += constants
        activations = graph.bytes_read - constants + graph.bytes_written
    else:
        activations = graph.bytes_read + graph.bytes_written
    elements = np.array(
        [sum(float(np.prod(shape, dtype=np.float64)) for shape in shapes) for shapes in graph.output_shapes],
        np.float64,
    )
    return weights, activations, np.where(elements > 0, elements, graph.bytes_written / 4)


def _by_kind(device: Device, kinds: npt.NDArray[np.int8]) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(ops,) share of the peak, share of the bandwidth, and saturation, for the ops' kinds."""
    usual, moving = device.efficiency.get("default", 1.0), device.efficiency.get("bandwidth", 1.0)
    compute = [usual if kind in TRAFFIC_KINDS else device.efficiency.get(kind, usual) for kind in KINDS]
    bandwidth = [device.efficiency.get(kind, moving) if kind in TRAFFIC_KINDS else moving for kind in KINDS]
    few = device.saturation.get("default", 0.0)
    saturation = [device.saturation.get(kind, few) for kind in KINDS]
    return np.array(compute)[kinds], np.array(bandwidth)[kinds], np.array(saturation)[kinds]
