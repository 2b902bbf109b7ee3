"""The policy of HSDAG as published, which parses the graph into groups and gives every group a device.

S. Duan et al., "A structure-aware framework for learning device placements on computation graphs", NeurIPS
2024. A GCN scores the edges, the components of every node's dominant edge are the groups, and the only way a
gradient takes to the scores is the factor by which the pooled features are multiplied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from loadmaster.arrays import IntArray
from loadmaster.placers.learned._features import features_of
from loadmaster.placers.learned._parsing import dominant_edges, groups_of_edges
from loadmaster.placers.learned._tensors import NEVER, floats, longs
from loadmaster.placers.learned.units import Units

if TYPE_CHECKING:
    from loadmaster.placers.learned.hsdag_paper.hsdag_paper import HsdagPaper

__all__ = ["PaperPolicy", "Parse"]


Parse = list[tuple[IntArray, IntArray, IntArray]]
"""For each level the edges (first, second) and the (nodes,) groups they were parsed into."""


class Dropout(nn.Module):  # type: ignore[misc]
    """As PyTorch's, whose random bits are several times slower on a CPU."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Each number with probability p zero, else larger by the same factor."""
        if not self.training or self.p == 0.0:
            return x
        return x * ((torch.rand_like(x) >= self.p) / (1.0 - self.p))


class PaperPolicy(nn.Module):  # type: ignore[misc]
    """The network of the paper: GCN encoder, edge scores, parsing, pooling, and an MLP per group."""

    def __init__(self, units: Units, settings: HsdagPaper) -> None:
        super().__init__()
        self.units, self.settings = units, settings
        self._graphs: dict[int, tuple[IntArray, IntArray, Tensor]] = {}
        self.register_buffer("start", floats(features_of(units, settings.features)), persistent=False)
        d, h, p = self.start.shape[1], settings.hidden, settings.dropout

        def dense(i: int, o: int, *, norm: bool) -> list[nn.Module]:
            return [nn.Linear(i, o), *([nn.LayerNorm(o)] if norm else []), nn.ReLU(), Dropout(p)]

        self.input_trans = nn.Sequential(*dense(d, h, norm=True), *dense(h, h, norm=True))
        self.gnn1 = nn.ModuleList(nn.Linear(h, h) for _ in range(settings.layers))
        self.gnn2 = nn.ModuleList([nn.Linear(h, h)])
        self.drop = Dropout(p)
        self.norm1, self.norm2 = nn.LayerNorm(h), nn.LayerNorm(h)
        self.edge_net = nn.Sequential(*dense(h, h, norm=True), nn.Linear(h, 1))
        self.before, self.after = nn.Linear(h, h), nn.Linear(h, h)
        self.norm_before, self.norm_after = nn.LayerNorm(h), nn.LayerNorm(h)
        self.output_trans = nn.Sequential(*dense(h, h, norm=False), *dense(h, d, norm=False))
        self.device_net = nn.Sequential(nn.Linear(d, h), nn.ReLU(), nn.Linear(h, units.problem.devices))

    def forward(self, x: Tensor, levels: Parse | None = None) -> tuple[Tensor, Tensor, Parse, IntArray]:
        """Group embeddings, log-probabilities of their devices, the parse, and the final groups.

        ``x`` has the features of the units, or of several copies of the graph one below the other. With
        ``levels`` the groups are those of an earlier pass.
        """
        parse: Parse = []
        h = self.input_trans(x)
        copies = len(x) // self.units.count
        if copies not in self._graphs:  # one copy, and as many as an episode has steps
            first, second = (
                _copies(ends, copies, self.units.count) for ends in (self.units.first, self.units.second)
            )
            self._graphs[copies] = first, second, _adjacency(len(x), first, second)
        first, second, adjacency = self._graphs[copies]
        final = np.arange(len(x), dtype=np.int32)
        most = self.settings.levels or self.units.count
        while len(first) and len(parse) < (most if levels is None else len(levels)):
            if parse:
                if levels is not None:
                    first, second = levels[len(parse)][:2]
                adjacency = _adjacency(len(h), first, second)
            a, b = longs(first), longs(second)
            z = self._convolve(self.gnn1, self.norm1, h, adjacency)
            score = torch.sigmoid(self.edge_net(z[a] * z[b])[:, 0])  # once per edge, so it is symmetric
            if levels is None:
                keep = dominant_edges(first, second, score.detach().double().numpy())
                group = groups_of_edges(len(h), first[keep], second[keep])
            else:
                group = levels[len(parse)][2]
            parse.append((first, second, group))
            h = self._pool(h, adjacency, a, b, score, group)
            final = group[final]
            apart = group[first] != group[second]
            pair = np.unique(np.sort(np.stack([group[first], group[second]])[:, apart], axis=0), axis=1)
            first, second = pair[0].astype(np.int32), pair[1].astype(np.int32)
        embedding = self.output_trans(h)
        some = np.empty(len(h), np.int64)
        some[final] = np.arange(len(x)) % self.units.count
        refused = ~torch.from_numpy(self.units.allowed[some])
        log_q = torch.log_softmax(self.device_net(embedding).masked_fill(refused, NEVER), dim=1)
        return embedding, log_q, parse, final

    def _convolve(self, layers: Any, norm: nn.Module, h: Tensor, adjacency: Tensor) -> Tensor:
        """Graph convolutions on the undirected graph."""
        z = h
        for layer in layers:
            z = self.drop(torch.relu(torch.sparse.mm(adjacency, layer(z))))
        return norm(h + z)

    def _pool(
        self, h: Tensor, adjacency: Tensor, a: Tensor, b: Tensor, score: Tensor, group: IntArray
    ) -> Tensor:
        """Deep sets over the groups, times mean score and number of the edges inside: the scores' only gradient."""
        label = longs(group)
        count = int(group.max()) + 1
        y = self._convolve(self.gnn2, self.norm2, h, adjacency)
        y = self.norm_before(y + self.before(y))
        y = torch.zeros(count, y.shape[1]).index_add(0, label, y)
        y = self.norm_after(y + self.after(y))
        inside = label[a] == label[b]
        where = label[a][inside]
        number = torch.zeros(count).index_add(0, where, torch.ones(len(where)))
        total = torch.zeros(count).index_add(0, where, score[inside])
        factor = torch.where(number > 0, total / number.clamp(min=1.0) * 2.0 * number, torch.ones(count))
        return y * factor[:, None]  # an edge counts once in each direction


def _adjacency(count: int, first: IntArray, second: IntArray) -> Tensor:
    """(count, count) sparse, undirected, with self-loops, symmetrically normalised."""
    degree = 1.0 + np.bincount(first, minlength=count) + np.bincount(second, minlength=count)
    loop = np.arange(count)
    row, column = np.concatenate([first, second, loop]), np.concatenate([second, first, loop])
    weight = floats(1.0 / np.sqrt(degree[row] * degree[column]))
    index = longs(np.stack([row, column]))
    return torch.sparse_coo_tensor(index, weight, (count, count), check_invariants=False).coalesce()


def _copies(ends: IntArray, copies: int, count: int) -> IntArray:
    """Ends of edges in copies of a graph that are numbered through."""
    return (ends + count * np.arange(copies, dtype=np.int32)[:, None]).reshape(-1).astype(np.int32)
