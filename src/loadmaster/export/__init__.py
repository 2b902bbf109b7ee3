"""Plans for other tools: OpenVINO, ONNX Runtime, Hugging Face and torch, Graphviz."""

from loadmaster.export._export import (
    EXPORTERS,
    annotate,
    device_map,
    export,
    graphviz,
    layer_assignment,
    openvino_affinity,
    split_points,
    write_annotated,
)

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
]
