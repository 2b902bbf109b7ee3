"""What is placed: the operator graph, its builder, and the files it comes from.

:mod:`.order` has the orders of a directed acyclic graph, :mod:`.workload` the published workload files, and
:mod:`.onnx` and :mod:`.openvino` the frontends.
"""

from loadmaster.graph._builder import GraphBuilder
from loadmaster.graph._check import check_graph
from loadmaster.graph._constants import constant_valued
from loadmaster.graph._drawing import draw_input, length_of
from loadmaster.graph._file import dump_graph, is_graph, parse_graph
from loadmaster.graph._given import Given
from loadmaster.graph._graph import Graph
from loadmaster.graph._layered import layered
from loadmaster.graph._network import Network
from loadmaster.graph.onnx import load_onnx
from loadmaster.graph.openvino import load_openvino

__all__ = [
    "Given",
    "Graph",
    "GraphBuilder",
    "Network",
    "check_graph",
    "constant_valued",
    "draw_input",
    "dump_graph",
    "is_graph",
    "layered",
    "length_of",
    "load_onnx",
    "load_openvino",
    "parse_graph",
]
