"""Clusters as JSON documents and as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from loadmaster.hardware import Cluster, Device
from loadmaster.plan import finite
from loadmaster.report._tables import _facts, _table
from loadmaster.units import bytes_text, seconds_text

__all__ = ["cluster_document", "cluster_tables", "clusters_table"]


def cluster_document(cluster: Cluster) -> dict[str, Any]:
    """What ``clusters --json`` prints: seconds, bytes, and operations or bytes per second."""
    return {
        "name": cluster.name,
        "description": cluster.description,
        "host": cluster.devices[cluster.host].name,
        "devices": [_device_document(device) for device in cluster.devices],
        "links": [
            {
                "from": cluster.names[d],
                "to": cluster.names[e],
                "latency": link.latency,
                "bandwidth": finite(link.bandwidth),
            }
            for d, row in enumerate(cluster.links)
            for e, link in enumerate(row)
            if link is not None
        ],
        "source": list(cluster.source),
    }


def _device_document(device: Device) -> dict[str, Any]:
    return {
        "name": device.name,
        "kind": device.kind,
        "model": device.model,
        "flops": {"fp32": device.flops, **device.precisions},
        "bandwidth": device.bandwidth,
        "weight_bandwidth": device.weight_bandwidth,
        "capacity": finite(device.capacity),
        "launch": device.launch,
        "efficiency": dict(device.efficiency),
        "saturation": dict(device.saturation),
        "source": list(device.source),
    }


def clusters_table(documents: Sequence[Mapping[str, Any]]) -> RenderableType:
    """What ``clusters`` prints without a name."""
    table = _table("cluster", "devices", "description", right=("devices",))
    for document in documents:
        name = Text(document["name"], no_wrap=True)
        table.add_row(name, str(len(document["devices"])), Text(document["description"]))
    more = "p100-<k> and <k>acc+<l>cpu work with any numbers; --cluster also takes a TOML file."
    return Group(table, Text(more, style="dim"))


def cluster_tables(document: Mapping[str, Any]) -> RenderableType:
    """What ``clusters NAME`` prints: device by device, those that differ in their name only as one; then the links."""
    parts: list[RenderableType] = [
        _facts(
            {"cluster": document["name"], "description": document["description"], "host": document["host"]}
        )
    ]
    for names, device in _alike(document["devices"]):
        title = f"{names}  {device['model'] or device['kind']}"
        parts += [Text(""), Text(title, style="bold"), _facts(_device_facts(device))]
    links = _table("from", "to", "latency", "bandwidth", right=("latency", "bandwidth"))
    for tail, head, (latency, bandwidth) in _alike_links(document):
        links.add_row(Text(tail), Text(head), seconds_text(latency), _rate(bandwidth, "B/s"))
    if document["links"]:
        parts += [links, _facts({"sources": "\n".join(document["source"])} if document["source"] else {})]
    return Group(*parts)


def _device_facts(device: Mapping[str, Any]) -> dict[str, str]:
    capacity = bytes_text(device["capacity"]) if device["capacity"] is not None else "unlimited"
    memory = f"{capacity} at {_rate(device['bandwidth'], 'B/s')}"
    if device["weight_bandwidth"]:
        memory += f", weights at {_rate(device['weight_bandwidth'], 'B/s')}"
    facts = {
        "peak": ", ".join(
            f"{_rate(value, 'FLOP/s')} {key}" for key, value in device["flops"].items() if value
        ),
        "memory": memory,
        "launch overhead": seconds_text(device["launch"]),
        "efficiency": ", ".join(f"{key} {100 * value:g} %" for key, value in device["efficiency"].items()),
        "half speed at": ", ".join(f"{key} {value:,.4g}" for key, value in device["saturation"].items()),
        "sources": "\n".join(device["source"]),
    }
    if facts["half speed at"]:
        facts["half speed at"] += " elements"
    return {key: value for key, value in facts.items() if value}


def _alike(devices: Sequence[Mapping[str, Any]]) -> list[tuple[str, Mapping[str, Any]]]:
    """Devices that differ in their name only, under one label such as ``gpu0 … gpu7``."""
    kinds: dict[str, list[Mapping[str, Any]]] = {}
    for device in devices:
        kinds.setdefault(repr({**device, "name": ""}), []).append(device)
    return [(_span([device["name"] for device in group]), group[0]) for group in kinds.values()]


def _alike_links(document: Mapping[str, Any]) -> list[tuple[str, str, tuple[float, float | None]]]:
    """The distinct links between kinds of devices."""
    label: dict[str, str] = {}
    for names, first in _alike(document["devices"]):
        for device in document["devices"]:
            if {**device, "name": ""} == {**first, "name": ""}:
                label[device["name"]] = names
    rows = [
        (label[link["from"]], label[link["to"]], (link["latency"], link["bandwidth"]))
        for link in document["links"]
    ]
    return list(dict.fromkeys(rows))


def _span(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) < 3 else f"{names[0]} … {names[-1]}"


def _rate(value: float | None, unit: str) -> str:
    """A speed with its decimal prefix; None is unlimited."""
    if value is None:
        return "unlimited"
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1.0, "")):
        if value >= factor or not prefix:
            break
    return f"{value / factor:,.4g} {prefix}{unit}"
