"""Placeto: an agent visits the groups of ops one by one, and moves each to where a graph network says.

R. Addanki et al., "Placeto: learning generalizable device placement algorithms for distributed machine
learning", NeurIPS 2019. An episode begins at a placement and visits every group once, in topological order. What
the network sees of a group: its time on each device, the bytes it writes, its memory, when it could start, where
it is, whether it has been visited, and whether it is the one to be placed now. Messages go along and against the
data for several rounds; the groups before, after and beside the current one are summed up; a softmax over
devices moves it. The reward of a step is the cost before less the cost after, so the rewards of an episode add
up to what it gained. REINFORCE; the baseline of a step is the mean of its returns in the last episodes.

What differs from the public code:

- it does not run (missing modules, a syntax error), and a later re-implementation adds up returns in the wrong
  direction; here the return of a step are the rewards from it on;
- time on each device, not one time: the method was made for equal devices;
- the start of a group is the earliest that data allow under the present placement (a longest path), not the
  simulated one, which only one of our execution models has, and no measurement;
- sets before, after and beside a group are averaged, not summed; sums grow with the graph;
- later rewards are discounted: the return of a step otherwise has the noise of a hundred others;
- rewards are in terms of the cost of the first placement; advantages of a round in standard deviations;
- a round of episodes is learnt from in several steps of Adam (with clipped ratios), not in one: with an evaluation
  for every move rounds are few.

A step costs one evaluation, or none if the group stays where it is; the beginning of every episode costs one. A
policy that has settled would go on for ever on a budget of evaluations: ``patience`` ends it.
A step on g groups takes O(samples · rounds · (g² + g · hidden) · hidden).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numba import njit
from torch import Tensor, nn

from loadmaster.arrays import BoolArray, FloatArray, IntArray
from loadmaster.placers.learned._tensors import NEVER, floats
from loadmaster.placers.learned.units import Units

if TYPE_CHECKING:
    from loadmaster.placers.learned.placeto.placeto import Placeto

__all__ = ["PlacetoPolicy", "relations"]


class BothWays(nn.Module):  # type: ignore[misc]
    """Two layers with a ReLU after each, one pair for messages along the data and one for those against it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        reach = width**-0.5
        self.weight = nn.ParameterList(nn.Parameter(torch.empty(2, width, width)) for _ in range(2))
        self.bias = nn.ParameterList(nn.Parameter(torch.empty(2, 1, width)) for _ in range(2))
        for part in self.parameters():
            nn.init.uniform_(part, -reach, reach)

    def forward(self, x: Tensor) -> Tensor:
        """(2, rows, width) from (2, rows, width), direction by direction."""
        for weight, bias in zip(self.weight, self.bias, strict=True):
            x = torch.relu(torch.baddbmm(bias, x, weight))
        return x


class PlacetoPolicy(nn.Module):  # type: ignore[misc]
    """Message passing in both directions, three sets, and a softmax over devices."""

    def __init__(self, units: Units, settings: Placeto) -> None:
        super().__init__()
        d, devices = settings.hidden, units.problem.devices
        self.units, self.rounds = units, settings.rounds
        self.time, fixed = _fixed_features(units)
        self.link = _mean_links(units)
        forward = np.zeros((units.count, units.count))
        forward[units.tail, units.head] = 1.0
        before, after, beside = relations(units.count, units.tail, units.head)
        for name, array in (
            ("fixed", fixed), ("sources", np.stack([forward.T, forward])), ("before", _mean(before)),
            ("after", _mean(after)), ("beside", _mean(beside)),
        ):  # fmt: skip
            self.register_buffer(name, floats(array), persistent=False)
        self.register_buffer("allowed", torch.from_numpy(units.allowed), persistent=False)

        def two(i: int, h: int, o: int) -> nn.Sequential:
            return nn.Sequential(nn.Linear(i, h), nn.ReLU(), nn.Linear(h, o))

        self.enter = nn.Sequential(two(fixed.shape[1] + 3 + devices, 2 * d, d), nn.ReLU())
        self.sent, self.got = BothWays(d), BothWays(d)
        self.sets = nn.ModuleList(nn.Sequential(two(2 * d, d, 2 * d), nn.ReLU()) for _ in range(3))
        self.leave = nn.Sequential(
            nn.Linear(8 * d, 16 * d),
            nn.ReLU(),
            nn.Linear(16 * d, 8 * d),
            nn.ReLU(),
            nn.Linear(8 * d, devices),
        )
        with torch.no_grad():  # begin with devices all alike
            self.leave[4].weight.mul_(0.1)
            self.leave[4].bias.zero_()

    def features(self, placement: IntArray, current: IntArray) -> Tensor:
        """(graphs, groups, columns) of (graphs, groups) placements, each about to place one group."""
        graphs, n = placement.shape
        start = _earliest_starts(self.units.tail, self.units.head, self.time, self.link, placement)
        now = start[np.arange(graphs), current][:, None]
        column = (start - now) / np.maximum(np.abs(start).max(axis=1, keepdims=True, initial=0.0), 1e-30)
        flags = np.zeros((graphs, n, 2))
        flags[np.arange(graphs), current, 0] = 1.0
        flags[:, :, 1] = np.arange(n) < current[:, None]
        where = np.eye(self.units.problem.devices)[placement]
        changing = torch.from_numpy(np.concatenate([column[:, :, None], flags, where], axis=2)).float()
        return torch.cat([self.fixed.expand(graphs, -1, -1), changing], dim=2)

    def embed(self, x: Tensor) -> Tensor:
        """(graphs, groups, 2 * hidden) after the rounds of messages from producers, and from readers."""
        graphs, n, _ = x.shape
        own = self.enter(x.transpose(0, 1))[None].expand(2, -1, -1, -1)
        some = (self.sources.sum(dim=2) > 0)[:, :, None, None]
        e = own
        for _ in range(self.rounds):
            sent = self.sent(e.reshape(2, n * graphs, -1)).view(2, n, -1)
            got = self.got((self.sources @ sent).view(2, n * graphs, -1)).view(own.shape)
            e = own + some * got
        return torch.cat([e[0], e[1]], dim=2).transpose(0, 1)

    def forward(self, placement: IntArray, current: IntArray) -> Tensor:
        """(graphs, devices) log-probabilities for the current group of each graph."""
        e = self.embed(self.features(placement, current))
        at, row = torch.from_numpy(current.astype(np.int64)), torch.arange(len(placement))
        parts = [e[row, at]]
        for relation, net in zip((self.before, self.after, self.beside), self.sets, strict=True):
            parts.append(net((relation[at][:, None] @ e)[:, 0]))
        logits = self.leave(torch.cat(parts, dim=1))
        return torch.log_softmax(logits.masked_fill(~self.allowed[at], NEVER), dim=1)


def relations(n: int, tail: IntArray, head: IntArray) -> tuple[BoolArray, BoolArray, BoolArray]:
    """(n, n) which groups come before each, after each, and neither.

    Groups are numbered by position; the few arcs that lead back (ops colocated across others) are left out.
    """
    after = np.zeros((n, n), np.bool_)
    for v, u in sorted(zip(tail.tolist(), head.tolist(), strict=True), reverse=True):
        if v < u:
            after[v] |= after[u]
            after[v, u] = True
    beside = ~(after | after.T | np.eye(n, dtype=np.bool_))
    return after.T.copy(), after, beside


def _mean(relation: BoolArray) -> FloatArray:
    return relation / np.maximum(relation.sum(axis=1, keepdims=True), 1.0)


def _fixed_features(units: Units) -> tuple[FloatArray, FloatArray]:
    """(groups, devices) seconds, and features that no placement changes: each column divided by its largest."""
    problem, n = units.problem, units.count
    summed: FloatArray = np.stack([np.bincount(units.of_op, column, n) for column in problem.time.T], axis=1)
    known = np.isfinite(summed)
    time: FloatArray = np.where(known, summed, 0.0)
    least = np.where(known, time, np.inf).min(axis=1, keepdims=True, initial=np.inf)
    lost = np.where(known, time - np.where(np.isfinite(least), least, 0.0), 0.0)
    written = np.bincount(units.of_op, problem.graph.bytes_written, n)
    columns = np.concatenate([np.sqrt(time), np.sqrt(lost), written[:, None], units.memory[:, None]], axis=1)
    return time, columns / np.maximum(columns.max(axis=0, initial=0.0), 1e-30)


def _mean_links(units: Units) -> FloatArray:
    """(arcs,) seconds to bring everything that goes along an arc to another device, as a mean over pairs."""
    problem, graph, n = units.problem, units.problem.graph, units.count
    tail = units.of_op[graph.tensor_producer[graph.edge_tensor]].astype(np.int64)
    head = units.of_op[graph.consumer_op]
    key = np.unique(np.stack([tail * n + head, graph.edge_tensor]), axis=1)  # a tensor goes once
    arc = units.tail.astype(np.int64) * n + units.head
    at = np.searchsorted(arc, key[0])
    inside = (at < len(arc)) & (arc[np.minimum(at, max(len(arc) - 1, 0))] == key[0]) if len(arc) else at < 0
    return np.bincount(at[inside], problem.mean_link[key[1][inside]], len(arc)).astype(np.float64)


@njit(cache=True, nogil=True)
def _earliest_starts(tail, head, time, link, placement):  # type: ignore[no-untyped-def]
    """(graphs, groups) seconds after which the data of each group can be there; arcs are sorted by their tail."""
    graphs, n = placement.shape
    start = np.zeros((graphs, n))
    for row in range(graphs):
        for arc in range(len(tail)):
            v, u = tail[arc], head[arc]
            if v < u:
                ready = start[row, v] + time[v, placement[row, v]]
                if placement[row, v] != placement[row, u]:
                    ready += link[arc]
                start[row, u] = max(start[row, u], ready)
    return start
