"""Pieces as submodels of OpenVINO's, with the tensors that pass between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from loadmaster.errors import RunError
from loadmaster.runtime._pieces import DATA, Piece, homes

__all__ = ["Port", "Submodel", "cut_model"]

TO_NHWC, TO_NCHW = (0, 2, 3, 1), (0, 3, 1, 2)

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
    for node in model.get_ordered_ops():
        name = node.get_friendly_name()
        if node.get_type_name() in DATA:
            continue
        if name not in known:
            raise RunError(f"the placement leaves out op {name!r}")
    for number in range(len(pieces)):
        for port in _reads(model, placed[number]):
            wanted[home[port[0], pieces[number].device]][port] = None
    return [
        _submodel(model, piece, placed[number], list(wanted[number]), home, first, number, channels_last)
        for number, piece in enumerate(pieces)
    ]


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
    for node in fresh.get_ordered_ops():
        if node.get_friendly_name() not in ops:
            continue
        for port in node.inputs():
            output = port.get_source_output()
            source = output.get_node()
            kind, name = source.get_type_name(), source.get_friendly_name()
            if kind == "Constant" or (kind != "Parameter" and name in ops):
                continue
            shape = list(output.get_shape())
            turned = channels_last and kind != "Parameter" and len(shape) == 4
            if turned:
                shape = [shape[i] for i in TO_NHWC]
            parameter = opset13.parameter(shape, output.get_element_type(), name=f"{name}:{len(parameters)}")
            parameters.append(parameter)
            source_piece = None if kind == "Parameter" else home[name, piece.device]
            made.inputs.append((source_piece, (name, output.get_index())))
            inner = opset13.transpose(parameter, list(TO_NCHW)) if turned else parameter
            port.replace_source_output(inner.output(0))
    for name, index in wanted:
        output = nodes[name].output(index)
        turned = channels_last and len(output.get_shape()) == 4
        inner = opset13.transpose(output, list(TO_NHWC)) if turned else output
        results.append(opset13.result(inner))
        made.outputs.append((name, index))
    for at, result in enumerate(fresh.get_results()):
        output = result.input(0).get_source_output()
        name = output.get_node().get_friendly_name()
        if name in ops and first[name] == number:
            made.final[len(results)] = at
            made.outputs.append((name, output.get_index()))
            results.append(opset13.result(output))
    made.model = ov.Model(results, parameters, f"{model.get_friendly_name()}/{number}")
    return made
