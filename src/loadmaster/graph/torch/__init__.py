"""The PyTorch frontend: what ``torch.export`` makes of a model, for pipelines of PyTorch itself.

:func:`capture` exports a module (or takes an ``ExportedProgram``, or a ``.pt2`` file) and keeps its ops with the names
of their fx nodes; :meth:`Capture.network` is the operator graph to place. ``loadmaster.load`` reads such models through
OpenVINO, whose ops are others: a plan made for one of the two is not for the other.

Importing this package imports PyTorch.
"""

from loadmaster.graph.torch._capture import Capture, Parameter, capture
from loadmaster.graph.torch._example import Example, as_example
from loadmaster.graph.torch._export import without_cache
from loadmaster.graph.torch._graph import GRANULARITIES, TIES
from loadmaster.graph.torch._nodes import is_random, mutated, viewed
from loadmaster.graph.torch._work import Alone, alone, differentiable, gradients_of, run_alone

__all__ = [
    "GRANULARITIES",
    "TIES",
    "Alone",
    "Capture",
    "Example",
    "Parameter",
    "alone",
    "as_example",
    "capture",
    "differentiable",
    "gradients_of",
    "is_random",
    "mutated",
    "run_alone",
    "viewed",
    "without_cache",
]
