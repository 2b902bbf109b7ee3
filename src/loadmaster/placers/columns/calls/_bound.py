"""A bound on ``offload`` latency by column generation over calls, for one line at a time.

Let P be a line (``_lines.py``) with f_c CPU seconds for class c, and w any worths of the classes with
w_c <= f_c. The calls S_1, S_2, … of a placement are disjoint, so its time is at least

    Σ_i seconds(S_i) [S_i meets P] + Σ_{c in no call} f_c  >=  Σ_c w_c - Σ_i (w(S_i) - seconds(S_i) [S_i meets P]),

and the calls of one accelerator take away no more than the most that calls within its memory can be worth,
which pricing finds (``_pricing.py``). A call off the line takes nothing away, as w <= 0 there. Worths come
from a master program; any are valid.

References
----------
P. Gilmore, R. Gomory, "A linear programming approach to the cutting-stock problem", Operations Research 1961.
R. Marsten, W. Hogan, J. Blankenship, "The boxstep method for large-scale optimization", Operations Research 1975
(worths stay in a box around the best so far). P. Wentges, "Weighted Dantzig-Wolfe decomposition for linear
mixed-integer programming", ITOR 1997 (points between the best and the new worths are priced).
"""

from __future__ import annotations

import numpy as np

from loadmaster.arrays import BoolArray, FloatArray, IntArray
from loadmaster.placers.columns._nets import Bundles, loads_of
from loadmaster.placers.columns._order import costly_nets, narrow_order
from loadmaster.placers.columns.calls._lines import Line
from loadmaster.placers.columns.calls._master import CallMaster, Column, MasterSolution
from loadmaster.placers.columns.calls._pricing import Choice, Pricing
from loadmaster.placers.columns.calls._states import Accelerators, call_states

__all__ = ["CallBound", "call_bound"]


STEPS = (1.0, 0.3)
"""Points between the best worths so far and those of the master at which calls are priced."""
COMPLEMENTS = 7
"""Further calls that are priced each round, disjointly from the best one."""
EFFORT = 2_000
"""Steps of the best-first search behind one pricing."""
CELLS = 2_000_000
"""(state, budget) pairs of a pricing."""
MOST_CELLS = 32_000_000
"""The same after all refinements."""
CLOSE = 1e-7
"""The bound of the master is known well enough at this relative gap."""
ROUNDING = 1e-11
"""Sums of worths are taken to be wrong by this much, relative to the sum of their sizes."""


class CallBound:
    """Searches for worths on one line; :attr:`value` is what they have proven so far, in seconds."""

    def __init__(
        self,
        bundles: Bundles,
        accelerators: list[Accelerators],
        memory: FloatArray,
        line: Line,
        pricings: list[Pricing],
        calls: int,
        limit: float,
    ) -> None:
        self.bundles = bundles
        self.accelerators = accelerators
        self.memory = memory
        self.line = line
        self.pricings = pricings
        self.calls = calls
        self.value = 0.0
        self.possible = np.inf
        self.rounds = 0
        self.columns: list[Column] = []
        self.weight = np.zeros(0)
        self._worth = np.zeros(bundles.classes)
        self._known: set[bytes] = set()
        self._counts = [like.kind.number for like in accelerators]
        self._master = CallMaster(line.seconds, self._counts)
        self._cells = CELLS
        self._effort = EFFORT
        self._radius = 0.25
        weight = np.zeros(bundles.classes)
        for like in accelerators:
            part = np.where(np.isfinite(like.kind.time), like.kind.time, 0.0)
            if len(bundles.producer):
                cut = np.maximum(like.kind.send, like.kind.recv)
                np.add.at(part, bundles.pin, np.repeat(cut, np.diff(bundles.pin_ptr)))
            weight = np.maximum(weight, part)
        room = sum(like.capacity * like.kind.number for like in accelerators)
        per_byte = limit / room if room > 0.0 else 0.0
        weight += per_byte * memory
        self._scale = weight + 0.01 * weight.mean() + 1e-30
        self._worth = np.minimum(line.seconds, per_byte * memory)

    def close(self) -> None:
        """Give the solver's memory back."""
        self._master.close()

    # -- columns ---------------------------------------------------------------------------------------------

    def suggest(self, k: int, inside: BoolArray) -> None:
        """Tell the master of (calls, classes) calls of one accelerator of kind k, if they are possible."""
        pricing = self.pricings[k]
        paths = [pricing.states.path(row) for row in inside]
        if any(path is None for path in paths):
            return
        seconds = float(loads_of(self.bundles, self.accelerators[k].kind, inside).sum())
        self._add(k, Choice(inside, seconds))

    def suggest_intervals(self, order: IntArray, cuts: int) -> None:
        """Tell the master of the intervals of an order between its cheapest positions that fit the memory."""
        n = len(order)
        for k, like in enumerate(self.accelerators):
            position = np.empty(n, np.int64)
            position[order] = np.arange(n)
            open_cost = np.zeros(n + 1)
            where = position[self.bundles.pin]
            if len(self.bundles.producer):
                first = np.minimum.reduceat(where, self.bundles.pin_ptr[:-1])
                last = np.maximum.reduceat(where, self.bundles.pin_ptr[:-1])
                cost = like.kind.send + like.kind.recv
                np.add.at(open_cost, first + 1, cost)
                np.add.at(open_cost, last + 1, -cost)
            open_cost = np.cumsum(open_cost)
            cheapest = np.argsort(open_cost[1:-1], kind="stable")[:cuts] + 1
            at = np.unique(np.concatenate([[0, n], cheapest]))
            size = np.concatenate([[0.0], np.cumsum(self.memory[order])])
            for i, begin in enumerate(at.tolist()):
                for end in at[i + 1 :].tolist():
                    if size[end] - size[begin] > like.capacity:
                        break
                    inside = np.zeros((1, n), np.bool_)
                    inside[0, order[begin:end]] = True
                    self.suggest(k, inside)

    def _add(self, k: int, choice: Choice) -> bool:
        key = bytes([k]) + np.packbits(choice.inside).tobytes()
        if key in self._known:
            return False
        self._known.add(key)
        column = Column(k, choice.inside, choice.seconds)
        self.columns.append(column)
        self._master.add(column)
        return True

    # -- worths ----------------------------------------------------------------------------------------------

    def price(self, worth: FloatArray, complements: int = COMPLEMENTS) -> tuple[float, int]:
        """(bound that these worths prove, number of new columns)."""
        worth = np.minimum(worth, self.line.seconds)
        bound = float(worth.sum()) - ROUNDING * float(np.abs(worth).sum())
        fresh = 0
        for k, pricing in enumerate(self.pricings):
            most, choices = pricing.price(worth, self._effort)
            bound -= self._counts[k] * most * (1.0 + ROUNDING)
            left = worth.copy()
            for i in range(min(self._counts[k], complements + 1)):
                for choice in choices:
                    fresh += self._add(k, choice)
                    inside = choice.inside.any(axis=0)
                    left[inside] = np.minimum(left[inside], 0.0)
                if not choices or i == complements:
                    break
                _, choices = pricing.price(left, self._effort // 10)
        if bound > self.value:
            self.value, self._worth = bound, worth
        return bound, fresh

    def step(self) -> bool:
        """One round; False when there is nothing left to gain on this line."""
        self.rounds += 1
        width = self._radius * self._scale
        solved = self._master.solve(self._worth - width, self._worth + width)
        if solved is None:
            return False
        self.weight = solved.weight
        if not solved.boxed:
            self.possible = solved.value
            if self.value >= solved.value * (1.0 - CLOSE):
                return False
        before, centre = self.value, self._worth
        fresh = 0
        for step in STEPS:
            worth = centre + step * (solved.worth - centre)
            fresh += self.price(worth, COMPLEMENTS if step == 1.0 else 0)[1]
        foreseen, gained = solved.value - before, self.value - before
        if foreseen < CLOSE * solved.value:
            # Nothing to gain within the box: only a larger one can tell whether there is anything at all.
            self._radius *= 4.0
            return True
        if fresh == 0 and gained < 0.5 * foreseen:
            # Nothing but the rounding of memory stands between the two.
            return self._refine(solved)
        if gained > 0.3 * foreseen:
            self._radius *= 1.6
        elif gained < 0.1 * foreseen:
            self._radius *= 0.6
        return True

    def _refine(self, solved: MasterSolution) -> bool:
        """A finer grid and a longer search, above all for the columns in use; False if that is exhausted."""
        self._cells *= 2
        self._effort *= 4
        if self._cells > MOST_CELLS:
            return False
        for j in np.flatnonzero(solved.weight > 1e-6).tolist():
            column = self.columns[j]
            for row in column.inside:
                self.pricings[column.kind].use(row, float(solved.weight[j]))
        for pricing in self.pricings:
            pricing.regrid(self._cells)
        self.price(self._worth)
        return True


def call_bound(
    bundles: Bundles,
    accelerators: list[Accelerators],
    memory: FloatArray,
    line: Line,
    *,
    calls: int,
    limit: float,
    most: int,
    seed: int = 0,
) -> CallBound | None:
    """A search for worths on a line; None if there are more than ``most`` states."""
    order = narrow_order(bundles, costly_nets(bundles), seed, line.classes, work=10_000_000).order
    pricings = []
    for like in accelerators:
        states = call_states(bundles, like, memory, order, line.classes, limit, most)
        if states is None:
            return None
        pricings.append(Pricing(states, like.capacity, calls, CELLS))
    return CallBound(bundles, accelerators, memory, line, pricings, calls, limit)
