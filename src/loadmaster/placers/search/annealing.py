"""Simulated annealing."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from loadmaster.placers.frame.feasible import atoms_of
from loadmaster.placers.frame.search import Budget, Search
from loadmaster.placers.frame.searcher import Searcher
from loadmaster.placers.search._chains import Chain, new_chain
from loadmaster.placers.search._walkers import WALKERS, Starts, Walker, first_start, run_walkers
from loadmaster.problem import Placement

__all__ = ["Annealing"]


FIRST = 1 / 3
"""Share of the whole walk that the first cycle takes at most; the next is twice as long, and both have been cold."""
SHORTEST = 100
"""Evaluations of a cycle at least, however little time is left."""


@dataclass(frozen=True)
class Annealing(Searcher):
    """Metropolis walks that cool down and are heated again.

    Two walks run in parallel. The temperature is a multiple of what one atom weighs: its mean time and mean
    transfers. In one walk a cycle starts from the best placement of the walk so far, and is twice as long as the one
    before. In the other it starts afresh, since constraints may wall a placement in, and lengths double after
    ``restarts`` cycles. A cycle that would not end in the time that is left is shortened such that it does: a walk that
    is never cold has found nothing.

    References
    ----------
    S. Kirkpatrick, C. Gelatt, M. Vecchi, "Optimization by simulated annealing", Science 220, 1983.
    """

    hot: float = 0.6
    """Temperature at the start of a cycle, as a multiple of the mean weight of an atom."""
    cold: float = 0.003
    """Temperature at its end."""
    length: float = 120.0
    """Evaluations of the first cycle per atom and other device."""
    restarts: int = 8
    """Cycles of one length in the walk that starts afresh."""

    keeps_start: ClassVar[bool] = True
    name: ClassVar[str] = "annealing"
    summary: ClassVar[str] = "simulated annealing in cycles of growing length"
    unlimited: ClassVar[Budget] = Budget(seconds=10.0)
    exhausts: ClassVar[bool] = True

    def explore(self, search: Search, start: Placement | None, seed: int) -> None:
        """Search until the budget is used up (10 seconds if it sets no limit)."""
        problem = search.problem
        fallback = first_start(search, start, seed)
        search.check()
        seeds = np.random.SeedSequence(seed).generate_state(2 * WALKERS, np.uint64).tolist()
        walkers: list[Walker] = []
        for i in range(WALKERS):
            given = [fallback] if start is not None or i == 0 else []
            starts = Starts(problem, given, seeds[i], fallback=fallback)
            walkers.append(
                _CoolingWalker(
                    self,
                    new_chain(problem, seeds[WALKERS + i], search.evaluator),
                    starts,
                    search,
                    fresh=i > 0,
                )
            )
        run_walkers(search, walkers)


class _CoolingWalker:
    def __init__(
        self, settings: Annealing, chain: Chain, starts: Starts, search: Search, *, fresh: bool
    ) -> None:
        problem = search.problem
        self.chain = chain
        self._search = search
        self._fresh = fresh
        self._starts = starts
        self._settings = settings
        atoms = atoms_of(problem)
        movable = int((atoms.allowed.sum(axis=1) > 1).sum())
        fastest = np.where(atoms.allowed, atoms.time, np.inf).min(axis=1, initial=np.inf)
        self._mean = (float(fastest.sum()) + float(problem.mean_link.sum())) / max(atoms.count, 1)
        self._length = max(1000, int(settings.length * movable * max(problem.devices - 1, 1)))
        self._step = -1
        """Of the cycle; -1 before the first."""
        self._warmth = 1.0
        """How much of its cooling the cycle has before it."""
        self._cycles = 0
        self._made, self._seconds = 0, 0.0

    def walk(self, evaluations: int) -> int:
        began = time.perf_counter()
        made = self._walk(evaluations)
        self._made += made
        self._seconds += time.perf_counter() - began
        return made

    def _walk(self, evaluations: int) -> int:
        made = 0
        self._fit(self._evaluations_left())
        while made < evaluations:
            if self._step < 0:
                self.chain.start(self._starts.next())
                self._begin(self._length)
                made += 1
                continue
            if self._step >= self._length:
                self._cycles += 1
                longer = not self._fresh or self._cycles % self._settings.restarts == 0
                self.chain.start(self._starts.next() if self._fresh else self.chain.best.copy())
                self._begin(2 * self._length if longer else self._length)
                made += 1
                self._fit(self._evaluations_left() - made)
                continue
            # The cooling is geometric, so a slice only has to know where it begins.
            settings, left = self._settings, self._length - self._step
            whole = settings.cold / settings.hot
            scale = settings.hot * self._mean / max(self.chain.best_cost, 1e-300)
            step = self.chain.advance(
                min(evaluations - made, left),
                scale * whole ** (1.0 - self._warmth),
                whole ** (self._warmth / left),
            )
            if step == 0:
                return made
            self._warmth -= self._warmth * step / left
            self._step += step
            made += step
        return made

    def _begin(self, length: int) -> None:
        self._length, self._step, self._warmth = length, 0, 1.0

    def _evaluations_left(self) -> float:
        """That this walk will make, as far as can be told."""
        search = self._search
        left = math.inf
        if search.budget.evaluations is not None:
            left = search.evaluations_left / WALKERS
        if self._made and search.seconds_left < math.inf:
            at_once = WALKERS if search.simulated else 1
            rate = self._made / max(self._seconds, 1e-9) * at_once / WALKERS
            left = min(left, rate * search.seconds_expected)
        return left

    def _fit(self, left: float) -> None:
        """The cycle ends in the time that is left; the first one earlier, so that another can follow."""
        step = max(self._step, 0)
        most = left if self._cycles else FIRST * (step + left) - step
        if most < self._length - step:
            self._length = step + max(int(most), SHORTEST)
