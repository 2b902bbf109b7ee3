"""Runs chosen by a model whose errors are learnt: correct, solve, run, again."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from loadmaster.arrays import BoolArray, FloatArray, IntArray
from loadmaster.placers.cuts.min_cut import MinCut
from loadmaster.placers.frame.search import Budget
from loadmaster.placers.learned.surrogate._residual import Posterior, Residual, Trace
from loadmaster.placers.search.local_search import LocalSearch
from loadmaster.problem import Outcome, Placement, Problem, Serial, SimulatedEvaluator

__all__ = ["Loop", "solved"]

TRIES = 6
"""Draws until a placement comes up that was not run yet."""
OFTEN, SELDOM = 16, 4
"""Runs that are learnt from at once, one by one; and how many together after that, when little is left to learn."""


class Believed:
    """An evaluator of the corrected model with devices that slow each other down, which a problem cannot say."""

    def __init__(self, residual: Residual, theta: FloatArray) -> None:
        self._residual, self._theta = residual, theta
        self.problem = residual.problem(theta)
        self._simulated = SimulatedEvaluator(self.problem)
        self.evaluations = 0

    def evaluate(self, placement: Placement) -> Outcome:
        """One placement."""
        cost, feasible = self.evaluate_batch(placement.device[None])
        return Outcome(float(cost[0]), bool(feasible[0]))

    def evaluate_batch(self, device: IntArray) -> tuple[FloatArray, BoolArray]:
        """Some placements."""
        cost, feasible = self._simulated.evaluate_batch(device)
        self.evaluations += len(cost)
        return self._residual.slowed(self._theta, self.problem, cost, device), feasible


def solved(
    problem: Problem,
    evaluations: int,
    seed: int,
    start: IntArray | None,
    evaluator: Believed | None = None,
    *,
    seconds: float | None = None,
) -> IntArray:
    """The best placement of a model: a minimum cut under ``serial``, else what local search finds in so many
    evaluations, the last of them by ``evaluator``."""
    limit = Budget(seconds, evaluations)
    if isinstance(problem.model, Serial):
        return MinCut().place(problem, budget=limit, seed=seed).placement.device
    begin = None if start is None else Placement(start)
    search = LocalSearch()
    found = search.place(problem, budget=limit, seed=seed, start=begin)
    if evaluator is not None:
        limit = Budget(seconds, max(evaluations // 4, 1))
        search = replace(search, constructed=False)
        found = search.place(problem, budget=limit, seed=seed, start=found.placement, evaluator=evaluator)
    return found.placement.device


class Loop:
    """The state of such a search: what was run, and what is known of the model's errors."""

    def __init__(
        self,
        problem: Problem,
        seed: int,
        evaluations: int,
        left: Callable[[], float] = lambda: math.inf,
        improve: Callable[[Problem, IntArray], IntArray] | None = None,
    ) -> None:
        """``evaluations`` of the model, for every solution of it; ``left``: how many seconds there are; ``improve``:
        what else is done with a solution of the corrected problem, by who knows more of it than the model says."""
        self._left, self._improve = left, improve
        self.residual = Residual(problem)
        self.posterior = Posterior(self.residual)
        self._rng = np.random.default_rng([seed, 43])
        self._evaluations, self._seed = evaluations, seed
        self.tried: dict[bytes, IntArray] = {}
        self.runs: list[tuple[IntArray, float, Trace | None]] = []
        self._known: list[IntArray] = []

    def learn(self, device: IntArray, cost: float, trace: Trace | None = None) -> None:
        """A run."""
        self.tried[device.tobytes()] = device
        self.runs.append((device, cost, trace))
        self.posterior.learn(device, cost, trace)

    def next(self, explore: bool) -> IntArray | None:
        """What to run next, None where nothing new comes up: the best by the likeliest numbers, or by drawn ones."""
        if len(self.tried) <= OFTEN or len(self.tried) % SELDOM == 0:
            self.posterior.update()
        for attempt in range(TRIES):
            heat = 0.25 * 2 ** (attempt + explore) if attempt + explore else 0.0
            theta = self.posterior.mean if heat == 0.0 else self.posterior.drawn(self._rng, heat)
            problem = self.residual.problem(theta)
            start = None
            if self._known:
                start = self._known[int(np.argmin(self.residual.costs(theta, np.stack(self._known))))]
            slowed = self.residual.overlaps and theta[self.residual.few - 1] > 0.05
            found = solved(
                problem, self._evaluations, self._seed + len(self.tried), start,
                Believed(self.residual, theta) if slowed else None, seconds=self._seconds(),
            )  # fmt: skip
            if self._improve is not None:
                found = self._improve(problem, found)
            found = np.ascontiguousarray(found, np.int32)
            if found.tobytes() not in self.tried:
                self._known.append(found)
                return found
        return None

    def _seconds(self) -> float | None:
        """For one solution: a small part of what is left, where time is short."""
        left = self._left()
        return None if math.isinf(left) else max(0.05 * left, 0.01)

    def judged(self, runs: int) -> tuple[dict[bytes, float], float]:
        """What the numbers after so many runs say of the placements that were run, and how far they may be off."""
        posterior = Posterior(self.residual)
        for device, cost, trace in self.runs[:runs]:
            posterior.learn(device, cost, trace)
        posterior.update(3)
        return posterior.judged(), posterior.structure

    def run(self, start: IntArray, ask: Callable[[IntArray], tuple[float, Trace | None]], most: int) -> None:
        """Run the start and up to ``most`` placements in all."""
        first: IntArray = np.ascontiguousarray(start, np.int32)
        self._known.append(first)
        device: IntArray | None = first
        for number in range(most):
            if device is None:
                break
            self.learn(device, *ask(device))
            if number + 1 < most:
                device = self.next(number % 2 == 1)
