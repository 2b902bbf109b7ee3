"""Iterated local search from many starts: the reference that learned methods are compared with."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar, Literal, Protocol

import numpy as np

from loadmaster.arrays import IntArray
from loadmaster.placers.frame.search import Budget, Search
from loadmaster.placers.frame.searcher import Searcher
from loadmaster.placers.rules.expert import expert_candidates
from loadmaster.placers.rules.greedy import greedy_candidates
from loadmaster.placers.rules.heft import heft_placements
from loadmaster.placers.search._chains import Chain, new_chain
from loadmaster.placers.search._walkers import WALKERS, Starts, Walker, first_start, run_walkers
from loadmaster.problem import Placement, Problem

__all__ = ["IteratedWalker", "LocalSearch"]

HUGE = 50_000
"""Ops from which on both walks begin at what rules construct."""
UNSEEN = 1e9
"""A temperature at which every move is accepted."""


@dataclass(frozen=True)
class LocalSearch(Searcher):
    """Descent by moving ops, groups and swaps, with kicks out of local optima and fresh starts.

    Two walks run in parallel: one begins at the best constructed placement, the other at a random one (on very
    large graphs, where a placement is given, at another constructed one). A
    walk descends until nothing has improved for a while, is then kicked (a few moves accepted unseen) and
    descends again; a kick that led to nothing better is taken back, and after ``kicks`` of them in a row the
    walk starts afresh from a random placement.

    References
    ----------
    H. Lourenço, O. Martin, T. Stützle, "Iterated local search", Handbook of Metaheuristics, 2003.
    """

    patience: float = 2.0
    """A descent ends after this many evaluations without improvement, per atom and other device."""
    kick: float = 0.02
    """Share of the atoms that a kick moves (at least three)."""
    kicks: int = 30
    """Kicks in a row without improvement before a fresh start."""
    constructed: bool = True
    """Begin one of the walks at a constructed placement; off, all starts are random."""

    keeps_start: ClassVar[bool] = True
    name: ClassVar[str] = "local-search"
    summary: ClassVar[str] = "iterated local search from many starts"
    unlimited: ClassVar[Budget] = Budget(seconds=10.0)
    exhausts: ClassVar[bool] = True

    def explore(self, search: Search, start: Placement | None, seed: int) -> None:
        """Search until the budget is used up (10 seconds if it sets no limit)."""
        problem = search.problem
        fallback = first_start(search, start, seed)
        search.check()
        given = [] if start is None else [fallback]
        if self.constructed:
            rules = chain(greedy_candidates(problem), expert_candidates(problem))
            for placement in chain(heft_placements(problem), map(Placement, rules)):
                search.try_placement(placement)
                search.check()
            assert search.best is not None
            given = [search.best.device]
        seeds = np.random.SeedSequence(seed).generate_state(2 * WALKERS, np.uint64).tolist()
        walkers: list[Walker] = []
        other = self._other(search) if start is not None else []
        for i in range(WALKERS):
            starts = Starts(problem, given if i == 0 else other, seeds[i], fallback=fallback)
            walkers.append(
                IteratedWalker(
                    self, new_chain(problem, seeds[WALKERS + i], search.evaluator), starts, problem
                )
            )
        run_walkers(search, walkers)

    def _other(self, search: Search) -> list[IntArray]:
        """Where the second walk begins on a very large graph: there is no time to make a random placement good, and
        what is best to begin with need not be where a descent ends best."""
        if search.problem.n <= HUGE:
            return []
        found: list[tuple[float, IntArray]] = []
        for device in expert_candidates(search.problem):
            cost = search.try_device(device)
            search.check()
            if math.isfinite(cost):
                found.append((cost, device))
        return [min(found, key=lambda pair: pair[0])[1]] if found else []


class Origins(Protocol):
    """Where a walk begins, and begins afresh."""

    def next(self) -> IntArray | None:
        """A feasible placement; None where there is no other."""
        ...


class IteratedWalker:
    """The walk of :class:`LocalSearch`; it is over when there is nowhere left to begin afresh.

    The moves are those of ``problem``, which may tie ops that the chain's costs do not.
    """

    def __init__(self, settings: LocalSearch, chain: Chain, starts: Origins, problem: Problem) -> None:
        self.chain = chain
        self._starts = starts
        atoms = int((problem.class_allowed.sum(axis=1) > 1).sum())
        self._patience = max(50, int(settings.patience * atoms * max(problem.devices - 1, 1)))
        self._kick = max(3, int(settings.kick * atoms))
        self._kicks = settings.kicks
        self._state: Literal["fresh", "kick", "descend", "over"] = "fresh"
        self._failed = 0
        self._kick_left = 0
        self._anchor = np.zeros(problem.n, np.int32)
        self._anchor_cost = np.inf

    @property
    def over(self) -> bool:
        """Whether all starts are used up."""
        return self._state == "over"

    def walk(self, evaluations: int) -> int:
        """See :class:`Walker`."""
        made = 0
        while made < evaluations and not self.over:
            left = evaluations - made
            if self._state == "fresh":
                origin = self._starts.next()
                if origin is None:
                    self._state = "over"
                    break
                self.chain.start(origin)
                self._state, self._failed, self._anchor_cost = "descend", 0, np.inf
                made += 1
            elif self._state == "kick":
                step = self.chain.advance(min(left, self._kick_left), UNSEEN, 1.0)
                made += step
                self._kick_left -= step
                if step == 0 or self._kick_left == 0:
                    self.chain.rebase()
                    self._state = "descend"
            elif self.chain.idle < self._patience:
                step = self.chain.advance(min(left, self._patience - self.chain.idle), 0.0, 1.0)
                made += step
                if step == 0:
                    return made
            else:
                made += self._local_optimum()
        return made

    def _local_optimum(self) -> int:
        """Keep it or forget it, and go on from the best of its family; returns the evaluations made."""
        if self.chain.cost < self._anchor_cost * (1 - 1e-9):
            self._anchor[:], self._anchor_cost, self._failed = self.chain.device, self.chain.cost, 0
        else:
            self._failed += 1
        if self._failed > self._kicks:
            self._state = "fresh"
            return 0
        self.chain.start(self._anchor)
        self._state, self._kick_left = "kick", self._kick
        return 1
