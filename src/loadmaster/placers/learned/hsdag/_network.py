"""The network of the pre-trained policy: states per (unit, device) with the same weights for all devices."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from loadmaster.placers.learned.hsdag._pairs import EDGE, PAIR, UNIT

__all__ = ["PairNetwork"]

HIDDEN, ROUNDS = 32, 3


class PairNetwork(nn.Module):  # type: ignore[misc]
    """Scores (unit, device) pairs, edges between neighbours, and staying alone.

    The state of a pair is updated from itself, from the same device at the units before and after, and from the mean
    over devices. Reordering the devices reorders the scores.
    """

    def __init__(self) -> None:
        super().__init__()
        h = HIDDEN
        self.enter = nn.Linear(PAIR + UNIT, h)
        self.mix = nn.ModuleList(nn.Linear(4 * h, h) for _ in range(ROUNDS))
        self.norm = nn.ModuleList(nn.LayerNorm(h) for _ in range(ROUNDS))
        self.device_net = nn.Sequential(nn.Linear(2 * h, h), nn.ReLU(), nn.Linear(h, 1))
        self.edge_net = nn.Sequential(nn.Linear(2 * h + EDGE, h), nn.ReLU(), nn.Linear(h, 1))
        self.alone_net = nn.Linear(h, 1)

    def forward(
        self, pair: Tensor, unit: Tensor, edge: Tensor, arcs: tuple[Tensor, ...], edges: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(units, devices) logits, (edges,) and (units,) scores, (units, hidden) embeddings.

        ``arcs`` are tail, head, and the (arcs, 1) shares of an arc among those into its head and out of its tail.
        """
        tail, head, in_share, out_share = arcs
        z = torch.relu(self.enter(torch.cat([pair, unit[:, None].expand(-1, pair.shape[1], -1)], dim=2)))
        for mix, norm in zip(self.mix, self.norm, strict=True):
            came = torch.zeros_like(z).index_add(0, head, z[tail] * in_share[:, None])
            went = torch.zeros_like(z).index_add(0, tail, z[head] * out_share[:, None])
            shared = z.mean(dim=1, keepdim=True).expand_as(z)
            z = norm(z + torch.relu(mix(torch.cat([z, came, went, shared], dim=2))))
        mean = z.mean(dim=1)
        logits = self.device_net(torch.cat([z, mean[:, None].expand_as(z)], dim=2))[:, :, 0]
        a, b = z[edges[0]], z[edges[1]]
        alike = torch.cat([(a * b).mean(dim=1), (a - b).abs().mean(dim=1), edge], dim=1)
        return logits, self.edge_net(alike)[:, 0], self.alone_net(mean)[:, 0], mean
