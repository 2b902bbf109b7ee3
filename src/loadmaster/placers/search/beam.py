"""Beam search over list schedules, then local search over placement and order."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from loadmaster.placers.frame.atoms import judges_peak
from loadmaster.placers.frame.constructed import scheduled
from loadmaster.placers.frame.feasible import atoms_of, find_feasible
from loadmaster.placers.frame.search import Budget, Search
from loadmaster.placers.frame.searcher import Searcher
from loadmaster.placers.rules.heft import heft_placements
from loadmaster.placers.rules.lookahead import lookahead_schedule
from loadmaster.placers.search._beam_kernel import beam_schedules
from loadmaster.placers.search._chains import new_chain
from loadmaster.placers.search._order_walk import OrderWalk
from loadmaster.placers.search._walkers import Starts
from loadmaster.placers.search.local_search import IteratedWalker, LocalSearch
from loadmaster.problem import Concurrent, Placement, Problem, SimulatedEvaluator, evaluate

__all__ = ["Beam"]


WEIGHTS = ((1.0, 0.03, 0.02, 0.0), (1.0, 1.0, 0.0, 0.3), (0.3, 1.0, 0.3, 0.0), (1.0, 1.0, 0.0, 1.0))
"""What schedules are compared by: the optimistic end of all ops so far, that of the last op, the work and the
busy or idle time per device. None is best for all graphs, so all are tried."""
OPS_EXPANDED = 300_000
"""Widths are such that one beam appends at most so many ops."""
STUCK = 20
"""A walk ends after so many evaluations without improvement per atom and device."""
FIRST_TURN = 1000
"""Evaluations of the first local search between two walks; each has twice as many as the one before."""


@dataclass(frozen=True)
class Beam(Searcher):
    """Many list schedules in parallel, the most promising kept, and then improved.

    The beams are compared by PEFT's optimistic cost of what follows, in four ways. From the best schedule of
    all (HEFT's and lookahead's included) a walk moves ops to other devices and to other turns in the
    sequence. When it is stuck, local search over the devices finds it another start, as long as the budget lasts.

    References
    ----------
    P. S. Ow, T. E. Morton, "Filtered beam search in scheduling", Int. J. Production Research 26(1), 1988;
    H. Arabnejad, J. G. Barbosa, IEEE TPDS 25(3), 2014, for the costs that guide it.
    """

    width: int = 64
    """Schedules kept at a time; fewer on large graphs."""

    keeps_start: ClassVar[bool] = True
    name: ClassVar[str] = "beam"
    summary: ClassVar[str] = "beam search over schedules, then local search over placement and order"
    unlimited: ClassVar[Budget] = Budget(seconds=10.0)
    exhausts: ClassVar[bool] = True

    def supports(self, problem: Problem) -> str | None:
        """Only ``concurrent``: the other models have no schedule."""
        if isinstance(problem.model, Concurrent):
            return None
        return f"beam builds a schedule, but the {problem.model.name} model has none: use --model concurrent"

    def explore(self, search: Search, start: Placement | None, seed: int) -> None:
        """Search until the budget is used up (10 seconds if it sets no limit)."""
        problem = search.problem
        check = SimulatedEvaluator(problem)
        if start is not None and check.evaluate(start).feasible:
            search.try_placement(start)
            search.check()
        own, least = None, math.inf
        for placement in self._candidates(problem):
            if check.evaluate(placement).feasible:
                cost = search.try_placement(placement)
                own, least = (placement, cost) if cost < least else (own, least)
                search.check()
        if search.best is None:
            find_feasible(search, seed)
            search.check()
        assert search.best is not None
        if search.simulated and problem.n:
            self._improve(search, search.best if own is None else own, seed)

    def _candidates(self, problem: Problem) -> Iterator[Placement]:
        if problem.n:
            yield from heft_placements(problem)
            yield from scheduled(problem, *lookahead_schedule(problem))
            width = max(1, min(self.width, OPS_EXPANDED // problem.n // problem.devices))
            for weights in WEIGHTS:
                for device, begin in beam_schedules(problem, width, 4, problem.priority_order, weights):
                    yield from scheduled(problem, device, begin)

    def _improve(self, search: Search, placement: Placement, seed: int) -> None:
        """Walks over placement and order, each time one is stuck from another placement that local search has found.

        The first begins at what the beams have found, even where a better placement was given: that mostly has no
        order, and walks from there end higher.

        Peak memory depends on the order, so a walk over orders strays into what does not fit, and nothing of that is
        kept: with ``memory="peak"`` local search comes first.
        """
        assert search.best is not None
        problem = search.problem
        starts = Starts(problem, [search.best.device], seed, fallback=search.best.device)
        chain = new_chain(problem, seed, search.evaluator)
        beside = IteratedWalker(LocalSearch(), chain, starts, problem)
        patience = STUCK * (atoms_of(problem).count * problem.devices + 50)
        slice_size = max(2, min(2000, 1_000_000 // (problem.n + problem.graph.edges + 1)))
        turn = FIRST_TURN
        if judges_peak(problem):
            placement = self._local(search, beside, turn, slice_size)
        while True:
            if not self._ordered(search, placement, seed, patience, slice_size):
                return
            turn, seed = 2 * turn, seed + 1
            placement = self._local(search, beside, turn, slice_size)

    def _ordered(
        self, search: Search, placement: Placement, seed: int, patience: int, slice_size: int
    ) -> bool:
        """A walk over placement and order until it is stuck; False if there is nothing to try."""
        begin = evaluate(search.problem, placement).start
        assert begin is not None
        walk = OrderWalk(search.problem, placement.device, begin, seed)
        reached, idle = math.inf, 0
        while idle < patience:
            made = walk.advance(min(slice_size, search.evaluations_left))
            search.count(made)
            idle += made
            if walk.cost < reached * (1 - 1e-12):
                reached, idle = walk.cost, 0
                if reached < search.cost:
                    search.confirm(walk.placement, walk.cost)
            search.check()
            if made < 2:
                return False
        return True

    def _local(self, search: Search, walker: IteratedWalker, evaluations: int, slice_size: int) -> Placement:
        """Go on with a local search over placements, for so many evaluations; where it stands then."""
        left = evaluations
        while left > 0:
            made = walker.walk(min(slice_size, left, search.evaluations_left))
            search.count(made)
            left -= max(made, 1)
            if walker.chain.best_cost < search.cost:
                search.confirm(Placement(walker.chain.best.copy()), walker.chain.best_cost)
            search.check()
            if made == 0:
                break
        return Placement(walker.chain.device.copy())
