"""Models that keep something from one request to the next (``ReadValue``, ``Assign``), as language models do."""

from __future__ import annotations

from typing import Any

import numpy as np

from loadmaster.errors import InputError

__all__ = ["forget_state"]


def forget_state(model: Any, source: str) -> None:
    """Begin every request with the state at its start, in place: what a state is read from becomes its first value.

    That is what the model gives after ``reset_state()``, without a state: its parts can then run anywhere.

    Raises
    ------
    InputError : a state without a first value has an open shape or type; the message names the op.
    """
    readers = [node for node in model.get_ops() if node.get_type_name() == "ReadValue"]
    if not readers:
        return
    for node in readers:
        first = node.input(0).get_source_output() if node.inputs() else _zeros(node, source)
        for reader in list(node.output(0).get_target_inputs()):
            reader.replace_source_output(first)
    for sink in list(model.get_sinks()):
        if sink.get_type_name() == "Assign":
            model.remove_sink(sink)
    for variable in list(model.get_variables()):
        model.remove_variable(variable)
    model.validate_nodes_and_infer_types()


def _zeros(node: Any, source: str) -> Any:
    from openvino import opset13

    shape, kind = node.get_output_partial_shape(0), node.get_output_element_type(0)
    if shape.is_dynamic or kind.is_dynamic():
        raise InputError(
            f"{source}: the state of op {node.get_friendly_name()!r} (ReadValue) has the open shape {shape} and no "
            "first value: export the model without a state (stateful=False)"
        )
    zeros = opset13.constant(np.zeros(list(shape.to_shape()), kind.to_dtype()), kind)
    zeros.set_friendly_name(node.get_friendly_name())
    return zeros.output(0)
