"""Plans for other tools: OpenVINO, ONNX Runtime, Hugging Face, torch, torchtitan, DeepSpeed, Graphviz."""

from loadmaster.export._formats import EXPORTERS, export
from loadmaster.export._graphviz import graphviz
from loadmaster.export._onnxruntime import annotate, layer_assignment, write_annotated
from loadmaster.export._openvino import openvino_affinity, write_openvino
from loadmaster.export._split_points import split_points
from loadmaster.export._stages import StageModules, deepspeed_parts, stage_modules, torchtitan_parts
from loadmaster.export._torch import device_map, huggingface

__all__ = [
    "EXPORTERS",
    "StageModules",
    "annotate",
    "deepspeed_parts",
    "device_map",
    "export",
    "graphviz",
    "huggingface",
    "layer_assignment",
    "openvino_affinity",
    "split_points",
    "stage_modules",
    "torchtitan_parts",
    "write_annotated",
    "write_openvino",
]
