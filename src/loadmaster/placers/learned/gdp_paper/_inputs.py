"""What ``gdp-paper`` sees of a graph."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from loadmaster.arrays import FloatArray
from loadmaster.graph.order import longest_path_levels
from loadmaster.placers.learned._features import output_sizes, standard
from loadmaster.placers.learned._tensors import floats, longs
from loadmaster.placers.learned.units import Units

if TYPE_CHECKING:
    from loadmaster.placers.learned.gdp_paper.gdp_paper import GdpPaper

__all__ = ["Inputs", "inputs_of"]


class Inputs(NamedTuple):
    """A graph as tensors."""

    types: Tensor
    """(nodes, 1 + vocabulary) share of each op type among the ops of a node; the first is UNK."""
    numbers: Tensor
    """(nodes, columns)."""
    sender: Tensor
    """(messages,)."""
    receiver: Tensor
    """(messages,)."""
    allowed: Tensor
    """(nodes, devices) bool."""


def inputs_of(units: Units, vocabulary: Sequence[str], devices: int, settings: GdpPaper) -> Inputs:
    """The features of a graph, with as many devices as the policy knows."""
    code = {name: 1 + i for i, name in enumerate(vocabulary)}
    kind = np.array([code.get(name, 0) for name in units.problem.graph.op_types], np.int64)
    types = np.zeros((units.count, 1 + len(vocabulary)))
    np.add.at(types, (units.of_op, kind), 1.0)
    types /= np.maximum(types.sum(axis=1, keepdims=True), 1.0)
    allowed = np.zeros((units.count, devices), np.bool_)
    allowed[:, : units.problem.devices] = units.allowed
    ends = {
        "in": (units.tail, units.head),
        "out": (units.head, units.tail),
        "both": (np.concatenate([units.tail, units.head]), np.concatenate([units.head, units.tail])),
    }[settings.neighbours]
    return Inputs(
        floats(types),
        floats(_numbers(units, costs=settings.costs)),
        longs(ends[0]),
        longs(ends[1]),
        torch.from_numpy(allowed),
    )


def _numbers(units: Units, *, costs: bool) -> FloatArray:
    """(nodes, columns) logarithms of sizes, standardised and on a common scale, and where the node is."""
    problem, graph, count = units.problem, units.problem.graph, units.count

    def total(amount: FloatArray) -> FloatArray:
        return np.bincount(units.of_op, amount, count).astype(np.float64)

    sizes = [
        np.log1p(np.bincount(units.of_op[graph.tensor_producer], graph.tensor_bytes, count)),
        np.log1p(np.bincount(units.head, minlength=count)),
        np.log1p(np.bincount(units.tail, minlength=count)),
    ]
    if costs:
        # Times of about 1 ns to 1 s become numbers like the others.
        sizes += [np.log1p(total(graph.flops)), np.log1p(1e9 * total(problem.mean_time))]
        sizes += [np.log1p(total(problem.memory)), np.log1p(total(graph.param_bytes))]
    columns = np.concatenate([output_sizes(units), np.stack(sizes, axis=1)], axis=1)
    height = longest_path_levels(np.ascontiguousarray(graph.topological_order[::-1]), *graph.predecessors)
    members = np.maximum(np.bincount(units.of_op, minlength=count), 1)
    deepest = max(int(graph.levels.max(initial=0)), 1)
    where = [2 * total(level / deepest) / members - 1 for level in (graph.levels, height)]
    size = np.full(count, math.log1p(count) / 10)
    return np.concatenate([standard(columns), columns / 10, np.stack([*where, size], axis=1)], axis=1)
