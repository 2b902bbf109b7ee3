"""Op times from first principles."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from loadmaster.errors import InputError
from loadmaster.graph import Graph
from loadmaster.hardware._cluster import Cluster

__all__ = ["roofline"]


def roofline(graph: Graph, cluster: Cluster) -> npt.NDArray[np.float64]:
    """(ops, devices) seconds: ``launch + max(flops / peak, bytes / bandwidth)``.

    References
    ----------
    S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual performance model", CACM 2009.
    """
    moved = graph.bytes_read + graph.bytes_written + graph.param_bytes
    time = np.empty((graph.n, len(cluster)))
    for d, device in enumerate(cluster.devices):
        if device.flops is None or device.bandwidth is None:
            raise InputError(f"device {device.name!r} has no flops or bandwidth, so op times cannot be estimated")
        time[:, d] = device.launch + np.maximum(graph.flops / device.flops, moved / device.bandwidth)
    return time
