"""Constants of an ONNX model: those that are stored, and what is computed from them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from loadmaster.errors import InputError
from loadmaster.graph.onnx._costs import ALIASES
from loadmaster.graph.onnx._file import SMALL, tensor_value
from loadmaster.graph.onnx._infer import attributes, evaluate
from loadmaster.graph.onnx._value import Value, make_value

__all__ = ["compute", "constant_node", "fold", "is_constant", "stored", "stored_sparse"]

RANDOM = frozenset(
    ["Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"]
)
STORED_AS_INPUT = ALIASES | {"DequantizeLinear", "Transpose"}
"""Of these a runtime keeps no second copy when their input is a weight: they fuse into its reader."""


# -- stored --------------------------------------------------------------------------------------------------


def stored(name: str, tensor: Any, path: str | Path) -> Value:
    """A tensor that is part of the model."""
    value = make_value(name, tensor.data_type, tuple(tensor.dims), f"{path}: the constant {name!r}")
    value.stored, value.roots = value.tensor.bytes, (value,)
    if value.tensor.size <= SMALL:
        value.array = tensor_value(tensor, path)
        if value.array is None:
            entries = {entry.key: entry.value for entry in tensor.external_data}
            value.missing = entries.get("location", "")
    return value


def stored_sparse(name: str, sparse: Any, path: str | Path) -> Value:
    """A tensor of which only the values that are not zero are stored."""
    where = f"{path}: the sparse constant {name!r}"
    value = make_value(name, sparse.values.data_type, tuple(sparse.dims), where)
    parts = [
        make_value(name, part.data_type, tuple(part.dims), where) for part in (sparse.values, sparse.indices)
    ]
    value.stored, value.roots = sum(part.tensor.bytes for part in parts), (value,)
    return value


def constant_node(node: Any, path: str | Path, where: str) -> Value:
    """The output of a ``Constant``."""
    name = node.output[0]
    for attribute in node.attribute:
        if attribute.name == "value":
            return stored(name, attribute.t, path)
        if attribute.name == "sparse_value":
            return stored_sparse(name, attribute.sparse_tensor, path)
        if attribute.name in ("value_float", "value_floats", "value_int", "value_ints"):
            kind = np.float32 if "float" in attribute.name else np.int64
            array = np.array(onnx.helper.get_attribute_value(attribute), kind)
            return stored(name, onnx.numpy_helper.from_array(array), path)
    raise InputError(f"{where} has a value that is not numeric")


# -- computed ------------------------------------------------------------------------------------------------


def is_constant(node: Any, inputs: Iterable[Value | None]) -> bool:
    """Whether a node of the standard operator set gives the same in every run; shapes are known here."""
    if node.op_type in ("Shape", "Size"):
        return True
    return node.op_type not in RANDOM and all(value.roots for value in inputs if value is not None)


def fold(node: Any, version: int, inputs: Sequence[Value | None], outputs: Sequence[Value | None]) -> None:
    """Make the outputs of a constant node constants, with their values where everything is small."""
    made = [value for value in outputs if value is not None]
    for value in made:
        value.step, value.roots, value.stored = -1, (value,), value.tensor.bytes
    if node.op_type in STORED_AS_INPUT:
        sources = [value for value in inputs if value is not None]
        if node.op_type != "DequantizeLinear":
            sources = sources[:1]
        made[0].roots = tuple(dict.fromkeys(root for value in sources for root in value.roots))
    if all(value.tensor.size <= SMALL for value in made):
        arrays = compute(node, version, inputs)
        for value in made:
            array = arrays.get(value.name)
            if array is not None and array.shape == value.tensor.shape:
                value.array = array


def compute(node: Any, version: int, inputs: Sequence[Value | None]) -> dict[str, npt.NDArray[Any]]:
    """The values of a constant node's outputs by name; nothing where they cannot be computed."""
    first = inputs[0] if inputs else None
    if node.op_type == "Shape" and first is not None:
        given = attributes(node, "", version)
        return {node.output[0]: np.array(first.tensor.shape, np.int64)[given.get("start") : given.get("end")]}
    if node.op_type == "Size" and first is not None:
        return {node.output[0]: np.array(first.tensor.size, np.int64)}
    if not is_constant(node, inputs) or any(value is not None and value.array is None for value in inputs):
        return {}
    return evaluate(node, version, [None if value is None else value.array for value in inputs])
