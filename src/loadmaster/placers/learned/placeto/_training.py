"""Training of Placeto: episodes of one step for every group, and REINFORCE with a baseline of its own for each step."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import nn

from loadmaster.arrays import FloatArray, IntArray
from loadmaster.placers.frame.search import Search
from loadmaster.placers.learned._checkpoint import Checkpoint
from loadmaster.placers.learned._learner import entropy_weight, share_done
from loadmaster.placers.learned._sampling import sample_devices
from loadmaster.placers.learned._scalars import Scalars
from loadmaster.placers.learned._tensors import floats, longs
from loadmaster.placers.learned.placeto._policy import PlacetoPolicy
from loadmaster.placers.learned.units import Units, learn_costs

if TYPE_CHECKING:
    from loadmaster.placers.learned.placeto.placeto import Placeto

__all__ = ["Episodes", "play", "returns_to_go", "train"]


MOVING = 0.05
"""Share of the steps that must move a group for a policy not to be settled."""
CLIP = 0.2
"""How far the probability of a step may move in one round, as a ratio."""
ROWS = 16_384
"""Groups, over all the graphs of one pass, that a gradient is computed on at once: memory stays bounded."""


class Episodes(NamedTuple):
    """Some episodes side by side, each with one step for every group that has a choice."""

    visited: IntArray
    """(steps,) the group of each step."""
    before: IntArray
    """(steps, samples, groups) placements that the steps began with."""
    action: IntArray
    """(steps, samples) devices chosen."""
    log_prob: FloatArray
    """(steps, samples) logarithms of their probabilities then."""
    cost: FloatArray
    """(steps + 1, samples) costs before each step and at the end, in terms of the unit; none infinite."""

    @property
    def reward(self) -> FloatArray:
        """(steps, samples) what each step gained."""
        return self.cost[:-1] - self.cost[1:]


def play(
    search: Search,
    policy: PlacetoPolicy,
    start: IntArray,
    unit: float,
    failing: float,
    rng: np.random.Generator,
) -> Episodes:
    """Episodes from the (samples, groups) placements; a group without a choice is not visited.

    At the end of the budget the episodes end early, with the steps that were made.
    """
    units, samples = policy.units, len(start)
    visits = np.flatnonzero(units.allowed.sum(axis=1) > 1).astype(np.int32)
    placement = start.copy()
    before, actions, chances = [], [], []
    costs = [_in_terms(learn_costs(search, units, placement), unit, failing)]
    for group in visits.tolist():
        if search.evaluations_left < samples:  # in the worst case all of them move
            break
        search.check()
        with torch.no_grad():
            q = policy(placement, np.full(samples, group)).double().exp().numpy()
        action = sample_devices(q, rng.random(samples))
        before.append(placement.copy())
        actions.append(action)
        chances.append(np.log(q[np.arange(samples), action]))
        moved = np.flatnonzero(placement[:, group] != action)
        placement[:, group] = action
        cost = costs[-1].copy()
        if len(moved):
            cost[moved] = _in_terms(learn_costs(search, units, placement[moved]), unit, failing)
        costs.append(cost)
    steps = len(actions)
    return Episodes(
        visits[:steps],
        np.array(before, np.int32).reshape(steps, samples, units.count),
        np.array(actions, np.int32).reshape(steps, samples),
        np.array(chances).reshape(steps, samples),
        np.array(costs),
    )


def returns_to_go(reward: FloatArray, discount: float) -> FloatArray:
    """(steps, samples) discounted rewards from each step on."""
    value = np.zeros_like(reward)
    later = np.zeros(reward.shape[1])
    for t in range(len(reward) - 1, -1, -1):
        later = value[t] = reward[t] + discount * later
    return value


class StepBaseline:
    """The mean return of each step in the last rounds of episodes."""

    def __init__(self, rounds: int) -> None:
        self.last: deque[FloatArray] = deque(maxlen=rounds)
        self.still = 0
        """Rounds in a row in which next to nothing moved and nothing better was found."""

    def advantages(self, value: FloatArray) -> FloatArray:
        """(steps, samples) returns less the baseline of their step, in standard deviations over all.

        The round itself is part of the baseline: the first one would otherwise have none.
        """
        self.last.append(value.mean(axis=1))
        mean = np.mean([row[: len(value)] for row in self.last if len(row) >= len(value)], axis=0)
        gain: FloatArray = value - mean[:, None]
        return gain / max(float(gain.std()), 1e-9)

    def state_dict(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"last": [torch.from_numpy(row) for row in self.last], "still": self.still}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """From a checkpoint."""
        self.last.clear()
        self.last.extend(row.numpy() for row in state["last"])
        self.still = state["still"]


def train(search: Search, units: Units, settings: Placeto, seed: int) -> None:
    """Train until the budget is used up; the search keeps the best placement that was met."""
    rng = np.random.default_rng(seed)
    policy = PlacetoPolicy(units, settings)
    optimizer = torch.optim.Adam(policy.parameters(), settings.learning_rate)
    baseline = StepBaseline(settings.episodes)
    trained: dict[str, Any] = {"policy": policy, "optimizer": optimizer, "baseline": baseline}
    checkpoint = Checkpoint(settings.checkpoint, search, settings, seed, trained, rng)
    scalars = Scalars(settings.log_dir, search)
    assert search.best is not None
    unit, first = search.history[0].cost, _of_units(units, search.best.device)
    update = checkpoint.resume()
    while baseline.still < settings.patience:
        search.check()
        known = search.cost
        samples = min(settings.samples, search.evaluations_left)
        if settings.initial == "random":
            start = (
                (rng.random((samples, *units.allowed.shape)) * units.allowed).argmax(axis=2).astype(np.int32)
            )
        else:
            one = first if settings.initial == "first" else _of_units(units, search.best.device)
            start = np.tile(one, (samples, 1))
        episodes = play(search, policy, start, unit, settings.failing, rng)
        if len(episodes.action) == 0:
            continue
        gain = baseline.advantages(returns_to_go(episodes.reward, settings.discount))
        done = share_done(search)
        for part in optimizer.param_groups:
            part["lr"] = settings.learning_rate + done * (settings.learning_rate_end - settings.learning_rate)
        weight = entropy_weight(settings.entropy, settings.entropy_end, done)
        entropy = _learn(policy, optimizer, settings, episodes, gain, weight, rng)
        here = episodes.before[np.arange(len(episodes.visited)), :, episodes.visited]
        moving = search.cost < known or (here != episodes.action).mean() > MOVING
        baseline.still = 0 if moving else baseline.still + 1
        update += 1
        scalars.write(update, cost=float(episodes.cost.min()) * unit, entropy=entropy)
        checkpoint.save(update)


def _learn(
    policy: PlacetoPolicy,
    optimizer: torch.optim.Optimizer,
    settings: Placeto,
    episodes: Episodes,
    gain: FloatArray,
    weight: float,
    rng: np.random.Generator,
) -> float:
    """Steps of Adam, each on a random part of a round of episodes; the mean entropy.

    The policy has moved since the round was played, by the parts before: ratios are clipped as in PPO.
    """
    steps, samples, groups = episodes.before.shape
    entropy = 0.0
    for part in np.array_split(rng.permutation(steps), min(settings.minibatches, steps)):
        optimizer.zero_grad()
        for at in np.array_split(part, -(-len(part) * samples * groups // ROWS)):
            log_q = policy(episodes.before[at].reshape(-1, groups), np.repeat(episodes.visited[at], samples))
            action = longs(episodes.action[at].reshape(-1, 1))
            now = log_q.gather(1, action)[:, 0]
            gains, old = (floats(x[at].reshape(-1)) for x in (gain, episodes.log_prob))
            ratio = torch.exp(now - old)
            gained = torch.minimum(ratio * gains, ratio.clamp(1 - CLIP, 1 + CLIP) * gains)
            mixed = -(log_q.exp() * log_q).sum(1)
            (-(gained + weight * mixed).sum() / (len(part) * samples)).backward()
            entropy += float(mixed.detach().sum()) / (steps * samples)
        nn.utils.clip_grad_norm_(policy.parameters(), settings.gradient)
        optimizer.step()
    return entropy


def _of_units(units: Units, device: IntArray) -> IntArray:
    """(groups,) devices of a placement of the ops; of a group that it tears apart, that of its last op."""
    found = np.zeros(units.count, np.int32)
    found[units.of_op] = device
    may = units.allowed[np.arange(units.count), found]
    return np.where(may, found, units.allowed.argmax(axis=1)).astype(np.int32)


def _in_terms(cost: FloatArray, unit: float, failing: float) -> FloatArray:
    return np.where(np.isfinite(cost), cost / max(unit, 1e-30), failing)
