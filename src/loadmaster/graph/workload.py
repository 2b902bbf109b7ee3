"""Workload files: operator graphs with costs, and splits of them, as published with Tarnawski et al.
(NeurIPS 2020)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from loadmaster.arrays import FloatArray
from loadmaster.errors import InputError
from loadmaster.files import Record, limit, shown
from loadmaster.graph._builder import GraphBuilder
from loadmaster.graph._graph import Graph

__all__ = ["Split", "Workload", "is_split", "is_workload", "parse_split", "parse_workload"]

COST_TOLERANCE = 1e-6
"""The out-edges of a node carry the cost of one tensor; larger differences are an error (milliseconds)."""


@dataclass(frozen=True, eq=False)
class Workload:
    """A workload file, in seconds and bytes; ops are named by their id."""

    graph: Graph
    cpu_time: FloatArray
    """(n,) seconds."""
    acc_time: FloatArray
    """(n,) seconds, infinite where accelerators do not support the op."""
    memory: FloatArray
    """(n,) bytes on an accelerator."""
    out_cost: FloatArray
    """(tensors,) seconds between an accelerator and host memory."""
    colocation: tuple[tuple[int, ...], ...]
    accelerators: int
    cpus: int
    capacity: float
    """Bytes of each accelerator."""


@dataclass(frozen=True)
class Split:
    """Groups of op names per accelerator and per CPU."""

    accelerators: tuple[tuple[str, ...], ...]
    cpus: tuple[tuple[str, ...], ...]


def is_workload(data: Any) -> bool:
    """Whether parsed JSON looks like a workload file."""
    return isinstance(data, dict) and "nodes" in data and "edges" in data


def is_split(data: Any) -> bool:
    """Whether parsed JSON looks like a split file."""
    return isinstance(data, dict) and ("fpgas" in data or "cpus" in data)


def parse_workload(data: Any, source: str) -> Workload:
    """A workload from parsed JSON; ``source`` is named in errors. Milliseconds become seconds.

    Raises
    ------
    InputError : a field is missing or wrong, a node id appears twice, the out-edges of a node differ in
        cost, or an edge leads from the backward to the forward pass.
    """
    record = Record(data, source)
    nodes = record.records("nodes")
    builder = GraphBuilder(source.rsplit("/", 1)[-1].removesuffix(".json"))
    index: dict[int, int] = {}
    cpu, acc, memory, backward = [], [], [], []
    classes: dict[int, list[int]] = {}
    for node in nodes:
        number = node.integer("id", minimum=None)
        node.where = f"{source}: node {shown(number)}"
        if number in index:
            raise InputError(f"{node.where} appears twice")
        supported = node.flag("supportedOnFpga", True)
        cpu.append(node.number("cpuLatency") / 1000.0)
        acc.append(node.number("fpgaLatency") / 1000.0 if supported else np.inf)
        memory.append(node.number("size", 0.0))
        backward.append(node.flag("isBackwardNode", False))
        index[number] = builder.op(str(number), param_bytes=memory[-1], backward=backward[-1])
        if node.value.get("colorClass") is not None:
            classes.setdefault(node.integer("colorClass", minimum=None), []).append(index[number])
    cost, size, targets = _out_edges(record, index, backward, source)
    out_cost = []
    for v, readers in sorted(targets.items()):
        builder.tensor(v, bytes=size[v], consumers=readers)
        out_cost.append(cost[v] / 1000.0)
    return Workload(
        graph=builder.build(),
        cpu_time=np.array(cpu),
        acc_time=np.array(acc),
        memory=np.array(memory),
        out_cost=np.array(out_cost),
        colocation=tuple(tuple(ops) for ops in classes.values() if len(ops) > 1),
        accelerators=record.integer("maxFPGAs", maximum=limit("devices")),
        cpus=record.integer("maxCPUs", 1, maximum=limit("devices")),
        capacity=record.number("maxSizePerFPGA", np.inf),
    )


def _out_edges(
    record: Record, index: Mapping[int, int], backward: list[bool], source: str
) -> tuple[dict[int, float], dict[int, float], dict[int, list[int]]]:
    """Cost, bytes and readers of the one tensor of each op that has out-edges."""
    cost: dict[int, float] = {}
    size: dict[int, float] = {}
    targets: dict[int, list[int]] = {}
    seen: set[tuple[int, int]] = set()
    for edge in record.records("edges"):
        ends = []
        for key in ("sourceId", "destId"):
            number = edge.integer(key, minimum=None)
            if number not in index:
                raise InputError(f"{edge.where}: {key} is {shown(number)}, which is not a node")
            ends.append(index[number])
        u, v = ends
        name = f"{source}: the edge from node {shown(edge.value['sourceId'])} to node {shown(edge.value['destId'])}"
        edge.where = name
        if backward[u] and not backward[v]:
            raise InputError(f"{name} leads from the backward to the forward pass")
        price = edge.number("cost")
        if abs(cost.setdefault(u, price) - price) > COST_TOLERANCE:
            raise InputError(
                f"{name} costs {price}, but another edge of that node costs {cost[u]}: they must be equal"
            )
        size[u] = max(size.get(u, 0.0), edge.number("size", 0.0))
        if (u, v) not in seen:
            seen.add((u, v))
            targets.setdefault(u, []).append(v)
    return cost, size, targets


def parse_split(data: Any, source: str) -> Split:
    """A split from parsed JSON: groups of node ids per accelerator ("fpgas") and per CPU."""
    record = Record(data, source)

    def groups(key: str) -> tuple[tuple[str, ...], ...]:
        found = []
        for group in record.records(key) if key in record else []:
            ids = group.items("nodes")
            for number in ids:
                if isinstance(number, bool) or not isinstance(number, int):
                    raise InputError(f"{group.where}: 'nodes' must hold node ids, not {shown(number)}")
            found.append(tuple(str(number) for number in ids))
        return tuple(found)

    return Split(groups("fpgas"), groups("cpus"))
