"""What is placed: the operator graph, its builder, and the files it comes from."""

from loadmaster.graph._builder import GraphBuilder
from loadmaster.graph._graph import Graph
from loadmaster.graph._layered import layered
from loadmaster.graph._network import Network
from loadmaster.graph.onnx import load_onnx
from loadmaster.graph.openvino import load_openvino

__all__ = ["Graph", "GraphBuilder", "Network", "layered", "load_onnx", "load_openvino"]
