"""Plans for other tools: OpenVINO, ONNX Runtime, Hugging Face and torch, Graphviz."""

from loadmaster.export._formats import EXPORTERS, export
from loadmaster.export._graphviz import graphviz
from loadmaster.export._onnxruntime import annotate, layer_assignment, write_annotated
from loadmaster.export._openvino import openvino_affinity, write_openvino
from loadmaster.export._torch import device_map, split_points

__all__ = [
    "EXPORTERS",
    "annotate",
    "device_map",
    "export",
    "graphviz",
    "layer_assignment",
    "openvino_affinity",
    "split_points",
    "write_annotated",
    "write_openvino",
]
