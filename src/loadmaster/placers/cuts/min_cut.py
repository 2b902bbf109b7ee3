"""Minimum cuts: the optimal placement under the ``serial`` model for two devices, and good ones for more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from loadmaster.placers.cuts._cut_graph import minimum_cut, two_device_arcs
from loadmaster.placers.cuts._expansion import expand
from loadmaster.placers.cuts._serial_relaxation import Relaxation, relax
from loadmaster.placers.cuts._split import split_bounds
from loadmaster.placers.frame.feasible import (
    Atoms,
    atoms_of,
    find_feasible,
    repair,
    single_devices,
)
from loadmaster.placers.frame.search import Budget, Search
from loadmaster.placers.frame.searcher import Searcher
from loadmaster.placers.search._chains import NetChain
from loadmaster.placers.search._incumbents import borrow, part_of
from loadmaster.placers.search.annealing import Annealing
from loadmaster.placers.search.local_search import LocalSearch
from loadmaster.problem import Placement, Problem, Serial, relative_gap
from loadmaster.problem.bounds import Bound

__all__ = ["MinCut"]

EARLY = 0.25
"""Part of the time that the linear relaxation has before splits: mostly it takes a fraction of a second."""
ENOUGH = 1e-3
"""A relative gap that is not fought for any longer."""

SLICE = 20_000
"""Moves between two looks at the clock."""
SPLITS = 300
"""Cuts for the bound of a split where there is no clock."""
FIGHT = 2000
"""Moves per atom that a search makes at most for the sake of a gap."""


@dataclass(frozen=True)
class MinCut(Searcher):
    """Placement under ``serial`` as a minimum cut: exact for two devices, with a bound for more.

    With two devices the cost is submodular, so a minimum s-t cut is exactly optimal, in milliseconds. Where
    memory does not allow it, the memory is priced (Lagrangian relaxation): every price gives a lower bound,
    and the cut at that price a placement that is repaired if need be. With more devices, expansion moves
    (each a minimum cut) are made until none helps, and a linear relaxation proves how good that is, or branch and
    bound over cuts where like devices must share what none of them can hold (``_split.py``). The algorithm
    on one page, for two devices: :mod:`loadmaster.placers.cuts.plain`.

    Complexity: O(nodes² √arcs) per cut in the worst case, for about three nodes per op, and close to linear on
    operator graphs; one cut for two devices, ``prices`` cuts where their memory is short, and at most ``sweeps``
    cuts per device and start for more. The relaxation has ops · devices + tensors · devices² variables.

    References
    ----------
    H. S. Stone, "Multiprocessor scheduling with the aid of network flow algorithms", IEEE TSE 3(1), 1977 (two
    processors). C. Hu, W. Bao, D. Wang, F. Liu, "Dynamic adaptive DNN surgery for inference acceleration on
    the edge", INFOCOM 2019 (DADS: a device and the cloud). Y. Boykov, O. Veksler, R. Zabih, IEEE TPAMI 2001
    (expansion moves).
    """

    sweeps: int = 20
    """Maximum number of rounds of expansion moves over all devices."""
    prices: int = 40
    """Maximum number of memory prices to try."""
    relaxation: int = 400_000
    """Largest linear relaxation (variables) that is solved for the bound with more than two devices; 0
    turns it off."""

    keeps_start: ClassVar[bool] = True
    name: ClassVar[str] = "min-cut"
    summary: ClassVar[str] = "minimum cut: optimal for two devices, expansion moves for more"
    exhausts: ClassVar[bool] = True

    def supports(self, problem: Problem) -> str | None:
        """Only ``serial``: there the cost is a sum over ops and tensors."""
        if isinstance(problem.model, Serial):
            return None
        return f"min-cut needs costs that add up, unlike those of the {problem.model.name} model: use --model serial"

    def explore(self, search: Search, start: Placement | None, seed: int) -> None:
        """Cut; price the memory where it is short; prove."""
        problem = search.problem
        atoms = atoms_of(problem)
        usable = np.flatnonzero(atoms.allowed.any(axis=0)).tolist() if atoms.count else []
        if start is not None:
            search.try_placement(start)
        if len(usable) < 2:
            find_feasible(search, seed)
        elif len(usable) == 2:
            self._two(search, atoms, (usable[0], usable[1]))
        else:
            self._many(search, atoms, usable)
        if search.best is None:
            find_feasible(search, seed)
            search.check()
        relaxed = None
        if len(usable) > 2 and search.budget.seconds != 0:
            relaxed = self._relaxed(search, atoms, EARLY)
            if search.simulated:
                self._split(search)
            relaxed = relaxed or self._relaxed(search, atoms, 1.0)
        if np.isfinite(problem.capacity).any():
            if relaxed is not None and relaxed.price.any():
                self._priced(search, atoms, usable, relaxed)
            self._polish(search, atoms, seed)
        elif len(usable) > 2 and relative_gap(search.cost, search.bound.value) > ENOUGH:
            self._polish(search, atoms, seed)

    def _relaxed(self, search: Search, atoms: Atoms, part: float) -> Relaxation | None:
        """The linear relaxation, if a part of the time that is left suffices for it, and its bound."""
        search.check()
        relaxed = relax(search.problem, atoms, self.relaxation, part * search.seconds_left)
        if relaxed is not None and relaxed.bound > search.bound.value:
            search.bound = Bound(min(relaxed.bound, search.cost), "linear relaxation")
        return relaxed

    def _split(self, search: Search) -> None:
        """What it costs that like devices must share the work, because one cannot hold it; half of the time at most."""
        enough = search.seconds + 0.5 * search.seconds_left

        def over() -> bool:
            search.check()
            return search.seconds > enough

        most = SPLITS if search.budget.seconds is None else 10**9
        for value in split_bounds(search.problem, lambda: search.cost, over, most):
            if value > search.bound.value:
                search.bound = Bound(min(value, search.cost), "split over like devices")
            search.check()

    def _priced(self, search: Search, atoms: Atoms, usable: list[int], relaxed: Relaxation) -> None:
        """Expansion moves at the prices of memory that the relaxation found, and around them."""
        problem = search.problem
        for factor in (1.0, 1.05, 0.95, 1.2, 0.8, 2.0):
            price = factor * relaxed.price
            at, cost = relaxed.at, np.inf
            for _ in range(self.sweeps):
                before = cost
                for target in usable:
                    search.check()
                    moved = expand(problem, atoms, at, target, price)
                    paid = float((atoms.memory * price[moved]).sum())
                    outcome = search.evaluator.evaluate(Placement(moved[atoms.of_op]))
                    if outcome.cost + paid < cost:
                        at, cost = moved, outcome.cost + paid
                if cost >= before:
                    break
            search.check()
            search.try_device(repair(problem, at[atoms.of_op]))

    def _polish(self, search: Search, atoms: Atoms, seed: int) -> None:
        """A descent by single moves: what a repair displaced, or expansions overlooked, finds a better place.

        Where a gap remains, annealing and then local search have a share of the time.
        """
        search.check()
        if search.simulated and search.best is not None:
            chain = NetChain(search.problem, seed)
            chain.start(search.best.device)
            left = min(search.evaluations_left, 50 * atoms.count * search.problem.devices)
            while left > 0:
                made = chain.advance(min(left, SLICE), 0.0, 1.0)
                search.count(made)
                left -= max(made, 1)
                if chain.best_cost < search.cost:
                    search.confirm(Placement(chain.best), chain.best_cost)
                search.check()
                if made == 0:
                    break
            for searcher in (Annealing(), LocalSearch()):
                if relative_gap(search.cost, search.bound.value) > ENOUGH:
                    share = part_of(search, 0.5, 10.0)
                    most = min(share.evaluations or 2**62, FIGHT * atoms.count)
                    borrow(search, searcher, Budget(share.seconds, most), seed)
                    search.check()

    def _two(self, search: Search, atoms: Atoms, pair: tuple[int, int]) -> None:
        """The exact cut, then prices on the memory of the device that is overfull."""
        problem = search.problem
        price = np.zeros(problem.devices)
        low, high = 0.0, 0.0
        tight = -1
        for _ in range(self.prices):
            cut = minimum_cut(two_device_arcs(problem, atoms, pair, price))
            at = np.where(cut.source_side[: atoms.count], pair[0], pair[1]).astype(np.int32)
            value = cut.value - float(
                (price * np.where(np.isfinite(problem.capacity), problem.capacity, 0.0)).sum()
            )
            if value > search.bound.value:
                name = "min cut" if not price.any() else "min cut with priced memory"
                search.bound = Bound(value * (1 - 1e-12), name)
            used = np.bincount(at, atoms.memory, problem.devices)
            over = np.flatnonzero(used > problem.capacity)
            search.try_device(at[atoms.of_op])
            if len(over):
                search.try_device(repair(problem, at[atoms.of_op]))
            search.check()
            if tight < 0:
                if not len(over):
                    return
                tight = int(over[0])
                high = float(atoms.time[np.isfinite(atoms.time)].mean() / max(atoms.memory.mean(), 1e-300))
            elif tight in over:
                low = price[tight]
                high = max(high, 2 * low)
            else:
                high = price[tight]
            price[tight] = high if price[tight] == low and high > low else 0.5 * (low + high)
            if high - low <= 1e-9 * high:
                return

    def _many(self, search: Search, atoms: Atoms, usable: list[int]) -> None:
        """Expansion moves from the best single device, and from the other single devices, until none
        helps."""
        problem = search.problem
        nothing = np.zeros(problem.devices)
        singles = list(single_devices(problem))
        value = [search.try_device(device) for device in singles[: max(1, search.evaluations_left)]]
        search.check()
        for i in np.argsort(value, kind="stable")[:2].tolist():
            device = singles[i]
            at = np.empty(atoms.count, np.int32)
            at[atoms.of_op] = device
            cost = np.inf
            for _ in range(self.sweeps):
                before = cost
                for target in usable:
                    moved = expand(problem, atoms, at, target, nothing)
                    candidate = Placement(moved[atoms.of_op])
                    outcome = search.evaluator.evaluate(candidate)
                    search.offer(candidate, outcome.value)
                    search.check()
                    if outcome.cost < cost:
                        at, cost = moved, outcome.cost
                        if not outcome.feasible:
                            search.try_device(repair(problem, candidate.device))
                            search.check()
                if cost >= before:
                    break
