"""Training of the HSDAG policy: PPO on batches of placements, beside which the best ones so far are learnt from.

Random numbers for actions come from numpy, one thread is used unless told otherwise, and nothing that is held
grows with the number of steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from loadmaster.arrays import FloatArray, IntArray
from loadmaster.placers.frame.search import Search
from loadmaster.placers.learned._checkpoint import Checkpoint
from loadmaster.placers.learned._learner import entropy_weight, share_done
from loadmaster.placers.learned._parsing import sample_groups
from loadmaster.placers.learned._scalars import Scalars
from loadmaster.placers.learned._tensors import floats
from loadmaster.placers.learned.hsdag._draws import Draw, Elites
from loadmaster.placers.learned.hsdag._pairs import DECODED, guesses
from loadmaster.placers.learned.hsdag._policy import Given, Policy
from loadmaster.placers.learned.hsdag._weights import network_of
from loadmaster.placers.learned.units import Units, learn_costs
from loadmaster.problem import Concurrent, SimulatedEvaluator

if TYPE_CHECKING:
    from loadmaster.placers.learned.hsdag.hsdag import Hsdag

__all__ = ["advantages", "policy_loss", "train"]


UPDATES, LEAST_BATCH = 64, 16
"""Updates in which placements lean towards a device, and that there should be under a small budget of evaluations; the
placements that one needs at least."""


KNOWN = 0.1
"""With pre-trained weights: how much of the entropy and of the leaning is left, and how fast the network goes on
learning."""
GUESSED = 64
"""Draws among which the model chooses the first placement that is run."""


def train(search: Search, units: Units, settings: Hsdag, seed: int, share: float = 1.0) -> None:
    """Train a :class:`Policy` until ``share`` of the budget is used up; the search keeps the best placement drawn."""
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    weights = settings.read()
    known = None if weights is None else network_of(weights)
    prior = None
    if known is not None:
        decoded = not search.simulated or search.evaluations_left > 4 * DECODED
        if search.simulated and decoded and isinstance(units.problem.model, Concurrent):
            search.count(DECODED)
        begin = guesses(units, None if search.start is None else search.start.device, decoded=decoded)
        prior = _best_by_model(search, units, begin)
        search.check()
    policy = Policy(units, settings, known, None if prior is None else prior[units.of_op])
    optimizer = torch.optim.Adam(_parameters(policy, settings), settings.learning_rate, fused=True)
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
    trust = 1.0 if known is None else KNOWN
    if known is not None and update == 0 and search.evaluations_left > 0:
        assert prior is not None
        learn_costs(search, units, _first(search, units, policy, prior, rng)[None])
    while True:
        done = share_done(search, share=share, update=update, updates=settings.updates)
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
        draw = policy.draw(given, batch, rng, kept, trust * settings.lean * (1.0 - leant) ** 2)
        devices = draw.device.numpy().astype(np.int32)[draw.group.numpy()].reshape(batch, units.count)
        cost = learn_costs(search, units, devices)
        learnt, worth = elites.beside(draw, cost)
        elites.take(draw, cost)
        advantage = advantages(worth)
        weight = trust * entropy_weight(settings.entropy, settings.entropy_end, fallen)
        entropy = 0.0
        if settings.learn:
            before: list[Tensor] | None = None
            for epoch in range(settings.epochs if settings.ppo else 1):
                if epoch:
                    given = policy(state)
                loss, before, entropy = policy_loss(
                    policy, settings, learnt, given, advantage, before, weight
                )
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


def _best_by_model(search: Search, units: Units, choice: IntArray) -> IntArray:
    """(units,) the best of these by the model."""
    if search.simulated:  # the model is what is paid for
        cost = learn_costs(search, units, choice[: search.evaluations_left])
    else:
        cost, feasible = SimulatedEvaluator(units.problem).evaluate_batch(choice[:, units.of_op])
        cost = np.where(feasible, cost, np.inf)
    best: IntArray = choice[cost.argmin()]
    return best


def _first(
    search: Search, units: Units, policy: Policy, guess: IntArray, rng: np.random.Generator
) -> IntArray:
    """(units,) what is evaluated first: the likeliest placement. Where evaluations are runs, the best by the model of
    that, some draws and what was known without learning, but not the start, which has been run."""
    given = policy()
    likeliest = policy.likeliest(given)
    if search.simulated:
        return likeliest
    draw = policy.draw(given, GUESSED, rng, None, 0.0)
    drawn = draw.device.numpy().astype(np.int32)[draw.group.numpy()].reshape(GUESSED, units.count)
    found = np.concatenate([[likeliest, guess], drawn])
    if search.start is not None:
        fresh = (found[:, units.of_op] != search.start.device).any(axis=1)
        found = found[fresh] if fresh.any() else found
    return _best_by_model(search, units, found)


def policy_loss(
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


def _parameters(policy: Policy, settings: Hsdag) -> list[dict[str, Any]]:
    """What is learnt, and how fast: a network that knows other problems slowly, what is a unit's own as ever."""
    if policy.known is None:
        return [{"params": list(policy.parameters())}]
    own = [policy.own_device, policy.own_choice]
    return [
        {"params": own},
        {"params": list(policy.known.parameters()), "lr": KNOWN * settings.learning_rate},
    ]


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


def advantages(cost: FloatArray) -> Tensor:
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
