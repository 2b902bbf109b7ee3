"""Cutting topological orders into stages: the throughput problem for graphs with too many ideals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from loadmaster.arrays import IntArray
from loadmaster.placers.frame.feasible import find_feasible
from loadmaster.placers.frame.search import Search
from loadmaster.placers.frame.searcher import Searcher
from loadmaster.placers.stages._contraction import contract, no_chains, without_weightless
from loadmaster.placers.stages.linear_dp._search import FINE, LinearSearch
from loadmaster.problem import Placement, Problem
from loadmaster.problem.coarsening import Coarsening, coarsen

__all__ = ["LinearDp"]


LARGE_ORDERS = 4
"""Topological orders of a large graph itself to cut, beside those of its coarsenings."""


@dataclass(frozen=True)
class LinearDp(Searcher):
    """Many topological orders, each cut into stages as well as possible, then local search over the order.

    Solves ``pipeline`` for graphs with too many ideals: not exact (the best order may not be among those tried),
    with a lower bound for chains.

    Cutting one order is a dynamic program over (place of the cut, devices used of each kind), exact for that
    order. Then atoms move between the stages of the best chains, which is a new order, and that is cut again,
    until nothing gets better. Every answer is a chain, and so satisfies every setting of ``contiguity``.

    A graph of more than 1,500 atoms is searched coarsened first, and what is found there is then improved atom
    by atom. Orders of more than 1,500 atoms are cut in two steps: first at 500 places, of each of 500 stretches
    of equal work the one that the fewest transfers cross; then anywhere near the places chosen.

    Complexity: O(cuts * longest stage * (degree + states)) per order.

    References
    ----------
    J. Tarnawski et al., "Efficient algorithms for device placement of DNN graph operators", NeurIPS 2020
    (DPL, the linearised program).
    """

    orders: int = 24
    """Topological orders to cut."""
    rounds: int = 12
    """Rounds of improvement in a row without success before it ends."""
    coarsening: str = "scope:2 chain,matching:1000"
    """Ways to coarsen a large graph, each as ``--coarsen`` takes it."""

    keeps_start: ClassVar[bool] = True
    name: ClassVar[str] = "linear-dp"
    summary: ClassVar[str] = (
        "topological orders cut into stages by dynamic programming, then local search over the order"
    )

    def supports(self, problem: Problem) -> str | None:
        """Only ``pipeline``, and not too many kinds of devices."""
        return no_chains(problem)

    def explore(self, search: Search, start: Placement | None, seed: int) -> None:
        """Search until nothing gets better, or the budget is used up."""
        problem = search.problem
        if start is not None:
            search.try_placement(start)
        contracted = without_weightless(contract(problem))
        linear = LinearSearch(search, contracted, seed)
        linear.bound_chains()
        large = contracted.atoms > FINE
        for spec in self.coarsening.split() if large else ():
            for device in self._coarse(search, coarsen(problem, spec), seed):
                linear.adopt(device)
        linear.cut_orders(LARGE_ORDERS if large else self.orders)
        if search.best is None:
            find_feasible(search, seed)
        linear.improve(self.rounds)

    def _coarse(self, search: Search, coarsening: Coarsening, seed: int) -> list[IntArray]:
        """The best chains of groups, as devices of the ops; none if there are hardly fewer groups than ops."""
        groups = without_weightless(contract(coarsening.coarse))
        if groups.atoms > 0.5 * coarsening.fine.n:
            return []
        linear = LinearSearch(search, groups, seed, lambda device: device[coarsening.group_of])
        linear.cut_orders(self.orders)
        linear.improve(self.rounds)
        return linear.placements
