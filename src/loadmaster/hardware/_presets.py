"""Clusters by name."""

from __future__ import annotations

import re
from pathlib import Path

from loadmaster.errors import InputError
from loadmaster.files import check_limit, read_text, shown
from loadmaster.hardware._cluster import Cluster, Device, Link
from loadmaster.hardware._cluster_file import parse_cluster, read_cluster

__all__ = ["accelerators", "load_cluster", "preset", "preset_names"]

FOLDER = Path(__file__).parent / "presets"
SIZED = {"p100": "gpu"}
"""Presets whose name ends in a number: file -> the device of which there are so many."""
NAMES = ("hsdag", "hsdag-study", "laptop", "p100-2", "p100-4", "p100-8", "2acc+1cpu")


def preset_names() -> tuple[str, ...]:
    """The presets that ``loadmaster clusters`` lists; ``p100-<k>`` and ``<k>acc+<l>cpu`` work with any numbers."""
    return NAMES


def preset(name: str) -> Cluster:
    """The cluster called ``name``, e.g. ``"hsdag"``, ``"p100-4"`` or ``"2acc+1cpu"``.

    >>> preset("p100-2").names
    ('cpu', 'gpu0', 'gpu1')
    """
    if name not in SIZED and f"{name}.toml" in (file.name for file in FOLDER.iterdir()):
        return read_cluster(FOLDER / f"{name}.toml")
    sized = re.fullmatch(r"([a-z0-9]+)-(\d{1,9})", name)
    if sized and sized[1] in SIZED and int(sized[2]) >= 1:
        check_limit("devices", int(sized[2]), f"the cluster {name} has {int(sized[2]):,} devices and a host")
        path = FOLDER / f"{sized[1]}.toml"
        return parse_cluster(read_text(path), str(path), name=name, counts={SIZED[sized[1]]: int(sized[2])})
    match = re.fullmatch(r"(\d{1,9})acc(?:\+(\d{1,9})cpu)?", name)
    if match:
        count = int(match[1]) + int(match[2] or 0)
        check_limit("devices", count, f"the cluster {name} has {count:,} devices")
        return accelerators(int(match[1]), int(match[2] or 0))
    raise InputError(
        f"there is no cluster called {shown(name)}: give a file that ends in .toml, or one of {', '.join(NAMES)} "
        "(p100-<k> and <k>acc+<l>cpu work with any numbers)"
    )


def load_cluster(source: str | Path) -> Cluster:
    """The cluster in a TOML file, or the preset of that name."""
    text = str(source)
    if isinstance(source, Path) or text.endswith(".toml") or "/" in text or "\\" in text:
        return read_cluster(source)
    return preset(text)


def accelerators(k: int, cpus: int = 1, *, capacity: float = 16 * 2**30) -> Cluster:
    """``k`` equal accelerators and ``cpus`` CPUs behind one host, everything on links of 12 GB/s and 10 µs.

    A round-number cluster for examples and tests: accelerators of 10 Tflop/s and 500 GB/s, CPUs of 0.5
    Tflop/s and 50 GB/s.
    """
    if k < 0 or cpus < 0 or k + cpus == 0:
        raise InputError(f"a cluster needs at least one device, not {k} accelerators and {cpus} CPUs")
    round_numbers = ("round numbers, not a real machine",)
    devices = [
        Device(
            f"acc{i}",
            "acc",
            capacity=capacity,
            flops=10e12,
            bandwidth=500e9,
            launch=5e-6,
            source=round_numbers,
        )
        for i in range(k)
    ]
    devices += [
        Device(f"cpu{i}", "cpu", flops=0.5e12, bandwidth=50e9, launch=1e-6, source=round_numbers)
        for i in range(cpus)
    ]
    size = len(devices)
    link = Link(latency=10e-6, bandwidth=12e9)
    links = tuple(tuple(None if d == e else link for e in range(size)) for d in range(size))
    return Cluster(
        f"{k}acc+{cpus}cpu",
        tuple(devices),
        links,
        host=k if cpus else 0,
        description="equal accelerators and CPUs in round numbers, for examples and tests",
        source=round_numbers,
    )
