"""An operator graph together with what its model demands of a placement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from loadmaster.graph._graph import Graph

__all__ = ["Network"]


@dataclass(frozen=True, eq=False, repr=False)
class Network:
    """What a frontend makes of a model.

    Attributes
    ----------
    graph : the ops.
    colocation : groups of ops that share a weight, which is stored with one of them.
    inputs, outputs : ops that stand for what comes from the host and goes back to it (images, tokens, labels,
        results); they are boundary ops of the graph, and take no time.
    notes : what the numbers leave out, one clause each.
    ports : (ops,) names of the tensors that each op makes in the file, in the order of its shapes; none where the file
        names no tensors, and for inputs, outputs and constants.
    tensors : names of tensors in the file -> the op that makes them, where the frontend knows them.
    """

    graph: Graph
    colocation: tuple[tuple[int, ...], ...] = field(default=(), kw_only=True)
    inputs: tuple[int, ...] = field(default=(), kw_only=True)
    outputs: tuple[int, ...] = field(default=(), kw_only=True)
    notes: tuple[str, ...] = field(default=(), kw_only=True)
    ports: tuple[tuple[str, ...], ...] = field(default=(), kw_only=True)
    tensors: Mapping[str, int] = field(default_factory=dict, kw_only=True)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.graph!r})"
