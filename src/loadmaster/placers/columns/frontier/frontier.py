"""Pipeline throughput without contiguity: a bound by column generation over bundles, and placements to meet it."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from loadmaster.arrays import IntArray
from loadmaster.placers.columns._nets import Bundles, bundles_of
from loadmaster.placers.columns._order import costly_nets, narrow_order
from loadmaster.placers.columns._states import States, states_of
from loadmaster.placers.columns.frontier._ascent import Ascent
from loadmaster.placers.columns.frontier._exchange import Exchange
from loadmaster.placers.columns.frontier._prover import Certificate, Pricer
from loadmaster.placers.cuts._fair_share import fair_share_bounds
from loadmaster.placers.cuts._sharing import sharing_bound
from loadmaster.placers.cuts._spreading import spreading_bounds
from loadmaster.placers.frame.search import Budget, Search
from loadmaster.placers.frame.searcher import Searcher
from loadmaster.placers.search._incumbents import (
    construct,
    has_room_to_solve,
    left_to_others,
    note_bound,
    part_of,
    quick_answers,
)
from loadmaster.placers.solvers.pipeline.portfolio import first_part, solve_with
from loadmaster.problem import Pipeline, Placement, Problem, relative_gap

__all__ = ["Frontier", "close_gap"]


SHARE, SHARE_LARGE = 0.2, 0.05
"""Part of the time for heavy classes that share a device, at most: where that decides, it does so at once."""
SPREAD, SPREAD_LARGE, LARGE = 0.5, 0.9, 5000
"""Part of the time for flows, before anything else: small graphs need a second of it; and of graphs with more ops,
where other bounds by cuts come to less in any time."""
BALLS = 4000
"""The most of them where there is no clock."""
GLANCE = 0.25
"""Part of the time for bounds by cuts before bundles are priced: they are better where many tensors are open."""
PATIENCE = 60
"""It ends earlier when so many cuts in a row have gained less than"""
GAIN = 1e-3
"""this part of the cost."""
FAIR_CUTS = 300
"""Cuts for them where there is no clock."""
CLOSED = 1e-7
"""A relative gap that is not worth closing further."""


@dataclass(frozen=True)
class Frontier(Searcher):
    """Bounds the largest load by pricing whole bundles, and improves placements by dividing pairs of devices.

    For ``pipeline`` with loads that add up. The bound is that of a linear program over all bundles, on published
    workloads within 1 % of the optimum; where it meets the placement found, that is proven optimal, but this is not
    certain to happen. The bound on one page: :mod:`loadmaster.placers.columns.frontier.plain`.

    The classes are put into an order in which few tensors are open at a time (a path decomposition). Along such
    an order the best bundle for one device under given prices can be found by dynamic programming, although
    its load includes the transfers that it causes. Prices from a master program over bundles then prove that no
    placement has a smaller largest load (``_ascent.py``). Placements come from local search and are
    improved by dividing what two devices hold anew, optimally (``_exchange.py``).

    If the order is too wide for that, CP-SAT and HiGHS have the rest of the budget (local search has it where
    they cannot help: chains, very large graphs), and the bound says so. Contiguity and memory are not part of
    the bound by bundles (they can only raise the optimum); placements respect them.

    Complexity: O(states · steps of the grid) per pricing, with at most 3^width states per class.

    References
    ----------
    J. Tarnawski, A. Phanishayee, N. Devanur, D. Mahajan, F. Nina Paravecino, "Efficient algorithms for device
    placement of DNN graph operators", NeurIPS 2020 (the problem). P. Gilmore, R. Gomory, "A linear programming
    approach to the cutting-stock problem", Operations Research 1961 (bundles as columns).
    """

    max_states: int = 400_000
    """Leave the rest to CP-SAT and HiGHS if a kind of device has more states."""
    rounds: int = 400
    """Maximum number of rounds of column generation in a row."""
    kicks: int = 300
    """The exchange ends after this many kicks in a row without improvement."""

    keeps_start: ClassVar[bool] = True
    name: ClassVar[str] = "frontier"
    summary: ClassVar[str] = (
        "pipeline throughput with a tight bound, by column generation over a narrow frontier"
    )
    unlimited: ClassVar[Budget] = Budget(seconds=60.0)

    def supports(self, problem: Problem) -> str | None:
        """Only ``pipeline`` with loads that add up."""
        model = problem.model
        if not isinstance(model, Pipeline):
            return f"it optimizes pipeline throughput, but the model is {model.name}: use --model pipeline"
        if model.comm != "sum":
            return f"it needs loads that add up (comm sum), not {model.comm}: use exact, milp or cp-sat"
        if model.objective != "sum":
            return f"it needs the objective sum, not {model.objective}: use exact, milp or cp-sat"
        return None

    def explore(self, search: Search, start: Placement | None, seed: int) -> None:
        """Search until the gap is closed or the budget is used up (60 seconds if it sets no limit)."""
        construct(search, start, seed)
        if has_room_to_solve(search):
            quick_answers(search, first_part(search), seed)
            self._share(search)
            self._spread(search, seed)
            self._fair(search, GLANCE, PATIENCE)
            width = close_gap(search, self, seed)
            self._fair(search, 0.4, PATIENCE)
            if width is not None and not left_to_others(search):
                note = f" (a frontier of {width} tensors is too wide)"
                if not solve_with(search, ("milp", "cp-sat"), workers=4, seed=seed, note=note):
                    quick_answers(search, part_of(search, 1.0, math.inf), seed)
        else:
            quick_answers(search, search.budget, seed)

    def _share(self, search: Search) -> None:
        """Whether more heavy classes than devices decide the matter."""
        part = SHARE if search.problem.n <= LARGE else SHARE_LARGE
        enough = search.seconds + part * search.seconds_left

        def over() -> bool:
            search.check()
            return search.seconds > enough

        if search.simulated:
            value = sharing_bound(search.problem, search.bound.value, search.cost, over)
            note_bound(search, value, "heavy classes that share a device")
            search.check()

    def _spread(self, search: Search, seed: int) -> None:
        """What must be carried between like devices that share the work; ends by itself when it gains no more."""
        balls = BALLS if search.budget.seconds is None else 10**9
        part = SPREAD if search.problem.n <= LARGE else SPREAD_LARGE
        enough = search.seconds + part * search.seconds_left

        def over() -> bool:
            search.check()
            return search.seconds > enough

        if search.simulated and search.bound.value < search.cost * (1.0 - CLOSED):
            best = search.bound.value
            for value in spreading_bounds(search.problem, best, lambda: search.cost, over, balls, seed):
                note_bound(search, value, "spread over like devices")
                search.check()

    def _fair(self, search: Search, part: float, patience: int = 10**9) -> None:
        """Whether some device that does its fair share pays for transfers; for a part of the time that is left, or
        until ``patience`` cuts in a row have gained next to nothing."""
        enough = search.seconds + part * search.seconds_left
        vain, reached = 0, search.bound.value

        def over() -> bool:
            nonlocal vain
            search.check()
            vain += 1
            return search.seconds > enough or vain > patience

        if search.simulated and search.bound.value < search.cost * (1.0 - CLOSED):
            cuts = FAIR_CUTS if search.budget.seconds is None else 10**9
            best = search.bound.value
            for value in fair_share_bounds(search.problem, best, lambda: search.cost, over, cuts):
                note_bound(search, value, "fair share and transfers")
                if value > reached + GAIN * search.cost:
                    vain, reached = 0, value
                search.check()


def close_gap(search: Search, settings: Frontier, seed: int) -> int | None:
    """Better placements and better bounds in turn, until they meet or nothing helps any more.

    None, or the number of nets that are open at a time where that is too many.
    """
    problem, model = search.problem, search.problem.model
    assert isinstance(model, Pipeline)
    assert search.best is not None
    bundles = bundles_of(problem)
    order = narrow_order(bundles, costly_nets(bundles), seed)
    states = all_states(bundles, order.order, search.cost, settings.max_states)
    if states is None:
        return int(order.width.max())
    exchange = None
    if model.contiguity == "none":
        exchange = Exchange(problem, bundles, order.order, search.best.device, seed)
        _exchange(search, exchange, settings.kicks // 5, _moment(search, 0.15))
    certificate = Certificate(0.0, np.zeros(problem.classes), np.zeros(len(bundles.kinds)))
    while True:
        limit = search.cost
        states = all_states(bundles, order.order, limit, settings.max_states)
        if states is None:
            return None
        certificate = _prove(search, Pricer(bundles, states, limit), certificate, settings.rounds)
        if exchange is None or relative_gap(search.cost, search.bound.value) <= CLOSED:
            return None
        _exchange(search, exchange, settings.kicks, math.inf)
        # A proof for the old limit ends just below it, which is above the new one's cost.
        if search.cost >= limit * (1.0 - 1e-9):
            return None


def all_states(bundles: Bundles, order: IntArray, limit: float, most: int) -> tuple[States, ...] | None:
    """The states of every kind within a limit; None if one has too many."""
    found = []
    for kind in bundles.kinds:
        states = states_of(bundles, kind, order, limit, most)
        if states is None:
            return None
        found.append(states)
    return tuple(found)


def _moment(search: Search, share: float) -> float:
    """When (in the search's seconds) a share of what is left will be used up."""
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
    """The time for proving is over."""


def _prove(search: Search, pricer: Pricer, start: Certificate, rounds: int) -> Certificate:
    """Look for prices that prove a better bound, in at most three quarters of the time that is left."""
    assert search.best is not None
    until = _moment(search, 0.75)

    def check(certificate: Certificate) -> None:
        note_bound(search, certificate.value, "frontier")
        search.check()
        if search.seconds > until:
            raise _Enough

    proven = Certificate(max(search.bound.value, start.value), start.prices, start.load_prices)
    ascent = Ascent(pricer, proven, check)
    ascent.suggest(search.best.device, search.problem.class_of)
    with contextlib.suppress(_Enough):
        ascent.run(rounds)
    return ascent.best
