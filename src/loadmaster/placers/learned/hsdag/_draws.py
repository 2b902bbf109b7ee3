"""Placements of the HSDAG policy as the decisions that led to them, and those that are learnt from again."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from loadmaster.arrays import FloatArray
from loadmaster.placers.learned.hsdag._levels import Level

__all__ = ["Draw", "Elites"]


class Draw(NamedTuple):
    """A batch of placements, as the decisions that led to them."""

    chosen: Tensor
    """(batch, units) the dominant edge of each unit, as an index of its choice."""
    group: Tensor
    """(batch * units,) group of each unit; the groups of all placements are numbered through."""
    size: Tensor
    """(groups,) units in each."""
    placement: Tensor
    """(groups,) which placement of the batch a group belongs to."""
    member: Tensor
    """(groups,) some unit of each."""
    device: Tensor
    """(groups,) device of each."""
    lean: Tensor
    """(batch, devices) what every placement's logits have in common."""
    levels: tuple[Level, ...] = ()
    """The passes after the first."""


class Elites:
    """The best placements so far, which are learnt from again in every update.

    After J. Oh et al., "Self-imitation learning", ICML 2018. No two of them cost the same: with equal costs they
    are mostly the same placement.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.cost: list[float] = []
        self.draw: list[Draw] = []

    def forget(self) -> None:
        """Begin anew."""
        self.cost, self.draw = [], []

    def take(self, draw: Draw, cost: FloatArray) -> None:
        """Keep what is among the best of a batch and those before it."""
        known = {*self.cost}
        found = list(zip(self.cost, self.draw, strict=True))
        for row in np.argsort(cost, kind="stable")[: self.most].tolist():
            value = float(cost[row])
            if value < np.inf and value not in known:
                known.add(value)
                found.append((value, _one(draw, row)))
        found = sorted(found, key=lambda pair: pair[0])[: self.most]
        self.cost, self.draw = [value for value, _ in found], [kept for _, kept in found]

    def beside(self, draw: Draw, cost: FloatArray) -> tuple[Draw, FloatArray]:
        """A batch and the elites as one batch, with its costs."""
        if not self.draw:
            return draw, cost
        draws = [draw, *self.draw]
        group = np.cumsum([0, *(len(d.size) for d in draws)]).tolist()
        row = np.cumsum([0, *(len(d.chosen) for d in draws)]).tolist()
        joined = Draw(
            chosen=torch.cat([d.chosen for d in draws]),
            group=torch.cat([d.group + g for d, g in zip(draws, group, strict=False)]),
            size=torch.cat([d.size for d in draws]),
            placement=torch.cat([d.placement + r for d, r in zip(draws, row, strict=False)]),
            member=torch.cat([d.member for d in draws]),
            device=torch.cat([d.device for d in draws]),
            lean=torch.cat([d.lean for d in draws]),
        )
        return joined, np.concatenate([cost, self.cost])

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"cost": self.cost, "draw": [list(d[:-1]) for d in self.draw]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Back from a checkpoint."""
        self.cost = list(state["cost"])
        self.draw = [Draw(*parts) for parts in state["draw"]]


def _one(draw: Draw, row: int) -> Draw:
    """One placement of a batch."""
    mine = draw.group.reshape(len(draw.chosen), -1)[row]
    here, group = torch.unique(mine, return_inverse=True)
    return Draw(
        chosen=draw.chosen[row : row + 1].clone(),
        group=group,
        size=draw.size[here],
        placement=torch.zeros_like(here),
        member=draw.member[here],
        device=draw.device[here],
        lean=draw.lean[row : row + 1].clone(),
    )
