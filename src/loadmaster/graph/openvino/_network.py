"""From an OpenVINO model to its operator graph, in either of two countings."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from loadmaster.errors import InputError
from loadmaster.graph._builder import GraphBuilder
from loadmaster.graph._network import Network
from loadmaster.graph.openvino._costs import ALIASES, flops, reads
from loadmaster.graph.openvino._names import canonical_order

__all__ = ["COUNTINGS", "assemble", "constant_nodes"]

COUNTINGS = ("ops", "layers")
"""``ops``: what runs, with constants as weights of their readers. ``layers``: every node of the IR."""

COPIES = 2**20
"""Bytes of extra copies of a shared constant that are cheaper than keeping its readers together."""
COPIES_SHARE = 0.01
"""The same, as a share of all constants of the model."""

CONTROL_FLOW = frozenset(["If", "Loop", "TensorIterator"])
"""Ops with graphs inside."""

MOST_TYPES = 4
"""Unknown op types that a note lists."""


@dataclass
class _Held:
    """Weights of an op: bytes stored with it, and bytes of constants that it reads but that others store."""

    stored: float = 0.0
    read: float = 0.0


@dataclass
class _Reader:
    """A model being turned into a graph."""

    source: str
    builder: GraphBuilder
    op_of: dict[str, int] = field(default_factory=dict)
    unknown: Counter[str] = field(default_factory=Counter)


def constant_nodes(model: Any) -> set[str]:
    """Names of the nodes that have the same value in every run: constants, and what is computed from them alone."""
    found: set[str] = set()
    for node in model.get_ordered_ops():
        sources = [port.get_source_output().get_node().get_friendly_name() for port in node.inputs()]
        kind = node.get_type_name()
        if kind == "Constant" or (sources and kind != "Result" and all(name in found for name in sources)):
            found.add(node.get_friendly_name())
    return found


def assemble(model: Any, name: str, *, counting: str, io: bool) -> Network:
    """The network of a model whose shapes are fixed and whose names are unique."""
    if counting not in COUNTINGS:
        raise InputError(f"the counting {counting!r} is unknown: choose one of {', '.join(COUNTINGS)}")
    nodes = canonical_order(model)
    weights = constant_nodes(model) if counting == "ops" else set()
    left_out = ("Parameter", "Result") if not io else ()
    placed = [
        node
        for node in nodes
        if node.get_friendly_name() not in weights and node.get_type_name() not in left_out
    ]
    held, groups = _hold(placed, weights)
    reader = _Reader(name, GraphBuilder(name))
    for node in placed:
        _add(reader, node, weights, held[node.get_friendly_name()])
    _connect(reader, placed)
    index = reader.op_of
    kinds = {node.get_friendly_name(): node.get_type_name() for node in placed}
    notes = []
    if reader.unknown:
        listed = ", ".join(kind for kind, _ in reader.unknown.most_common(MOST_TYPES))
        notes.append(
            f"{reader.unknown.total()} ops ({listed}) counted by bytes alone, because their work is unknown"
        )
    return Network(
        reader.builder.build(),
        colocation=tuple(tuple(index[name] for name in group) for group in groups),
        inputs=tuple(index[name] for name, kind in kinds.items() if kind == "Parameter"),
        outputs=tuple(index[name] for name, kind in kinds.items() if kind == "Result"),
        notes=tuple(notes),
    )


def _hold(placed: list[Any], weights: set[str]) -> tuple[dict[str, _Held], list[list[str]]]:
    """Where every constant is stored, and the groups of ops that share a large one."""
    held = {node.get_friendly_name(): _Held() for node in placed}
    readers: dict[str, dict[str, None]] = {}
    size: dict[str, float] = {}
    for node in placed:
        for port in node.inputs():
            output = port.get_source_output()
            source = output.get_node().get_friendly_name()
            if source in weights:
                size[source] = _bytes(output)
                readers.setdefault(source, {})[node.get_friendly_name()] = None
    spare = max(COPIES, COPIES_SHARE * sum(size.values()))
    groups = []
    for source, names in readers.items():
        together = (len(names) - 1) * size[source] > spare
        for at, name in enumerate(names):
            if at and together:
                held[name].read += size[source]
            else:
                held[name].stored += size[source]
        if together:
            groups.append(list(names))
    return held, groups


def _add(reader: _Reader, node: Any, weights: set[str], held: _Held) -> None:
    name, kind = node.get_friendly_name(), node.get_type_name()
    for port in (*node.inputs(), *node.outputs()):
        if port.get_partial_shape().is_dynamic:
            raise InputError(
                f"{reader.source}: the shape {port.get_partial_shape()} at op {name!r} ({kind}) depends on the data, "
                "so it cannot be placed for OpenVINO: from an ONNX file, ONNX Runtime may run it",
                option="--runtime onnxruntime",
            )
    inputs = [tuple(port.get_shape()) for port in node.inputs()]
    outputs = [tuple(port.get_shape()) for port in node.outputs()]
    sizes = [_bytes(port) for port in node.inputs()]
    written = sum(_bytes(port) for port in node.outputs())
    fixed = [port.get_source_output().get_node().get_friendly_name() in weights for port in node.inputs()]
    work = flops(kind, inputs, outputs, node.get_attributes())
    if work is None:
        reader.unknown[kind] += 1
    if kind == "Constant":
        held = _Held(stored=written)
    if kind in CONTROL_FLOW:
        held = _Held(held.stored + _constants_inside(node), held.read)
    read = [0.0 if still else size for still, size in zip(fixed, reads(kind, sizes, written), strict=True)]
    reader.op_of[name] = reader.builder.op(
        name,
        kind,
        shapes=[] if kind == "Result" else outputs,
        flops=work or 0.0,
        bytes_read=sum(read) + held.read,
        bytes_written=0.0 if kind in ALIASES - {"Parameter"} else written,
        param_bytes=held.stored,
        boundary=kind in ("Parameter", "Result"),
    )


def _constants_inside(node: Any) -> float:
    """Bytes of all constants in the graphs of a node."""
    both = node.get_type_name() == "If"
    graphs = [node.get_function(at) for at in range(2)] if both else [node.get_function()]
    return sum(
        _constants_inside(inner)
        if inner.get_type_name() in CONTROL_FLOW
        else _bytes(inner.output(0))
        if inner.get_type_name() == "Constant"
        else 0.0
        for graph in graphs
        for inner in graph.get_ops()
    )


def _connect(reader: _Reader, placed: list[Any]) -> None:
    """A tensor for every output that a placed op reads."""
    for node in placed:
        for output in node.outputs():
            names = [port.get_node().get_friendly_name() for port in output.get_target_inputs()]
            consumers = sorted({reader.op_of[name] for name in names if name in reader.op_of})
            if consumers:
                reader.builder.tensor(
                    reader.op_of[node.get_friendly_name()], bytes=_bytes(output), consumers=consumers
                )


def _bytes(port: Any) -> float:
    elements = 1
    for size in port.get_shape():
        elements *= size
    return float(-(-elements * port.get_element_type().bitwidth // 8))
