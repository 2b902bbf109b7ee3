"""What makes a graph a graph: the one check for whatever comes from a builder or a file."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from loadmaster.arrays import FloatArray, IntArray
from loadmaster.errors import GraphError
from loadmaster.graph._graph import Graph
from loadmaster.graph.order import find_cycle, topological_order

__all__ = ["check_graph"]

MOST_ELEMENTS = 1e100
MOST_DIMENSIONS = 64

NUMBERS = ("flops", "bytes_read", "bytes_written", "param_bytes")


def check_graph(graph: Graph) -> Graph:
    """The same graph, if it is one; its topological order is known then.

    Raises
    ------
    GraphError : an array is of the wrong type or length, a name is empty or appears twice, a shape or a number is
        impossible, a tensor or an edge has an end that is not there, an edge appears twice, or there is a cycle.
    """
    _check_labels(graph)
    _check_arrays(graph)
    for key in NUMBERS:
        _check_amounts(getattr(graph, key), graph.names, "op {name!r}: " + key)
    _check_range(graph.tensor_producer, graph.n, "a tensor's producer")
    _check_range(graph.consumer_op, graph.n, "a tensor's consumer")
    _check_amounts(graph.tensor_bytes, graph.names, "a tensor of op {name!r}: bytes", graph.tensor_producer)
    _check_pointers(graph)
    _check_edges(graph)
    return graph


def _check_labels(graph: Graph) -> None:
    labels = {"op_types": graph.op_types, "output_shapes": graph.output_shapes}
    for what, entries in labels.items():
        if len(entries) != graph.n:
            raise GraphError(f"there are {len(entries)} {what} for {graph.n} ops")
    for what, texts in {"an op's name": graph.names, "an op's type": graph.op_types}.items():
        for text in texts:
            if not isinstance(text, str):
                raise GraphError(f"{what} must be a string, not a {type(text).__name__}")
    if "" in graph.names:
        raise GraphError(f"op {graph.names.index('')} has an empty name")
    if len(set(graph.names)) < graph.n:
        seen: set[str] = set()
        for name in graph.names:
            if name in seen:
                raise GraphError(f"op {name!r} appears twice: names must be unique")
            seen.add(name)
    for name, shapes in zip(graph.names, graph.output_shapes, strict=True):
        for shape in shapes:
            _check_shape(name, shape)


def _check_shape(name: str, shape: Any) -> None:
    whole = isinstance(shape, tuple) and all(type(size) is int for size in shape)
    if not whole or len(shape) > MOST_DIMENSIONS:
        raise GraphError(f"op {name!r}: a shape must be at most {MOST_DIMENSIONS} whole numbers")
    if math.prod(shape) > MOST_ELEMENTS or (shape and min(shape) < 0):
        raise GraphError(
            f"op {name!r}: the sizes of a shape must be >= 0, and their product at most {MOST_ELEMENTS:g}, unlike "
            f"{'x'.join(map(str, shape))[:80]}"
        )


def _check_arrays(graph: Graph) -> None:
    n, m = graph.n, len(graph.tensor_producer)
    wanted: dict[str, tuple[type, int]] = {
        **{key: (np.float64, n) for key in NUMBERS},
        "backward": (np.bool_, n),
        "boundary": (np.bool_, n),
        "tensor_producer": (np.int32, m),
        "tensor_bytes": (np.float64, m),
        "consumer_ptr": (np.int32, m + 1),
        "consumer_op": (np.int32, len(graph.consumer_op)),
    }
    for key, (dtype, length) in wanted.items():
        array = getattr(graph, key)
        if array.dtype != dtype or array.shape != (length,):
            raise GraphError(
                f"{key} must be {length} numbers of type {np.dtype(dtype).name}, not {array.dtype.name} of shape "
                f"{array.shape}"
            )


def _check_amounts(
    values: FloatArray, names: tuple[str, ...], what: str, owner: IntArray | None = None
) -> None:
    """All must be finite and >= 0; ``what`` has a place for the name of the op, or of the ``owner``."""
    bad = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
    if len(bad):
        text = what.format(name=names[bad[0] if owner is None else owner[bad[0]]])
        raise GraphError(f"{text} must be a finite number >= 0, not {values[bad[0]]}")


def _check_range(ops: Any, n: int, what: str) -> None:
    bad = np.flatnonzero((ops < 0) | (ops >= n))
    if len(bad):
        raise GraphError(f"{what} is op {ops[bad[0]]}, which does not exist (there are {n})")


def _check_pointers(graph: Graph) -> None:
    ptr = graph.consumer_ptr
    if ptr[0] != 0 or ptr[-1] != graph.edges or (ptr[1:] < ptr[:-1]).any():
        raise GraphError(f"the pointers to the consumers of tensors must increase from 0 to {graph.edges}")


def _check_edges(graph: Graph) -> None:
    """No edge to oneself, none twice, no cycle."""
    names = graph.names
    producer = graph.tensor_producer[graph.edge_tensor]
    own = np.flatnonzero(producer == graph.consumer_op)
    if len(own):
        raise GraphError(f"op {names[producer[own[0]]]!r} reads its own output: a cycle")
    key = np.sort(graph.edge_tensor.astype(np.int64) * max(graph.n, 1) + graph.consumer_op)
    twice = np.flatnonzero(key[1:] == key[:-1])
    if len(twice):
        t, v = divmod(int(key[twice[0]]), graph.n)
        raise GraphError(
            f"the edge from op {names[graph.tensor_producer[t]]!r} to op {names[v]!r} appears twice"
        )
    tail, head = graph.arcs
    order = topological_order(graph.n, tail, head)
    if len(order) < graph.n:
        cycle = [names[v] for v in find_cycle(graph.n, tail, head, order)]
        listed = " -> ".join([*cycle[:6], *(["…"] if len(cycle) > 6 else []), cycle[0]])
        raise GraphError(f"the graph has a cycle: {listed}")
    graph.remember_order(order)
