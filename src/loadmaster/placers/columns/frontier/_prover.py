"""What prices on the classes prove about the largest load.

Any prices π show that no placement has a largest load of T or less if

    Σ_c π_c > Σ_k n_k · max { π(S) : S may be on kind k, load_k(S) <= T },

for then no choice of one bundle per device covers every class exactly once. The maxima come from the dynamic
program and the best-first search of ``columns/_pricing.py``; where the search gives up, it leaves an upper
bound, and the argument holds all the same. Where prices come from: ``_ascent.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from loadmaster.arrays import FloatArray, IntArray
from loadmaster.placers.columns._nets import Bundles
from loadmaster.placers.columns._pricing import (
    Grid,
    Table,
    best_bundle,
    best_values,
    exact_bundle,
    grid_of,
    new_table,
)
from loadmaster.placers.columns._states import States

__all__ = ["Certificate", "Met", "Priced", "Pricer"]


CELLS = 8_000_000
"""(state, budget) pairs of the tables of all kinds together."""
MOST_CELLS = 32_000_000
"""The same after all refinements."""
FEWEST = 1000
"""States that there are taken to be at least: a few states do not need a finer grid."""
EXACT = 50_000
"""Steps of the best-first search behind one pricing."""
THOROUGH = 500_000
"""The same where it may settle the matter."""
COMPLEMENTS = 5
"""Bundles that are priced disjointly from the best one."""
ROUNDING = 1e-11
"""Sums of prices are taken to be wrong by this much, relative to the sum of their sizes."""


@dataclass(frozen=True, eq=False)
class Certificate:
    """Prices that prove a bound, by the argument above.

    value : seconds; no feasible placement has a smaller largest load.
    prices : (classes,) π.
    load_prices : (kinds,) λ per second of load; they only help the pricing, and 0 is as valid.
    """

    value: float
    prices: FloatArray
    load_prices: FloatArray


class Met(NamedTuple):
    """A bundle met while pricing: its kind, its arcs, and whether the search gave up before it could tell that no
    bundle within the target is as good (this one may then be above the target)."""

    kind: int
    path: IntArray
    doubtful: bool


class Priced(NamedTuple):
    """What pricing at one point gives.

    ratio : Σπ / Σ_k n_k · (the most that a bundle within the target can be worth); above 1 the target is out of
        reach.
    scale : the factor by which prices must be multiplied to make the denominator the number of classes.
    reached : seconds; everything below is out of reach by the grid alone.
    bundles : the bundles met.
    """

    ratio: float
    scale: float
    reached: float
    bundles: list[Met]


class Pricer:
    """Prices bundles of all kinds on grids that fit the bundles which matter.

    bundles, states : the problem and, per kind, its states within the limit.
    limit : seconds, the largest load of a known placement; only what is below is interesting.
    usage : per kind, (arcs,) how much the rounding of an arc matters.
    """

    def __init__(self, bundles: Bundles, states: tuple[States, ...], limit: float) -> None:
        self.bundles = bundles
        self.states = states
        self.limit = limit
        self.counts = np.array([float(kind.number) for kind in bundles.kinds])
        self.usage = [np.full(len(s.load), 1e-3) for s in states]
        self.grids: list[Grid] = []
        self.cells = CELLS
        self._total = sum(s.total for s in states)

    def use(self, k: int, path: IntArray, weight: float) -> None:
        """Let the rounding of a bundle matter more."""
        self.usage[k][path] += weight

    def regrid(self, *, finer: bool = False) -> None:
        """New grids for the present usage."""
        if finer:
            self.cells = min(2 * self.cells, MOST_CELLS)
        size = max(256, self.cells // max(self._total, FEWEST))
        pairs = zip(self.states, self.usage, strict=True)
        self.grids = [grid_of(states, self.limit, size, usage) for states, usage in pairs]

    def new_tables(self) -> list[Table]:
        """Room for the values of all kinds; each thread needs its own."""
        return [new_table(states, grid) for states, grid in zip(self.states, self.grids, strict=True)]

    def price(
        self,
        tables: list[Table],
        prices: FloatArray,
        load_prices: FloatArray,
        target: float,
        *,
        more: bool = False,
        exact: int = EXACT,
    ) -> Priced:
        """The best bundle of each kind within the target, a few others (``more``), and what follows.

        ``load_prices`` are per target: λ · load / target.
        """
        met: list[Met] = []
        values = []
        worth = np.zeros(len(tables))
        for k, (states, table) in enumerate(zip(self.states, tables, strict=True)):
            values.append(best_values(states, table, prices, load_prices[k] / target, states.load))
            budget = table.grid.budget(target)
            most, path = exact_bundle(states, table, target, exact)
            worth[k] = max(most, 0.0)
            if len(path):
                met.append(Met(k, path, False))
            else:
                met.append(Met(k, best_bundle(states, table, budget), True))
            if more:
                met += [
                    Met(k, best_bundle(states, table, int(part * budget)), False) for part in (0.97, 0.93)
                ]
        if more:
            met += self._complements(tables, prices, load_prices, target, met[0])
        fetched = float((self.counts * (load_prices + worth)).sum())
        total = float(prices.sum()) - ROUNDING * float(np.abs(prices).sum())
        if fetched <= 0.0:
            return Priced(np.inf if total > 0.0 else 0.0, 1.0, 0.0, met)
        reached = self._reached(total, load_prices / target, values)
        return Priced(total / fetched, self.bundles.classes / fetched, reached, met)

    def _complements(
        self, tables: list[Table], prices: FloatArray, load_prices: FloatArray, target: float, first: Met
    ) -> list[Met]:
        """Further bundles of the most frequent kind, the classes of those before being worth nothing."""
        k = int(self.counts.argmax())
        states, table = self.states[k], tables[k]
        left = prices.copy()
        path = first.path if first.kind == k else best_bundle(states, table, table.grid.budget(target))
        found = []
        for _ in range(min(int(self.counts[k]) - 1, COMPLEMENTS)):
            inside = states.inside(path, self.bundles.classes)
            left[inside] = np.minimum(left[inside], 0.0)
            best_values(states, table, left, load_prices[k] / target, states.load)
            _, path = exact_bundle(states, table, target, EXACT // 10)
            if not len(path):
                path = best_bundle(states, table, int(0.995 * table.grid.budget(target)))
            found.append(Met(k, path, False))
        return found

    def _reached(self, total: float, per_second: FloatArray, values: list[FloatArray]) -> float:
        """The least T that is not excluded by the values on the grids.

        T is excluded if Σπ > Σ_k n_k (λ_k T + value_k(budget of T)); between two steps of the grids the right
        side is linear in T.
        """
        steps = [(np.arange(1, grid.size + 1) - grid.slack) * grid.step for grid in self.grids]
        ends = np.unique(np.concatenate([*steps, [self.limit]]))
        ends = ends[ends <= self.limit]
        begins = np.concatenate([[0.0], ends[:-1]])
        fixed = np.zeros(len(ends))
        for k, grid in enumerate(self.grids):
            budget = np.floor(0.5 * (begins + ends) / grid.step + grid.slack).astype(np.int64)
            fixed += self.counts[k] * values[k][np.minimum(budget, grid.size)]
        slope = float((self.counts * per_second).sum())
        needed = (total - fixed) / slope if slope > 0.0 else np.where(total > fixed, np.inf, -np.inf)
        least = np.maximum(begins, needed)
        possible = np.flatnonzero(least < ends)
        return float(least[possible[0]]) if len(possible) else self.limit
