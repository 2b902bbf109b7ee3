"""Clusters by name."""

from __future__ import annotations

import re

from loadmaster.errors import InputError
from loadmaster.hardware._cluster import Cluster, Device, Link

__all__ = ["accelerators", "preset"]


def accelerators(k: int, cpus: int = 1, *, capacity: float = 16 * 2**30) -> Cluster:
    """``k`` equal accelerators and ``cpus`` CPUs behind one host, everything on links of 12 GB/s and 10 µs.

    A round-number cluster for examples and tests: accelerators of 10 Tflop/s and 500 GB/s, CPUs of 0.5 Tflop/s
    and 50 GB/s.
    """
    if k < 0 or cpus < 0 or k + cpus == 0:
        raise InputError(f"a cluster needs at least one device, not {k} accelerators and {cpus} CPUs")
    devices = [
        Device(f"acc{i}", "acc", capacity=capacity, flops=10e12, bandwidth=500e9, launch=5e-6) for i in range(k)
    ]
    devices += [Device(f"cpu{i}", "cpu", flops=0.5e12, bandwidth=50e9, launch=1e-6) for i in range(cpus)]
    size = len(devices)
    link = Link(latency=10e-6, bandwidth=12e9)
    links = tuple(tuple(None if d == e else link for e in range(size)) for d in range(size))
    return Cluster(f"{k}acc+{cpus}cpu", tuple(devices), links, host=k if cpus else 0)


def preset(name: str) -> Cluster:
    """The cluster called ``name``: ``"<k>acc+<l>cpu"``, e.g. ``"2acc+1cpu"``."""
    match = re.fullmatch(r"(\d+)acc(?:\+(\d+)cpu)?", name)
    if not match:
        raise InputError(f"there is no cluster called {name!r}: give e.g. 2acc+1cpu")
    return accelerators(int(match[1]), int(match[2] or 0))
