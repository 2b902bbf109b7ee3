"""Clusters from TOML files (format: ``docs/clusters-and-costs.md``); mistakes are named with their line."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from loadmaster.files import (
    BYTES,
    BYTES_PER_SECOND,
    FLOP_PER_SECOND,
    SECONDS,
    Table,
    limit,
    parse_toml,
    read_text,
)
from loadmaster.hardware._cluster import PRECISIONS, Cluster, Device, Link
from loadmaster.hardware._op_kinds import KINDS

__all__ = ["parse_cluster", "read_cluster"]

FILE_KEYS = ("name", "description", "host", "device", "default_link", "link")
DEVICE_KEYS = (
    "name", "kind", "model", "count", "flops", "bandwidth", "weight_bandwidth", "capacity", "launch",
    "efficiency", "saturation", "source",
)  # fmt: skip
LINK_KEYS = ("latency", "bandwidth", "source")
ENDS = ("between", "from", "to")
WORKING = tuple(kind for kind in KINDS if kind not in ("data", "view"))
"""Kinds of ops that take time, so that an efficiency of theirs means something."""


def read_cluster(path: str | Path) -> Cluster:
    """The cluster that a TOML file describes.

    Raises
    ------
    InputError : the file cannot be read or something in it is wrong; the message names file, line and key.
    """
    return parse_cluster(read_text(path, "toml"), str(path))


def parse_cluster(
    text: str, source: str, *, name: str | None = None, counts: Mapping[str, int] | None = None
) -> Cluster:
    """The cluster in a TOML text; ``source`` is named in errors.

    ``name`` and ``counts`` (device -> how many) replace what the text says: one file can serve machines of
    several sizes.
    """
    file = parse_toml(text, source)
    file.reject_unknown(FILE_KEYS)
    most = limit("devices")
    devices: list[Device] = []
    known: set[str] = set()
    entries: list[Table] = []
    for entry in file.tables("device"):
        made = _devices(entry, (counts or {}).get(entry.value.get("name", "")))
        for device in made:
            if device.name in known:
                entry.fail("name", f"defines a second device called {device.name!r}")
        devices += made
        known.update(device.name for device in made)
        entries += [entry] * len(made)
        if len(devices) > most:
            entry.fail(None, f"there are more than {most} devices, which is the limit 'devices'")
    if not devices:
        file.fail("device", "is missing: a cluster needs at least one [[device]]")
    names = [device.name for device in devices]
    stem = Path(source).stem
    return Cluster(
        name or file.text("name", stem),
        tuple(devices),
        _links(file, names, entries),
        _host(file, devices),
        file.text("description", ""),
        _link_sources(file),
    )


def _devices(entry: Table, count: int | None) -> list[Device]:
    """The devices of one entry: one, or ``count`` of them called name0, name1, …"""
    name = entry.text("name")
    if not name:
        entry.fail("name", "must not be empty")
    entry.what = f"device {name!r}"
    entry.reject_unknown(DEVICE_KEYS)
    flops = _flops(entry)
    capacity = math.inf
    if entry.value.get("capacity", "unlimited") not in ("unlimited", math.inf):
        capacity = entry.quantity("capacity", BYTES, zero=True)
    bandwidth = entry.quantity("bandwidth", BYTES_PER_SECOND)
    weights = entry.quantity("weight_bandwidth", BYTES_PER_SECOND) if "weight_bandwidth" in entry else None
    efficiency = entry.shares("efficiency", (*WORKING, "default", "bandwidth"), most=1.0)
    saturation = entry.shares("saturation", (*WORKING, "default"))
    if "count" in entry:
        count = count or entry.count("count", limit("devices"))
    names = [name] if count is None else [f"{name}{i}" for i in range(count)]
    return [
        Device(
            each,
            entry.text("kind"),
            capacity,
            flops.get("fp32"),
            bandwidth,
            entry.quantity("launch", SECONDS, zero=True) if "launch" in entry else 0.0,
            precisions={key: value for key, value in flops.items() if key != "fp32"},
            efficiency=efficiency,
            saturation=saturation,
            weight_bandwidth=weights,
            model=entry.text("model", ""),
            source=entry.texts("source"),
        )
        for each in names
    ]


def _flops(entry: Table) -> dict[str, float]:
    """Precision -> peak; a single number is fp32."""
    if not isinstance(entry.require("flops"), dict):
        return {"fp32": entry.quantity("flops", FLOP_PER_SECOND)}
    table = entry.table("flops")
    assert table is not None
    table.reject_unknown(PRECISIONS)
    table.require("fp32")
    return {precision: table.quantity(precision, FLOP_PER_SECOND) for precision in table}


def _host(file: Table, devices: list[Device]) -> int:
    """The named host, or else the first CPU, or else the first device."""
    names = [device.name for device in devices]
    if "host" not in file:
        return next((d for d, device in enumerate(devices) if device.kind == "cpu"), 0)
    host = file.text("host")
    if host not in names:
        file.fail("host", f"is {host!r}, which is not a device: choose one of {', '.join(names)}")
    return names.index(host)


def _links(file: Table, names: list[str], entries: list[Table]) -> tuple[tuple[Link | None, ...], ...]:
    """The link of every pair: the last [[link]] that fits, or the default link."""
    default = file.table("default_link")
    usual: Link | None = None
    if default is not None:
        default.reject_unknown(LINK_KEYS)
        usual = _link(default, None)
    links = [[None if d == e else usual for e in range(len(names))] for d in range(len(names))]
    for entry in file.tables("link"):
        entry.reject_unknown((*ENDS, *LINK_KEYS))
        for d, e in _pairs(entry, names):
            links[d][e] = _link(entry, usual)
    for d, row in enumerate(links):
        for e, link in enumerate(row):
            if d != e and link is None:
                later = entries[max(d, e)]
                later.fail(
                    None,
                    f"there is no link from {names[d]!r} to {names[e]!r}: add a [default_link] or a [[link]]",
                )
    return tuple(tuple(row) for row in links)


def _link(entry: Table, usual: Link | None) -> Link:
    """The entry's link; what it does not say is as usual."""
    latency = (
        entry.quantity("latency", SECONDS, zero=True)
        if "latency" in entry or usual is None
        else usual.latency
    )
    if entry.value.get("bandwidth") == math.inf:
        return Link(latency, math.inf)
    if "bandwidth" in entry or usual is None:
        return Link(latency, entry.quantity("bandwidth", BYTES_PER_SECOND))
    return Link(latency, usual.bandwidth)


def _pairs(entry: Table, names: list[str]) -> list[tuple[int, int]]:
    """The ordered pairs of different devices that an entry is about; names may be patterns such as
    ``gpu*``."""
    if "between" in entry:
        if "from" in entry or "to" in entry:
            entry.fail("between", "applies to both directions: leave out 'from' and 'to'")
        ends = entry.texts("between")
        if len(ends) != 2:
            entry.fail("between", f"must be a list of two devices, not {list(ends)!r}")
        first, second = (_matching(entry, "between", end, names) for end in ends)
        pairs = [(d, e) for d in first for e in second] + [(e, d) for d in first for e in second]
    else:
        tails = _matching(entry, "from", entry.text("from"), names)
        heads = _matching(entry, "to", entry.text("to"), names)
        pairs = [(d, e) for d in tails for e in heads]
    pairs = [(d, e) for d, e in pairs if d != e]
    if not pairs:
        entry.fail(None, "connects a device only to itself")
    return pairs


def _matching(entry: Table, key: str, pattern: str, names: list[str]) -> list[int]:
    found = [d for d, name in enumerate(names) if name == pattern or fnmatchcase(name, pattern)]
    if not found:
        entry.fail(key, f"names {pattern!r}, which is not a device: choose one of {', '.join(names)}")
    return found


def _link_sources(file: Table) -> tuple[str, ...]:
    default = file.table("default_link")
    tables = ([default] if default is not None else []) + file.tables("link")
    return tuple(dict.fromkeys(source for table in tables for source in table.texts("source")))
