"""What the ops of a captured model hold on their rank: weights, gradients, the optimizer's state; results of a step."""

from __future__ import annotations

import numpy as np
import torch

from loadmaster.arrays import FloatArray
from loadmaster.graph import Graph
from loadmaster.graph.torch import Capture
from loadmaster.problem import Tie

__all__ = ["held_memory"]


def held_memory(
    capture: Capture, graph: Graph, optimizer_state: float = 2.0, microbatches: int = 0
) -> tuple[FloatArray, list[Tie]]:
    """(ops of the graph,) bytes held once, and the trained weights that several ops share.

    The engine keeps the results of all ``microbatches`` of a step until it ends: they count for the ops that make them.

    In training a trained parameter counts 2 + ``optimizer_state`` times: itself, its gradient, and the state. What
    several ops read is a :class:`Tie`, which a rank holds once; a buffer of that kind counts for the first op of every
    layer that reads it. Complexity: O(parameters + their readers).
    """
    held, ties = np.zeros(graph.n), list[Tie]()
    for node in capture.output.all_input_nodes:
        result = node.meta.get("val")
        if node.name in capture.index and isinstance(result, torch.Tensor):
            op = graph.index[capture.names[capture.index[node.name]]]
            held[op] += microbatches * result.numel() * result.element_size()
    for parameter in capture.parameters:
        ops = [graph.index[capture.names[v]] for v in parameter.readers]
        factor = 2.0 + optimizer_state if capture.training and parameter.trained else 1.0
        if len(ops) == 1:
            held[ops[0]] += factor * parameter.bytes
        elif capture.training and parameter.trained:
            ties.append(Tie(tuple(ops), float(parameter.bytes), factor * parameter.bytes))
        else:
            seen: set[str] = set()
            for v, op in zip(parameter.readers, ops, strict=True):
                if capture.layers[v] not in seen:
                    held[op] += parameter.bytes
                    seen.add(capture.layers[v])
    return held, ties
