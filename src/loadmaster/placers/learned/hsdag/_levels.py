"""Parsing again what was parsed: groups that join groups, for all placements of a batch at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from loadmaster.arrays import IntArray
from loadmaster.placers.learned._parsing import choices_of
from loadmaster.placers.learned._tensors import floats, longs
from loadmaster.placers.learned.units import Units

__all__ = ["Level", "level_above"]


class Level(NamedTuple):
    """The graph of the groups of one pass, and what every one of them chose as its dominant edge.

    Groups of all placements of a batch are numbered through; only those of one placement are neighbours.
    """

    of_unit: Tensor
    """(batch * units,) group of each unit."""
    size: Tensor
    """(groups,) units in each."""
    placement: Tensor
    """(groups,) which placement of the batch a group belongs to."""
    first: Tensor
    second: Tensor
    """(edges,) pairs of neighbours."""
    node: Tensor
    """(choices,) whose choice it is."""
    edge: Tensor
    """(choices,) of which edge; the number of edges for staying alone."""
    degree: Tensor
    """(groups,) neighbours."""
    chosen: Tensor
    """(groups,) the choice that was drawn."""

    @property
    def alone(self) -> Tensor:
        """(choices,) whether it is staying alone."""
        return self.edge == len(self.first)

    def pooled(self, z: Tensor) -> Tensor:
        """(groups, columns) means over the groups of what the units have."""
        rows = z.repeat(len(self.of_unit) // len(z), 1)
        return torch.zeros(len(self.size), z.shape[1]).index_add(0, self.of_unit, rows) / self.size[:, None]


def level_above(
    units: Units, group: IntArray, count: int, batch: int
) -> tuple[Level, IntArray, IntArray] | None:
    """The graph of ``count`` groups, with its choices as (ptr, other end); None where no two are neighbours.

    ``group`` is (batch * units,). O(batch * edges * log).
    """
    of = group.reshape(batch, units.count)
    a, b = of[:, units.first].reshape(-1), of[:, units.second].reshape(-1)
    apart = a != b
    low, high = np.minimum(a, b)[apart], np.maximum(a, b)[apart]
    if not len(low):
        return None
    key = np.unique(low.astype(np.int64) * count + high)
    first, second = (key // count).astype(np.int32), (key % count).astype(np.int32)
    ptr, edge, other = choices_of(count, first, second)
    placement = np.empty(count, np.int64)
    placement[group] = np.repeat(np.arange(batch), units.count)
    level = Level(
        of_unit=longs(group),
        size=floats(np.bincount(group, minlength=count)),
        placement=longs(placement),
        first=longs(first),
        second=longs(second),
        node=longs(np.repeat(np.arange(count), np.diff(ptr))),
        edge=longs(np.where(edge < 0, len(first), edge)),
        degree=floats(np.diff(ptr) - 1),
        chosen=torch.empty(0),
    )
    return level, ptr, other
