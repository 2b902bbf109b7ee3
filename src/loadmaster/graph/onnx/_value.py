"""A tensor of an ONNX model: where it comes from, and what is known about it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt
import onnx

from loadmaster.errors import InputError
from loadmaster.graph.onnx._infer import BITS
from loadmaster.graph.onnx._op import Tensor

__all__ = ["Value", "make_value"]

LARGEST = 2**60
"""Elements of a tensor that is still taken for what the user meant."""


@dataclass(eq=False)
class Value:
    """A tensor of the model."""

    name: str
    tensor: Tensor
    elem: int
    step: int = -1
    """The step that makes it; -1 for inputs of the model and constants."""
    port: int = 0
    stored: int = 0
    """Bytes of a constant that is stored as it is."""
    roots: tuple[Value, ...] = ()
    """The stored constants that a constant is made of; none for what differs from run to run."""
    array: npt.NDArray[Any] | None = None
    """The value of a small constant."""
    missing: str = ""
    """The external file that the value of a small constant would be in."""
    proto: Any = field(default=None, repr=False)

    @property
    def type_proto(self) -> Any:
        """For shape inference."""
        if self.proto is None:
            self.proto = onnx.helper.make_tensor_type_proto(self.elem, self.tensor.shape)
        return self.proto


def make_value(name: str, elem: int, shape: tuple[int, ...], where: str) -> Value:
    """A value of this element type and shape; ``where`` is named in errors.

    Raises
    ------
    InputError : its size in bytes is not known, or not possible.
    """
    if elem not in BITS:
        kind = "strings" if elem == onnx.TensorProto.STRING else "elements of an unknown type"
        raise InputError(f"{where} holds {kind}, whose size in bytes is unknown")
    if any(size < 0 for size in shape) or math.prod(shape) > LARGEST:
        raise InputError(f"{where} has the impossible shape {'x'.join(map(str, shape))}")
    return Value(name, Tensor(shape, BITS[elem]), elem)
