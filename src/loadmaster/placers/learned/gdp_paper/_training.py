"""GDP as published: one policy that reads a whole graph and gives every node a device at once.

Y. Zhou et al., "GDP: Generalized device placement for dataflow graphs", arXiv 1910.01578, 2019; with what its
successor says about sizes: Y. Zhou et al., "Transferable graph optimizers for ML compilers", NeurIPS 2020.

The paper's:

- GraphSAGE with max pooling and a sigmoid on messages, weights shared by all nodes and graphs (``Encoder``);
- nodes in topological order, in segments; a segment's attention also sees the hidden states of the segment before,
  through which no gradient flows (Transformer-XL), and no positions are encoded (``SegmentAttention``);
- superposition: a further attention layer makes a context of the graph, which gates the input of every dense
  layer of the placer (``Dense``);
- all nodes decided at once and independently, PPO, reward -sqrt(time), -10 for a placement that does not fit, the
  mean of a graph's earlier trials as the baseline, Adam; training on one graph or on several at once with equal
  weight, and then no or less than 50 updates on a graph not seen.

Ours, where the paper is silent or no source was to be had:

- features: an embedding of op types (UNK for unknown ones), shapes, degrees, depth and height, and, unless
  ``costs`` is off, work, time and memory, each standardised within the graph and once more on a common scale;
- messages from producers and consumers alike, zero for a node without neighbours; the width, the numbers of layers
  and heads, and the length of segments; no causal mask, since outputs are not fed back; norms before each layer;
- the context is the mean over the nodes ("graph") and gates as 1 + a projection that starts at zero, so that an
  untrained gate changes nothing;
- the baseline forgets most of the earlier trials (``decay``): against the mean of all of them every draw of a policy
  that has learnt something is an improvement, and what it happens to draw becomes what it always draws;
- logits that differ from the beginning (``contrast``), since equal devices are told apart by nothing else;
- ratios of PPO clipped node by node (the ratio of a whole placement is a product of thousands), advantages divided
  by the deviation of the graph's valid trials and cut off at ``LIMIT``, entropy that falls during the budget;
- the head is as wide as the largest cluster trained on; devices that a problem has not are masked like those that an
  op may not use. Which device is which is learnt by number, so clusters should list theirs in the same order.
- the likeliest placement is costed at every update.

Time and memory are O(nodes (segment + memory) + arcs) for each layer.
Everything random comes from numpy or the seeded generator of PyTorch; on one thread a run repeats.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from loadmaster.arrays import FloatArray
from loadmaster.placers.frame.feasible import prove_infeasible
from loadmaster.placers.frame.placer import parameters
from loadmaster.placers.frame.search import Budget, Search
from loadmaster.placers.learned._checkpoint import Checkpoint
from loadmaster.placers.learned._learner import entropy_weight, quiet_torch, share_done
from loadmaster.placers.learned._sampling import sample_devices
from loadmaster.placers.learned._scalars import Scalars
from loadmaster.placers.learned._tensors import floats
from loadmaster.placers.learned.gdp_paper._inputs import Inputs, inputs_of
from loadmaster.placers.learned.gdp_paper._network import Network
from loadmaster.placers.learned.gdp_paper._state import NETWORK, State, check_devices, state_of
from loadmaster.placers.learned.units import Units, learn_costs, units_of
from loadmaster.placers.search._walkers import first_start
from loadmaster.problem import Problem, Solution

if TYPE_CHECKING:
    from loadmaster.placers.learned.gdp_paper.gdp_paper import GdpPaper

__all__ = ["train_one", "train_several"]


FAILED = -10.0
"""Reward of a placement that breaks a constraint."""
LIMIT = 4.0
"""Largest advantage, in standard deviations."""


class Trials:
    """Mean and deviation of the rewards of a graph's valid trials so far."""

    def __init__(self, decay: float) -> None:
        self.decay, self.weight, self.mean, self.square = decay, 0.0, 0.0, 0.0

    def advantages(self, reward: FloatArray) -> FloatArray:
        """How much better each of these trials was than the ones before, in deviations; then they belong to them."""
        valid = reward[reward > FAILED]
        mean = self.mean if self.weight else float(valid.mean()) if len(valid) else FAILED
        self._note(valid)
        deviation = math.sqrt(max(self.square - self.mean**2, 0.0))
        floor = 1e-6 * max(abs(self.mean), 1e-30)  # where all trials cost the same there is nothing to learn
        return np.clip((reward - mean) / max(deviation, floor), -LIMIT, LIMIT)

    def _note(self, valid: FloatArray) -> None:
        if not len(valid):
            return
        kept = self.weight * (1.0 - self.decay)
        self.weight = kept + len(valid)
        self.mean = (kept * self.mean + float(valid.sum())) / self.weight
        self.square = (kept * self.square + float((valid**2).sum())) / self.weight

    def state_dict(self) -> dict[str, float]:
        """For a checkpoint."""
        return {"weight": self.weight, "mean": self.mean, "square": self.square}

    def load_state_dict(self, state: dict[str, float]) -> None:
        """From a checkpoint."""
        self.weight, self.mean, self.square = state["weight"], state["mean"], state["square"]


class Task:
    """One graph that is trained on: its search, what the policy sees of it, and the trials so far."""

    def __init__(self, search: Search, units: Units, inputs: Inputs, settings: GdpPaper) -> None:
        self.search, self.units, self.inputs, self.settings = search, units, inputs, settings
        self.trials = Trials(settings.decay)
        self.gain = torch.zeros(0)

    def draw(self, log_q: Tensor, rng: np.random.Generator) -> FloatArray:
        """Cost placements drawn from (nodes, devices) log-probabilities and note what they are worth; the costs."""
        q = log_q.detach().double().exp().numpy()
        left = self.search.evaluations_left
        rows = [sample_devices(q, rng.random(len(q))) for _ in range(min(self.settings.batch, left))]
        best = [q.argmax(axis=1)] if self.settings.greedy and len(rows) < left else []
        choice = np.stack([*rows, *best]).astype(np.int32)
        cost = learn_costs(self.search, self.units, choice, repaired=self.settings.repair)
        drawn = cost[: len(rows)]
        reward = np.where(np.isfinite(drawn), -np.sqrt(np.maximum(drawn, 0.0)), FAILED)
        advantage = self.trials.advantages(reward)
        # The sum over placements depends only on who chose what: all are learnt from at the price of one.
        gain = np.zeros((2, *q.shape))
        node = np.arange(len(q))
        for row, a in zip(rows, advantage.tolist(), strict=True):
            gain[int(a < 0), node, row] += a
        self.gain = floats(gain / (len(rows) * len(q)))
        return cost


def clipped_gain(ratio: Tensor, gain: Tensor, clip: float) -> Tensor:
    """The clipped objective of PPO, summed over placements: min(r A, clip(r) A).

    ``ratio`` is (nodes, devices), ``gain`` (2, nodes, devices): positive and negative advantages of the placements
    with this node on this device, added up. For A > 0 the minimum is A min(r, 1 + clip), else A max(r, 1 - clip).
    """
    return (gain[0] * ratio.clamp(max=1 + clip) + gain[1] * ratio.clamp(min=1 - clip)).sum()


def update_policy(
    tasks: Sequence[Task], network: Network, optimizer: torch.optim.Optimizer, before: list[Tensor], weight: float
) -> float:  # fmt: skip
    """The clipped steps of one update, every graph with equal weight; the mean entropy before the last."""
    settings = network.settings
    entropy = 0.0
    for epoch in range(settings.epochs):
        optimizer.zero_grad()
        entropy = 0.0
        for task, old in zip(tasks, before, strict=True):
            log_q = network(task.inputs) if epoch or not old.requires_grad else old
            choices = task.inputs.allowed.sum(dim=1)
            free = choices > 1
            spread = -(log_q.exp() * log_q).sum(dim=1)[free] / choices[free].log()
            even = spread.mean() if len(spread) else torch.zeros(())
            objective = clipped_gain((log_q - old.detach()).exp(), task.gain, settings.clip) + weight * even
            (-objective / len(tasks)).backward()
            entropy += float(even.detach()) / len(tasks)
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
    return entropy


def train_one(search: Search, units: Units, settings: GdpPaper, seed: int) -> None:
    """Train on one graph until the updates are made or the budget is used up; the search keeps the best placement."""
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    if settings.weights:
        state = State.load(settings.weights, settings)
        check_devices(state, units.problem)
        settings, vocabulary, devices = state.settings, state.vocabulary, state.devices
        network = state.network()
        inputs = inputs_of(units, vocabulary, devices, settings)
    else:
        vocabulary = tuple(sorted(set(units.problem.graph.op_types)))
        inputs = inputs_of(units, vocabulary, units.problem.devices, settings)
        network = Network(inputs.numbers.shape[1], 1 + len(vocabulary), units.problem.devices, settings)
    task = Task(search, units, inputs, settings)
    optimizer = torch.optim.Adam(network.parameters(), settings.learning_rate, fused=True)
    trained: dict[str, Any] = {"policy": network, "optimizer": optimizer, "trials": task.trials}
    checkpoint = Checkpoint(settings.checkpoint, search, settings, seed, trained, rng)
    scalars = Scalars(settings.log_dir, search)
    update = checkpoint.resume()
    log_q = network(inputs)
    while not settings.updates or update < settings.updates:
        search.check()
        entropy = 0.0
        cost = task.draw(log_q, rng)
        if settings.learn:
            done = share_done(search, update=update, updates=settings.updates)
            weight = entropy_weight(settings.entropy, settings.entropy_end, min(done, 1.0))
            entropy = update_policy([task], network, optimizer, [log_q], weight)
            log_q = network(inputs)
        update += 1
        scalars.write(update, cost=float(cost.min()), entropy=entropy)
        checkpoint.save(update)
    checkpoint.save(update, now=True)


def train_several(
    problems: Sequence[Problem],
    rules: Sequence[str],
    settings: GdpPaper,
    evaluations: int,
    seed: int,
    state: State | None,
    on_update: Callable[[int, list[float]], None] | None,
) -> tuple[State, list[Solution]]:
    """As :func:`loadmaster.placers.learned.gdp_paper.train_batch` says; ``rules`` are those of each graph."""
    rng = np.random.default_rng(seed)
    with quiet_torch(settings.threads):
        torch.manual_seed(seed)
        every = [units_of(problem, rule) for problem, rule in zip(problems, rules, strict=True)]
        if state is None:
            vocabulary = tuple(sorted({t for problem in problems for t in problem.graph.op_types}))
            devices = max(problem.devices for problem in problems)
        else:
            for problem in problems:
                check_devices(state, problem)
            vocabulary, devices = state.vocabulary, state.devices
            shape = {f.name: getattr(state.settings, f.name) for f in fields(settings) if f.name in NETWORK}
            settings = replace(settings, **shape)
        tasks = []
        for problem, units in zip(problems, every, strict=True):
            prove_infeasible(problem)
            search = Search(problem, Budget(evaluations=evaluations), settings.name)
            first_start(search, None, seed)
            tasks.append(Task(search, units, inputs_of(units, vocabulary, devices, settings), settings))
        columns = tasks[0].inputs.numbers.shape[1]
        network = state.network() if state else Network(columns, 1 + len(vocabulary), devices, settings)
        optimizer = torch.optim.Adam(network.parameters(), settings.learning_rate, fused=True)
        update = 0
        try:
            while min(task.search.evaluations_left for task in tasks) > 0:
                done = min(share_done(tasks[0].search), 1.0)
                weight = entropy_weight(settings.entropy, settings.entropy_end, done)
                # Without their graphs: those of all tasks together might not fit into memory.
                with torch.no_grad():
                    before = [network(task.inputs) for task in tasks]
                for task, log_q in zip(tasks, before, strict=True):
                    task.draw(log_q, rng)
                update_policy(tasks, network, optimizer, before, weight)
                update += 1
                if on_update is not None:
                    on_update(update, [task.search.cost for task in tasks])
        except KeyboardInterrupt:
            for task in tasks:
                task.search.stopped = "interrupted"
        solutions = [task.search.solution(seed, parameters(settings)) for task in tasks]
        return state_of(network, vocabulary), solutions
