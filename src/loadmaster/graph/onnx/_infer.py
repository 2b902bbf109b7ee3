"""What one ONNX node makes of its inputs: types and shapes always, values where they are small and constant."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import onnx
import onnx.defs
import onnx.shape_inference

__all__ = [
    "BITS",
    "Guess",
    "attributes",
    "dimensions",
    "evaluate",
    "guess_of",
    "infer",
    "schema_of",
    "symbol",
]


def _bits() -> dict[int, int]:
    """Data type -> bits per element; the number is in the names of all but a few."""
    bits = {"FLOAT": 32, "DOUBLE": 64, "BOOL": 8}
    for name in onnx.TensorProto.DataType.keys():  # noqa: SIM118 - not a dict
        digits = re.search(r"\d+", name)
        if digits:
            bits[name] = int(digits[0])
    return {onnx.TensorProto.DataType.Value(name): size for name, size in bits.items()}


BITS = _bits()
"""Data type -> bits per element; strings are not there."""

SHAPE_OF_FIRST_INPUT = frozenset(["GroupNormalization", "MeanVarianceNormalization"])
"""Defined by a function alone, which the ``onnx`` package does not look into."""


class Guess(NamedTuple):
    """A type as far as it is known: element type (0 = not), sizes (None = not); ``kind`` is ``"tensor"``, or
    what it is instead."""

    elem: int
    sizes: tuple[int | None, ...] | None
    kind: str = "tensor"


def dimensions(type_proto: Any, symbols: Mapping[str, int]) -> Guess:
    """What a ``TypeProto`` says, named dimensions replaced by their sizes."""
    kind = type_proto.WhichOneof("value")
    if kind is None:
        return Guess(0, None)
    if kind != "tensor_type":
        return Guess(0, None, kind.removesuffix("_type").replace("_", " "))
    tensor = type_proto.tensor_type
    if not tensor.HasField("shape"):
        return Guess(tensor.elem_type, None)
    sizes: list[int | None] = []
    for dim in tensor.shape.dim:
        if dim.HasField("dim_value") and dim.dim_value >= 0:
            sizes.append(dim.dim_value)
        else:
            sizes.append(symbols.get(symbol(dim)))
    return Guess(tensor.elem_type, tuple(sizes))


def symbol(dim: Any) -> str:
    """The name of an open dimension; empty where it has none.

    Paddle writes ``?`` for whatever it does not know, which names nothing: two such dimensions may differ.
    """
    name: str = dim.dim_param
    return "" if name.strip("?") == "" else name


def guess_of(array: npt.NDArray[Any]) -> Guess:
    """The type of a value."""
    return Guess(onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


@cache
def schema_of(op_type: str, domain: str, version: int) -> Any:
    """The operator's schema as of a version of its operator set; None where there is none."""
    try:
        return onnx.defs.get_schema(op_type, version, domain)
    except onnx.defs.SchemaError:
        return None


@cache
def _defaults(op_type: str, domain: str, version: int) -> dict[str, Any]:
    schema = schema_of(op_type, domain, version)
    values = {} if schema is None else {key: a.default_value for key, a in schema.attributes.items()}
    return {key: _plain(value) for key, value in values.items() if value.type}


def attributes(node: Any, domain: str, version: int) -> dict[str, Any]:
    """The node's attributes with the defaults of its operator; texts as ``str``."""
    given = {a.name: _plain(a) for a in node.attribute if a.type}
    return {**_defaults(node.op_type, domain, version), **given}


def _plain(attribute: Any) -> Any:
    value = onnx.helper.get_attribute_value(attribute)
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def infer(
    node: Any,
    schema: Any,
    types: Mapping[str, Any],
    values: Mapping[str, Any],
    opset_imports: Sequence[Any],
    ir_version: int,
) -> dict[str, Guess]:
    """The types of the node's outputs, by name, from the types of its inputs and the values of constant ones.

    Raises
    ------
    onnx.shape_inference.InferenceError : the inputs do not fit the operator.
    """
    if schema.domain == "" and schema.name in SHAPE_OF_FIRST_INPUT:
        return {node.output[0]: dimensions(types[node.input[0]], {})}
    if not schema.has_type_and_shape_inference_function:
        # Some first versions have none; where a later one tells a shape, it is the same.
        schema = onnx.defs.get_schema(schema.name, schema.domain)
        if not schema.has_type_and_shape_inference_function:
            return {}
    if schema.name == "STFT" and not any(a.name == "onesided" for a in node.attribute):
        # onnx <= 1.23 takes the missing attribute for 0, though its default is 1 (onnx/onnx#7731).
        whole = onnx.NodeProto()
        whole.CopyFrom(node)
        whole.attribute.append(onnx.helper.make_attribute("onesided", 1))
        node = whole
    found = onnx.shape_inference.infer_node_outputs(
        schema, node, types, values, opset_imports=list(opset_imports), ir_version=ir_version
    )
    return {name: dimensions(type_proto, {}) for name, type_proto in found.items()}


def evaluate(
    node: Any, version: int, inputs: Sequence[npt.NDArray[Any] | None]
) -> dict[str, npt.NDArray[Any]]:
    """The outputs of a node of the standard operator set by name, by ONNX's reference implementation; nothing
    where it has none or fails: then the values stay unknown."""
    from onnx.reference import ReferenceEvaluator

    graph = onnx.GraphProto(name="node")
    graph.node.append(node)
    feeds = {name: value for name, value in zip(node.input, inputs, strict=True) if name}
    graph.input.extend(onnx.ValueInfoProto(name=name) for name in feeds)
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in node.output if name)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # about the reference implementation, not about the model
            found = ReferenceEvaluator(graph, opsets={"": version}).run(None, feeds)
    except Exception:  # an op by op choice of Python errors; a shape that needs the value will be asked for
        return {}
    names = [name for name in node.output if name]
    return {name: np.asarray(array) for name, array in zip(names, found, strict=True)}
