"""The search for prices that prove a large bound: column generation with a box around the best prices so far.

For a target T the master program (``_master.py``) gives the best prices under the bundles known so
far, pricing (``_prover.py``) gives the bundles that these prices overlooked, and so on. Left alone this
jumps about; so prices stay in a box around the best ones, which grows while they improve as foreseen and shrinks while
they do not. Pricing is cheap, so that a few points on the way to the master's prices are tried each time.
Targets rise from what is proven towards the cost of a known placement, and stop where the master shows that
a fractional solution exists.

References
----------
R. Marsten, W. Hogan, J. Blankenship, "The boxstep method for large-scale optimization", Operations Research 1975.
P. Wentges, "Weighted Dantzig-Wolfe decomposition for linear mixed-integer programming", ITOR 1997 (points
between the best and the new prices).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array

from loadmaster.arrays import BoolArray, FloatArray, IntArray
from loadmaster.placers.columns._nets import Bundles
from loadmaster.placers.columns._pricing import Table
from loadmaster.placers.columns.frontier._master import Column, Duals, Master
from loadmaster.placers.columns.frontier._prover import EXACT, THOROUGH, Certificate, Met, Priced, Pricer

__all__ = ["Ascent"]


STEPS = (1.0, 0.5, 0.25, 0.1)
"""Points between the best prices so far and those of the master at which bundles are priced."""
DOUBT = 2
"""Rounds for which the master is told of a bundle above the target that pricing could not tell from one within."""
STRIDE = 0.6
"""Where the next target lies between what is proven and what may be possible."""
LAST_STRIDE = 1e-3
"""A target this close to the limit (relative) is moved to the limit."""
CLOSE = 1e-8
"""A bound this close to the limit (relative) is as good as the limit."""
NARROW = 2e-5
"""The search ends when it knows the bound of the master to this precision (relative)."""


class Ascent:
    """Searches for prices; :attr:`best` is what they have proven so far.

    ``start`` is what is proven already, and where to begin (prices of 0 are none).
    """

    def __init__(self, pricer: Pricer, start: Certificate, check: Callable[[Certificate], None]) -> None:
        self.pricer = pricer
        self.best = start
        self.rounds = 0
        self._check = check
        self._classes = pricer.bundles.classes
        self._columns: list[Column] = []
        self._doubted: list[int] = []
        self._known: dict[tuple[int, bytes], int] = {}
        self._told = 0
        self._scales = _price_scales(pricer.bundles, pricer.limit)
        self._top = pricer.limit * (1.0 - CLOSE)
        self._possible = pricer.limit
        self._target = self._next_target()
        self._prices, self._load_prices = start.prices, start.load_prices * self._target
        if not start.prices.any():
            self._prices, self._load_prices = _averaging_prices(pricer.bundles, self._target)
        self._ratio = 0.0
        self._radius = 0.25
        self._slow = self._since_grid = self._grids = 0
        self._tables: list[list[Table]] = []

    def suggest(self, device: IntArray, class_of: IntArray) -> None:
        """Take the bundles of a good placement: their rounding will matter, and the master may use them."""
        for k, kind in enumerate(self.pricer.bundles.kinds):
            for d in kind.devices.tolist():
                inside = np.zeros(self._classes, np.bool_)
                inside[class_of[device == d]] = True
                path = self.pricer.states[k].path(inside)
                if path is not None:
                    self.pricer.use(k, path, 1.0)
                    self._remember(Met(k, path, False))

    def run(self, rounds: int) -> Certificate:
        """At most so many rounds; ``check`` is called in each and may raise to stop."""
        self._check(self.best)
        self._regrid()
        self._master = Master(self._classes, self.pricer.counts, self._target)
        try:
            with ThreadPoolExecutor(2) as pool:
                self._price_here(more=True)
                while rounds > self.rounds and not self._finished():
                    self.rounds += 1
                    self._check(self.best)
                    if self._ratio > 1.0:
                        self._try_limit()
                        continue
                    duals = self._solve()
                    if duals is None or not self._adapt(duals, self._step(duals, pool)):
                        break
        finally:
            self._master.close()
        self._check(self.best)
        return self.best

    def _next_target(self) -> float:
        target = self.best.value + STRIDE * (self._possible - self.best.value)
        # Close to the limit it is all or nothing.
        if self._possible > self._top and target > (1.0 - LAST_STRIDE) * self._top:
            return self._top
        return target

    def _finished(self) -> bool:
        if self.best.value >= self._top * (1.0 - 1e-12):
            return True
        return self._possible <= self._top and self._possible - self.best.value <= NARROW * self._possible

    # -- bundles ---------------------------------------------------------------------------------------------

    def _remember(self, met: Met) -> None:
        key = (met.kind, met.path.tobytes())
        known = self._known.setdefault(key, len(self._columns))
        if known == len(self._columns):
            states = self.pricer.states[met.kind]
            inside = states.inside(met.path, self._classes)
            self._columns.append(Column(met.kind, inside, float(states.load[met.path].sum()), met.path))
            self._doubted.append(-DOUBT - 1)
        if met.doubtful:
            self._doubted[known] = self.rounds

    def _live(self) -> BoolArray:
        """(columns,) the bundles within the target, and for a few rounds those that may be above it."""
        within = np.array([column.load <= self._target for column in self._columns], np.bool_)
        return within | (np.array(self._doubted) >= self.rounds - DOUBT)

    def _note(self, priced: Priced, prices: FloatArray, load_prices: FloatArray) -> None:
        value = max(priced.reached, self._target if priced.ratio > 1.0 else 0.0)
        if value > self.best.value:
            self.best = Certificate(min(value, self.pricer.limit), prices.copy(), load_prices / self._target)
        for met in priced.bundles:
            self._remember(met)

    # -- one round -------------------------------------------------------------------------------------------

    def _price_here(self, *, more: bool = False, exact: int = EXACT) -> None:
        """Price at the best prices so far, for the present target and grids."""
        priced = self.pricer.price(
            self._tables[0], self._prices, self._load_prices, self._target, more=more, exact=exact
        )
        self._note(priced, self._prices, self._load_prices)
        self._prices, self._load_prices = self._prices * priced.scale, self._load_prices * priced.scale
        self._ratio = priced.ratio

    def _solve(self) -> Duals | None:
        for column in self._columns[self._told :]:
            self._master.add(column)
        self._told = len(self._columns)
        width = self._radius * self._scales
        duals = self._master.solve(self._prices - width, self._prices + width, self._live())
        if duals is not None:
            for i in np.flatnonzero(duals.weight > 1e-9).tolist():
                column = self._columns[i]
                urgency = 10.0 if column.load > self._target else 1.0
                self.pricer.use(column.kind, column.path, urgency * float(duals.weight[i]))
        return duals

    def _step(self, duals: Duals, pool: ThreadPoolExecutor) -> float:
        """Price on the way to the master's prices and move to the best point; by how much the ratio rose."""
        points = []
        for step in STEPS:
            prices = self._prices + step * (duals.prices - self._prices)
            load_prices = self._load_prices + step * (duals.load_prices - self._load_prices)
            points.append((prices, np.maximum(load_prices, 0.0)))

        def price(part: Iterable[int], tables: list[Table]) -> list[Priced]:
            return [self.pricer.price(tables, *points[i], self._target, more=i == 0) for i in part]

        halves = list(pool.map(price, ([0], range(1, len(STEPS))), self._tables))
        before = self._ratio
        for priced, (prices, load_prices) in zip([*halves[0], *halves[1]], points, strict=True):
            self._note(priced, prices, load_prices)
            if priced.ratio > self._ratio + 1e-9:
                self._ratio = priced.ratio
                self._prices, self._load_prices = prices * priced.scale, load_prices * priced.scale
        return self._ratio - before

    def _adapt(self, duals: Duals, gained: float) -> bool:
        """Change the box, the grids or the target; False if there is no hope."""
        foreseen = duals.value - (self._ratio - gained)
        if foreseen < 1e-5:
            # Nothing to gain within the box: only a larger one can tell whether there is anything at all.
            self._radius *= 4.0
        elif gained > 0.3 * foreseen:
            self._radius *= 1.6
        elif gained < 0.1 * foreseen:
            self._radius *= 0.6
        self._slow = self._slow + 1 if gained < 1e-4 * (1.0 - self._ratio) or foreseen < 1e-5 else 0
        self._since_grid += 1
        if self._ratio > 1.0 or duals.value > 1.0 + 1e-7:
            return True
        used = np.flatnonzero(duals.weight > 1e-6).tolist()
        if any(self._columns[i].load > self._target for i in used):
            if self._since_grid >= 3 and (not duals.boxed or self._slow >= 3 or self._since_grid >= 10):
                self._grids += 1
                self._regrid(finer=self._grids % 3 == 0)
                self._retarget(self._target)
        elif not duals.boxed:
            self._possible = min(self._possible, self._target)
            self._grids = 0
            self._retarget(self._next_target())
        return self._slow < 40

    def _regrid(self, *, finer: bool = False) -> None:
        self.pricer.regrid(finer=finer)
        self._since_grid = 0
        self._tables = [self.pricer.new_tables() for _ in range(2)]

    def _try_limit(self) -> None:
        """The target is out of reach: see whether the limit itself is, else go on between the two."""
        self._load_prices = self._load_prices * (self._top / self._target)
        self._target = self._top
        self._price_here(exact=THOROUGH)
        if self._ratio <= 1.0:
            self._grids = 0
            self._retarget(self._next_target())

    def _retarget(self, target: float) -> None:
        self._load_prices = self._load_prices * (target / self._target)
        self._target = target
        self._master.retarget(target)
        self._slow = 0
        self._radius = min(max(self._radius, 0.02), 2.0)
        self._price_here()


def _averaging_prices(bundles: Bundles, target: float) -> tuple[FloatArray, FloatArray]:
    """Prices of the load dual: weights w_k of the devices, π_c = min_k w_k time[c, k], and λ_k = w_k per second."""
    kinds, classes = len(bundles.kinds), bundles.classes
    even = np.full(classes, 1.0 / classes), np.zeros(kinds)
    time = np.stack([kind.time for kind in bundles.kinds], axis=1)
    known = np.isfinite(time)
    scale = float(time[known].mean()) if known.any() else 0.0
    if scale <= 0.0:
        return even
    counts = np.array([kind.number for kind in bundles.kinds], np.float64)
    c, k = np.nonzero(known)
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
        return even
    weight = np.maximum(found.x[classes:], 0.0)
    prices = np.where(known, weight * np.where(known, time, 0.0), np.inf).min(axis=1)
    return prices, weight * target


def _price_scales(bundles: Bundles, limit: float) -> FloatArray:
    """(classes,) how far prices may be expected to move: what a class and its nets weigh, in mean prices."""
    counts = np.array([kind.number for kind in bundles.kinds])
    kind = bundles.kinds[int(counts.argmax())]
    weight = np.where(np.isfinite(kind.time), kind.time, 0.0)
    if len(bundles.producer):
        cut = np.maximum(kind.send, kind.recv)
        np.add.at(weight, bundles.pin, np.repeat(cut, np.diff(bundles.pin_ptr)))
    weight = weight * (bundles.classes / (limit * counts.sum()))
    floor = 0.01 * float(weight.mean()) if weight.any() else 1.0
    scales: FloatArray = np.maximum(weight, floor)
    return scales
