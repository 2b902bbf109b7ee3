"""Pieces as submodels of OpenVINO's, with the tensors that pass between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from loadmaster.errors import RunError
from loadmaster.runtime._pieces import DATA, Piece, homes

__all__ = ["Port", "Submodel", "cut_model"]

TO_NHWC, TO_NCHW = (0, 2, 3, 1), (0, 3, 1, 2)
ORDER_TYPES = (np.int64, np.int32, np.int16, np.int8, np.uint64, np.uint32, np.uint16, np.uint8)
"""Of the constants that say how to turn a tensor."""

Port = tuple[str, int]
"""An output of the whole model's nodes: name of the node, number of its output."""


@dataclass
class Submodel:
    """A piece as a model: ``outputs[i]`` is what its i-th result holds, ``inputs[i]`` what its i-th parameter reads,
    with the number of the piece that it comes from (None: an input of the whole model).

    ``final[i]``: number of the whole model's output, for a result that is one.
    """

    piece: Piece
    model: Any
    inputs: list[tuple[int | None, Port]] = field(default_factory=list)
    outputs: list[Port] = field(default_factory=list)
    final: dict[int, int] = field(default_factory=dict)


def cut_model(model: Any, pieces: Sequence[Piece], *, channels_last: bool = True) -> list[Submodel]:
    """The submodels of a model, in the order of the pieces; every op must be in one.

    Tensors of four dimensions pass as NHWC: devices compute in it, and a boundary of NCHW would be two changes of
    layout. Each reader has a parameter of its own, for a shared change of layout is one that is not optimised away.
    """
    home = homes(pieces)
    known = {op for op, _ in home}
    first = {op: min(home[op, piece.device] for piece in pieces) for op in known}
    placed = [set(piece.ops) for piece in pieces]
    wanted: list[dict[Port, None]] = [{} for _ in pieces]
    unfolded = _unfolded(model, known)
    for number, ops in enumerate(placed):
        _add_unfolded(model, ops, unfolded)
        first |= {op: number for op in ops & unfolded if op not in first}
    for node in model.get_ordered_ops():
        name = node.get_friendly_name()
        if node.get_type_name() in DATA:
            continue
        if name not in known | unfolded:
            raise RunError(f"the placement leaves out op {name!r}")
    for number in range(len(pieces)):
        for port in _reads(model, placed[number]):
            wanted[home[port[0], pieces[number].device]][port] = None
    return [
        _submodel(model, piece, placed[number], list(wanted[number]), home, first, number, channels_last)
        for number, piece in enumerate(pieces)
    ]


def _unfolded(model: Any, placed: set[str]) -> set[str]:
    """Ops of constants alone that OpenVINO has not folded (``CumSum``, say): they are in no graph and no placement."""
    found: set[str] = set()
    for node in model.get_ordered_ops():
        name, sources = (
            node.get_friendly_name(),
            [port.get_source_output().get_node() for port in node.inputs()],
        )
        if name in placed or node.get_type_name() in DATA:
            continue
        if all(s.get_type_name() == "Constant" or s.get_friendly_name() in found for s in sources):
            found.add(name)
    return found


def _add_unfolded(model: Any, ops: set[str], unfolded: set[str]) -> None:
    """Let a piece compute for itself what its ops read of such; what nobody but a result reads is everyone's."""
    for node in reversed(model.get_ordered_ops() if unfolded else []):  # readers first
        if node.get_friendly_name() in unfolded:
            readers = [port.get_node() for out in node.outputs() for port in out.get_target_inputs()]
            if any(r.get_type_name() == "Result" or r.get_friendly_name() in ops for r in readers):
                ops.add(node.get_friendly_name())


def _reads(model: Any, ops: set[str]) -> list[Port]:
    """What ops read of other pieces."""
    found: dict[Port, None] = {}
    for node in model.get_ordered_ops():
        if node.get_friendly_name() not in ops:
            continue
        for port in node.inputs():
            output = port.get_source_output()
            source = output.get_node()
            if source.get_type_name() not in DATA and source.get_friendly_name() not in ops:
                found[source.get_friendly_name(), output.get_index()] = None
    return list(found)


def _submodel(
    model: Any,
    piece: Piece,
    ops: set[str],
    wanted: Sequence[Port],
    home: dict[tuple[str, str], int],
    first: dict[str, int],
    number: int,
    channels_last: bool,
) -> Submodel:
    import openvino as ov
    from openvino import opset13

    fresh = model.clone()
    made = Submodel(piece, None)
    parameters: list[Any] = []
    results: list[Any] = []
    nodes = {node.get_friendly_name(): node for node in fresh.get_ordered_ops()}
    inside = [node for node in fresh.get_ordered_ops() if node.get_friendly_name() in ops]
    joins = _joins_of_what_enters(inside, ops) if channels_last else {}

    def entering(output: Any, turned: bool) -> Any:
        source = output.get_node()
        kind, name = source.get_type_name(), source.get_friendly_name()
        shape = list(output.get_shape())
        if turned:
            shape = [shape[i] for i in TO_NHWC]
        parameter = opset13.parameter(shape, output.get_element_type(), name=f"{name}:{len(parameters)}")
        parameters.append(parameter)
        source_piece = None if kind == "Parameter" else home[name, piece.device]
        made.inputs.append((source_piece, (name, output.get_index())))
        return parameter

    for node in inside:
        if node.get_friendly_name() in joins:
            continue
        for port in node.inputs():
            output = port.get_source_output()
            if not _outside(output.get_node(), ops):
                continue
            kind = output.get_node().get_type_name()
            turned = channels_last and kind != "Parameter" and len(output.get_shape()) == 4
            inner = entering(output, turned)
            if turned:
                inner = opset13.transpose(inner, list(TO_NCHW))
            port.replace_source_output(inner.output(0))
    joined = _join(joins, ops, lambda output: entering(output, True))
    for name, index in wanted:
        output = nodes[name].output(index)
        if name in joined:
            output = joined[name].output(0)
        elif channels_last and len(output.get_shape()) == 4:
            output = opset13.transpose(output, list(TO_NHWC)).output(0)
        results.append(opset13.result(output))
        made.outputs.append((name, index))
    for at, result in enumerate(model.get_results()):
        source = result.input(0).get_source_output()
        name = source.get_node().get_friendly_name()
        if name in ops and first[name] == number:
            made.final[len(results)] = at
            made.outputs.append((name, source.get_index()))
            output = fresh.get_results()[at].input(0).get_source_output()
            if name in joined:
                output = opset13.transpose(joined[name], list(TO_NCHW)).output(0)
            results.append(opset13.result(output))
    made.model = ov.Model(results, parameters, f"{model.get_friendly_name()}/{number}")
    return made


def _outside(source: Any, ops: set[str]) -> bool:
    kind = source.get_type_name()
    return kind == "Parameter" or (kind != "Constant" and source.get_friendly_name() not in ops)


def _joins_of_what_enters(inside: Sequence[Any], ops: set[str]) -> dict[str, Any]:
    """The Concats, in topological order, of nothing but tensors from other submodels and other such Concats."""
    found: dict[str, Any] = {}
    for node in inside:
        if node.get_type_name() != "Concat" or len(node.get_output_shape(0)) != 4:
            continue
        sources = [port.get_source_output().get_node() for port in node.inputs()]
        if all(
            source.get_friendly_name() in found
            or (_outside(source, ops) and source.get_type_name() != "Parameter")
            for source in sources
        ):
            found[node.get_friendly_name()] = node
    return found


def _join(joins: Mapping[str, Any], ops: set[str], entering: Callable[[Any], Any]) -> dict[str, Any]:
    """Join in NHWC what enters in NHWC: OpenVINO would turn every part round, and the whole back again.

    Each reader turns the whole round for itself, which a convolution does at no cost. The orders are constants of
    different types, or OpenVINO would take them for one and the same, and a shared one has a cost.
    """
    from openvino import opset13

    joined: dict[str, Any] = {}
    for name, node in joins.items():
        parts = []
        for port in node.inputs():
            output = port.get_source_output()
            parts.append(joined.get(output.get_node().get_friendly_name()) or entering(output))
        axis = TO_NHWC.index(int(node.get_attributes()["axis"]) % 4)
        joined[name] = opset13.concat(parts, axis, name=f"{name}/nhwc")
    for name, node in joins.items():
        named = {
            (port.get_node().get_friendly_name(), port.get_index()): port
            for port in node.output(0).get_target_inputs()
        }
        readers = [named[at] for at in sorted(named) if at[0] in ops - joins.keys()]
        for number, port in enumerate(readers):
            order = opset13.constant(np.array(TO_NCHW, ORDER_TYPES[number % len(ORDER_TYPES)]))
            port.replace_source_output(opset13.transpose(joined[name], order).output(0))
    return joined
