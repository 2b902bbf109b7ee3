"""Driving chains: several walks side by side, within a budget, the best kept."""

from __future__ import annotations

import math
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import numpy as np

from loadmaster.arrays import IntArray
from loadmaster.placers.frame.feasible import find_feasible, random_segments
from loadmaster.placers.frame.search import Search
from loadmaster.placers.rules.random import random_devices
from loadmaster.problem import Pipeline, Placement, Problem, Serial, SimulatedEvaluator

__all__ = ["Found", "Starts", "Walker", "run_walkers"]


WALKERS = 2
"""Walks side by side. A constant, not the number of cores, so that runs repeat on any machine."""


SLICE = 0.1
"""Seconds of a walk between two looks at the clock, where only the clock ends it."""


class Found(Protocol):
    """The best placement that a walk has met."""

    @property
    def best(self) -> IntArray:
        """(n,) its devices."""
        ...

    @property
    def best_cost(self) -> float:
        """Its cost, up to rounding."""
        ...


class Walker(Protocol):
    """A chain with a policy: when to cool, to kick, to start afresh."""

    @property
    def chain(self) -> Found:
        """What it walks with."""
        ...

    def walk(self, evaluations: int) -> int:
        """Spend at most so many evaluations; returns how many were made (0: there is nothing to try)."""
        ...


class Starts:
    """Feasible placements to start from: those given first, then random ones."""

    def __init__(self, problem: Problem, given: list[IntArray], seed: int, *, fallback: IntArray) -> None:
        self._problem = problem
        self._given = given
        self._rng = np.random.default_rng(seed)
        self._fallback = fallback
        self._check = SimulatedEvaluator(problem)

    def next(self) -> IntArray:
        """Another placement to start from."""
        if self._given:
            return self._given.pop(0)
        for _ in range(8):
            device = random_segments(self._problem, self._rng) if self._rng.random() < 0.5 else None
            if device is None:
                device = random_devices(self._problem, self._rng)
            if self._check.evaluate_batch(device)[1][0]:
                return device
        return self._fallback


def first_start(search: Search, start: Placement | None, seed: int) -> IntArray:
    """A feasible placement, also as a first incumbent: the given one if it is feasible."""
    if start is not None and search.try_placement(start) < math.inf:
        return start.device
    return find_feasible(search, seed).device


def run_walkers(search: Search, walkers: list[Walker]) -> None:
    """Let the walkers walk, each on a thread of its own, until the budget is used up or nothing is left to
    try.

    An evaluation budget is shared out in equal parts, and the slices depend on the problem alone, so that a
    run repeats. Where only the clock limits it, every walk has slices of about a tenth of a second.
    """
    simulated = search.simulated
    work = search.problem.n + search.problem.graph.edges + 1
    model = search.problem.model
    convex = isinstance(model, Pipeline) and model.contiguity != "none"  # looked at anew for every move
    fast = simulated and isinstance(model, Serial | Pipeline)
    most = (10_000 if convex else 100_000) if fast else 2000
    size = (most if fast and not convex else max(1, min(most, 1_000_000 // work))) if simulated else 1
    limited = search.budget.evaluations is not None
    shares = (
        [len(part) for part in np.array_split(np.arange(min(search.evaluations_left, 2**31)), len(walkers))]
        if limited
        else []
    )
    seen = [math.inf] * len(walkers)
    sizes = [min(size, 1000) if simulated and not limited else size] * len(walkers)
    # Measurements must not disturb each other, so there they take turns.
    with ThreadPoolExecutor(len(walkers) if simulated else 1) as pool:
        while True:
            search.check()
            if limited:
                sizes = [min(size, share) for share in shares]
            walked = list(pool.map(_timed, walkers, sizes))
            made = [evaluations for evaluations, _ in walked]
            if simulated and not limited:
                sizes = [_next_size(old, seconds) for old, (_, seconds) in zip(sizes, walked, strict=True)]
            if simulated:
                search.count(sum(made))
            shares = [share - m for share, m in zip(shares, made, strict=True)] if limited else []
            for i, walker in enumerate(walkers):
                if walker.chain.best_cost < seen[i]:
                    seen[i] = walker.chain.best_cost
                    search.confirm(Placement(walker.chain.best), walker.chain.best_cost)
            if sum(made) == 0:
                return


def _timed(walker: Walker, evaluations: int) -> tuple[int, float]:
    """Walk; how many evaluations were made, and the seconds that it took."""
    began = time.perf_counter()
    return walker.walk(evaluations) if evaluations else 0, time.perf_counter() - began


def _next_size(size: int, seconds: float) -> int:
    """Evaluations of the next slice, such that it takes about :data:`SLICE`; at most twice as many as before."""
    return max(1, min(2 * size, int(size * SLICE / max(seconds, 1e-9)), 10_000_000))
