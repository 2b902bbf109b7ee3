"""Training of HSDAG as published: REINFORCE without a baseline, in episodes whose features grow from step to step.

Random numbers for actions come from numpy; nothing grows with the number of steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from loadmaster.placers.frame.search import Search
from loadmaster.placers.learned._checkpoint import Checkpoint
from loadmaster.placers.learned._sampling import sample_devices
from loadmaster.placers.learned._scalars import Scalars
from loadmaster.placers.learned._tensors import longs
from loadmaster.placers.learned.hsdag_paper._policy import PaperPolicy, Parse
from loadmaster.placers.learned.units import Units, learn_costs

if TYPE_CHECKING:
    from loadmaster.placers.learned.hsdag_paper.hsdag_paper import HsdagPaper

__all__ = ["Step", "side_by_side", "step_loss", "train"]


class Step(NamedTuple):
    """One step of an episode, or several side by side: what its log-probability is computed from."""

    features: Tensor
    """(steps * units, columns)."""
    levels: Parse
    device: Tensor
    """(groups,)."""
    weight: Tensor
    """(groups,) discounted reward of the step."""


def train(search: Search, units: Units, settings: HsdagPaper, seed: int) -> None:
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
            steps.append(Step(x, levels, longs(device), weight))
            if settings.state_update:
                x = x + embedding[longs(group)]
            groups += len(device)
        together = side_by_side(steps, units.count)
        for _ in range(settings.epochs if settings.learn else 0):
            optimizer.zero_grad()
            for part in together:
                step_loss(policy, part).backward()
            optimizer.step()
        episode += 1
        search.note = f"{groups / settings.steps:.0f} groups"
        scalars.write(episode, cost=1.0 / max(float(reward.max()), 1e-30), groups=groups / settings.steps)
        checkpoint.save(episode)
    checkpoint.save(episode, now=True)


def step_loss(policy: PaperPolicy, step: Step) -> Tensor:
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
