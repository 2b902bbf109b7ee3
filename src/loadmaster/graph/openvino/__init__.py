"""Graphs from OpenVINO models; OpenVINO is imported when a model is read."""

from loadmaster.graph.openvino._file import openvino
from loadmaster.graph.openvino._frontend import load_openvino, openvino_model
from loadmaster.graph.openvino._memory import model_file
from loadmaster.graph.openvino._messages import one_line
from loadmaster.graph.openvino._names import canonical_order
from loadmaster.graph.openvino._pytorch import load_program

__all__ = [
    "canonical_order",
    "load_openvino",
    "load_program",
    "model_file",
    "one_line",
    "openvino",
    "openvino_model",
]
