"""HSDAG, improved: one policy that embeds the graph, parses it into groups and gives every group a device.

The idea is that of S. Duan et al., "A structure-aware framework for learning device placements on computation
graphs", NeurIPS 2024; :mod:`loadmaster.placers.learned.hsdag_paper` has it as published. Here choosing the dominant
edge is an action like choosing a device: it is drawn, a node may also stay alone, and its log-probability is part of
the policy's. Messages know the direction of the data, and every unit has logits of its own beside those that the
network gives it. Many placements are drawn from one pass; advantages against the batch, PPO, a schedule of entropy.
The first placements lean towards one device or another as a whole, and the best ones are learnt from again
(:mod:`loadmaster.placers.learned.hsdag._training`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from loadmaster.arrays import IntArray
from loadmaster.placers.learned._features import features_of
from loadmaster.placers.learned._parsing import choices_of, sample_groups
from loadmaster.placers.learned._sampling import sample_devices
from loadmaster.placers.learned._tensors import NEVER, floats, log_softmax_by, longs
from loadmaster.placers.learned.hsdag._draws import Draw
from loadmaster.placers.learned.hsdag._levels import Level, level_above
from loadmaster.placers.learned.hsdag._network import PairNetwork
from loadmaster.placers.learned.hsdag._pairs import seen_of
from loadmaster.placers.learned.units import Units

if TYPE_CHECKING:
    from loadmaster.placers.learned.hsdag.hsdag import Hsdag

__all__ = ["Given", "Policy"]


class Given(NamedTuple):
    """What one pass over the graph gives."""

    choice: Tensor
    """Log-probabilities of every unit's choices of a dominant edge."""
    logits: Tensor
    """(units, devices)."""
    z: Tensor
    """(units, hidden) embeddings."""


class Policy(nn.Module):  # type: ignore[misc]
    """Encoder, edge scores and a device head; see :meth:`forward`."""

    def __init__(
        self, units: Units, settings: Hsdag, known: PairNetwork | None = None, prior: IntArray | None = None
    ) -> None:
        """``known`` is a pre-trained network, which ``prior``, a placement thought to be good, is an input of."""
        super().__init__()
        h = settings.hidden
        self.settings, self.units = settings, units
        ptr, edge, other = choices_of(units.count, units.first, units.second)
        self.ptr, self.other = ptr, other
        node = np.repeat(np.arange(units.count), np.diff(ptr))
        degree = np.diff(ptr) - 1
        self.register_buffer("allowed", torch.from_numpy(units.allowed), persistent=False)
        for name, index in (
            ("choice_node", node), ("choice_edge", np.where(edge < 0, len(units.first), edge)),
            ("first", units.first), ("second", units.second), ("tail", units.tail), ("head", units.head),
        ):  # fmt: skip
            self.register_buffer(name, longs(index), persistent=False)
        alone = edge < 0
        forced = alone & (degree[node] > 0) if not settings.singletons else np.zeros(len(edge), np.bool_)
        self.register_buffer("forced", torch.from_numpy(forced), persistent=False)
        self.register_buffer("alone", torch.from_numpy(alone), persistent=False)
        for name, ends in (("in_share", units.head), ("out_share", units.tail)):
            count = np.bincount(ends, minlength=units.count)[ends]
            self.register_buffer(name, floats(1.0 / np.maximum(count, 1))[:, None], persistent=False)
        self.known = known
        if known is None:
            self.register_buffer("features", floats(features_of(units, settings.features)), persistent=False)
            state = units.problem.devices if settings.state_update else 0
            self.enter = nn.Linear(self.features.shape[1] + state, h)
            self.mix = nn.ModuleList(nn.Linear(3 * h, h) for _ in range(settings.layers))
            self.norm = nn.ModuleList(nn.LayerNorm(h) for _ in range(settings.layers))
            self.edge_net = nn.Sequential(nn.Linear(2 * h, h), nn.ReLU(), nn.Linear(h, 1))
            self.alone_net = nn.Linear(h, 1)
            self.device_net = nn.Sequential(nn.Linear(h, h), nn.ReLU(), nn.Linear(h, units.problem.devices))
        else:
            for name, part in seen_of(units, prior)._asdict().items():
                self.register_buffer(f"seen_{name}", floats(part), persistent=False)
            self._learnt = {name: value.clone() for name, value in known.state_dict().items()}
        self.own_device = nn.Parameter(torch.zeros(units.count, units.problem.devices))
        self.own_choice = nn.Parameter(torch.zeros(len(edge)))
        self.register_buffer("run", torch.zeros((), dtype=torch.int64))
        self.register_buffer("age", torch.zeros((), dtype=torch.int64))  # updates of this run
        self._even()
        self.register_buffer(
            "bias_alone", floats(np.log(np.maximum(degree, 1)) + settings.alone), persistent=False
        )

    def begin_again(self, run: int) -> None:
        """Forget all that was learnt on this problem."""
        if self.known is not None:
            self.known.load_state_dict(self._learnt)
        else:
            for part in self.modules():
                if isinstance(part, nn.Linear | nn.LayerNorm):
                    part.reset_parameters()
        self._even()
        self.run.fill_(run)
        self.age.zero_()

    @torch.no_grad()
    def _even(self) -> None:
        """Devices all alike, but for what is known from other problems."""
        if self.known is None:
            self.device_net[2].weight.mul_(0.1)
            self.device_net[2].bias.zero_()
        self.own_device.zero_()
        self.own_choice.zero_()

    def forward(self, state: Tensor | None = None) -> Given:
        """One pass over the graph."""
        if self.known is not None:
            return self._transferred(self.known)
        x = self.features if state is None else torch.cat([self.features, state], dim=1)
        z = torch.relu(self.enter(x))
        for mix, norm in zip(self.mix, self.norm, strict=True):  # from itself, from before, from after
            came = torch.zeros_like(z).index_add(0, self.head, z[self.tail] * self.in_share)
            went = torch.zeros_like(z).index_add(0, self.tail, z[self.head] * self.out_share)
            z = norm(z + torch.relu(mix(torch.cat([z, came, went], dim=1))))
        score = None
        if self.settings.groups == "learned":
            score = self._scores(
                z, self.first, self.second, self.choice_node, self.choice_edge, self.bias_alone
            )
        return self._given(score, self.device_net(z), z)

    def _transferred(self, known: PairNetwork) -> Given:
        """The same from a network that knows other problems."""
        arcs = self.tail, self.head, self.in_share, self.out_share
        ends = self.first, self.second
        logits, edge, alone, z = known(self.seen_pair, self.seen_unit, self.seen_edge, arcs, ends)
        score = None
        if self.settings.groups == "learned":
            kept = (alone + self.bias_alone)[self.choice_node]
            score = torch.where(self.alone, kept, torch.cat([edge, torch.zeros(1)])[self.choice_edge])
        return self._given(score, logits, z)

    def _given(self, score: Tensor | None, logits: Tensor, z: Tensor) -> Given:
        """With what is a unit's own; ``score`` is of the choices of dominant edges, None where they are not learnt."""
        if score is not None:
            score = score + self.settings.own * self.own_choice
        else:
            score = torch.zeros(len(self.choice_node))
            if self.settings.groups == "none":
                score = torch.where(self.alone, score, torch.full_like(score, NEVER))
        score = torch.where(self.forced, torch.full_like(score, NEVER), score)
        logits = logits + self.settings.own * self.own_device
        return Given(log_softmax_by(self.choice_node, score, self.units.count), logits, z)

    def _scores(
        self, z: Tensor, first: Tensor, second: Tensor, node: Tensor, edge: Tensor, bias: Tensor
    ) -> Tensor:
        """(choices,) of dominant edges, staying alone being the edge after the last."""
        a, b = z[first], z[second]
        score = self.edge_net(torch.cat([a * b, (a - b).abs()], dim=1))[:, 0]
        alone = self.alone_net(z)[:, 0] + bias
        return torch.where(edge == len(first), alone[node], torch.cat([score, torch.zeros(1)])[edge])

    def joins(self, z: Tensor, level: Level) -> Tensor:
        """Log-probabilities of the groups' choices of a dominant edge in a later pass."""
        if self.settings.groups == "learned":
            bias = torch.log(level.degree.clamp(min=1.0)) + self.settings.alone
            score = self._scores(level.pooled(z), level.first, level.second, level.node, level.edge, bias)
        else:
            score = torch.zeros(len(level.node))
        if not self.settings.singletons:
            score = torch.where(
                level.alone & (level.degree[level.node] > 0), torch.full_like(score, NEVER), score
            )
        return log_softmax_by(level.node, score, len(level.size))

    def draw(self, given: Given, batch: int, rng: np.random.Generator, kept: Any, lean: float) -> Draw:
        """Placements of a batch, drawn from what :meth:`forward` gave; ``lean`` as in the settings."""
        n = self.units.count
        if kept is None:
            probability = given.choice.detach().double().exp().numpy()
            chosen, group, count = sample_groups(probability, self.ptr, self.other, rng.random((batch, n)))
        else:  # the same groups again for every placement
            chosen, one = kept
            count = int(one.max(initial=-1)) + 1
            chosen = np.broadcast_to(chosen, (batch, n)).copy()
            group = one + count * np.arange(batch)[:, None]
            count *= batch
        flat = group.reshape(-1)
        levels = []
        for _ in range(self.settings.levels - 1 if kept is None else 0):
            above = level_above(self.units, flat, count, batch)
            if above is None:
                break
            level, ptr, other = above
            probability = self.joins(given.z, level).detach().double().exp().numpy()
            picked, joined, count = sample_groups(probability, ptr, other, rng.random((1, count)))
            levels.append(level._replace(chosen=longs(picked[0])))
            flat = joined[0][flat]
        leaning = lean * rng.standard_normal((batch, self.units.problem.devices))
        size = np.bincount(flat, minlength=count)
        placement, member = np.empty(count, np.int64), np.empty(count, np.int64)
        placement[flat] = np.repeat(np.arange(batch), n)
        member[flat] = np.tile(np.arange(n), batch)
        made = Draw(
            chosen=longs(chosen), group=longs(flat), size=floats(size), placement=longs(placement),
            member=longs(member), device=torch.empty(0), lean=floats(leaning), levels=tuple(levels),
        )  # fmt: skip
        q = self.devices(given.logits, made).detach().double().exp().numpy()
        return made._replace(device=longs(sample_devices(q, rng.random(count))))

    def likeliest(self, given: Given) -> IntArray:
        """(units,) the device that each unit likes best by itself."""
        logits = given.logits.detach().masked_fill(~self.allowed, NEVER)
        return logits.argmax(dim=1).numpy().astype(np.int32)

    def devices(self, logits: Tensor, draw: Draw) -> Tensor:
        """(groups, devices) log-probabilities: the members' logits averaged, forbidden devices masked."""
        batch = len(draw.chosen)
        flat = logits.repeat(batch, 1)
        total = torch.zeros(len(draw.size), logits.shape[1]).index_add(0, draw.group, flat)
        mean = total / draw.size[:, None] + draw.lean[draw.placement]
        return torch.log_softmax(mean.masked_fill(~self.allowed[draw.member], NEVER), dim=1)
