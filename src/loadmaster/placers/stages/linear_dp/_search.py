"""Searching for a good chain by cutting topological orders: many orders first, then better ones from the best
chains.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from loadmaster.arrays import IntArray, LongArray
from loadmaster.placers.frame.search import OutOfBudget, Search
from loadmaster.placers.stages._chain import Stages, chain_loads
from loadmaster.placers.stages._contraction import Contracted
from loadmaster.placers.stages._objective import cheapest
from loadmaster.placers.stages._windows import chain_bound, windows_of
from loadmaster.placers.stages.linear_dp._kernel import best_cut
from loadmaster.placers.stages.linear_dp._orders import some_order
from loadmaster.placers.stages.linear_dp._stage_moves import improve_stages
from loadmaster.problem import Pipeline, Placement

__all__ = ["FINE", "LinearSearch"]


THREADS = 2
"""Orders or chains that are worked on side by side. A constant, not the number of cores, so that runs repeat
on any machine.
"""
FINE = 1500
"""Up to so many atoms an order may be cut everywhere."""
COARSE = 500
"""Else it is cut at so many places first, and then anywhere near the places chosen."""
GUESSES = (1.3, 2.0, 6.0, math.inf)
"""Costs that are tried as a limit, relative to the lower bound, while no chain is known."""
NEAR = 1.1
"""Chains that cost so much more than the best are still looked at."""
KEPT = 4
"""Chains that are improved in turn."""


@dataclass
class _Chain:
    cost: float
    stages: Stages


class LinearSearch:
    """One search; what it finds is offered to ``search``.

    ``contracted`` may belong to a coarser problem: ``expand`` then makes devices of its groups devices of the
    ops.
    """

    def __init__(
        self,
        search: Search,
        contracted: Contracted,
        seed: int,
        expand: Callable[[IntArray], IntArray] = lambda device: device,
    ) -> None:
        self._search = search
        self._contracted = contracted
        self._seed = seed
        self._expand = expand
        self._windows = windows_of(contracted)
        floors = self._windows.floors(contracted.tables.loads)
        self.floors = (max(floors[0], search.bound.value),) if len(floors) == 1 else floors
        self._low = max(sum(floors), search.bound.value)
        self._kept: list[_Chain] = []
        self._orders = 0
        self._rounds = 0
        self._one_at_a_time = threading.Lock()
        self._left_behind = False

    @property
    def cost(self) -> float:
        """Cost of the best chain found, by the execution model; infinite if there is none."""
        return self._kept[0].cost if self._kept else math.inf

    @property
    def placements(self) -> list[IntArray]:
        """(n,) devices of the best chains, the best first."""
        return [self._expand(self._contracted.devices_of(chain.stages)) for chain in self._kept]

    def bound_chains(self) -> None:
        """Tell the search what no chain costs less than, if it is chains that are asked for."""
        model = self._search.problem.model
        if isinstance(model, Pipeline) and model.contiguity == "chain":
            known, bound = self._search.bound, chain_bound(self._contracted)
            self._search.bound = max(known, bound, key=lambda bound: bound.value)

    def adopt(self, device: IntArray) -> None:
        """Go on from a placement, if it is a chain of these atoms: what is one of groups may split an atom."""
        stages = self._contracted.stages_of(device)
        if sum(len(members) for members, _ in stages) < self._contracted.atoms:
            return  # devices that wait for each other are in no order
        self._learnt(_Chain(float(chain_loads(self._contracted, stages).max(axis=0).sum()), stages), 1)

    def cut_orders(self, orders: int) -> None:
        """Cut so many topological orders, each as well as possible."""
        if not self._contracted.atoms:
            return self._learnt(_Chain(0.0, []), 1)
        with self._pool() as pool:
            for first in range(0, orders, THREADS):
                self._check()
                numbers = range(self._orders, self._orders + min(THREADS, orders - first, self._left()))
                self._orders += len(numbers)
                for chain in pool.map(self._cut_order, numbers):
                    self._learnt(chain, 1)

    def cut_at(self, order: IntArray, places: LongArray | None = None) -> None:
        """Cut one given order, at the given places only, as well as possible."""
        if not len(order):
            return self._learnt(_Chain(0.0, []), 1)
        self._check()
        self._learnt(self._cut_guessing(order, places), 1)

    def improve(self, rounds: int) -> None:
        """Move atoms between stages and cut the order that results, until so many rounds in a row have
        brought nothing.
        """
        failed = 0
        with self._pool() as pool:
            while failed < rounds and self._kept:
                self._check()
                before = self.cost
                moves = min(max(20_000, 30 * self._contracted.atoms), 2_000_000, self._left() // THREADS - 1)
                if moves < 1:
                    return
                bases = [self._kept[(self._rounds + i) % len(self._kept)] for i in range(THREADS)]
                numbers = range(self._rounds, self._rounds + THREADS)
                self._rounds += THREADS
                for chain, made in pool.map(self._improve, bases, numbers, [moves] * THREADS):
                    self._learnt(chain, made + 1)
                failed = 0 if self.cost < before * (1 - 1e-9) else failed + 1

    # -- one chain -------------------------------------------------------------------------------------------

    def _cut_order(self, number: int) -> _Chain | None:
        order = some_order(self._contracted, number, self._seed)
        if len(order) <= FINE:
            return self._cut_guessing(order, None)
        chain = self._cut_guessing(order, self._cheap_places(order))
        return None if chain is None else self._cut_near(order, chain)

    def _cut_guessing(self, order: IntArray, places: LongArray | None) -> _Chain | None:
        """Cut with a limit a little above the best known cost, so that chains to improve on are found as
        well.
        """
        limits = [self.cost] if self._kept else [self._low * guess for guess in GUESSES[:-1]] + [math.inf]
        for limit in limits:
            chain = self._cut(order, places, NEAR * limit) if limit > 0 else None
            if chain is not None:
                return chain
        return None

    def _improve(self, base: _Chain, number: int, moves: int) -> tuple[_Chain, int]:
        temperature = (0.0, 0.003, 0.01, 0.03)[number // THREADS % 4]
        seed = int(np.random.SeedSequence([self._seed, 1, number]).generate_state(1)[0])
        stages, made = improve_stages(self._contracted, base.stages, seed, moves, temperature)
        chain = _Chain(float(chain_loads(self._contracted, stages).max(axis=0).sum()), stages)
        order = np.concatenate([atoms for atoms, _ in stages])
        if len(order) > FINE:
            return self._cut_near(order, chain), made
        return self._cut(order, None, chain.cost) or chain, made

    def _cut_near(self, order: IntArray, chain: _Chain) -> _Chain:
        """The chain, or a better one that is cut near the same places of the order."""
        places = np.cumsum([0, *(len(atoms) for atoms, _ in chain.stages)])
        reach = max(10, COARSE // len(places))
        near = (places[:, None] + np.arange(-reach, reach + 1)).ravel()
        return self._cut(order, np.unique(np.clip(near, 0, len(order))), chain.cost) or chain

    def _cut(self, order: IntArray, places: LongArray | None, limit: float) -> _Chain | None:
        def solve(*, limit: float, ceiling: float, floor: float) -> tuple[float, Stages] | None:
            return best_cut(
                self._contracted, self._windows, order, places,
                limit=limit, ceiling=ceiling, floor=floor, check=self._look_at_clock,
            )  # fmt: skip

        found = cheapest(self._contracted, solve, limit, self.floors)
        if found is None:
            return None
        return _Chain(float(chain_loads(self._contracted, found[1]).max(axis=0).sum()), found[1])

    def _cheap_places(self, order: IntArray) -> LongArray:
        """Places to cut at: of each of some stretches of equal work the one that the least communication
        crosses.
        """
        tables, n = self._contracted.tables, len(order)
        position = np.empty(n, np.int64)
        position[order] = np.arange(n)
        at = position[tables.pin]
        weight = (tables.send + tables.recv).max(axis=1, initial=0.0)
        change = np.zeros(n + 1)
        if len(weight):
            np.add.at(change, np.minimum.reduceat(at, tables.pin_ptr[:-1]) + 1, weight)
            np.add.at(change, np.maximum.reduceat(at, tables.pin_ptr[:-1]) + 1, -weight)
        crossing = np.cumsum(change)
        work = np.where(np.isfinite(tables.time), tables.time, 0.0).sum(axis=1)[order]
        done = np.cumsum(work + work.mean() / 10 + 1e-300)
        stretch = np.append(0, np.minimum((done / done[-1] * COARSE).astype(np.int64), COARSE - 1))
        by_cost = np.lexsort((crossing, stretch))
        first = np.unique(stretch[by_cost], return_index=True)[1]
        return np.unique(np.concatenate([[0], by_cost[first], [n]]))

    # -- the clock -------------------------------------------------------------------------------------------

    @contextmanager
    def _pool(self) -> Iterator[ThreadPoolExecutor]:
        """Threads that end at their next look at the clock when the block is left early."""
        with ThreadPoolExecutor(THREADS) as pool:
            try:
                yield pool
            except BaseException:
                self._left_behind = True
                raise

    def _look_at_clock(self) -> None:
        """While one thread waits for the search's turn, the other stands still as well."""
        with self._one_at_a_time:
            if self._left_behind:
                raise OutOfBudget
            self._search.between_steps()

    # -- book-keeping ----------------------------------------------------------------------------------------

    def _left(self) -> int:
        """Evaluations that are left, at least one while there is no answer."""
        left = self._search.evaluations_left
        return left if self._search.best is not None else max(left, 1)

    def _check(self) -> None:
        self._search.check()

    def _learnt(self, chain: _Chain | None, evaluations: int) -> None:
        if self._search.simulated:
            self._search.count(evaluations)
        if chain is None:
            return
        better = chain.cost < self.cost
        if all(abs(chain.cost - kept.cost) > 1e-9 * chain.cost for kept in self._kept):
            self._kept = sorted([*self._kept, chain], key=lambda kept: kept.cost)[:KEPT]
        if better:
            placement = Placement(self._expand(self._contracted.devices_of(chain.stages)))
            if self._search.simulated:
                self._search.confirm(placement, chain.cost)
            elif self._left() > 0:
                self._search.try_placement(placement)
