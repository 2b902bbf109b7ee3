"""REINFORCE with a moving average as baseline: how `rnn` and `hdp` are trained.

R. Williams, "Simple statistical gradient-following algorithms for connectionist reinforcement learning",
Machine Learning 8, 1992.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from loadmaster.arrays import FloatArray, IntArray
from loadmaster.placers.frame.search import Search
from loadmaster.placers.learned._checkpoint import Checkpoint
from loadmaster.placers.learned._learner import entropy_weight, share_done
from loadmaster.placers.learned._scalars import Scalars
from loadmaster.placers.learned._settings import Reinforced
from loadmaster.placers.learned.units import Units, learn_costs

__all__ = ["Baseline", "Drawing", "reinforce", "rewards"]


class Drawing(Protocol):
    """A policy that draws whole placements."""

    def draw(self, samples: int, rng: np.random.Generator) -> tuple[IntArray, Any]:
        """(samples, units) devices, and the decisions that led to them."""
        ...

    def log_prob(self, decisions: Any) -> tuple[Tensor, Tensor]:
        """(samples,) log-probabilities of all decisions of a placement, and (samples,) their entropies."""
        ...


class Baseline:
    """Moving averages of the reward and of how far rewards are from it."""

    def __init__(self, decay: float) -> None:
        self.decay, self.value, self.spread = decay, np.nan, 0.0

    def advantages(self, reward: FloatArray) -> FloatArray:
        """How much better than the average so far, in mean distances from it; then the average moves on.

        The average begins at the first rewards. (TensorFlow's code begins it at the failing value, which
        reinforces whatever is drawn first.)
        """
        if np.isnan(self.value):
            self.value, self.spread = float(reward.mean()), float(reward.std())
        gain = reward - self.value
        self.spread += (1.0 - self.decay) * (float(np.sqrt((gain**2).mean())) - self.spread)
        self.value += (1.0 - self.decay) * (float(reward.mean()) - self.value)
        return gain / max(self.spread, 1e-9)

    def state_dict(self) -> dict[str, float]:
        """For a checkpoint."""
        return {"value": self.value, "spread": self.spread}

    def load_state_dict(self, state: dict[str, float]) -> None:
        """From a checkpoint."""
        self.value, self.spread = state["value"], state["spread"]


def rewards(cost: FloatArray, unit: float, failing: float) -> FloatArray:
    """Minus the root of the cost in terms of ``unit``, an infeasible placement costing ``failing`` of it."""
    return -np.sqrt(np.where(np.isfinite(cost), cost / max(unit, 1e-30), failing))


def reinforce(search: Search, units: Units, policy: Any, settings: Reinforced, seed: int) -> None:
    """Draw placements, learn their costs, and make the better ones likelier, until the budget is used up.

    ``policy`` is a module that is :class:`Drawing`. Rewards are in terms of the cost of the first placement, so
    that no setting depends on the unit of time.
    """
    rng = np.random.default_rng(seed)
    optimizer = torch.optim.Adam(policy.parameters(), settings.learning_rate)
    baseline = Baseline(settings.decay)
    trained: dict[str, Any] = {"policy": policy, "optimizer": optimizer, "baseline": baseline}
    checkpoint = Checkpoint(settings.checkpoint, search, settings, seed, trained, rng)
    scalars = Scalars(settings.log_dir, search)
    first = search.history[0].cost
    update = checkpoint.resume()
    while True:
        search.check()
        devices, decisions = policy.draw(min(settings.samples, search.evaluations_left), rng)
        cost = learn_costs(search, units, devices)
        gain = baseline.advantages(rewards(cost, first, settings.failing))
        log_prob, entropy = policy.log_prob(decisions)
        weight = entropy_weight(settings.entropy, settings.entropy_end, share_done(search))
        loss = -(log_prob * torch.from_numpy(gain).float() + weight * entropy).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), settings.gradient)
        optimizer.step()
        update += 1
        scalars.write(update, cost=float(cost.min()), entropy=float(entropy.detach().mean()) / units.count)
        checkpoint.save(update)
