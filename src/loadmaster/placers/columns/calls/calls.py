"""Latency of the ``offload`` model: chains of calls, and a bound by column generation over calls."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from loadmaster.arrays import IntArray
from loadmaster.errors import NoPlacementError
from loadmaster.placers.columns._nets import Bundles
from loadmaster.placers.columns.calls._bound import CallBound, call_bound
from loadmaster.placers.columns.calls._chain import CallChains
from loadmaster.placers.columns.calls._lines import line_of, some_lines
from loadmaster.placers.columns.calls._rounding import calls_of, rounded
from loadmaster.placers.columns.calls._states import Accelerators, accelerators_of
from loadmaster.placers.frame.feasible import first_feasible
from loadmaster.placers.frame.search import Budget, OutOfBudget, Search
from loadmaster.placers.frame.searcher import Searcher
from loadmaster.placers.search._incumbents import (
    borrow,
    construct,
    has_room_to_solve,
    note_bound,
    part_of,
    quick_answers,
)
from loadmaster.placers.search.local_search import LocalSearch
from loadmaster.placers.solvers.offload import solve_offload
from loadmaster.problem import Offload, Placement, Problem, relative_gap

__all__ = ["Calls", "chain_calls", "prove_calls"]


CLOSED = 1e-6
"""A relative gap that is not worth closing further."""
OUTDATED = 2e-3
"""An improvement of the best placement (relative) after which a line is begun anew."""
CUTS = 70
"""Positions of a topological order between which intervals are told to the master to begin with."""
ROUND_EVERY = 10
"""Rounds of column generation between two roundings of the columns."""
MEMORY_PRICES = (1.0, 0.3, 3.0, 0.0)
"""What memory may cost in the choice of a line, relative to the whole time for the whole memory."""


@dataclass(frozen=True)
class Calls(Searcher):
    """Places subgraphs as calls of accelerators, and proves how good that is.

    Placements: the best chain of calls and CPU ops, by dynamic programming over ideals; the columns of the
    bound's master program, rounded; and local search on the best of these. Bound: along a path through the graph,
    the calls that meet it and the CPU ops on it take their time one after another; which calls are possible is
    priced exactly, memory included, by dynamic programming over a narrow order of the graph
    (``_bound.py``). Several paths are tried. Where the order is too wide there is only the general bound. Chains
    and bound on one page: :mod:`loadmaster.placers.columns.calls.plain`.

    With ``max_calls`` above 1 the answer for single calls is found first, if there is one, and the search goes on
    from there: by CP-SAT on small graphs, then as above.

    Complexity: O(pairs of ideals within memory · accelerators) for chains; O(states · budgets of memory) per
    pricing, with at most 3^(open nets + 1) states per class.

    References
    ----------
    J. Tarnawski, A. Phanishayee, N. Devanur, D. Mahajan, F. Nina Paravecino, "Efficient algorithms for device
    placement of DNN graph operators", NeurIPS 2020 (the problem, and ideals). P. Gilmore, R. Gomory, "A linear
    programming approach to the cutting-stock problem", Operations Research 1961 (column generation).
    """

    max_ideals: int = 100_000
    """Cut single topological orders only, if there are more ideals."""
    orders: int = 40
    """Topological orders that are cut."""
    max_states: int = 400_000
    """Leave the bound to the general one if a line has more states."""
    max_ops: int = 150
    """With several calls per accelerator, larger graphs are not given to CP-SAT."""
    lines: int = 6
    """Maximum number of paths to look for a bound on."""

    keeps_start: ClassVar[bool] = True
    name: ClassVar[str] = "calls"
    summary: ClassVar[str] = "offload latency with a tight bound, by column generation over calls"
    unlimited: ClassVar[Budget] = Budget(seconds=60.0)

    def supports(self, problem: Problem) -> str | None:
        """Only ``offload``."""
        if not isinstance(problem.model, Offload):
            return (
                f"it schedules accelerator calls, but the model is {problem.model.name}: use --model offload"
            )
        return None

    def explore(self, search: Search, start: Placement | None, seed: int) -> None:
        """Search until the gap is closed or the budget is used up (60 seconds if it sets no limit)."""
        construct(search, start, seed)
        if has_room_to_solve(search):
            self._single_calls(search, seed)
            if self._several_calls(search, seed):
                return
            chain_calls(search, self, seed)
            borrow(search, LocalSearch(), part_of(search, 0.1, 4.0), seed)
            prove_calls(search, self, seed)
        if relative_gap(search.cost, search.bound.value) > CLOSED:
            quick_answers(search, Budget(), seed)

    def _single_calls(self, search: Search, seed: int) -> None:
        """With several calls per accelerator: what is found with one call each."""
        model = search.problem.model
        assert isinstance(model, Offload)
        if model.max_calls == 1:
            return
        single = search.problem.with_model(replace(model, max_calls=1))
        until = search.seconds + 0.1 * search.seconds_left
        timed = search.budget.seconds is not None
        try:
            # Kept on the problem: the run below begins with it.
            first_feasible(single, seed, (lambda: search.seconds > until) if timed else None)
            found = self.place(
                single,
                budget=part_of(search, 0.5, np.inf),
                seed=seed,
                on_progress=lambda progress: search.tell(),
            )
        except NoPlacementError:  # one call each may be too few where several are not
            return
        search.count(found.evaluations)
        search.try_placement(found.placement)
        if found.stopped == "interrupted":
            raise KeyboardInterrupt
        search.check()

    def _several_calls(self, search: Search, seed: int) -> bool:
        """With several calls per accelerator, on a small graph: CP-SAT, which chooses what each call holds.

        Elsewhere the calls follow from the devices. True if it has proved its answer.
        """
        model = search.problem.model
        assert isinstance(model, Offload)
        if model.max_calls == 1 or search.problem.n > self.max_ops or search.budget.seconds is None:
            return False
        solve_offload(search, seconds=0.4 * search.seconds_left, seed=seed)
        return relative_gap(search.cost, search.bound.value) <= CLOSED


class _Enough(Exception):  # noqa: N818 - it is no error
    """The time for this part is over."""


def chain_calls(search: Search, settings: Calls, seed: int) -> None:
    """The best chains of calls: over single orders, then over all ideals in at most a third of the time left."""
    chains = CallChains(search.problem)
    if not chains.possible:
        return
    until = search.seconds + search.seconds_left / 3

    def check() -> None:
        search.check()
        if search.seconds > until:
            raise _Enough

    best = np.inf
    with contextlib.suppress(_Enough):
        for number in range(settings.orders):
            found = chains.best(chains.prefixes(number, seed), np.inf, check)
            if found is not None:
                best = min(best, found[0])
                search.try_device(found[1])
        lattice = chains.lattice(settings.max_ideals)
        if lattice is not None:
            found = chains.best(lattice, best * (1.0 + 1e-9) if np.isfinite(best) else best, check)
            if found is not None:
                search.try_device(found[1])
    search.check()


def prove_calls(search: Search, settings: Calls, seed: int) -> None:
    """Bounds along several lines, in most of the time left; their columns become placements."""
    problem = search.problem
    assert isinstance(problem.model, Offload)
    if problem.model.max_calls > 1:
        # Ops of a class must share the accelerator, but not the call: for the bound they are on their own.
        problem = replace(problem, class_of=np.arange(problem.n, dtype=np.int32))
    bundles, accelerators = accelerators_of(problem)
    if not accelerators or not np.isfinite(search.cost):
        return
    until = search.seconds + 0.85 * search.seconds_left
    rooms = [
        (like.capacity if np.isfinite(like.capacity) else 0.0) * like.kind.number for like in accelerators
    ]
    per_byte = search.cost / sum(rooms) if sum(rooms) > 0 else 0.0
    paths = list(some_lines(problem, per_byte * np.array(MEMORY_PRICES if per_byte else (0.0,))))
    rng = np.random.default_rng(seed)
    paths = paths[: settings.lines]
    for i, ops in enumerate(paths):
        share = search.seconds + (until - search.seconds) * (0.7 if i < len(paths) - 1 else 1.0)
        again = True
        while again and search.seconds < share:
            line = _Line(search, problem, bundles, accelerators, ops, settings, rng)
            with contextlib.suppress(_Enough):
                line.run(share)
            again = line.outdated
        if relative_gap(search.cost, search.bound.value) <= CLOSED:
            break
    search.check()


class _Line:
    """Column generation along one path."""

    def __init__(
        self,
        search: Search,
        problem: Problem,
        bundles: Bundles,
        accelerators: list[Accelerators],
        ops: IntArray,
        settings: Calls,
        rng: np.random.Generator,
    ) -> None:
        self._search = search
        self._problem = problem
        self._accelerators = accelerators
        self._rng = rng
        self._limit = search.cost
        model = problem.model
        assert isinstance(model, Offload)
        self._bound: CallBound | None = call_bound(
            bundles,
            accelerators,
            problem.class_memory,
            line_of(problem, ops, search.cost),
            calls=model.max_calls,
            limit=search.cost,
            most=settings.max_states,
        )

    @property
    def outdated(self) -> bool:
        """A much better placement has been found since: with its cost as limit there are fewer states."""
        return self._bound is not None and self._search.cost < self._limit * (1.0 - OUTDATED)

    def run(self, until: float) -> None:
        """Until there is nothing to gain on this line, or the moment has come."""
        bound, search, problem = self._bound, self._search, self._problem
        if bound is None:
            return
        assert search.best is not None
        try:
            position = np.full(problem.classes, -1, np.int64)
            np.maximum.at(position, problem.class_of, problem.graph.position)
            bound.suggest_intervals(np.argsort(position, kind="stable").astype(np.int32), CUTS)
            for k, inside in calls_of(problem, self._accelerators, search.best):
                bound.suggest(k, inside)
            going = True
            while going:
                going = bound.step()
                if bound.rounds % ROUND_EVERY == 0:
                    self._round()
                note_bound(search, bound.value, "calls")
                search.check()
                if (
                    bound.possible <= search.bound.value * (1.0 + CLOSED)
                    or search.seconds > until
                    or self.outdated
                ):
                    break
            self._round()
        finally:
            bound.close()

    def _round(self) -> None:
        bound = self._bound
        assert bound is not None
        for placement in rounded(self._problem, self._accelerators, bound.columns, bound.weight, self._rng):
            self._search.try_placement(placement)
            if self._search.evaluations_left <= 0:
                raise OutOfBudget
