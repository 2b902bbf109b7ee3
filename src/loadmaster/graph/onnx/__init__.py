"""Graphs from ONNX models; the onnx package is imported when a model is read."""

from loadmaster.graph.onnx._costs import FLOPS_PER_ELEMENT
from loadmaster.graph.onnx._frontend import (
    input_shapes,
    load_onnx,
    missing_weights,
    parse_shapes,
    simplified_onnx,
    whole_onnx,
)

__all__ = [
    "FLOPS_PER_ELEMENT",
    "input_shapes",
    "load_onnx",
    "missing_weights",
    "parse_shapes",
    "simplified_onnx",
    "whole_onnx",
]
