"""Machines that are not as their model says: the placer sees one problem, and another one answers.

Four kinds of error, each drawn by seed and scaled until the model is off by what was measured on real machines:

``fusion``   a cut behind an op that would be fused with its only reader costs a part of that op
``neighbour``  devices slow each other down while they work at the same time (``concurrent`` only)
``links``    every transfer has a price, and links are slower than thought
``times``    op times are off by lognormal factors per op type and device
``all``      all of them at once
``recorded``  op times as OpenVINO took them on a core and a core of half the speed (``benchmarks.metal_runs record``),
             where the model is a roofline that is right in the sum of each device

docs/openvino.md and docs/overlapping.md found median errors of 2.3 to 7.1 %, and up to 20 %: the aim is drawn between
2 and 20 %. Answers have a noise of 2 %: two halves of five samples correlated by 0.69 to 0.75 there, over placements
that differed by about 4 %.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from loadmaster.placers.learned.units import units_of
from loadmaster.problem import Concurrent, Outcome, Placement, Problem, SimulatedEvaluator, parse_problem

__all__ = ["KINDS", "NOISE", "RECORDED", "Machine", "Truth", "off_by", "recorded", "recordings", "wrong_by"]

KINDS = ("fusion", "neighbour", "links", "times", "all")
RECORDED = "recorded"
FOLDER = Path(__file__).parent / "results" / RECORDED
NOISE = 0.02
Devices = npt.NDArray[np.int32]


class Truth:
    """What placements really cost, without noise."""

    def __init__(self, problem: Problem, overlap: float) -> None:
        """``overlap``: how much longer everything takes if all devices but one could be switched off for nothing."""
        self.problem, self.overlap = problem, overlap
        self._simulated = SimulatedEvaluator(problem)

    def costs(self, device: Devices) -> npt.NDArray[np.float64]:
        """(k,) seconds, infinite where infeasible."""
        cost, feasible = self._simulated.evaluate_batch(device)
        if self.overlap:
            rows = np.arange(self.problem.n)
            busy = np.zeros((len(device), self.problem.devices))
            for number, one in enumerate(device):
                np.add.at(busy[number], one, self.problem.time[rows, one])
            beside = (busy.sum(axis=1) - busy.max(axis=1)) / np.maximum(cost, 1e-30)
            cost = cost * (1.0 + self.overlap * np.minimum(beside, 1.0))
        return np.where(feasible, cost, np.inf)


def distorted(problem: Problem, kind: str, strength: float, seed: int) -> Truth:
    """The machine behind a model; a ``strength`` of 0 is none, and errors grow with it."""
    rng = np.random.default_rng([seed, 23])
    graph, devices = problem.graph, problem.devices
    names, code = np.unique(np.array(graph.op_types, np.str_), return_inverse=True)
    by_type = rng.standard_normal((len(names), devices))[code]
    typical = float(np.median(problem.time[np.isfinite(problem.time)]))
    off = 1.0 - np.eye(devices)
    price, slower = rng.exponential(), abs(rng.standard_normal())
    readers = np.bincount(graph.edge_tensor, minlength=graph.tensors)
    fused = (readers == 1) & (rng.random(graph.tensors) < 0.5)
    time, latency, rate, size, overlap = problem.time, problem.latency, problem.rate, problem.size, 0.0
    if kind in ("times", "all"):
        time = time * np.exp(strength * by_type)
    if kind in ("links", "all"):
        latency = latency + off * typical * strength * (0.5 + price)
        rate = rate * np.exp(strength * slower)
    if kind in ("fusion", "all"):
        mean = np.where(np.isfinite(problem.time), problem.time, 0.0).mean(axis=1)[graph.tensor_producer]
        size = size + fused * strength * mean / rate[off > 0].mean()
    if kind in ("neighbour", "all") and isinstance(problem.model, Concurrent):
        overlap = strength
    return Truth(replace(problem, time=time, latency=latency, rate=rate, size=size), overlap)


def wrong_by(problem: Problem, answer: Devices, kind: str, seed: int) -> tuple[Truth, float]:
    """A machine on which the model is off by 2 to 20 % (the median over placements, drawn by seed), and by how much.

    Half of the placements are the model's own answer with some units moved, half cut the topological order in two.
    """
    rng = np.random.default_rng([seed, 29])
    aim = float(np.exp(rng.uniform(np.log(0.02), np.log(0.2))))
    tried = _placements(problem, answer, rng)
    model = SimulatedEvaluator(problem).costs(tried)[0]

    def error(strength: float) -> float:
        true = distorted(problem, kind, strength, seed).costs(tried)
        good = np.isfinite(true) & np.isfinite(model)
        return float(np.median(np.abs(true[good] / model[good] - 1.0)))

    low, high = 0.0, 0.05
    while error(high) < aim and high < 10.0:
        low, high = high, 2.0 * high
    for _ in range(8):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if error(middle) < aim else (low, middle)
    return distorted(problem, kind, high, seed), error(high)


def recordings() -> list[str]:
    """Models whose times were recorded."""
    return sorted(path.name.removesuffix(".json.gz") for path in FOLDER.glob("*.json.gz"))


def recorded(name: str) -> tuple[Problem, Truth]:
    """What is told, and what was recorded."""
    path = FOLDER / f"{name}.json.gz"
    document = json.loads(gzip.decompress(path.read_bytes()))
    true = parse_problem(document["true"], str(path), Concurrent())
    return replace(true, time=np.array(document["told"])), Truth(true, 0.0)


def off_by(seen: Problem, truth: Truth, answer: Devices, seed: int) -> float:
    """By how much a model is off: the median over placements."""
    tried = _placements(seen, answer, np.random.default_rng([seed, 29]))
    model, true = SimulatedEvaluator(seen).costs(tried)[0], truth.costs(tried)
    good = np.isfinite(true) & np.isfinite(model)
    return float(np.median(np.abs(true[good] / model[good] - 1.0)))


def _placements(problem: Problem, answer: Devices, rng: np.random.Generator, count: int = 16) -> Devices:
    units = units_of(problem, "")
    choice = np.zeros(units.count, np.int32)
    choice[units.of_op] = answer
    found = []
    for number in range(count):
        if number % 2:
            one = choice.copy()
            moved = rng.random(units.count) < rng.uniform(0.02, 0.2)
            one[moved] = rng.integers(problem.devices, size=int(moved.sum()))
        else:
            a, b = rng.integers(problem.devices, size=2)
            one = np.where(units.position < rng.random() * problem.n, a, b).astype(np.int32)
        one = np.where(units.allowed[np.arange(units.count), one], one, units.allowed.argmax(axis=1))
        found.append(one[units.of_op])
    return np.array(found, np.int32)


class Machine:
    """Answers as a machine does: with noise, one placement after another, and with a record of all of it."""

    def __init__(self, seen: Problem, truth: Truth, seed: int, noise: float = NOISE) -> None:
        self.problem, self.truth, self.noise = seen, truth, noise
        self.evaluations = 0
        self._rng = np.random.default_rng([seed, 31])
        self._seed = seed
        self.asked: list[tuple[bytes, float, float]] = []
        """Every placement that was asked for, its true cost and what was measured."""
        self.judge: Callable[[int], tuple[dict[bytes, float], float]] | None = None
        """Of a method that models the answers: after so many, the logarithms of the costs that it believes of the
        placements, and how far these may be off."""

    @property
    def least(self) -> float:
        """The least true cost of all placements that were asked for."""
        return min((true for _, true, _ in self.asked), default=np.inf)

    @property
    def answer(self) -> Devices | None:
        """What was measured best so far."""
        found = min(self.asked, key=lambda one: one[2], default=None)
        return None if found is None or found[2] == np.inf else np.frombuffer(found[0], np.int32)

    def evaluate(self, placement: Placement) -> Outcome:
        """A measurement."""
        cost, feasible = self.evaluate_batch(placement.device[None])
        return Outcome(float(cost[0]), bool(feasible[0]))

    def evaluate_batch(self, device: Devices) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
        """Measurements."""
        device = np.atleast_2d(device)
        true = self.truth.costs(device)
        measured = true * np.exp(self.noise * self._rng.standard_normal(len(true)))
        self.evaluations += len(device)
        rows = np.ascontiguousarray(device, np.int32)
        self.asked += [
            (one.tobytes(), float(exact), float(value))
            for one, exact, value in zip(rows, true, measured, strict=True)
        ]
        return measured, np.isfinite(true)

    def at(self, evaluations: int) -> float:
        """True cost of the answer after so many evaluations; infinite where none was feasible.

        A fifth of them is spent on measuring the best few again: the least of many noisy values is mostly luck. Where
        there is a model of the answers (``judge``), what is measured counts against it by the variances of both.
        """
        first = max(1, evaluations - evaluations // 5)
        found: dict[bytes, list[float]] = {}
        true: dict[bytes, float] = {}
        for placement, exact, value in self.asked[:first]:
            if np.isfinite(value):
                found.setdefault(placement, []).append(float(np.log(value)))
                true[placement] = exact
        thought, error = ({}, np.inf) if self.judge is None else self.judge(first)

        def worth(one: bytes, more: list[float]) -> float:
            measured = [*found[one], *more]
            if one not in thought:
                return float(np.mean(measured))
            share = 1.0 / (1.0 + self.noise**2 / len(measured) / error**2)
            return share * float(np.mean(measured)) + (1.0 - share) * thought[one]

        few = sorted(found, key=lambda one: worth(one, []))[: min(5, 1 + evaluations // 10)]
        again = evaluations // 5 // max(len(few), 1)
        rng = np.random.default_rng([self._seed, 41, evaluations])
        last = {
            one: worth(one, (np.log(true[one]) + self.noise * rng.standard_normal(again)).tolist())
            for one in few
        }
        return true[min(few, key=lambda one: last[one])] if few else np.inf
