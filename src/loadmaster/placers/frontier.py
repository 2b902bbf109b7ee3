"""Pipelined throughput without contiguity: a proven bound by column generation over bundles, and what it
takes to meet it."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from loadmaster.placers._base import parameters
from loadmaster.placers._feasible import prove_infeasible
from loadmaster.placers._frontier_columns import Certificate, Prover
from loadmaster.placers._frontier_exchange import Exchange
from loadmaster.placers._frontier_nets import Bundles, bundles_of
from loadmaster.placers._frontier_order import costly_nets, narrow_order
from loadmaster.placers._frontier_states import States, states_of
from loadmaster.placers._incumbents import construct, has_room_to_solve, quick_answers
from loadmaster.placers._search import Budget, ProgressCallback, Search
from loadmaster.problem import Pipeline, Placement, Problem, Solution
from loadmaster.problem._evaluator import Evaluator
from loadmaster.problem._placement import relative_gap
from loadmaster.problem.bounds import Bound

__all__ = ["Frontier"]

IntArray = npt.NDArray[np.int32]

CLOSED = 1e-7
"""A relative gap that is not worth closing further."""


@dataclass(frozen=True)
class Frontier:
    """Bounds the largest load by pricing whole bundles exactly, and improves placements by dividing pairs of
    devices exactly.

    The classes are put into an order in which few tensors are open at a time (a path decomposition). Along
    such an order the best bundle for one device under any prices is found by dynamic programming, although
    the load of a bundle includes the transfers that it causes; prices from a master program then prove that
    no placement has a smaller largest load (``_frontier_columns.py``). Placements come from local search,
    improved by dividing what two devices hold anew (``_frontier_exchange.py``).

    If the order is too wide for that, the general bound stands and local search goes on. Contiguity and
    memory are not part of the bound (they can only raise the optimum); placements respect them.

    Complexity: O(states · steps of the grid) per pricing, with at most 3^width states per class.

    References
    ----------
    J. Tarnawski, A. Phanishayee, N. Devanur, D. Mahajan, F. Nina Paravecino, "Efficient algorithms for device
    placement of DNN graph operators", NeurIPS 2020 (the problem). P. Gilmore, R. Gomory, "A linear
    programming approach to the cutting-stock problem", Operations Research 1961 (bundles as columns).
    """

    max_states: int = 400_000
    """Give up on the bound if a kind of device has more states."""
    rounds: int = 400
    """Most rounds of column generation."""
    kicks: int = 300
    """The exchange ends after so many kicks in a row without improvement."""

    name: ClassVar[str] = "frontier"
    summary: ClassVar[str] = (
        "pipelined throughput with a tight bound, by column generation over a narrow frontier"
    )

    def supports(self, problem: Problem) -> str | None:
        """Only ``pipeline`` with loads that add up."""
        model = problem.model
        if not isinstance(model, Pipeline):
            return f"it bounds pipelined throughput, and the model is {model.name}: use --model pipeline"
        if model.comm != "sum":
            return f"it needs loads that add up (comm sum), not {model.comm}: use another method"
        if model.objective != "sum":
            return f"it needs the objective sum, not {model.objective}: use another method"
        return None

    def place(
        self,
        problem: Problem,
        *,
        budget: Budget,
        seed: int = 0,
        start: Placement | None = None,
        evaluator: Evaluator | None = None,
        on_progress: ProgressCallback | None = None,
    ) -> Solution:
        """Search until the gap is closed or the budget is used up (60 seconds if it sets no limit)."""
        prove_infeasible(problem)
        if budget == Budget():
            budget = Budget(seconds=60.0)
        with Search(problem, budget, self.name, evaluator, on_progress) as search:
            construct(search, start, seed)
            if not has_room_to_solve(budget):
                quick_answers(search, budget, seed)
                return search.solution(seed, parameters(self))
            quick_answers(search, _part(search, 0.1, 4.0), seed)
            close_gap(search, self, seed)
        return search.solution(seed, parameters(self))


def _part(search: Search, share: float, most: float) -> Budget:
    """A share of what is left: of the seconds, at most ``most``, or of the evaluations."""
    if search.budget.seconds is not None:
        return Budget(seconds=min(share * max(search.seconds_left, 0.0), most))
    return Budget(evaluations=max(search.evaluations_left // 2, 1))


def close_gap(search: Search, settings: Frontier, seed: int) -> None:
    """Better placements and better bounds in turn, until they meet or nothing helps any more.

    Where too many nets are open at a time for the bound, local search has the rest of the budget.
    """
    problem, model = search.problem, search.problem.model
    assert isinstance(model, Pipeline)
    if not search.simulated or problem.n == 0:
        return
    bundles = bundles_of(problem)
    order = narrow_order(bundles, costly_nets(bundles), seed)
    states = _all_states(bundles, order.order, search.cost, settings.max_states)
    if states is None:
        quick_answers(search, _part(search, 1.0, math.inf), seed)
        return
    assert search.best is not None
    exchange = (
        Exchange(problem, bundles, order.order, search.best.device, seed)
        if model.contiguity == "none"
        else None
    )
    if exchange is not None:
        _exchange(search, exchange, settings.kicks // 5, _seconds(search, 0.15))
    while True:
        states = _all_states(bundles, order.order, search.cost, settings.max_states)
        if states is None:
            return
        proven_for = search.cost
        _prove(
            search,
            Prover(bundles, states, search.cost, search.bound.value),
            settings.rounds,
            _seconds(search, 0.75),
        )
        if exchange is None or relative_gap(search.cost, search.bound.value) <= CLOSED:
            return
        _exchange(search, exchange, settings.kicks, math.inf)
        # A proof for the old limit says nothing about what lies just below the new one.
        if search.cost >= proven_for * (1.0 - 1e-9):
            return


def _all_states(bundles: Bundles, order: IntArray, limit: float, most: int) -> tuple[States, ...] | None:
    """The states of every kind; None if one has too many."""
    found = []
    for kind in bundles.kinds:
        states = states_of(bundles, kind, order, limit, most)
        if states is None:
            return None
        found.append(states)
    return tuple(found)


def _seconds(search: Search, share: float) -> float:
    """The moment (in the search's seconds) at which a share of what is left will be used up."""
    return search.seconds + share * search.seconds_left


def _exchange(search: Search, exchange: Exchange, kicks: int, until: float) -> None:
    """Divide pairs of devices, until so many kicks in a row have led to nothing or the moment has come."""
    assert search.best is not None
    exchange.restart(search.best.device)
    idle = 0

    def tell(made: int) -> bool:
        nonlocal idle
        search.count(made)
        idle += 1
        if exchange.cost < search.cost * (1.0 - 1e-12):
            search.confirm(Placement(exchange.best()), exchange.cost)
            idle = 0
        search.check()
        return idle < kicks and search.seconds < until

    exchange.run(tell)


class _Enough(Exception):  # noqa: N818 - it is no error
    """The prover's time is over."""


def _prove(search: Search, prover: Prover, rounds: int, until: float) -> None:
    """Look for prices that prove a better bound."""
    assert search.best is not None
    prover.suggest(search.best.device, search.problem.class_of)

    def check(certificate: Certificate) -> None:
        if certificate.value > search.bound.value:
            # The loads are sums of up to as many numbers as there are ops and edges, in another order.
            search.bound = Bound(min(certificate.value * (1.0 - 1e-12), search.cost), "frontier")
        search.check()
        if search.seconds > until:
            raise _Enough

    with contextlib.suppress(_Enough):
        check(prover.run(check, rounds))
