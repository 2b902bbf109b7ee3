"""One step of an ONNX model: a node that computes something in every run."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import NamedTuple

from loadmaster.graph.onnx._op import Op
from loadmaster.graph.onnx._value import Value

__all__ = ["Scope", "Step"]

Scope = MutableMapping[str, Value]


class Step(NamedTuple):
    """A node that computes something in every run."""

    name: str
    """Of the node; empty where it has none."""
    domain: str
    op: Op
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value | None, ...]
    flops: float | None
    """None where they are not known."""
