"""Which ops have the same value in every run."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from loadmaster.graph._graph import Graph

__all__ = ["CONSTANT_TYPES", "constant_valued"]

CONSTANT_TYPES = frozenset({"constant", "const", "initializer", "get_attr", "weight"})
"""Op types, in lower case, of values that are part of the model. A ``Parameter`` is an input of the model, so
not here."""


def constant_valued(graph: Graph) -> npt.NDArray[np.bool_]:
    """(ops,) True for constants and for ops that read constants only, such as the Convert of a compressed
    weight.

    Complexity: O(ops + arcs).
    """
    constant = np.array([kind.lower() in CONSTANT_TYPES for kind in graph.op_types], np.bool_)
    if not constant.any():
        return constant
    ptr, before = (array.tolist() for array in graph.predecessors)
    known = constant.tolist()
    for v in graph.topological_order.tolist():
        if not known[v] and ptr[v] < ptr[v + 1]:
            known[v] = all(known[u] for u in before[ptr[v] : ptr[v + 1]])
    return np.array(known, np.bool_)
