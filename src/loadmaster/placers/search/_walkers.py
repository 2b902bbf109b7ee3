"""Driving chains: several walks side by side, within a budget, the best kept."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import numpy as np

from loadmaster.arrays import IntArray
from loadmaster.placers.frame.feasible import find_feasible, random_segments
from loadmaster.placers.frame.search import Search
from loadmaster.placers.rules.random import random_devices
from loadmaster.placers.search._chains import Chain
from loadmaster.problem import Pipeline, Placement, Problem, Serial, SimulatedEvaluator

__all__ = ["Starts", "Walker", "run_walkers"]


WALKERS = 2
"""Walks side by side. A constant, not the number of cores, so that runs repeat on any machine."""


class Walker(Protocol):
    """A chain with a policy: when to cool, to kick, to start afresh."""

    chain: Chain

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
    run repeats.
    """
    simulated = search.simulated
    work = search.problem.n + search.problem.graph.edges + 1
    fast = simulated and isinstance(search.problem.model, Serial | Pipeline)
    size = 100_000 if fast else max(1, min(2000, 1_000_000 // work)) if simulated else 1
    limited = search.budget.evaluations is not None
    shares = (
        [len(part) for part in np.array_split(np.arange(min(search.evaluations_left, 2**31)), len(walkers))]
        if limited
        else []
    )
    seen = [math.inf] * len(walkers)
    # Measurements must not disturb each other, so there they take turns.
    with ThreadPoolExecutor(len(walkers) if simulated else 1) as pool:
        while True:
            search.check()
            sizes = [min(size, share) for share in shares] if limited else [size] * len(walkers)
            made = list(
                pool.map(
                    lambda pair: pair[0].walk(pair[1]) if pair[1] else 0, zip(walkers, sizes, strict=True)
                )
            )
            if simulated:
                search.count(sum(made))
            shares = [share - m for share, m in zip(shares, made, strict=True)] if limited else []
            for i, walker in enumerate(walkers):
                if walker.chain.best_cost < seen[i]:
                    seen[i] = walker.chain.best_cost
                    search.confirm(Placement(walker.chain.best), walker.chain.best_cost)
            if sum(made) == 0:
                return
