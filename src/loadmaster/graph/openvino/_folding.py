"""What has the same value in every run, computed once."""

from __future__ import annotations

import math
from typing import Any

from loadmaster.errors import InputError
from loadmaster.files import check_limit
from loadmaster.graph.openvino._messages import one_line
from loadmaster.graph.openvino._names import name_canonically
from loadmaster.graph.openvino._network import constant_nodes

__all__ = ["fold"]

WORK, LEAST_WORK = 1000, 2**31
"""Multiplications for each stored element, and in all, beyond which constants are not computed: plain loops do it."""
LARGEST = 2**24
"""Elements of what is computed here: masks and indices, no weights."""


def fold(model: Any, source: str = "the model") -> Any:
    """Replace what has the same value in every run by constants, in place; names of all other nodes stay.

    Raises
    ------
    InputError : a constant would be enormous, or cannot be computed.
    """
    from openvino.passes import ConstantFolding, Manager

    manager = Manager()
    manager.register_pass(ConstantFolding())
    more = True
    while more:  # shapes that follow from what was computed may make other values constant
        _check_constants(model, source)
        try:
            manager.run_passes(model)
            more = _compute_the_rest(model)
            if more:
                model.validate_nodes_and_infer_types()
        except (RuntimeError, MemoryError) as error:
            raise InputError(f"{source}: its constants cannot be computed ({one_line(error)})") from None
    name_canonically(model)
    return model


def _check_constants(model: Any, source: str) -> None:
    """Refuse a model that makes an enormous constant out of small ones: a few bytes can ask for terabytes."""
    known: dict[str, bool] = {}
    stored, made, work = 0, {}, 0
    for node in model.get_ordered_ops():
        kind, name = node.get_type_name(), node.get_name()
        sources = [port.get_source_output().get_node().get_name() for port in node.inputs()]
        known[name] = kind == "Constant" or (
            bool(sources) and all(known.get(each, False) for each in sources)
        )
        if known[name] and node.get_output_size():
            shapes = [port.get_partial_shape() for port in node.outputs()]
            size = max(math.prod(shape.to_shape()) if shape.is_static else 0 for shape in shapes)
            stored += size if kind == "Constant" else 0
            if kind not in ("Constant", "Result"):
                made[node.get_friendly_name()] = size
                work += size * _depth(node)
    if work > WORK * max(1, stored) and work > LEAST_WORK:
        raise InputError(
            f"{source}: its constants take {work:,} multiplications to compute: export it with them computed"
        )
    for name, size in made.items():
        if size > 4 * stored:
            check_limit("elements", size, f"{source}: the constant {name!r} has {size:,} elements")


def _depth(node: Any) -> int:
    """Multiplications per element of what a node computes."""
    kind = node.get_type_name()
    at = {"MatMul": 0, "Convolution": 1, "GroupConvolution": 1}.get(kind)
    shape = None if at is None else node.input(at).get_partial_shape()
    if shape is None or not shape.is_static or not len(shape):
        return 1
    sizes = [int(size) for size in shape.to_shape()]
    if kind == "MatMul":
        return sizes[-2] if node.get_attributes().get("transpose_a") and len(sizes) > 1 else sizes[-1]
    return math.prod(sizes[1:])


def _compute_the_rest(model: Any) -> bool:
    """Run what the pass cannot compute (a BitwiseAnd of masks, an Identity of a shape, say) on the CPU, and put the
    values in its place; whether there was anything.

    What the CPU cannot compute either stays.
    """
    import openvino as ov
    from openvino import opset13

    constant = constant_nodes(model)
    wanted: list[Any] = []
    for node in model.get_ordered_ops():
        if node.get_friendly_name() not in constant or node.get_type_name() == "Constant":
            continue
        for output in node.outputs():
            readers = [port.get_node().get_friendly_name() for port in output.get_target_inputs()]
            small = output.get_partial_shape().is_static and math.prod(output.get_shape()) <= LARGEST
            if small and any(reader not in constant for reader in readers):
                wanted.append(output)
    if not wanted:
        return False
    copies = {node.get_friendly_name(): node for node in model.clone().get_ordered_ops()}
    ends = [
        opset13.result(copies[output.get_node().get_friendly_name()].output(output.get_index()))
        for output in wanted
    ]
    try:
        exact = {"INFERENCE_PRECISION_HINT": "f32"}
        found = list(ov.Core().compile_model(ov.Model(ends, []), "CPU", exact)([]).values())
    except RuntimeError:
        return False
    for output, value in zip(wanted, found, strict=True):
        made = opset13.constant(value, output.get_element_type())
        made.set_friendly_name(output.get_node().get_friendly_name())
        for reader in list(output.get_target_inputs()):
            reader.replace_source_output(made.output(0))
    return True
