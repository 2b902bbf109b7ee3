"""The search for prices that prove a large bound: by weights first, then by column generation, both over convex sets.

Whatever the prices of the classes, let the sets be ordered by their load, and the best set of each kind of device be
known up to some load. As long as these, one for each device, are worth less than all classes together, no placement can
have a largest load below the next set's: its devices would hold every class once. So all prices prove a bound, the load
of the set where this ends (:meth:`Ascent._reach`).

For a target a little above the bound, classes that the best sets hold too often become cheaper, and others dearer
(multiplicative weights): a round takes a pass over the sets, and the mean of the prices of late is soon within some
percent. The rest is done by the master program (``_master.py``), for a target that moves between what is proved and
what may be possible.

References
----------
S. Plotkin, D. Shmoys, É. Tardos, "Fast approximation algorithms for fractional packing and covering problems",
Mathematics of Operations Research 1995 (the weights).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from loadmaster.arrays import FloatArray, LongArray
from loadmaster.placers.columns.convex._master import Column, Master
from loadmaster.placers.columns.convex._sets import Sets, best_sets, refuted, worth_of
from loadmaster.placers.columns.convex._weights import weigh
from loadmaster.placers.stages._contraction import Contracted
from loadmaster.placers.stages.ideal_dp._ideals import Lattice, members_of

__all__ = ["Ascent"]

BATCH = 4_000_000
"""Sets that are looked at between two looks at the clock, some 0.05 s."""
MARGIN = 1e-10
"""Share of the sum of all prices that adding them up may be wrong by: thousands of terms, each by 1e-16."""
RISE = 0.02
"""Where the target of the weights is above the bound."""
LOOK, PATIENCE = 5, 400
"""Rounds between two looks at what the mean proves, and rounds without a better bound after which it ends."""
AT_ONCE = 12_000_000
"""Sets that rounds may look at between two looks at the clock."""
CALM = 0.6
"""Weight of the best prices so far where the next ones are tried, between them and those of the master."""
WIDE = 1e3
"""Prices are held in so wide a box that it only keeps the master bounded."""
LAST = 1e-3
"""A target this close to the cost (relative) is moved to it."""
NARROW = 1e-5
"""The search ends when it knows the bound of the master to this precision (relative)."""
MADE = 40
"""Sets of each kind that the master is told at a time, those of greatest worth with different targets."""


class Ascent:
    """Searches for prices; :attr:`bound` is what they have proved, before rounding.

    ``limit``: the sets are those with loads below it. ``cost``: the best known one, beyond which nothing need be
    proved. ``check`` is called some ten times a second with the bound, and may raise to stop.
    """

    def __init__(
        self,
        contracted: Contracted,
        lattice: Lattice,
        sets: Sets,
        limit: float,
        cost: Callable[[], float],
        check: Callable[[float], None],
    ) -> None:
        self.bound = 0.0
        self.rounds = 0
        self._contracted, self._lattice, self._sets, self._cost, self._check = (
            contracted,
            lattice,
            sets,
            cost,
            check,
        )
        self._counts = np.array([len(kind) for kind in contracted.kinds], np.float64)
        self._limit = limit
        self._known: set[int] = set()
        self._master = Master(contracted.atoms, self._counts)

    def run(self, prices: FloatArray | None, rounds: int) -> FloatArray:
        """The best prices at the end, from others on if there are any."""
        if prices is None:
            time = self._contracted.tables.time
            prices = np.where(np.isfinite(time), time, np.inf).min(axis=1, initial=np.inf)
            whole = float(prices.sum())
            usual = math.isfinite(whole) and whole > 0.0
            prices = prices / whole if usual else np.full(len(prices), 1.0 / max(len(prices), 1))
        try:
            return self._generate(self._weigh(prices), rounds)
        finally:
            self._master.close()

    def _weigh(self, prices: FloatArray) -> FloatArray:
        """Prices by multiplicative weights, until the bound has not risen for some rounds."""
        prices = np.maximum(prices, 1e-6 / len(prices))
        prices = prices / prices.sum()
        mean = prices.copy()
        self._reach(mean)
        since = 0
        while since < PATIENCE and self.bound < min(self._limit, self._cost()):
            end = int(np.searchsorted(self._sets.load, (1.0 + RISE) * self.bound))
            rounds = min(max(AT_ONCE // max(end, 1), 1), LOOK)
            weigh(self._lattice, self._sets, self._counts, prices, mean, end, since, rounds)
            since += rounds
            before = self.bound
            self._reach(mean)
            if self.bound > before:
                since = 0
        return mean

    def _generate(self, prices: FloatArray, rounds: int) -> FloatArray:
        possible, reachable = min(self._limit, self._cost()), False
        target = self._next(possible, reachable)
        ratio = self._price(prices, target)
        while self.rounds < rounds:
            self.rounds += 1
            possible = min(possible, self._cost())
            if possible - self.bound <= NARROW * possible:
                break
            if self.bound >= target or target > possible:
                target = self._next(possible, reachable)
                ratio = self._price(prices, target)
            duals = self._master.solve(prices - WIDE, prices + WIDE, target)
            self._check(self.bound)
            if duals is None:
                break
            if duals.value <= 1.0 + 1e-9:
                possible, reachable = target, True
                target = self._next(possible, reachable)
                ratio = self._price(prices, target)
                continue
            made = len(self._known)
            point = CALM * prices + (1.0 - CALM) * duals.prices
            found = self._price(point, target)
            if found > ratio:
                ratio, prices = found, point
            if len(self._known) == made:
                found = self._price(duals.prices, target)
                if found > ratio:
                    ratio, prices = found, duals.prices
                if len(self._known) == made:
                    break
        return prices

    def _next(self, possible: float, reachable: bool) -> float:
        """Half way to what may be possible; all of it if little is missing and it is not known to be reachable."""
        if not reachable and possible - self.bound < LAST * possible:
            return possible
        return 0.5 * (self.bound + possible)

    def _price(self, prices: FloatArray, target: float) -> float:
        """Raise the bound if these prices prove more, and tell the master of the sets that they overlook within the
        target; what all classes are worth, divided by what the devices can have."""
        self._reach(prices)
        value, chosen = self._best(prices, target)
        for k in range(len(self._counts)):
            for t in np.argsort(-value[k], kind="stable")[:MADE].tolist():
                if chosen[k, t] >= 0:
                    self._tell(int(chosen[k, t]))
        whole = float(self._counts @ value.max(axis=1))
        return float(prices.sum()) / whole if whole > 0.0 else np.inf

    def _reach(self, prices: FloatArray) -> None:
        """Raise the bound if these prices prove more."""
        sets = self._sets
        worth = worth_of(self._lattice, prices)
        total = float(prices.sum()) - MARGIN * float(np.abs(prices).sum())
        if total <= 0.0:
            return
        best = np.zeros(len(self._counts))
        i, end = 0, 0
        while i == end < len(sets.load):
            end = min(end + BATCH, len(sets.load))
            i = refuted(sets, worth, self._counts, total, i, end, best)
            self._check(self.bound)
        self.bound = max(self.bound, float(sets.load[i]) if i < len(sets.load) else self._limit)

    def _best(self, prices: FloatArray, target: float) -> tuple[FloatArray, LongArray]:
        """(kinds, ideals) what the best set of each kind and larger ideal is worth within the target, and which it is,
        -1 where none is worth anything.
        """
        worth = worth_of(self._lattice, prices)
        value = np.zeros((len(self._counts), self._lattice.ideals))
        chosen = np.full(value.shape, -1, np.int64)
        end = int(np.searchsorted(self._sets.load, target))
        for begin in range(0, end, BATCH):
            best_sets(self._sets, worth, begin, min(begin + BATCH, end), value, chosen)
            self._check(self.bound)
        return value, chosen

    def _tell(self, i: int) -> None:
        if i in self._known:
            return
        self._known.add(i)
        sets, lattice = self._sets, self._lattice
        whole, rest = (
            members_of(lattice.top_ptr, lattice.top, lattice.below, int(ideal))
            for ideal in (sets.target[i], sets.source[i])
        )
        self._master.add(Column(int(sets.kind[i]), np.setdiff1d(whole, rest), float(sets.load[i])))
