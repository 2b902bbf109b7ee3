"""Local search on groups of ops, then on smaller groups, then on the ops."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import ClassVar

import numpy as np

from loadmaster.errors import InputError
from loadmaster.placers.frame.search import Budget, Search
from loadmaster.placers.frame.searcher import Searcher
from loadmaster.placers.rules.expert import expert_candidates
from loadmaster.placers.rules.greedy import greedy_candidates
from loadmaster.placers.rules.heft import heft_placements
from loadmaster.placers.search._chains import new_chain
from loadmaster.placers.search._walkers import Starts, Walker, first_start, run_walkers
from loadmaster.placers.search.local_search import IteratedWalker, LocalSearch
from loadmaster.placers.search.multilevel._cycles import Cycles
from loadmaster.problem import Placement

__all__ = ["Multilevel"]


@dataclass(frozen=True)
class Multilevel(Searcher):
    """Search among some forty groups of ops, then among some hundreds, then among all: what helps large graphs.

    Ops that exchange much are put together (heavy edges), and local search moves whole groups. Then the groups are
    taken apart level by level, with local search on each: a V-cycle. The next cycle makes other groups, partly at
    random. Costs are always those of the full graph: groups are colocation classes where time is a schedule
    (``concurrent``, ``offload``), and single ops of a smaller problem with the same costs under ``serial`` and
    ``pipeline``. A second walk, beside the cycles, moves single ops all the time (with ``cycles=2`` it goes through
    other V-cycles). Both begin at the best placement that rules construct.

    Complexity: making the groups is O(edges log edges) per level and cycle; a move costs as much as in
    ``local-search``, or less where groups are contracted.

    References
    ----------
    B. Hendrickson, R. Leland, "A multilevel algorithm for partitioning graphs", Supercomputing 1995. C. Walshaw,
    "Multilevel refinement for combinatorial optimisation problems", Annals of Operations Research 131, 2004.
    """

    small: int = 40
    """Groups of the coarsest level."""
    large: int = 500
    """Groups of the level between that and all ops."""
    kicks: int = 8
    """Kicks in a row without improvement before a level ends."""
    cycles: int = 1
    """Walks that go through V-cycles side by side, 1 or 2; beside one, the other walk moves single ops all the time."""
    finest: bool = True
    """End every cycle with single ops; off, where a move costs too much for that: short searches among groups of all
    sizes, each time others."""
    constructed: bool = True
    """Begin at the best placement that rules construct; off, at the given one."""

    keeps_start: ClassVar[bool] = True
    name: ClassVar[str] = "multilevel"
    summary: ClassVar[str] = "local search on groups of ops, then on smaller ones, then on the ops"
    unlimited: ClassVar[Budget] = Budget(seconds=10.0)
    warm_up_ops: ClassVar[int] = 240  # groups are made from twice as many atoms on
    exhausts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 2 <= self.small <= self.large:
            raise InputError(f"small must be >= 2 and large not below it, not {self.small} and {self.large}")
        if self.cycles not in (1, 2):
            raise InputError(f"cycles must be 1 or 2, not {self.cycles}")
        if self.kicks < 0:
            raise InputError(f"kicks must be >= 0, not {self.kicks}")

    def explore(self, search: Search, start: Placement | None, seed: int) -> None:
        """Search until the budget is used up (10 seconds if it sets no limit)."""
        problem = search.problem
        fallback = first_start(search, start, seed)
        search.check()
        if self.constructed:
            rules = chain(greedy_candidates(problem), expert_candidates(problem))
            for placement in chain(heft_placements(problem), map(Placement, rules)):
                search.try_placement(placement)
                search.check()
        assert search.best is not None
        seeds = np.random.SeedSequence(seed).generate_state(3, np.uint64).tolist()
        single = LocalSearch()
        walkers: list[Walker] = [
            Cycles(search, single, (self.small, self.large), self.kicks, seeds[1 + i], i, self.finest)
            for i in range(self.cycles)
        ]
        if self.cycles == 1:
            starts = Starts(problem, [search.best.device], seeds[0], fallback=fallback)
            walkers.append(
                IteratedWalker(single, new_chain(problem, seeds[2], search.evaluator), starts, problem)
            )
        run_walkers(search, walkers)
