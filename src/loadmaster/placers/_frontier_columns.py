"""A lower bound on the largest load by column generation over bundles.

Any prices π on the classes prove that T is out of reach if

    Σ_c π_c > Σ_k n_k · max { π(S) : S may be on kind k, load_k(S) <= T },

for then no choice of one bundle per device covers every class exactly once. Good prices come from a master
program over the bundles found so far (``_frontier_master.py``), the best bundles for given prices from a
dynamic program whose rounding a best-first search makes up for (``_frontier_pricing.py``). Prices stay in a
box around the best ones so far, which grows while they improve as foreseen and shrinks while they do not; on
the way to the master's prices a few points are tried, since pricing is cheap.

References
----------
P. Wentges, "Weighted Dantzig-Wolfe decomposition for linear mixed-integer programming", ITOR 1997 (points
between the best and the new prices). R. Marsten, W. Hogan, J. Blankenship, "The boxstep method for
large-scale optimization", Operations Research 1975.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog
from scipy.sparse import coo_array

from loadmaster.placers._frontier_master import Column, Duals, Master
from loadmaster.placers._frontier_nets import Bundles
from loadmaster.placers._frontier_pricing import (
    Grid,
    Table,
    best_bundle,
    best_values,
    exact_bundle,
    grid_of,
    new_table,
)
from loadmaster.placers._frontier_states import States

__all__ = ["Certificate", "Prover"]

IntArray = npt.NDArray[np.int32]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

CELLS = 8_000_000
"""(state, budget) pairs of a table."""
FEWEST = 1000
"""States that a kind is taken to have at least: a few states do not need a finer grid."""
MOST_CELLS = 32_000_000
"""The same after all refinements."""
STEPS = (1.0, 0.5, 0.25, 0.1)
"""Points between the best prices so far and those of the master at which bundles are priced."""
EXACT = 50_000
"""Steps of the best-first search behind one pricing."""
EXACT_AT_LIMIT = 500_000
"""The same where it may settle the matter."""
DOUBT = 2
"""Rounds for which the master is told of a bundle above the target that pricing could not tell from one
within."""
COMPLEMENTS = 5
"""Bundles per round that are priced disjointly from the best one."""
STRIDE = 0.6
"""Where the next target lies between what is proven and what may be possible."""
CLOSE = 1e-8
"""A bound this close to the limit (relative) is as good as the limit."""
NARROW = 2e-5
"""The search ends when it knows the bound of the master to this precision (relative)."""


@dataclass(frozen=True, eq=False)
class Certificate:
    """Prices that prove a bound: see :func:`Prover.recheck`, and the module for the argument.

    value : seconds; no feasible placement has a smaller largest load.
    prices : (classes,).
    load_prices : (kinds,) λ per second, which only help the pricing; 0 is as valid.
    """

    value: float
    prices: FloatArray
    load_prices: FloatArray


class _Priced(NamedTuple):
    """What pricing at one point gives: Σπ over what the devices can fetch at most, the factor that makes that
    sum C, the least load that these prices do not exclude by the grid alone, and the bundles met."""

    ratio: float
    scale: float
    reached: float
    columns: list[tuple[int, IntArray, bool]]


class Prover:
    """Searches for prices; :meth:`run` may be called again and goes on from where it was.

    bundles, states : the problem and, per kind, its states within the limit.
    limit : seconds, the largest load of a known placement; only what is below is interesting.
    """

    def __init__(
        self, bundles: Bundles, states: tuple[States, ...], limit: float, proven: float = 0.0
    ) -> None:
        self.bundles = bundles
        self.states = states
        self.limit = limit
        self.best = Certificate(proven, np.zeros(bundles.classes), np.zeros(len(states)))
        self.iterations = 0
        self._counts = np.array([float(kind.number) for kind in bundles.kinds])
        self._columns: list[Column] = []
        self._doubted: list[int] = []
        self._known: dict[tuple[int, bytes], int] = {}
        self._usage = [np.full(len(s.load), 1e-3) for s in states]
        self._scale = _price_scales(bundles, limit)
        self._cells = CELLS
        self._grids: list[Grid] = []
        self._tables: list[list[Table]] = []

    # -- bundles ---------------------------------------------------------------------------------------------

    def suggest(self, device: IntArray, class_of: IntArray) -> None:
        """Take the bundles of a good placement: its rounding will matter, and the master may use them."""
        for k, kind in enumerate(self.bundles.kinds):
            for d in kind.devices.tolist():
                inside = np.zeros(self.bundles.classes, np.bool_)
                inside[class_of[device == d]] = True
                path = self.states[k].path(inside)
                if path is not None:
                    self._usage[k][path] += 1.0
                    self._remember(k, path, doubtful=False)

    def _remember(self, k: int, path: IntArray, *, doubtful: bool) -> None:
        key = (k, path.tobytes())
        known = self._known.setdefault(key, len(self._columns))
        if known == len(self._columns):
            load = float(self.states[k].load[path].sum())
            self._columns.append(Column(k, self.states[k].inside(path, self.bundles.classes), load, path))
            self._doubted.append(-DOUBT - 1)
        if doubtful:
            self._doubted[known] = self.iterations

    def _live(self, target: float) -> BoolArray:
        """(columns,) the bundles within the target, and for a few rounds those that pricing could not tell
        from them."""
        live = np.array([column.load <= target for column in self._columns], np.bool_)
        live |= np.array(self._doubted) >= self.iterations - DOUBT
        return live

    def _regrid(self) -> None:
        """Grids whose rounding spares the bundles that the master used; two sets of tables, one for each
        thread."""
        sizes = [max(256, min(self._cells // FEWEST, self._cells // states.total)) for states in self.states]
        self._grids = [
            grid_of(states, self.limit, size, usage)
            for states, size, usage in zip(self.states, sizes, self._usage, strict=True)
        ]
        self._tables = [
            [new_table(states, grid) for states, grid in zip(self.states, self._grids, strict=True)]
            for _ in range(2)
        ]

    def refine(self) -> None:
        """Let the next grids be finer."""
        self._cells = min(2 * self._cells, MOST_CELLS)

    # -- pricing ---------------------------------------------------------------------------------------------

    def _price(
        self,
        tables: list[Table],
        prices: FloatArray,
        load_prices: FloatArray,
        target: float,
        *,
        more: bool = False,
        exact: int = EXACT,
    ) -> _Priced:
        """The best bundle of each kind, a few lighter ones (``more``), and what follows from them."""
        columns: list[tuple[int, IntArray, bool]] = []
        values = []
        worth = np.zeros(len(tables))
        for k, (states, table) in enumerate(zip(self.states, tables, strict=True)):
            values.append(best_values(states, table, prices, load_prices[k] / target))
            budget = table.grid.budget(target)
            bound, path = exact_bundle(states, table, target, exact)
            worth[k] = max(bound, 0.0)
            if len(path):
                columns.append((k, path, False))
            else:
                columns.append((k, best_bundle(states, table, budget), True))
            if more:
                columns += [
                    (k, best_bundle(states, table, int(part * budget)), False) for part in (0.97, 0.93)
                ]
        if more:
            columns += self._complements(tables, prices, load_prices, target, columns[0])
        total = float((self._counts * (load_prices + worth)).sum())
        rounding = 1e-11 * float(np.abs(prices).sum())
        ratio = (float(prices.sum()) - rounding) / total if total > 0 else 0.0
        reached = self._reached(prices, load_prices / target, values)
        return _Priced(ratio, self.bundles.classes / total if total > 0 else 1.0, reached, columns)

    def _complements(
        self,
        tables: list[Table],
        prices: FloatArray,
        load_prices: FloatArray,
        target: float,
        first: tuple[int, IntArray, bool],
    ) -> list[tuple[int, IntArray, bool]]:
        """Further bundles of the most frequent kind, each without worth in the classes of those before."""
        k = int(self._counts.argmax())
        states, table = self.states[k], tables[k]
        left = prices.copy()
        path = first[1] if first[0] == k else best_bundle(states, table, table.grid.budget(target))
        found: list[tuple[int, IntArray, bool]] = []
        for _ in range(min(int(self._counts[k]) - 1, COMPLEMENTS)):
            inside = states.inside(path, self.bundles.classes)
            left[inside] = np.minimum(left[inside], 0.0)
            best_values(states, table, left, load_prices[k] / target)
            _, path = exact_bundle(states, table, target, EXACT // 10)
            if not len(path):
                path = best_bundle(states, table, int(0.995 * table.grid.budget(target)))
            found.append((k, path, False))
        return found

    def _reached(self, prices: FloatArray, per_second: FloatArray, values: list[FloatArray]) -> float:
        """The least T that these prices do not exclude, by the values of the grids alone.

        T is excluded if Σπ > Σ_k n_k (λ_k T + value_k(budget of T)); between two steps of the grids the right
        side is linear.
        """
        rounding = 1e-11 * float(np.abs(prices).sum())
        total = float(prices.sum()) - rounding
        edges = [(np.arange(1, grid.size + 1) - grid.slack) * grid.step for grid in self._grids]
        ends = np.unique(np.concatenate([*edges, [self.limit]]))
        ends = ends[ends <= self.limit]
        begins = np.concatenate([[0.0], ends[:-1]])
        fixed = np.zeros(len(ends))
        for k, grid in enumerate(self._grids):
            budget = np.floor(0.5 * (begins + ends) / grid.step + grid.slack).astype(np.int64)
            fixed += self._counts[k] * values[k][np.minimum(budget, grid.size)]
        slope = float((self._counts * per_second).sum())
        if slope > 0:
            from_here = np.maximum(begins, (total - fixed) / slope)
        else:
            from_here = np.where(total > fixed, np.inf, begins)
        possible = np.flatnonzero(from_here < ends)
        return float(from_here[possible[0]]) if len(possible) else self.limit

    # -- the search for prices -------------------------------------------------------------------------------

    def run(self, check: Callable[[Certificate], None], most: int) -> Certificate:
        """Look for better prices, at most ``most`` rounds; ``check`` is called every round and may raise
        to stop."""
        check(self.best)
        if not self._grids:
            self._regrid()
        with ThreadPoolExecutor(2) as pool:
            _Run(self, pool, check, most).search()
        return self.best

    def note(self, value: float, prices: FloatArray, per_second: FloatArray) -> None:
        """Keep a bound if it is better."""
        if value > self.best.value:
            self.best = Certificate(min(value, self.limit), prices.copy(), per_second.copy())


class _Run:
    """One call of :meth:`Prover.run`: the current target, the best prices for it, and the box around them."""

    def __init__(
        self, prover: Prover, pool: ThreadPoolExecutor, check: Callable[[Certificate], None], most: int
    ) -> None:
        self.prover = prover
        self.pool = pool
        self.check = check
        self.left = most
        self.top = prover.limit * (1.0 - CLOSE)
        self.possible = prover.limit
        self.target = self._next_target()
        self.prices, self.load_prices = _averaging_prices(prover.bundles, self.target)
        self.ratio = 0.0
        self.radius = 0.25
        self.slow = 0
        self.since_grid = 0
        self.grids = 0
        self.master = Master(prover.bundles.classes, prover._counts, self.target)
        self.told = 0

    def _next_target(self) -> float:
        proven = self.prover.best.value
        return min(proven + STRIDE * (self.possible - proven), self.top)

    def search(self) -> None:
        """Rounds until the bound is as good as it gets."""
        prover = self.prover
        try:
            self._centre(more=True)
            while self.left > 0 and not self._finished():
                self.left -= 1
                prover.iterations += 1
                self.check(prover.best)
                if self.ratio > 1.0:
                    self._excluded()
                    continue
                duals = self._solve()
                if duals is None:
                    return
                gained = self._step(duals)
                self._adapt(duals, gained)
        finally:
            self.master.close()

    def _finished(self) -> bool:
        proven = self.prover.best.value
        return proven >= self.top * (1.0 - 1e-12) or self.possible - proven <= NARROW * self.possible

    def _centre(self, *, more: bool = False, exact: int = EXACT) -> None:
        """Price at the best prices so far, for the present target and grids."""
        prover = self.prover
        priced = prover._price(
            prover._tables[0], self.prices, self.load_prices, self.target, more=more, exact=exact
        )
        self._note(priced, self.prices, self.load_prices)
        self.prices, self.load_prices = self.prices * priced.scale, self.load_prices * priced.scale
        self.ratio = priced.ratio

    def _note(self, priced: _Priced, prices: FloatArray, load_prices: FloatArray) -> None:
        prover = self.prover
        value = max(priced.reached, self.target if priced.ratio > 1.0 else 0.0)
        prover.note(value, prices, load_prices / self.target)
        for k, path, doubtful in priced.columns:
            prover._remember(k, path, doubtful=doubtful)

    def _solve(self) -> Duals | None:
        prover = self.prover
        self.master.add(prover._columns[self.told :])
        self.told = len(prover._columns)
        width = self.radius * prover._scale
        duals = self.master.solve(self.prices - width, self.prices + width, prover._live(self.target))
        if duals is not None:
            for i in np.flatnonzero(duals.weight > 1e-9).tolist():
                column = prover._columns[i]
                prover._usage[column.kind][column.path] += duals.weight[i] * (
                    10.0 if column.load > self.target else 1.0
                )
        return duals

    def _step(self, duals: Duals) -> float:
        """Price on the way to the master's prices and move to the best point; returns by how much the
        ratio rose."""
        prover = self.prover
        points = [
            (
                self.prices + step * (duals.prices - self.prices),
                np.maximum(self.load_prices + step * (duals.load_prices - self.load_prices), 0.0),
            )
            for step in STEPS
        ]

        def price(part: Iterable[int], tables: list[Table]) -> list[_Priced]:
            return [prover._price(tables, *points[i], self.target, more=i == 0) for i in part]

        halves = list(self.pool.map(price, ([0], [1, 2, 3]), prover._tables))
        before = self.ratio
        for priced, (prices, load_prices) in zip([*halves[0], *halves[1]], points, strict=True):
            self._note(priced, prices, load_prices)
            if priced.ratio > self.ratio + 1e-9:
                self.ratio = priced.ratio
                self.prices, self.load_prices = prices * priced.scale, load_prices * priced.scale
        return self.ratio - before

    def _adapt(self, duals: Duals, gained: float) -> None:
        """The box, the grids, and whether the target is out of reach of the master."""
        prover = self.prover
        foreseen = duals.value - (self.ratio - gained)
        if foreseen < 1e-5:
            # Nothing to gain within the box: only a larger one can tell whether there is anything at all.
            self.radius *= 4.0
        elif gained > 0.3 * foreseen:
            self.radius *= 1.6
        elif gained < 0.1 * foreseen:
            self.radius *= 0.6
        self.slow = self.slow + 1 if gained < 1e-4 * (1.0 - self.ratio) or foreseen < 1e-5 else 0
        self.since_grid += 1
        if self.ratio > 1.0 or duals.value > 1.0 + 1e-7:
            return
        used = np.flatnonzero(duals.weight > 1e-6)
        doubtful = any(prover._columns[i].load > self.target for i in used.tolist())
        if doubtful and self.since_grid >= 3 and (not duals.boxed or self.slow >= 3 or self.since_grid >= 10):
            self.grids += 1
            if self.grids % 3 == 0:
                prover.refine()
            prover._regrid()
            self.since_grid = 0
            self._recentre(self.target)
        elif not doubtful and not duals.boxed:
            self.possible = min(self.possible, self.target)
            self._recentre(self._next_target())
        elif self.slow >= 40:
            self.left = 0

    def _excluded(self) -> None:
        """The target is proven out of reach: try the limit itself, then go on between the two."""
        self.target, target = self.top, self.target
        self.load_prices = self.load_prices * (self.top / target)
        self._centre(exact=EXACT_AT_LIMIT)
        if self.ratio <= 1.0:
            self._recentre(self._next_target())

    def _recentre(self, target: float) -> None:
        if target != self.target:
            self.grids = 0
        self.load_prices = self.load_prices * (target / self.target)
        self.target = target
        self.master.retarget(target)
        self.slow = 0
        self.radius = min(max(self.radius, 0.02), 2.0)
        self._centre()


def _averaging_prices(bundles: Bundles, target: float) -> tuple[FloatArray, FloatArray]:
    """Prices of the load dual: (π, λ per T) with weights w_k of the devices, π_c = min_k w_k time[c, k]
    and λ_k = w_k T."""
    kinds, classes = len(bundles.kinds), bundles.classes
    time = np.stack([kind.time for kind in bundles.kinds], axis=1)
    scale = float(time[np.isfinite(time)].mean()) if np.isfinite(time).any() else 0.0
    counts = np.array([kind.number for kind in bundles.kinds], np.float64)
    if scale <= 0.0:
        return np.full(classes, 1.0 / classes), np.zeros(kinds)
    c, k = np.nonzero(np.isfinite(time))
    row = np.arange(len(c))
    matrix = coo_array(
        (
            np.concatenate([np.ones(len(c)), -time[c, k] / scale]),
            (np.concatenate([row, row]), np.concatenate([c, classes + k])),
        ),
        shape=(len(c), classes + kinds),
    )
    solve: Any = linprog  # its stubs know no sparse matrices
    found = solve(
        np.concatenate([-np.ones(classes), np.zeros(kinds)]),
        A_ub=matrix.tocsr(),
        b_ub=np.zeros(len(c)),
        A_eq=np.concatenate([np.zeros(classes), counts])[None, :],
        b_eq=[1.0],
    )
    if found.status != 0:
        return np.full(classes, 1.0 / classes), np.zeros(kinds)
    weight = np.maximum(found.x[classes:], 0.0)
    prices = np.where(np.isfinite(time), weight * np.where(np.isfinite(time), time, 0.0), np.inf).min(axis=1)
    return prices, weight * target


def _price_scales(bundles: Bundles, limit: float) -> FloatArray:
    """(classes,) how far prices may be expected to move: what a class and its nets weigh, in units of the
    mean price."""
    counts = np.array([kind.number for kind in bundles.kinds])
    kind = bundles.kinds[int(counts.argmax())]
    weight = np.where(np.isfinite(kind.time), kind.time, 0.0)
    cut = np.maximum(kind.send, kind.recv)
    if len(cut):
        np.add.at(weight, bundles.pin, np.repeat(cut, np.diff(bundles.pin_ptr)))
    weight = weight * (bundles.classes / (limit * counts.sum()))
    floor = 0.01 * weight.mean() if weight.mean() > 0 else 1.0
    scales: FloatArray = np.maximum(weight, floor)
    return scales
