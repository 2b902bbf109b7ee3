"""Inputs of an ONNX model whose value is the same in every run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy.typing as npt
import onnx

from loadmaster.errors import InputError
from loadmaster.graph._given import typed_value
from loadmaster.graph.onnx._infer import dimensions

__all__ = ["set_values"]


def set_values(model: Any, path: str | Path, values: Mapping[str, Any]) -> dict[str, npt.NDArray[Any]]:
    """Make constants of the inputs whose values are given, in place; what depends on them is then constant, too.

    Returns the values as the inputs take them.

    Raises
    ------
    InputError : there is no such input, or the value does not fit it.
    """
    graph, set_to = model.graph, dict[str, npt.NDArray[Any]]()
    inputs = {info.name: info for info in graph.input}
    for name, value in values.items():
        if name not in inputs:
            known = ", ".join(map(repr, inputs)) or "none"
            raise InputError(
                f"{path}: the value of {name!r} is given, but its inputs are {known}", option="--value"
            )
        found = dimensions(inputs[name].type, {})
        if found.kind != "tensor" or not found.elem or found.elem == onnx.TensorProto.STRING:
            raise InputError(
                f"{path}: input {name!r} holds no numbers, so that it takes no value", option="--value"
            )
        array = typed_value(
            name, value, onnx.helper.tensor_dtype_to_np_dtype(found.elem), found.sizes, str(path)
        )
        for at in reversed([i for i, tensor in enumerate(graph.initializer) if tensor.name == name]):
            del graph.initializer[at]
        graph.initializer.append(onnx.numpy_helper.from_array(array, name))
        graph.input.remove(inputs[name])
        set_to[name] = array
    return set_to
