"""HSDAG, improved: one policy that embeds the graph, parses it into groups and gives every group a device.

The idea is that of S. Duan et al., "A structure-aware framework for learning device placements on computation
graphs", NeurIPS 2024; :mod:`loadmaster.placers.learned.hsdag_paper._training` has it as published. Here choosing the
dominant edge is an action like choosing a device: it is drawn, a node may also stay alone, and its log-probability is
part of the policy's. Messages know the direction of the data, and every unit has logits of its own beside those that
the network gives it. Many placements are drawn from one pass; advantages against the batch, PPO, a schedule of entropy.
The first placements lean towards one device or another as a whole, and the best ones are learnt from again.

Random numbers for actions come from numpy, one thread is used unless told otherwise, and nothing that is held
grows with the number of steps.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from loadmaster.arrays import FloatArray
from loadmaster.placers.frame.search import Search
from loadmaster.placers.learned._checkpoint import Checkpoint
from loadmaster.placers.learned._features import features_of
from loadmaster.placers.learned._methods import Hsdag
from loadmaster.placers.learned._parsing import choices_of, sample_devices, sample_groups
from loadmaster.placers.learned._scalars import Scalars
from loadmaster.placers.learned._tensors import NEVER, floats, log_softmax_by, longs
from loadmaster.placers.learned._units import Units, learn_costs
from loadmaster.placers.learned.hsdag._draws import Draw, Elites
from loadmaster.placers.learned.hsdag._levels import Level, level_above

__all__ = ["Policy", "train"]


UPDATES, LEAST_BATCH = 64, 16
"""Updates in which placements lean towards a device, and that there should be under a small budget of evaluations; the
placements that one needs at least."""


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

    def __init__(self, units: Units, settings: Hsdag) -> None:
        super().__init__()
        h = settings.hidden
        self.settings, self.units = settings, units
        ptr, edge, other = choices_of(units.count, units.first, units.second)
        self.ptr, self.other = ptr, other
        node = np.repeat(np.arange(units.count), np.diff(ptr))
        degree = np.diff(ptr) - 1
        self.register_buffer("features", floats(features_of(units, settings.features)), persistent=False)
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
        state = units.problem.devices if settings.state_update else 0
        self.enter = nn.Linear(self.features.shape[1] + state, h)
        self.mix = nn.ModuleList(nn.Linear(3 * h, h) for _ in range(settings.layers))
        self.norm = nn.ModuleList(nn.LayerNorm(h) for _ in range(settings.layers))
        self.edge_net = nn.Sequential(nn.Linear(2 * h, h), nn.ReLU(), nn.Linear(h, 1))
        self.alone_net = nn.Linear(h, 1)
        self.device_net = nn.Sequential(nn.Linear(h, h), nn.ReLU(), nn.Linear(h, units.problem.devices))
        self.own_device = nn.Parameter(torch.zeros(units.count, units.problem.devices))
        self.own_choice = nn.Parameter(torch.zeros(len(edge)))
        self.register_buffer("run", torch.zeros((), dtype=torch.int64))
        self.register_buffer("age", torch.zeros((), dtype=torch.int64))  # updates of this run
        self._even()
        self.register_buffer(
            "bias_alone", floats(np.log(np.maximum(degree, 1)) + settings.alone), persistent=False
        )

    def begin_again(self, run: int) -> None:
        """Forget all that was learnt."""
        for part in self.modules():
            if isinstance(part, nn.Linear | nn.LayerNorm):
                part.reset_parameters()
        self._even()
        self.run.fill_(run)
        self.age.zero_()

    @torch.no_grad()
    def _even(self) -> None:
        """Devices all alike."""
        self.device_net[2].weight.mul_(0.1)
        self.device_net[2].bias.zero_()
        self.own_device.zero_()
        self.own_choice.zero_()

    def forward(self, state: Tensor | None = None) -> Given:
        """One pass over the graph."""
        x = self.features if state is None else torch.cat([self.features, state], dim=1)
        z = torch.relu(self.enter(x))
        for mix, norm in zip(self.mix, self.norm, strict=True):  # from itself, from before, from after
            came = torch.zeros_like(z).index_add(0, self.head, z[self.tail] * self.in_share)
            went = torch.zeros_like(z).index_add(0, self.tail, z[self.head] * self.out_share)
            z = norm(z + torch.relu(mix(torch.cat([z, came, went], dim=1))))
        if self.settings.groups == "learned":
            score = self._scores(
                z, self.first, self.second, self.choice_node, self.choice_edge, self.bias_alone
            )
            score = score + self.settings.own * self.own_choice
        else:
            score = torch.zeros(len(self.choice_node))
            if self.settings.groups == "none":
                score = torch.where(self.alone, score, torch.full_like(score, NEVER))
        score = torch.where(self.forced, torch.full_like(score, NEVER), score)
        logits = self.device_net(z) + self.settings.own * self.own_device
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

    def devices(self, logits: Tensor, draw: Draw) -> Tensor:
        """(groups, devices) log-probabilities: the members' logits averaged, forbidden devices masked."""
        batch = len(draw.chosen)
        flat = logits.repeat(batch, 1)
        total = torch.zeros(len(draw.size), logits.shape[1]).index_add(0, draw.group, flat)
        mean = total / draw.size[:, None] + draw.lean[draw.placement]
        return torch.log_softmax(mean.masked_fill(~self.allowed[draw.member], NEVER), dim=1)


def train(search: Search, units: Units, settings: Hsdag, seed: int, share: float = 1.0) -> None:
    """Train a :class:`Policy` until ``share`` of the budget is used up; the search keeps the best placement drawn."""
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    policy = Policy(units, settings)
    optimizer = torch.optim.Adam(policy.parameters(), settings.learning_rate, fused=True)
    kept = None
    if settings.groups == "fixed":
        uniform = np.exp(policy().choice.detach().double().numpy())
        chosen, group, _ = sample_groups(uniform, policy.ptr, policy.other, rng.random((1, units.count)))
        kept = chosen[0], group[0]
    elites = Elites(settings.elites if settings.levels == 1 else 0)
    trained: dict[str, Any] = {"policy": policy, "optimizer": optimizer, "elites": elites}
    checkpoint = Checkpoint(settings.checkpoint, search, settings, seed, trained, rng)
    scalars = Scalars(settings.log_dir, search)
    update = checkpoint.resume()
    while True:
        done = _progress(search, update, settings.updates, share)
        if done >= 1.0:
            break
        search.check()
        run = int(done * settings.runs)
        if run != policy.run:
            policy.begin_again(run)
            elites.forget()
            optimizer.state.clear()
        state = _incumbent(search, units) if settings.state_update else None
        batch = min(_batch(search, settings), search.evaluations_left)
        given = policy(state)
        fallen = done * settings.runs - run
        leant = _leant(search, settings, int(policy.age), fallen)
        draw = policy.draw(given, batch, rng, kept, settings.lean * (1.0 - leant) ** 2)
        devices = draw.device.numpy().astype(np.int32)[draw.group.numpy()].reshape(batch, units.count)
        cost = learn_costs(search, units, devices)
        learnt, worth = elites.beside(draw, cost)
        elites.take(draw, cost)
        advantage = _advantages(worth)
        weight = settings.entropy and settings.entropy * (settings.entropy_end / settings.entropy) ** fallen
        entropy = 0.0
        if settings.learn:
            before: list[Tensor] | None = None
            for epoch in range(settings.epochs if settings.ppo else 1):
                if epoch:
                    given = policy(state)
                loss, before, entropy = _loss(policy, settings, learnt, given, advantage, before, weight)
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
                optimizer.step()
        update += 1
        policy.age += 1
        search.note = f"{len(draw.size) / batch:.0f} groups  entropy {entropy:.2f}"
        scalars.write(update, cost=float(cost.min()), groups=len(draw.size) / batch, entropy=entropy)
        checkpoint.save(update)
    checkpoint.save(update, now=True)


def _loss(
    policy: Policy,
    settings: Hsdag,
    draw: Draw,
    given: Given,
    advantage: Tensor,
    before: list[Tensor] | None,
    weight: float,
) -> tuple[Tensor, list[Tensor], float]:
    """Clipped policy loss less the weighted mean entropy of a decision; the log-probabilities, for next time.

    Ratios are clipped decision by decision: the ratio of a whole placement is a product of hundreds.
    """
    log_q = policy.devices(given.logits, draw)
    joins = [policy.joins(given.z, level) for level in draw.levels]
    now = [log_q.gather(1, draw.device[:, None])[:, 0], given.choice[draw.chosen]]
    now += [join[level.chosen] for join, level in zip(joins, draw.levels, strict=True)]
    gain = [
        advantage[draw.placement],
        advantage[:, None].expand_as(draw.chosen),
        *(advantage[level.placement] for level in draw.levels),
    ]
    if before is None:
        before = [part.detach() for part in now]
    batch = len(draw.chosen)
    loss = torch.zeros(())
    for part, old, better in zip(now, before, gain, strict=True):
        ratio = torch.exp(part - old)
        if settings.ppo:
            close = ratio.clamp(1 - settings.clip, 1 + settings.clip)
            loss = loss - torch.minimum(ratio * better, close * better).sum() / batch
        else:
            loss = loss - (part * better).sum() / batch
    entropy = -(log_q.exp() * log_q).sum() / batch
    edges = -(given.choice.exp() * given.choice).sum()
    for join in joins:
        edges = edges - (join.exp() * join).sum() / batch
    return (
        loss - weight * (entropy + settings.edge_entropy * edges),
        before,
        float(entropy.detach()) * batch / max(len(log_q), 1),
    )


def _batch(search: Search, settings: Hsdag) -> int:
    """Placements of an update: those of the settings, fewer where the budget is small."""
    if search.budget.evaluations is None:
        return settings.batch
    return min(settings.batch, max(LEAST_BATCH, search.budget.evaluations // (UPDATES * settings.runs)))


def _leant(search: Search, settings: Hsdag, age: int, fallen: float) -> float:
    """Share of the leaning that is over after ``age`` updates and the share ``fallen`` of a run: :data:`UPDATES`
    updates, or all of the run where there are fewer."""
    limit, updates = search.budget, float(UPDATES)
    if limit.evaluations is not None:
        updates = min(updates, limit.evaluations / (_batch(search, settings) * settings.runs))
    share = age / max(updates, 1.0)
    return min(1.0, share if limit.seconds is None and not settings.updates else max(share, fallen))


def _advantages(cost: FloatArray) -> Tensor:
    """(batch,) how much better than the batch, in standard deviations of the logarithm of the cost."""
    value = np.full(len(cost), -1.0)
    good = np.isfinite(cost)
    if good.any():
        value[good] = -np.log(np.maximum(cost[good], 1e-30))
        value[~good] = value[good].min() - max(float(np.ptp(value[good])), 0.1)
    value -= value.mean()
    return floats(value / max(float(value.std()), 1e-8))


def _incumbent(search: Search, units: Units) -> Tensor:
    """(units, devices) where the best placement so far has each unit."""
    state = np.zeros((units.count, units.problem.devices))
    if search.best is not None:
        state[units.of_op, search.best.device] = 1.0
    return floats(state)


def _progress(search: Search, update: int, updates: int, share: float) -> float:
    """Share of the training that is done, by whatever limits it first."""
    done = [update / updates] if updates else [0.0]
    if search.budget.evaluations is not None:
        done.append(search.evaluations / search.budget.evaluations / share)
    if search.budget.seconds is not None:
        done.append(search.seconds / max(search.budget.seconds, 1e-9) / share)
    return max(done)
