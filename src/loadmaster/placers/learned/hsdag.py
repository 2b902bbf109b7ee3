"""HSDAG: one policy that embeds the graph, parses it into groups and gives every group a device.

S. Duan et al., "A structure-aware framework for learning device placements on computation graphs", NeurIPS
2024. Two versions, each a network and a way to train it:

- :class:`PaperPolicy`, :func:`train_paper`: as published. A GCN scores the edges, the components of every node's
  dominant edge are the groups, and the only way a gradient takes to the scores is the factor by which the pooled
  features are multiplied. REINFORCE without a baseline, features that grow from step to step.
- :class:`Policy`, :func:`train`: ours. Choosing the dominant edge is an action like choosing a device: it is
  drawn, a node may also stay alone, and its log-probability is part of the policy's. Messages know the direction
  of the data. Many placements are drawn from one pass; advantages against the batch, PPO, a schedule of entropy.

Both draw all random numbers for actions from numpy, run on one thread unless told otherwise, and hold nothing
that grows with the number of steps.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from loadmaster.placers._search import Search
from loadmaster.placers.learned._checkpoint import Checkpoint
from loadmaster.placers.learned._features import features_of
from loadmaster.placers.learned._methods import Hsdag, HsdagPaper
from loadmaster.placers.learned._parsing import (
    choices_of,
    dominant_edges,
    groups_of_edges,
    sample_devices,
    sample_groups,
)
from loadmaster.placers.learned._scalars import Scalars
from loadmaster.placers.learned._units import Units, learn_costs

__all__ = ["PaperPolicy", "Policy", "train", "train_paper"]

IntArray = npt.NDArray[np.int32]
FloatArray = npt.NDArray[np.float64]

NEVER = -1e9
"""A logit of probability 0 that leaves gradients finite."""


# -- ours ----------------------------------------------------------------------------------------------------


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
        self.register_buffer("features", _float(features_of(units, settings.features)), persistent=False)
        self.register_buffer("allowed", torch.from_numpy(units.allowed), persistent=False)
        for name, index in (
            ("choice_node", node), ("choice_edge", np.where(edge < 0, len(units.first), edge)),
            ("first", units.first), ("second", units.second), ("tail", units.tail), ("head", units.head),
        ):  # fmt: skip
            self.register_buffer(name, _long(index), persistent=False)
        alone = edge < 0
        forced = alone & (degree[node] > 0) if not settings.singletons else np.zeros(len(edge), np.bool_)
        self.register_buffer("forced", torch.from_numpy(forced), persistent=False)
        self.register_buffer("alone", torch.from_numpy(alone), persistent=False)
        for name, ends in (("in_share", units.head), ("out_share", units.tail)):
            count = np.bincount(ends, minlength=units.count)[ends]
            self.register_buffer(name, _float(1.0 / np.maximum(count, 1))[:, None], persistent=False)
        state = units.problem.devices if settings.state_update else 0
        self.enter = nn.Linear(self.features.shape[1] + state, h)
        self.mix = nn.ModuleList(nn.Linear(3 * h, h) for _ in range(settings.layers))
        self.norm = nn.ModuleList(nn.LayerNorm(h) for _ in range(settings.layers))
        self.edge_net = nn.Sequential(nn.Linear(2 * h, h), nn.ReLU(), nn.Linear(h, 1))
        self.alone_net = nn.Linear(h, 1)
        self.device_net = nn.Sequential(nn.Linear(h, h), nn.ReLU(), nn.Linear(h, units.problem.devices))
        with torch.no_grad():  # begin with devices all alike
            self.device_net[2].weight.mul_(0.1)
            self.device_net[2].bias.zero_()
        self.register_buffer(
            "bias_alone", _float(np.log(np.maximum(degree, 1)) + settings.alone), persistent=False
        )

    def forward(self, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Log-probabilities of every unit's choices of a dominant edge, and the units' device logits."""
        x = self.features if state is None else torch.cat([self.features, state], dim=1)
        z = torch.relu(self.enter(x))
        for mix, norm in zip(self.mix, self.norm, strict=True):  # from itself, from before, from after
            came = torch.zeros_like(z).index_add(0, self.head, z[self.tail] * self.in_share)
            went = torch.zeros_like(z).index_add(0, self.tail, z[self.head] * self.out_share)
            z = norm(z + torch.relu(mix(torch.cat([z, came, went], dim=1))))
        if self.settings.groups in ("none", "random", "fixed"):
            score = torch.zeros(len(self.choice_node))
            if self.settings.groups == "none":
                score = torch.where(self.alone, score, torch.full_like(score, NEVER))
        else:
            a, b = z[self.first], z[self.second]
            edge = self.edge_net(torch.cat([a * b, (a - b).abs()], dim=1))[:, 0]
            alone = self.alone_net(z)[:, 0] + self.bias_alone
            edge = torch.cat([edge, torch.zeros(1)])[self.choice_edge]
            score = torch.where(self.alone, alone[self.choice_node], edge)
        score = torch.where(self.forced, torch.full_like(score, NEVER), score)
        return _log_softmax_by(self.choice_node, score, self.units.count), self.device_net(z)

    def draw(self, choice: Tensor, logits: Tensor, batch: int, rng: np.random.Generator, kept: Any) -> Draw:
        """Placements of a batch, drawn from what :meth:`forward` gave."""
        n = self.units.count
        if kept is None:
            probability = choice.detach().double().exp().numpy()
            chosen, group, count = sample_groups(probability, self.ptr, self.other, rng.random((batch, n)))
        else:  # the same groups again for every placement
            chosen, one = kept
            count = int(one.max(initial=-1)) + 1
            chosen = np.broadcast_to(chosen, (batch, n)).copy()
            group = one + count * np.arange(batch)[:, None]
            count *= batch
        flat = group.reshape(-1)
        size = np.bincount(flat, minlength=count)
        placement, member = np.empty(count, np.int64), np.empty(count, np.int64)
        placement[flat] = np.repeat(np.arange(batch), n)
        member[flat] = np.tile(np.arange(n), batch)
        made = Draw(_long(chosen), _long(flat), _float(size), _long(placement), _long(member), torch.empty(0))
        q = self.devices(logits, made).detach().double().exp().numpy()
        return made._replace(device=_long(sample_devices(q, rng.random(count))))

    def devices(self, logits: Tensor, draw: Draw) -> Tensor:
        """(groups, devices) log-probabilities: the members' logits averaged, forbidden devices masked."""
        batch = len(draw.chosen)
        flat = logits.repeat(batch, 1)
        total = torch.zeros(len(draw.size), logits.shape[1]).index_add(0, draw.group, flat)
        mean = total / draw.size[:, None]
        return torch.log_softmax(mean.masked_fill(~self.allowed[draw.member], NEVER), dim=1)


def train(search: Search, units: Units, settings: Hsdag, seed: int, share: float = 1.0) -> None:
    """Train a :class:`Policy` until ``share`` of the budget is used up; the search keeps the best placement drawn."""
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    policy = Policy(units, settings)
    optimizer = torch.optim.Adam(policy.parameters(), settings.learning_rate, fused=True)
    kept = None
    if settings.groups == "fixed":
        uniform = np.exp(policy()[0].detach().double().numpy())
        chosen, group, _ = sample_groups(uniform, policy.ptr, policy.other, rng.random((1, units.count)))
        kept = chosen[0], group[0]
    trained: dict[str, Any] = {"policy": policy, "optimizer": optimizer}
    checkpoint = Checkpoint(settings.checkpoint, search, settings, seed, trained, rng)
    scalars = Scalars(settings.log_dir, search)
    update = checkpoint.resume()
    while True:
        done = _progress(search, update, settings.updates, share)
        if done >= 1.0:
            break
        search.check()
        state = _incumbent(search, units) if settings.state_update else None
        batch = min(settings.batch, search.evaluations_left)
        choice, logits = policy(state)
        draw = policy.draw(choice, logits, batch, rng, kept)
        devices = draw.device.numpy().astype(np.int32)[draw.group.numpy()].reshape(batch, units.count)
        cost = learn_costs(search, units, devices)
        advantage = _advantages(cost, settings)
        weight = (
            settings.entropy * (settings.entropy_end / settings.entropy) ** done if settings.entropy else 0.0
        )
        entropy = 0.0
        if settings.learn:
            before: tuple[Tensor, Tensor] | None = None
            for epoch in range(settings.epochs if settings.ppo else 1):
                if epoch:
                    choice, logits = policy(state)
                loss, before, entropy = _loss(
                    policy, settings, draw, choice, logits, advantage, before, weight
                )
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
                optimizer.step()
        update += 1
        scalars.write(update, cost=float(cost.min()), groups=len(draw.size) / batch, entropy=entropy)
        checkpoint.save(update)
    checkpoint.save(update, now=True)


def _loss(
    policy: Policy,
    settings: Hsdag,
    draw: Draw,
    choice: Tensor,
    logits: Tensor,
    advantage: Tensor,
    before: tuple[Tensor, Tensor] | None,
    weight: float,
) -> tuple[Tensor, tuple[Tensor, Tensor], float]:
    """Clipped policy loss less the weighted mean entropy of a decision; the log-probabilities, for next time.

    Ratios are clipped decision by decision: the ratio of a whole placement is a product of hundreds.
    """
    log_q = policy.devices(logits, draw)
    of_device = log_q.gather(1, draw.device[:, None])[:, 0]
    of_edge = choice[draw.chosen]
    if before is None:
        before = of_device.detach(), of_edge.detach()
    batch = len(draw.chosen)
    loss = torch.zeros(())
    for now, old, gain in (
        (of_device, before[0], advantage[draw.placement]),
        (of_edge, before[1], advantage[:, None].expand_as(of_edge)),
    ):
        ratio = torch.exp(now - old)
        if settings.ppo:
            near = ratio.clamp(1 - settings.clip, 1 + settings.clip)
            loss = loss - torch.minimum(ratio * gain, near * gain).sum() / batch
        else:
            loss = loss - (now * gain).sum() / batch
    entropy = -(log_q.exp() * log_q).sum() / batch
    edges = -(choice.exp() * choice).sum()
    return (
        loss - weight * (entropy + settings.edge_entropy * edges),
        before,
        float(entropy.detach()) * batch / max(len(log_q), 1),
    )


def _advantages(cost: FloatArray, settings: Hsdag) -> Tensor:
    """(batch,) how much better than the batch, in standard deviations of the logarithm of the cost."""
    value = np.full(len(cost), -1.0)
    good = np.isfinite(cost)
    if good.any():
        value[good] = -np.log(np.maximum(cost[good], 1e-30))
        value[~good] = value[good].min() - max(float(np.ptp(value[good])), 0.1)
    value -= value.mean()
    return _float(value / max(float(value.std()), 1e-8))


def _incumbent(search: Search, units: Units) -> Tensor:
    """(units, devices) where the best placement so far has each unit."""
    state = np.zeros((units.count, units.problem.devices))
    if search.best is not None:
        state[units.of_op, search.best.device] = 1.0
    return _float(state)


def _progress(search: Search, update: int, updates: int, share: float) -> float:
    """Share of the training that is done, by whatever limits it first."""
    done = [update / updates] if updates else [0.0]
    if search.budget.evaluations is not None:
        done.append(search.evaluations / search.budget.evaluations / share)
    if search.budget.seconds is not None:
        done.append(search.seconds / max(search.budget.seconds, 1e-9) / share)
    return max(done)


# -- as published ------------------------------------------------------------------------------------------


Parse = list[tuple[IntArray, IntArray, IntArray]]
"""For each level the edges (first, second) and the (nodes,) groups they were parsed into."""


class Step(NamedTuple):
    """One step of an episode, or several side by side: what its log-probability is computed from."""

    features: Tensor
    """(steps * units, columns)."""
    levels: Parse
    device: Tensor
    """(groups,)."""
    weight: Tensor
    """(groups,) discounted reward of the step."""


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
        self.register_buffer("start", _float(features_of(units, settings.features)), persistent=False)
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
            a, b = _long(first), _long(second)
            z = self._convolve(self.gnn1, self.norm1, h, adjacency)
            score = torch.sigmoid(self.edge_net(z[a] * z[b])[:, 0])  # once per edge, so it is symmetric
            if levels is None:
                keep = dominant_edges(len(h), first, second, score.detach().double().numpy())
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
        label = _long(group)
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


def train_paper(search: Search, units: Units, settings: HsdagPaper, seed: int) -> None:
    """Algorithm 1 of the paper: episodes of steps, each followed by updates on what the episode brought."""
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    policy = PaperPolicy(units, settings)
    optimizer = torch.optim.Adam(policy.parameters(), settings.learning_rate, fused=True)
    trained: dict[str, Any] = {"policy": policy, "optimizer": optimizer}
    checkpoint = Checkpoint(settings.checkpoint, search, settings, seed, trained, rng)
    scalars = Scalars(settings.log_dir, search)
    episode = checkpoint.resume()
    while episode < settings.episodes:
        x = policy.start
        steps: list[Step] = []
        reward = np.zeros(settings.steps)
        groups = 0
        for t in range(settings.steps):
            search.check()
            with torch.no_grad():
                embedding, log_q, levels, group = policy(x)
            device = sample_devices(log_q.double().exp().numpy(), rng.random(len(log_q)))
            cost = learn_costs(search, units, device[group][None])[0]
            reward[t] = 1.0 / max(cost, 1e-30)
            weight = torch.full((len(device),), settings.discount ** (t + 1) * reward[t])
            steps.append(Step(x, levels, _long(device), weight))
            if settings.state_update:
                x = x + embedding[_long(group)]
            groups += len(device)
        together = side_by_side(steps, units.count)
        for _ in range(settings.epochs if settings.learn else 0):
            optimizer.zero_grad()
            for part in together:
                paper_loss(policy, part).backward()
            optimizer.step()
        episode += 1
        scalars.write(episode, cost=1.0 / max(float(reward.max()), 1e-30), groups=groups / settings.steps)
        checkpoint.save(episode)
    checkpoint.save(episode, now=True)


def paper_loss(policy: PaperPolicy, step: Step) -> Tensor:
    """Equation 14: minus the log-probability of every step's devices, times its discounted reward."""
    log_q = policy(step.features, step.levels)[1]
    return -(log_q.gather(1, step.device[:, None])[:, 0] * step.weight).sum()


def side_by_side(steps: list[Step], count: int) -> list[Step]:
    """Steps that were parsed equally often as one step on copies of the graph: the same sums, in one pass."""
    found = []
    for depth in sorted({len(step.levels) for step in steps}):
        alike = [step for step in steps if len(step.levels) == depth]
        levels: Parse = []
        sizes = [count] * len(alike)
        for level in range(depth):
            parts = [step.levels[level] for step in alike]
            shift = np.cumsum([0, *sizes[:-1]])
            sizes = [int(group.max()) + 1 for _, _, group in parts]
            up = np.cumsum([0, *sizes[:-1]])
            first, second = (
                np.concatenate([part[end] + s for part, s in zip(parts, shift, strict=True)]).astype(np.int32)
                for end in (0, 1)
            )
            group = np.concatenate([part[2] + s for part, s in zip(parts, up, strict=True)])
            levels.append((first, second, group.astype(np.int32)))
        found.append(
            Step(
                torch.cat([step.features for step in alike]),
                levels,
                torch.cat([step.device for step in alike]),
                torch.cat([step.weight for step in alike]),
            )
        )
    return found


# -- arrays --------------------------------------------------------------------------------------------------


def _log_softmax_by(row: Tensor, score: Tensor, rows: int) -> Tensor:
    """Logarithms of the softmax within each row of a ragged array."""
    top = torch.full((rows,), -math.inf).scatter_reduce(0, row, score.detach(), "amax")
    shifted = score - top[row]
    total = torch.zeros(rows).index_add(0, row, shifted.exp())
    return shifted - total.log()[row]


def _adjacency(count: int, first: IntArray, second: IntArray) -> Tensor:
    """(count, count) sparse, undirected, with self-loops, symmetrically normalised."""
    degree = 1.0 + np.bincount(first, minlength=count) + np.bincount(second, minlength=count)
    loop = np.arange(count)
    row, column = np.concatenate([first, second, loop]), np.concatenate([second, first, loop])
    weight = _float(1.0 / np.sqrt(degree[row] * degree[column]))
    index = _long(np.stack([row, column]))
    return torch.sparse_coo_tensor(index, weight, (count, count), check_invariants=False).coalesce()


def _copies(ends: IntArray, copies: int, count: int) -> IntArray:
    """Ends of edges in copies of a graph that are numbered through."""
    return (ends + count * np.arange(copies, dtype=np.int32)[:, None]).reshape(-1).astype(np.int32)


def _long(array: npt.NDArray[Any]) -> Tensor:
    return torch.from_numpy(np.asarray(array, np.int64))


def _float(array: npt.NDArray[Any]) -> Tensor:
    return torch.from_numpy(np.asarray(array, np.float32))
