"""The structure of a network as its op names tell it: layers, stacks, experts, blocks.

Names are paths, ``encoder/layer3/t17/matmul`` (or with dots, as torch writes them). Ops of the backward pass
are called after the op whose gradient they compute, ``encoder/layer3/t17/matmul/grad_input``.
"""

from __future__ import annotations

import re

import numpy as np

from loadmaster.arrays import IntArray
from loadmaster.graph import Graph

__all__ = ["experts", "scopes", "time_steps", "units"]


UNIT = re.compile(r"(?:^|[/.])(?:stack|layer)s?[._]?(\d+)(?=[/.])")
EXPERT = re.compile(r"(?:^|[/.])experts?[._]?(\d+)(?=[/.])")
STEP = re.compile(r"[/.]t(\d+)(?=[/.])")


def units(graph: Graph) -> IntArray:
    """(ops,) the number of the layer or stack an op is in, outermost counting; -1 outside.

    Layers are numbered in the order in which they begin, so that those of a decoder follow those of its
    encoder; layers that are unrolled in time keep their own number, so that layer 3 of both is one unit.
    """
    found = [UNIT.search(name) for name in graph.names]
    if time_steps(graph):
        return np.array([int(match[1][-9:]) if match else -1 for match in found], np.int32)
    unit = np.full(graph.n, -1, np.int32)
    number: dict[str, int] = {}
    for v in graph.topological_order.tolist():
        match = found[v]
        if match:
            unit[v] = number.setdefault(graph.names[v][: match.end()], len(number))
    return unit


def experts(graph: Graph) -> IntArray:
    """(ops,) the number of the expert of a mixture that an op belongs to; -1 outside."""
    found = [EXPERT.search(name) for name in graph.names]
    return np.array([int(match[1][-9:]) if match else -1 for match in found], np.int32)


def time_steps(graph: Graph) -> bool:
    """Whether the network is unrolled in time (``…/t17/…``)."""
    return any(STEP.search(name) for name in graph.names)


def scopes(graph: Graph, depth: int | None = None) -> IntArray:
    """(ops,) number of the path in front of each op's own name, by first appearance in topological order.

    ``depth``: so many steps of the path at most. Time steps do not count as part of a path; an op without a
    path is alone.
    """
    scope = np.empty(graph.n, np.int32)
    number: dict[str, int] = {}
    unrolled, backward = time_steps(graph), graph.backward.tolist()
    for v in graph.topological_order.tolist():
        name = graph.names[v]
        parts = (STEP.sub("", name) if unrolled else name).lstrip("/").replace(".", "/").split("/")
        own = 2 if backward[v] and len(parts) > 2 else 1
        path = "/".join(parts[:-own][:depth]) or name
        scope[v] = number.setdefault(path, len(number))
    return scope
