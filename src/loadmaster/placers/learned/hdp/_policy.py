"""HDP: a feed-forward network puts every op into a group, a sequence-to-sequence LSTM places the groups.

A. Mirhoseini et al., "A hierarchical model for device placement", ICLR 2018; public code in TensorFlow's
grappler. Groups are drawn op by op; a group is then read as the traffic to and from every other group, the
types of its members and their output shapes. One REINFORCE update trains both networks with the sum of their
log-probabilities. What differs from the public code:

- there the list of a consumer's neighbours is emptied at every edge, because a name is looked up among
  numbers; and summed shapes are added onto the first 25 counts of op types. Here neighbours are all there (as
  many as there are slots) and every column has one meaning;
- op type as a one-hot, sizes as logarithms and neighbours by relative position, not as raw numbers; a ReLU
  between the grouper's two layers, which otherwise are one;
- a learning rate that can learn: 0.1 with Adam cannot;
- a baseline that does not begin at the failing value; entropy, not noise on the logits and cached actions, keeps
  the policy from settling; logits may grow beyond ±1; the decoder reads the state of the group that it places;
- several placements for an update;
- an op that may not go where its group goes runs on the fastest device that it may go to.

An update on n ops and g groups costs O(samples · (n + edges + g² · attention)) and O(n · g) for the grouper.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from scipy.sparse import coo_array
from torch import Tensor, nn

from loadmaster.arrays import FloatArray, IntArray
from loadmaster.graph.order import csr_from_pairs
from loadmaster.placers.learned._features import features_of, output_sizes, standard
from loadmaster.placers.learned._sampling import sample_devices
from loadmaster.placers.learned._seq2seq import Seq2Seq
from loadmaster.placers.learned._tensors import floats, longs
from loadmaster.placers.learned.units import Units

if TYPE_CHECKING:
    from loadmaster.placers.learned.hdp.hdp import Hdp

__all__ = ["HdpPolicy", "group_columns", "neighbour_slots"]


SLOTS = 10
"""Neighbours that an op's features tell of."""


class Decisions(NamedTuple):
    """What was drawn."""

    group: Tensor
    """(samples, units)."""
    columns: Tensor
    """(samples, groups, columns) features of the groups."""
    device: Tensor
    """(samples, groups)."""


class HdpPolicy(nn.Module):  # type: ignore[misc]
    """Grouper and placer, on the ops of one problem."""

    def __init__(self, units: Units, settings: Hdp) -> None:
        super().__init__()
        devices = units.problem.devices
        self.units = units
        self.groups = min(settings.groups or min(256, 20 * devices), units.count)
        self.types, self.sizes = features_of(units, ("types",))[:, :-1], output_sizes(units)
        place = features_of(units, ("position",))
        ops = np.concatenate([self.types, standard(self.sizes), neighbour_slots(units), place], axis=1)
        self.register_buffer("ops", floats(ops), persistent=False)
        self.grouper = nn.Sequential(
            nn.Linear(ops.shape[1], settings.grouper),
            nn.ReLU(),
            nn.Linear(settings.grouper, self.groups, bias=False),
        )
        with torch.no_grad():
            self.grouper[2].weight.mul_(settings.grouper_scale)
        self.grouper_entropy = settings.grouper_entropy
        columns = 2 * self.groups + self.types.shape[1] + self.sizes.shape[1]
        self.placer = Seq2Seq(columns, devices, settings)
        some = units.allowed.any(axis=0)
        allowed = np.tile(some, (self.groups, 1))
        self.register_buffer("allowed", torch.from_numpy(allowed), persistent=False)
        time = np.zeros((units.count, devices))
        np.add.at(time, units.of_op, units.problem.time)
        self.otherwise = np.where(units.allowed, time, np.inf).argmin(axis=1)

    def draw(self, samples: int, rng: np.random.Generator) -> tuple[IntArray, Decisions]:
        """(samples, units) devices, by way of groups."""
        n = self.units.count
        with torch.no_grad():
            q = torch.softmax(self.grouper(self.ops).double(), dim=1).numpy()
        group = np.stack([sample_devices(q, rng.random(n)) for _ in range(samples)])
        columns = floats(group_columns(self.units, group, self.groups, self.types, self.sizes))
        device = self.placer.draw(columns, self.allowed, samples, rng)
        chosen = np.take_along_axis(device.numpy(), group.astype(np.int64), axis=1)
        may = self.units.allowed[np.arange(n), chosen]
        placed = np.where(may, chosen, self.otherwise).astype(np.int32)
        return placed, Decisions(longs(group), columns, device)

    def log_prob(self, decisions: Decisions) -> tuple[Tensor, Tensor]:
        """(samples,) log-probabilities of groups and devices together, and the entropies on the way."""
        of_group = torch.log_softmax(self.grouper(self.ops), dim=1)
        every = of_group.gather(1, decisions.group.T)
        of_device = self.placer.log_probs(decisions.columns, self.allowed, decisions.device)
        chosen = of_device.gather(2, decisions.device[..., None])[..., 0]
        entropy = -(of_device.exp() * of_device).sum((1, 2))
        entropy = entropy - self.grouper_entropy * (of_group.exp() * of_group).sum()
        return every.sum(0) + chosen.sum(1), entropy


def neighbour_slots(units: Units) -> FloatArray:
    """(units, 2 * SLOTS) for each of the nearest neighbours how far behind it is, and +1 if it reads this unit's
    data, -1 if this one reads its; zeros where there are no more."""
    n = units.count
    node = np.concatenate([units.tail, units.head])
    other = np.concatenate([units.head, units.tail])
    role = np.repeat([1.0, -1.0], [len(units.tail), len(units.head)])
    away = units.position[other] - units.position[node]
    order = np.lexsort((other, np.abs(away), node))
    ptr, sorted_edges = csr_from_pairs(node[order], order.astype(np.int32), n)
    slot = np.arange(len(order)) - np.repeat(ptr[:-1], np.diff(ptr))
    keep = slot < SLOTS
    edge, slot = sorted_edges[keep], slot[keep]
    found = np.zeros((n, SLOTS, 2))
    scale = np.sqrt(max(float(np.abs(away).max(initial=1.0)), 1.0))
    found[node[edge], slot, 0] = np.sign(away[edge]) * np.sqrt(np.abs(away[edge])) / scale
    found[node[edge], slot, 1] = role[edge]
    return found.reshape(n, 2 * SLOTS)


def group_columns(
    units: Units, group: IntArray, groups: int, types: FloatArray, sizes: FloatArray
) -> FloatArray:
    """(samples, groups, 2 * groups + types + sizes): edges to and from every other group, members of each op
    type, output sizes added up; each part divided by its largest number in the group plus 1."""
    samples = len(group)
    number = group.astype(np.int64) + groups * np.arange(samples)[:, None]  # of the group, over all samples
    flat = number[:, units.tail] * groups + group[:, units.head]
    traffic = np.bincount(flat.ravel(), minlength=samples * groups * groups).astype(np.float64)
    traffic = traffic.reshape(samples, groups, groups)
    parts = [traffic, traffic.transpose(0, 2, 1)]
    member = np.tile(np.arange(units.count), samples)
    ones = np.ones(len(member))
    members = coo_array((ones, (number.ravel(), member)), shape=(samples * groups, units.count)).tocsr()
    parts += [(members @ amount).reshape(samples, groups, -1) for amount in (types, sizes)]
    return np.concatenate(
        [part / (part.max(axis=2, keepdims=True, initial=0.0) + 1.0) for part in parts], axis=2
    )
