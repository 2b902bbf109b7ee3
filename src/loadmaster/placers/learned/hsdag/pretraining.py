"""Pre-training of ``hsdag`` on many problems: imitation of what is best there, then reinforcement on all of them.

Imitation: the device of every unit in the best placement known, and for every unit its neighbours that are on the same
device in it (half of the weight is on staying alone, so that groups stay small enough to be told apart). Reinforcement:
placements are drawn for one problem after another, as ``hsdag`` draws them, and made likelier by how much better than
the others they are.

Everything but the clock follows from the seed and the number of the step: a run that was killed goes on exactly as if
nothing had happened. Problems and what is best there are made again then, which takes about as long as at first.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from loadmaster import __version__
from loadmaster.arrays import FloatArray, IntArray
from loadmaster.errors import InputError
from loadmaster.files import read_arrays, write_atomically
from loadmaster.placers.learned._learner import quiet_torch
from loadmaster.placers.learned._scalars import Curves
from loadmaster.placers.learned._tensors import NEVER, floats, longs
from loadmaster.placers.learned.gdp._evolution import Map, families_without
from loadmaster.placers.learned.hsdag._messages import unit_times
from loadmaster.placers.learned.hsdag._network import PairNetwork
from loadmaster.placers.learned.hsdag._policy import Given, Policy
from loadmaster.placers.learned.hsdag._training import advantages, policy_loss
from loadmaster.placers.learned.hsdag._unlike_problems import material
from loadmaster.placers.learned.hsdag._weights import Weights, save_weights, weights_of
from loadmaster.placers.learned.hsdag.hsdag import Hsdag
from loadmaster.placers.learned.units import Units, units_of
from loadmaster.problem import Placement, Problem, SimulatedEvaluator

__all__ = ["Lesson", "Report", "Teaching", "lesson", "pretrain", "save_weights", "teaching"]

SAVE_SECONDS = 20.0
"""Time between two saves of the state."""


@dataclass(frozen=True)
class Teaching:
    """The settings of a pre-training."""

    problems: int = 160
    """Problems that are trained on."""
    checked: int = 8
    """Problems of the same families on which the result is compared with the beginning; they are not trained on."""
    label: int = 2000
    """Evaluations for what is best on a problem, where a minimum cut does not say."""
    imitation: int = 2400
    """Steps of imitation, each on one problem."""
    reinforcement: int = 240
    """Steps of reinforcement, each on one problem."""
    draws: int = 16
    """Placements of such a step."""
    rate: float = 2e-3
    """Learning rate of Adam at the beginning; it falls to a tenth, and a tenth of it is that of reinforcement."""
    entropy: float = 0.02
    """Weight of the entropy of a decision in reinforcement."""
    anchor: float = 0.3
    """Weight of imitation in reinforcement."""

    @property
    def steps(self) -> int:
        """Of both kinds."""
        return self.imitation + self.reinforcement


def teaching(problems: int | None = None, steps: int | None = None) -> Teaching:
    """The settings for so many problems and steps of imitation, and a tenth as many of reinforcement."""
    usual = Teaching()
    steps = steps or usual.imitation
    return replace(usual, problems=problems or usual.problems, imitation=steps, reinforcement=steps // 10)


@dataclass(frozen=True)
class Report:
    """Where a pre-training stands."""

    generation: int
    """Steps made."""
    seconds: float
    gain: dict[str, float]
    """Means over the last steps: the loss of imitation, or the cost of draws against the best known, as a logarithm."""


class Lesson:
    """One problem: what the policy sees, and what is best there."""

    def __init__(self, seen: Problem, true: Problem, best: IntArray, prior: IntArray) -> None:
        self.units: Units = units_of(seen, "")
        self.evaluator = SimulatedEvaluator(true)
        self.best = float(self.evaluator.evaluate(Placement(best)).value)
        self.prior = prior
        label = np.zeros(self.units.count, np.int64)
        label[self.units.of_op] = best
        self.label = longs(label)
        self.weight = floats(_importance(self.units))
        self._policy: Policy | None = None

    def policy(self, network: PairNetwork) -> Policy:
        """The policy on this problem; the network is the one that learns."""
        if self._policy is None or self._policy.known is not network:
            self._policy = Policy(self.units, SETTINGS, network, self.prior)
        return self._policy

    def cost(self, choice: IntArray) -> FloatArray:
        """(k,) costs on the machine of the (k, units) devices, infinite where infeasible."""
        cost, feasible = self.evaluator.evaluate_batch(choice[:, self.units.of_op])
        return np.where(feasible, cost, np.inf)

    def target(self, policy: Policy) -> Tensor:
        """Probabilities over the choices of dominant edges that imitation aims at."""
        node = policy.choice_node
        other = longs(policy.other)
        same = (self.label[node] == self.label[other]) & ~policy.alone
        friends = torch.zeros(self.units.count).index_add(0, node, same.float())
        share = 0.5 / friends.clamp(min=1.0)
        return torch.where(policy.alone, torch.where(friends > 0, 0.5, 1.0)[node], same * share[node])


SETTINGS = Hsdag(weights="none")
"""Of the policy in training: those of the placer."""


def _importance(units: Units) -> FloatArray:
    """(units,) weights of sum 1: half of them equal, half by what the wrong device costs at most."""
    time = unit_times(units)
    known = np.isfinite(time)
    lost = np.where(known, time, -np.inf).max(axis=1) - np.where(known, time, np.inf).min(axis=1)
    lost = np.where(units.allowed.sum(axis=1) > 1, np.maximum(lost, 0.0), 0.0)
    free = (units.allowed.sum(axis=1) > 1) * 1.0
    return 0.5 * free / max(free.sum(), 1.0) + 0.5 * lost / max(float(lost.sum()), 1e-30)


def lesson(seed: Sequence[int], families: Sequence[str], evaluations: int) -> Lesson:
    """A problem to learn from (:func:`~loadmaster.placers.learned.hsdag._unlike_problems.material`)."""
    return Lesson(*material(seed, families, evaluations))


class Trainer:
    """The state of a pre-training."""

    def __init__(self, settings: Teaching, seed: int, families: Sequence[str]) -> None:
        self.settings, self.seed, self.families = settings, seed, tuple(families)
        torch.manual_seed(seed)
        self.network = PairNetwork()
        self.start = weights_of(self.network, {"trained": False, "seed": seed})
        self.optimizer = torch.optim.Adam(self.network.parameters(), settings.rate)
        self.step_number, self.seconds = 0, 0.0
        self.lessons: list[Lesson] = []
        self._recent: list[float] = []

    def prepare(self) -> None:
        """One more problem to train on."""
        self.lessons.append(Lesson(*material(*self._drawn(3, len(self.lessons)))))

    def prepare_all(self, run: Map) -> None:
        """All problems to train on that are missing, made by whoever ``run`` gives them to."""
        missing = range(len(self.lessons), self.settings.problems)
        self.lessons += [Lesson(*made) for made in run(material, [self._drawn(3, i) for i in missing])]

    def checked(self, run: Map | None) -> list[Lesson]:
        """Problems that are not trained on."""
        drawn = [self._drawn(11, i) for i in range(self.settings.checked)]
        made = [material(*one) for one in drawn] if run is None else run(material, drawn)
        return [Lesson(*one) for one in made]

    def _drawn(self, use: int, number: int) -> tuple[list[int], tuple[str, ...], int]:
        return [self.seed, use, number], self.families, self.settings.label

    def step(self) -> float:
        """One step on one problem; the loss of imitation, or the mean logarithm of the draws' cost."""
        settings, number = self.settings, self.step_number
        rng = np.random.default_rng([self.seed, 5, number])
        taught = self.lessons[int(rng.integers(len(self.lessons)))]
        policy = taught.policy(self.network)
        given = policy()
        imitated = _imitation(taught, policy, given)
        reinforced = number >= settings.imitation
        if not reinforced:
            done = number / max(settings.imitation, 1)
            rate, loss, told = settings.rate * 0.1**done, imitated, float(imitated.detach())
        else:
            draw = policy.draw(given, settings.draws, rng, None, 0.0)
            choice = draw.device.numpy().astype(np.int32)[draw.group.numpy()].reshape(settings.draws, -1)
            cost = taught.cost(choice)
            found = policy_loss(policy, SETTINGS, draw, given, advantages(cost), None, settings.entropy)[0]
            rate, loss = 0.1 * settings.rate, found / taught.units.count + settings.anchor * imitated
            finite = cost[np.isfinite(cost)]
            told = float(np.log(finite / taught.best).mean()) if len(finite) else 0.0
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        self.optimizer.step()
        self.step_number += 1
        return told

    def save(self, path: str | Path) -> None:
        """Everything that the next step depends on, in one file that is replaced as a whole."""
        arrays = {f"network/{k}": v.numpy() for k, v in self.network.state_dict().items()}
        state = self.optimizer.state_dict()["state"]
        for number, parts in state.items():
            arrays |= {f"adam/{number}/{name}": value.numpy() for name, value in parts.items()}
        origin = np.frombuffer(json.dumps(self._origin()).encode(), np.uint8)
        content = io.BytesIO()
        np.savez(content, origin=origin, numbers=np.array([self.step_number, self.seconds]), **arrays)
        write_atomically(str(path), content.getvalue())

    def resume(self, path: str | Path) -> None:
        """Go on from a state.

        Raises
        ------
        InputError : the file is no such state, or one of another run.
        """
        found = read_arrays(path, "the state of a pre-training of hsdag")
        try:
            origin = json.loads(found["origin"].tobytes())
            network = {k[8:]: torch.from_numpy(v) for k, v in found.items() if k.startswith("network/")}
            adam: dict[int, dict[str, Any]] = {}
            for key, value in found.items():
                if key.startswith("adam/"):
                    _, number, name = key.split("/")
                    adam.setdefault(int(number), {})[name] = torch.from_numpy(np.array(value))
            step, seconds = (float(x) for x in found["numbers"])
        except Exception as error:  # numpy raises many kinds
            raise InputError(f"{path}: is not the state of a pre-training of hsdag ({error})") from None
        if origin != self._origin():
            raise InputError(
                f"{path}: is the state of a run with a different seed, settings or families: give another file"
            )
        self.network.load_state_dict(network)
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": adam})
        self.step_number, self.seconds = int(step), seconds

    def _origin(self) -> Any:
        return json.loads(json.dumps([asdict(self.settings), self.seed, self.families]))


def _imitation(taught: Lesson, policy: Policy, given: Given) -> Tensor:
    """Cross-entropies of devices and of dominant edges."""
    log_q = torch.log_softmax(given.logits.masked_fill(~policy.allowed, NEVER), dim=1)
    devices = -(taught.weight * log_q.gather(1, taught.label[:, None])[:, 0]).sum()
    edges = -(taught.target(policy) * given.choice).sum() / max(taught.units.count, 1)
    return devices + 0.3 * edges


def pretrain(
    *,
    settings: Teaching | None = None,
    seed: int = 0,
    left_out: Sequence[str] = (),
    state: str | Path | None = None,
    resume: bool = False,
    log_dir: str = "",
    run: Map | None = None,
    on_report: Callable[[Report], None] = lambda report: None,
) -> Weights:
    """Weights trained on the zoo's families and random graphs on unlike devices.

    ``left_out`` are families that are not trained on; ``state`` is a file that holds the state of the run while it
    lasts, and ``resume`` goes on from it if it exists. ``run`` is a map over processes that make the problems and find
    what is best there; the steps are one after another, here. Nothing but the time depends on it.
    """
    settings = settings or Teaching()
    began = time.monotonic()
    with quiet_torch(1):
        trainer = Trainer(settings, seed, families_without(left_out))
        if state is not None and resume and Path(state).exists():
            trainer.resume(state)
        before = trainer.seconds
        if run is not None:
            trainer.prepare_all(run)
        while len(trainer.lessons) < settings.problems:
            trainer.prepare()
            on_report(Report(0, time.monotonic() - began, {"problems": float(len(trainer.lessons))}))
        curves = Curves(log_dir, "pretrain")
        saved, recent = time.monotonic(), []
        try:
            while trainer.step_number < settings.steps:
                recent.append(trainer.step())
                trainer.seconds = before + time.monotonic() - began
                if trainer.step_number % 100 == 0 or trainer.step_number == settings.imitation:
                    part = (
                        "imitation loss" if trainer.step_number <= settings.imitation else "log cost of draws"
                    )
                    mean = float(np.mean(recent))
                    recent = []
                    on_report(Report(trainer.step_number, trainer.seconds, {part: mean}))
                    curves.write(trainer.step_number, {part: mean, "seconds": trainer.seconds})
                if state is not None and time.monotonic() - saved > SAVE_SECONDS:
                    trainer.save(state)
                    saved = time.monotonic()
        finally:
            if state is not None:
                trainer.save(state)
        recipe: dict[str, Any] = {
            "trained": True, "settings": asdict(settings), "seed": seed, "generations": trainer.step_number,
            "seconds": round(trainer.seconds, 1), "families": list(trainer.families), "left_out": list(left_out),
            "version": __version__,
        }  # fmt: skip
        weights = weights_of(trainer.network, recipe)
        return weights._replace(recipe={**recipe, "validation": _validated(trainer, run)})


@torch.no_grad()
def _validated(trainer: Trainer, run: Map | None) -> dict[str, float]:
    """Kind of network -> mean logarithm of the cost of its likeliest placement against the best known."""
    untrained = PairNetwork()
    untrained.load_state_dict({k: torch.from_numpy(v) for k, v in trainer.start.arrays.items()})
    found: dict[str, list[float]] = {"trained": [], "untrained": []}
    for checked in trainer.checked(run):
        for name, network in (("trained", trainer.network), ("untrained", untrained)):
            policy = checked.policy(network)
            cost = float(checked.cost(policy.likeliest(policy())[None])[0])
            if np.isfinite(cost):
                found[name].append(float(np.log(cost / checked.best)))
    return {name: round(float(np.mean(values)), 5) for name, values in found.items() if values}
