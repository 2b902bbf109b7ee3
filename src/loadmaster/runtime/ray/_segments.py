"""A model in parts that fit a node one at a time, so that a model is profiled where it does not fit as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loadmaster.runtime._pieces import DATA, Piece

__all__ = ["Needs", "as_one", "joined", "needs_of", "segments"]

COMPILED, PROFILED = 1.5, 2.5
"""Bytes for each byte of weights, in f32, of a model that is ready to run, and of one that is profiled: compiled twice.
A guess, until it is measured."""
ACTIVATIONS = 4.0
"""Times the largest tensor."""


@dataclass(frozen=True)
class Needs:
    """What a model is made of, before anything is compiled."""

    names: tuple[str, ...]
    """Its ops, in an order in which they can run; without those of constants alone."""
    weights: tuple[float, ...]
    """Bytes of their weights as f32; what several read counts for the first."""
    largest: float
    """Bytes of the largest tensor."""

    def running(self) -> float:
        """Bytes that the compiled model is expected to take."""
        return COMPILED * sum(self.weights) + ACTIVATIONS * self.largest

    def profiling(self) -> float:
        """Bytes that profiling it in one piece is expected to take."""
        return PROFILED * sum(self.weights) + 2 * ACTIVATIONS * self.largest


def needs_of(model: Any) -> Needs:
    """Counted on a model of OpenVINO's."""
    held: dict[str, dict[str, float]] = {}
    """What is made of constants alone -> the constants, and their bytes."""
    counted: set[str] = set()
    names, weights, largest = [], [], 0.0
    for node in model.get_ordered_ops():
        name, kind = node.get_friendly_name(), node.get_type_name()
        if kind == "Constant":
            elements = 1.0
            for size in node.get_output_shape(0):
                elements *= size
            held[name] = {name: 4.0 * elements}
        if kind in DATA:
            continue
        sources = [port.get_source_output().get_node().get_friendly_name() for port in node.inputs()]
        read = {c: size for source in sources if source in held for c, size in held[source].items()}
        if sources and all(source in held for source in sources):
            held[name] = read
            continue
        names.append(name)
        weights.append(sum(size for c, size in read.items() if c not in counted))
        counted |= read.keys()
        for output in node.outputs():
            if output.get_partial_shape().is_static:
                elements = 4.0
                for size in output.get_shape():
                    elements *= size
                largest = max(largest, elements)
    return Needs(tuple(names), tuple(weights), largest)


def segments(needs: Needs, device: str, room: float) -> list[Piece]:
    """The ops in as few parts, one after another, as can each be profiled in ``room`` bytes.

    A part ends where the next op's weights do not fit any more, in front of that op: ops that an engine runs as one
    (a convolution, its bias, its activation) have their weights in the first of them.
    """
    if needs.profiling() <= room:
        return [Piece(device, needs.names)]
    most = max(0.0, room - 2 * ACTIVATIONS * needs.largest) / PROFILED
    parts: list[list[str]] = [[]]
    held = 0.0
    for name, weight in zip(needs.names, needs.weights, strict=True):
        if parts[-1] and held + weight > most and weight > 0:
            parts.append([])
            held = 0.0
        parts[-1].append(name)
        held += weight
    return [Piece(device, tuple(part)) for part in parts]


def joined(counters: Sequence[Mapping[str, Any]], weights: Sequence[float]) -> dict[str, Any]:
    """Counters of parts as those of the whole: what ran in each, the sum of their times, and the bytes of all.

    ``weights`` are the bytes of weights of the parts.
    """
    nodes = []
    for number, found in enumerate(counters):
        for node in found["nodes"]:
            readers = [f"{number}:{reader}" for reader in node["readers"]]
            nodes.append({**node, "name": f"{number}:{node['name']}", "readers": readers})
    return {
        "nodes": nodes,
        "wall": [sum(times) for times in zip(*(found["wall"] for found in counters), strict=False)],
        "dropped": sum(found["dropped"] for found in counters),
        "memory": as_one([found["memory"] for found in counters], weights),
    }


def as_one(memory: Sequence[float], weights: Sequence[float]) -> float:
    """Bytes that the whole takes, of the bytes that its parts took.

    Each part has something of its own besides its weights (threads, scratch), which the whole has once: what the part
    has that has least of it. Parts that took less than their weights, which were left in a file, say nothing about it.
    """
    besides = [taken - weight for taken, weight in zip(memory, weights, strict=True) if taken >= weight]
    return max(0.0, sum(memory) - (len(memory) - 1) * min(besides, default=0.0))
