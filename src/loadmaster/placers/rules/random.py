"""Random search, the baseline that every method must beat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from loadmaster.arrays import IntArray
from loadmaster.placers.frame.feasible import atoms_of, find_feasible, random_segments, repair
from loadmaster.placers.frame.search import Budget, Search
from loadmaster.placers.frame.searcher import Searcher
from loadmaster.problem import Offload, Pipeline, Placement, Problem

__all__ = ["Random", "random_devices"]


@dataclass(frozen=True)
class Random(Searcher):
    """The best of many random placements.

    Half of them are contiguous: a random topological order cut at random places, one stretch per device (all
    of them, where the execution model asks for contiguity or counts calls). The other half choose a device
    for every colocation class independently.
    """

    batch: int = 32
    """Placements sampled and evaluated at once."""
    contiguous: float = 0.5
    """Share of contiguous cuts."""

    keeps_start: ClassVar[bool] = True
    name: ClassVar[str] = "random"
    knows_steps: ClassVar[bool] = True
    summary: ClassVar[str] = "the best of many random placements, half of them contiguous"
    unlimited: ClassVar[Budget] = Budget(evaluations=1000)

    def explore(self, search: Search, start: Placement | None, seed: int) -> None:
        """Draw until the budget is used up (1,000 placements if it sets no limit)."""
        problem = search.problem
        rng = np.random.default_rng(seed)
        if start is not None:
            search.try_placement(start)
        idle = 0
        while search.best is None or problem.n > 0:
            # Without any feasible draw for a while, or at the last chance, look for one systematically.
            if search.best is None and (idle >= 4 or search.evaluations_left <= 1):
                find_feasible(search, seed)
            search.check()
            reserve = 1 if search.best is None else 0
            rows = min(self.batch, search.evaluations_left - reserve)
            devices = np.stack([self._draw(problem, rng) for _ in range(rows)])
            cost, feasible = search.evaluator.evaluate_batch(devices)
            value = np.where(feasible, cost, np.inf)
            best = int(value.argmin())
            search.offer(Placement(devices[best]), float(value[best]))
            idle += 1
            if problem.n == 0:
                break

    def _draw(self, problem: Problem, rng: np.random.Generator) -> IntArray:
        model = problem.model
        must = isinstance(model, Offload) or (isinstance(model, Pipeline) and model.contiguity != "none")
        if must or rng.random() < self.contiguous:
            device = random_segments(problem, rng)
            if device is not None:
                return device
        return random_devices(problem, rng)


def random_devices(problem: Problem, rng: np.random.Generator) -> IntArray:
    """An allowed device for every atom, independently; memory repaired where possible."""
    atoms = atoms_of(problem)
    weight = rng.random((atoms.count, problem.devices)) * atoms.allowed
    device = weight.argmax(axis=1).astype(np.int32)[atoms.of_op]
    return repair(problem, device)
