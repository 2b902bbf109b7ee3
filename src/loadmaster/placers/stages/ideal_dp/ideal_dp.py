"""The optimal chain of stages: dynamic programming over ideals."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from loadmaster.errors import InfeasibleError
from loadmaster.placers.frame.feasible import find_feasible
from loadmaster.placers.frame.search import Search
from loadmaster.placers.frame.searcher import Searcher
from loadmaster.placers.stages._chain import rounding_of
from loadmaster.placers.stages._contraction import Contracted, contract, no_chains, without_weightless
from loadmaster.placers.stages._objective import cheapest
from loadmaster.placers.stages.ideal_dp._ideals import Lattice, count_ideals, lattice_of
from loadmaster.placers.stages.ideal_dp._program import best_chain
from loadmaster.placers.stages.linear_dp._search import LinearSearch
from loadmaster.problem import Pipeline, Placement, Problem
from loadmaster.problem.bounds import Bound

__all__ = ["IdealDp", "count_ideals"]

FITS = 1.0 + 1e-12
"""Bytes are added up in another order than the evaluator does: the proof must not lose an exact fit by
rounding.
"""
IDEALS_A_SECOND = 1_000_000
"""Ideals for which there is time to list them all."""
PAIRS, PAIRS_AN_EVALUATION = 20_000_000, 200_000
"""Pairs of ideals, a second or so, that the dynamic program may look at under a budget of evaluations: some at
any rate, and more for each evaluation. A count, so that a run repeats."""


@dataclass(frozen=True)
class IdealDp(Searcher):
    """The best chain of stages for a pipeline, proven optimal under ``contiguity="chain"``.

    Solves ``pipeline`` with memory, colocation, backward passes, any kinds of devices, both kinds of ``comm`` and
    both objectives. Exact under ``contiguity="chain"`` if it finishes. The algorithm on one page:
    :mod:`loadmaster.placers.stages.ideal_dp.plain`.

    A placement is a chain if the devices can be lined up so that data only flows forward; its prefixes are
    then ideals, and each stage is the difference of two. With dp[I][s] the least possible largest load of a
    chain that covers the ideal I and has used s_k devices of kind k,

        dp[I][s] = min over ideals J < I and kinds k of max(dp[J][s - e_k], load_k(I - J)),    dp[{}][0] = 0.

    The program visits the ideals by size. A chain found by cutting topological orders gives a limit first;
    what exceeds it is not looked at, nor what leaves too much work to the devices that are left
    (``_windows.py``). See ``_kernel.py`` for the walk over J, and ``_front.py`` for what makes it
    cheap on long graphs.

    If there are more than ``max_ideals`` ideals, or the budget does not suffice, the answer is that of the
    topological orders, with a general lower bound. Under another ``contiguity`` a chain is just a feasible
    answer. :func:`count_ideals` says beforehand how many ideals there are, in the contraction that the
    paper's program uses; this one leaves out weightless atoms as well and may visit fewer.

    Complexity: O(P * (degree + states)) for P pairs of ideals between stations (sizes with few ideals), and
    O(ideals) memory.

    References
    ----------
    J. Tarnawski, A. Phanishayee, N. Devanur, D. Mahajan, F. Nina Paravecino, "Efficient algorithms for device
    placement of DNN graph operators", NeurIPS 2020, section 5.1.
    """

    max_ideals: int = 1_000_000
    """Give up if there are more ideals."""
    orders: int = 4
    """Topological orders that are cut for a first answer."""
    more_orders: int = 20
    """How many more it cuts if it gives up, and"""
    rounds: int = 12
    """how many rounds of improvement in a row may then be without success."""

    keeps_start: ClassVar[bool] = True
    name: ClassVar[str] = "ideal-dp"
    summary: ClassVar[str] = "the optimal chain of pipeline stages, by dynamic programming over ideals"

    def supports(self, problem: Problem) -> str | None:
        """Only ``pipeline``, and not too many kinds of devices."""
        return no_chains(problem)

    def explore(self, search: Search, start: Placement | None, seed: int) -> None:
        """A first answer, then the dynamic program until it is finished or the budget is used up."""
        problem = search.problem
        if start is not None:
            search.try_placement(start)
        contracted = without_weightless(contract(problem))
        linear = LinearSearch(search, contracted, seed)
        linear.bound_chains()
        linear.cut_orders(self.orders)
        search.check()
        most = min(self.max_ideals, IDEALS_A_SECOND * max(search.seconds_left, 0.0))
        lattice = lattice_of(contracted, int(most))
        if lattice is not None:
            with contextlib.suppress(_TooManyPairs):
                _solve(search, contracted, lattice, linear)
                if search.best is None:
                    _no_chain(search, seed)
                return
        linear.cut_orders(self.more_orders)
        if search.best is None:
            find_feasible(search, seed)
        linear.improve(self.rounds)


class _TooManyPairs(Exception):  # noqa: N818 - it is no error
    """The dynamic program would take far longer than the budget of evaluations asks for."""


def _solve(search: Search, contracted: Contracted, lattice: Lattice, linear: LinearSearch) -> None:
    """Offer the best chain to the search, with the proof that it is the best."""

    limit = search.budget.evaluations
    most = math.inf if limit is None else PAIRS + PAIRS_AN_EVALUATION * limit
    met = 0

    def check(pairs: int) -> None:
        nonlocal met
        met += pairs
        if met > most:
            raise _TooManyPairs
        search.check()

    def best(capacity: float) -> tuple[float, Placement | None]:
        """Least cost of a chain, and the chain if it is better than what is known."""
        tables = contracted.tables
        widened = replace(contracted, tables=tables._replace(capacity=tables.capacity * capacity))
        solve = partial(best_chain, widened, lattice, check=check)
        found = cheapest(widened, solve, linear.cost, linear.floors)
        if found is None:
            return linear.cost, None
        return found[0], Placement(contracted.devices_of(found[1]))

    cost, placement = best(FITS)
    if placement is not None and search.try_placement(placement) == math.inf:
        _, placement = best(1.0)
        if placement is not None:
            search.try_placement(placement)
    model = search.problem.model
    assert isinstance(model, Pipeline)
    if model.contiguity == "chain" and search.simulated and math.isfinite(cost):
        proved = Bound(max(0.0, cost * (1 - 1e-12) - rounding_of(contracted)), "ideal-dp")
        search.bound = max(search.bound, proved, key=lambda bound: bound.value)


def _no_chain(search: Search, seed: int) -> None:
    """There is no chain at all: under another contiguity there may still be a placement."""
    model = search.problem.model
    assert isinstance(model, Pipeline)
    if model.contiguity == "chain":
        raise InfeasibleError(
            "no placement satisfies all constraints: every chain of stages exceeds a memory or puts an op where "
            "it may not be"
        )
    find_feasible(search, seed)
