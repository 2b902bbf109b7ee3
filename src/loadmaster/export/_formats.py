"""The formats of other programs, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from loadmaster.errors import InputError
from loadmaster.export._graphviz import graphviz
from loadmaster.export._onnxruntime import layer_assignment
from loadmaster.export._openvino import openvino_affinity
from loadmaster.export._split_points import split_points
from loadmaster.export._stages import deepspeed_parts, torchtitan_parts
from loadmaster.export._torch import device_map, huggingface
from loadmaster.plan import Plan

__all__ = ["EXPORTERS", "export"]

EXPORTERS: dict[str, Callable[..., str]] = {
    "openvino": openvino_affinity,
    "onnxruntime": layer_assignment,
    "device-map": device_map,
    "huggingface": huggingface,
    "split-points": split_points,
    "torchtitan": torchtitan_parts,
    "deepspeed": deepspeed_parts,
    "dot": graphviz,
}
"""Format name -> exporter: of a plan, and of the model where one is given."""


def export(plan: Plan, format: str, model: Any = None) -> str:
    """The plan in another program's format, as text.

    ``model``, an ONNX file, a torch module or an ``ExportedProgram``, tells the formats of PyTorch which module an
    op belongs to, where its name does not.
    """
    if format not in EXPORTERS:
        raise InputError(f"the format {format!r} is unknown: choose one of {', '.join(EXPORTERS)}")
    return EXPORTERS[format](plan, model)
