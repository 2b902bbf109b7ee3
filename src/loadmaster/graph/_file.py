"""Graph files: an operator graph as one JSON object, without costs on any device."""

from __future__ import annotations

from typing import Any

from loadmaster.errors import GraphError, InputError
from loadmaster.files import Record, shown
from loadmaster.graph._builder import GraphBuilder
from loadmaster.graph._graph import Graph

__all__ = ["FORMAT", "dump_graph", "is_graph", "parse_graph"]

FORMAT = "loadmaster-graph/1"

NUMBERS = ("flops", "bytes_read", "bytes_written", "param_bytes")


def is_graph(data: Any) -> bool:
    """Whether parsed JSON looks like a graph file."""
    return isinstance(data, dict) and str(data.get("format", "")).startswith("loadmaster-graph/")


def dump_graph(graph: Graph) -> dict[str, Any]:
    """The graph as plain lists and dicts; :func:`parse_graph` gives back exactly the same graph."""
    return {
        "format": FORMAT,
        "name": graph.name,
        "ops": [
            {
                "name": graph.names[v],
                "type": graph.op_types[v],
                "shapes": [list(shape) for shape in graph.output_shapes[v]],
                **{key: float(getattr(graph, key)[v]) for key in NUMBERS},
                "backward": bool(graph.backward[v]),
                **({"boundary": True} if graph.boundary[v] else {}),
            }
            for v in range(graph.n)
        ],
        "tensors": [
            {
                "producer": graph.names[graph.tensor_producer[t]],
                "bytes": float(graph.tensor_bytes[t]),
                "consumers": [graph.names[v] for v in graph.consumers(t).tolist()],
            }
            for t in range(graph.tensors)
        ],
    }


def parse_graph(data: Any, source: str) -> Graph:
    """A graph from parsed JSON; ``source`` is named in errors.

    An op needs only a ``name``, a tensor only a ``producer``; producers and consumers are names of ops.

    Raises
    ------
    InputError : a field is missing or wrong; the message names the entry.
    """
    record = Record(data, source)
    if record.text("format") != FORMAT:
        raise InputError(
            f"{source}: format is {shown(record.value['format'])}, but this version reads {FORMAT!r}"
        )
    builder = GraphBuilder(record.text("name", source.rsplit("/", 1)[-1].removesuffix(".json")))
    try:
        for op in record.records("ops"):
            name = op.text("name")
            op.where = f"{op.where} {name!r}"
            builder.op(
                name,
                op.text("type", ""),
                shapes=[_shape(op, shape) for shape in op.items("shapes", [])],
                **{key: op.number(key, 0.0) for key in NUMBERS},
                backward=op.flag("backward", False),
                boundary=op.flag("boundary", False),
            )
        for tensor in record.records("tensors"):
            producer = tensor.text("producer")
            consumers = tensor.items("consumers", [])
            for consumer in consumers:
                if not isinstance(consumer, str):
                    raise InputError(
                        f"{tensor.where}: 'consumers' must hold names of ops, not {shown(consumer)}"
                    )
            builder.tensor(producer, bytes=tensor.number("bytes", 0.0), consumers=consumers)
        return builder.build()
    except GraphError as error:
        raise GraphError(f"{source}: {error}") from None


def _shape(op: Record, shape: Any) -> list[int]:
    if not isinstance(shape, list) or any(isinstance(x, bool) or not isinstance(x, int) for x in shape):
        raise InputError(f"{op.where}: 'shapes' must hold lists of whole numbers, not {shown(shape)}")
    return shape
