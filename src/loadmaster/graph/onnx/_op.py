"""A node of an ONNX model as far as its cost depends on it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy.typing as npt

__all__ = ["Op", "Tensor"]


class Tensor(NamedTuple):
    """Shape and bits per element."""

    shape: tuple[int, ...]
    bits: int = 32

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Elements narrower than a byte are packed."""
        return -(-self.size * self.bits // 8)


class Op(NamedTuple):
    """A node as its cost depends on it; None stands for an optional input or output that is missing."""

    type: str
    inputs: tuple[Tensor | None, ...]
    outputs: tuple[Tensor | None, ...]
    attributes: Mapping[str, Any] = {}
    values: Mapping[int, npt.NDArray[Any]] = {}
    """Number of an input -> its value, where it is a small constant."""

    def has(self, i: int) -> bool:
        """Whether input i is given."""
        return i < len(self.inputs) and self.inputs[i] is not None

    def input(self, i: int) -> Tensor:
        """Input i, which must be given."""
        found = self.inputs[i]
        if found is None:
            raise IndexError(f"input {i} is missing")
        return found

    @property
    def output(self) -> Tensor:
        """The first output that is not left out."""
        return next(tensor for tensor in self.outputs if tensor is not None)
