"""What every op of a model takes on one device, from counters mapped back to the original ops."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from loadmaster.errors import BusyError
from loadmaster.graph import Graph
from loadmaster.runtime.openvino._session import OpenVinoSession

__all__ = ["DeviceProfile", "map_counters", "measure_profile"]

REPEATS = 15


@dataclass(frozen=True)
class DeviceProfile:
    """One device: seconds of ops, and what it runs as one.

    ``seconds`` holds the time of a fused group under its heaviest op; all of them together are ``wall``, the median
    of whole runs without counters, to which the counters are scaled.
    """

    device: str
    """:attr:`DeviceSpec.text`, which says all that matters."""
    seconds: Mapping[str, float]
    fused: Sequence[Sequence[str]]
    wall: float
    counted: float
    """Seconds that the counters add up to, before scaling."""
    by_position: float
    """Share of the counted time of nodes without an original name, given to the op that they stand in front of."""
    unmapped: float
    """Share of the counted time that belongs to no op."""
    unsupported: Sequence[str] = ()
    memory: float = 0.0
    """Bytes by which the process grew while the model was compiled and run; 0 where nobody looked."""
    parts: int = 1
    """In how many parts it was measured, one after another, because it did not fit."""
    made: float = 0.0
    """When, in seconds since 1970."""

    def document(self) -> dict[str, Any]:
        """As plain values; ``DeviceProfile(**document)`` gives it back."""
        return asdict(self)


def measure_profile(
    session: OpenVinoSession, graph: Graph, name: str, *, repeats: int = REPEATS, seconds: float = math.inf
) -> DeviceProfile:
    """Run the model on one device alone, with counters; fewer times where that takes more than some ``seconds``.

    Raises
    ------
    BusyError : other work disturbed most runs.
    """
    spec = next(spec for spec in session.devices if spec.name == name)
    counters = session.worker.ask(
        "profile", device=name, repeats=repeats, clock=session.clock, seconds=seconds
    )
    if len(counters["wall"]) < (max(3, repeats // 3) if math.isinf(seconds) else 3):
        raise BusyError(
            f"the machine is too busy to profile device {name!r}: {counters['dropped']} runs were disturbed, "
            f"{len(counters['wall'])} were not; stop other work, or try later"
        )
    found = counters.get("unsupported")
    if found is None:
        found = session.worker.ask("unsupported", device=name)
    return map_counters(counters, graph, spec.text, unsupported=[op for op in found if op in graph.index])


def map_counters(
    counters: Mapping[str, Any], graph: Graph, device: str, *, unsupported: Sequence[str] = ()
) -> DeviceProfile:
    """From executed nodes to ops.

    A node that was made of several ops is a group. A node of the device's own making (a change of layout or type)
    belongs to the op that reads it, or else to the one before. An op of which no node speaks was fused without a
    trace: it joins its first reader's group, or else that of what it reads.
    """
    nodes = {node["name"]: node for node in counters["nodes"]}
    ops_of = {name: [op for op in node["originals"] if op in graph.index] for name, node in nodes.items()}
    before: dict[str, list[str]] = {name: [] for name in nodes}
    for name, node in nodes.items():
        for reader in node["readers"]:
            before[reader].append(name)
    seconds: dict[str, float] = {}
    total = placed = lost = 0.0
    for name, node in nodes.items():
        spent = node["seconds"]
        total += spent
        ops: Sequence[str] = ops_of[name]
        if not ops and spent:
            ops = _near(name, ops_of, {n: x["readers"] for n, x in nodes.items()}) or _near(
                name, ops_of, before
            )
            placed, lost = placed + (spent if ops else 0.0), lost + (0.0 if ops else spent)
        if ops and spent:
            heaviest = _heaviest(graph, ops)
            seconds[heaviest] = seconds.get(heaviest, 0.0) + spent
    wall = statistics.median(counters["wall"])
    scale = wall / (total - lost) if total > lost else 1.0
    share = 1.0 / total if total else 0.0
    return DeviceProfile(
        device,
        {op: spent * scale for op, spent in seconds.items()},
        _groups(graph, list(ops_of.values())),
        wall,
        total,
        placed * share,
        lost * share,
        list(unsupported),
        float(counters.get("memory", 0.0)),
        int(counters.get("parts", 1)),
        time.time(),
    )


def _near(
    name: str, ops_of: Mapping[str, Sequence[str]], links: Mapping[str, Sequence[str]]
) -> Sequence[str]:
    """The ops of the nearest node in one direction that has some."""
    seen, front = {name}, [name]
    while front:
        found = [other for node in front for other in links[node] if other not in seen]
        for other in found:
            if ops_of[other]:
                return ops_of[other]
        seen.update(found)
        front = found
    return []


def _heaviest(graph: Graph, ops: Sequence[str]) -> str:
    def weight(op: str) -> tuple[float, float]:
        v = graph.index[op]
        return float(graph.flops[v]), float(graph.bytes_read[v] + graph.param_bytes[v])

    return max(ops, key=weight)


def _groups(graph: Graph, made_of: Sequence[Sequence[str]]) -> list[list[str]]:
    group_of = {op: number for number, ops in enumerate(made_of) for op in ops}
    members: dict[int, list[str]] = {}
    data = ("Parameter", "Result", "Constant")
    ptr, successors = graph.successors
    back_ptr, predecessors = graph.predecessors
    order = [v for v in graph.topological_order.tolist() if graph.op_types[v] not in data]
    for v in reversed(order):
        if graph.names[v] in group_of:
            continue
        readers = sorted(successors[ptr[v] : ptr[v + 1]].tolist(), key=lambda u: graph.position[u])
        sources = predecessors[back_ptr[v] : back_ptr[v + 1]].tolist()
        near = [graph.names[u] for u in (*readers, *sources) if graph.names[u] in group_of]
        near = [op for op in near if graph.op_types[graph.index[op]] not in data]
        if near:
            group_of[graph.names[v]] = group_of[near[0]]
    for v in order:
        if graph.names[v] in group_of:
            members.setdefault(group_of[graph.names[v]], []).append(graph.names[v])
    return [ops for ops in members.values() if len(ops) > 1]
