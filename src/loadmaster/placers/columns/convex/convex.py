"""Pipeline throughput with convex devices: a bound by column generation over all convex sets."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from loadmaster.placers.columns.convex._ascent import Ascent
from loadmaster.placers.columns.convex._order import MOST_OPS, ordered, with_few_ideals
from loadmaster.placers.columns.convex._sets import sets_of
from loadmaster.placers.frame.search import Budget, Search
from loadmaster.placers.frame.searcher import Searcher
from loadmaster.placers.search._incumbents import (
    construct,
    has_room_to_solve,
    note_bound,
    part_of,
    quick_answers,
)
from loadmaster.placers.solvers.pipeline.portfolio import first_part
from loadmaster.placers.stages._chain import rounding_of
from loadmaster.placers.stages.ideal_dp._ideals import lattice_of
from loadmaster.problem import Pipeline, Placement, Problem

__all__ = ["Convex", "convex_bound"]

NAME = "convex"
FREE = 4000
"""Ideals up to which classes in no order are kept."""
BEYOND, LEAST = 1.5, 1.1
"""Sets are listed up to the best known cost, but no further than this multiple of the bound (the cost may still be a
poor one), and up to its root where that is too many; nothing is done where the root becomes this small."""


@dataclass(frozen=True)
class Convex(Searcher):
    """Bounds the largest load where the forward ops of each device must be convex.

    For ``pipeline`` with contiguity ``device`` (under ``chain`` the bound holds as well, but ``ideal-dp`` is exact),
    any kinds of devices, memory, both kinds of ``comm`` and both objectives. The bound on one page:
    :mod:`loadmaster.placers.columns.convex.plain`.

    What a device runs is the difference of two ideals of the forward ops. All such sets that a device could run within
    the best known cost are listed once (``_sets.py``). A linear program over them, solved by column generation
    (``_ascent.py``), gives prices of the classes which prove that no placement has a smaller largest load: the classes
    together are worth more than what one set per device can be. Classes in no order, as backward ops without a
    forward twin, would double the number of ideals each: the smallest of them are left out (``_order.py``).

    Where there are too many ideals or sets, it does nothing but search for placements as others do.

    Complexity: O(degree) per set to list them, and a few nanoseconds per set and pricing.

    References
    ----------
    J. Tarnawski, A. Phanishayee, N. Devanur, D. Mahajan, F. Nina Paravecino, "Efficient algorithms for device
    placement of DNN graph operators", NeurIPS 2020 (the problem). P. Gilmore, R. Gomory, "A linear programming
    approach to the cutting-stock problem", Operations Research 1961 (sets as columns).
    """

    max_ideals: int = 40_000
    """Leave out classes in no order, or give up, if there are more ideals;"""
    max_sets: int = 4_000_000
    """give up if there are more sets."""
    rounds: int = 1000
    """Master programs that are solved at most."""
    share: float = 0.5
    """Part of the time for the bound; others have the rest."""

    keeps_start: ClassVar[bool] = True
    name: ClassVar[str] = NAME
    summary: ClassVar[str] = (
        "pipeline throughput with convex devices: a bound by column generation over convex sets"
    )
    unlimited: ClassVar[Budget] = Budget(seconds=60.0)

    def supports(self, problem: Problem) -> str | None:
        """Only ``pipeline`` with convex devices."""
        model = problem.model
        if not isinstance(model, Pipeline):
            return f"it bounds pipelines of convex devices, but the model is {model.name}: use --model pipeline:device"
        if model.contiguity != "device":
            other = "ideal-dp" if model.contiguity == "chain" else "frontier"
            return f"it bounds pipelines of convex devices, not contiguity {model.contiguity}: use {other}"
        return None

    def explore(self, search: Search, start: Placement | None, seed: int) -> None:
        """A bound, and better placements by local search."""
        construct(search, start, seed)
        if has_room_to_solve(search):
            quick_answers(search, first_part(search), seed)
            enough = search.seconds + self.share * search.seconds_left

            def over() -> bool:
                search.check()
                return search.seconds > enough

            convex_bound(search, self, over)
        if not search.accompanied:
            quick_answers(search, part_of(search, 1.0, np.inf), seed)


class _Enough(Exception):  # noqa: N818 - it is no error
    """The time for proving is over."""


def convex_bound(search: Search, settings: Convex, over: Callable[[], bool]) -> None:
    """Note the bound on the search, each time that it rises; ``over`` is asked some ten times a second."""
    problem = search.problem
    if problem.n > MOST_OPS:
        return
    contracted = with_few_ideals(ordered(problem), FREE, settings.max_ideals)
    if contracted is None:
        return
    slack = rounding_of(contracted)

    def check(bound: float = 0.0) -> None:
        note_bound(search, bound - slack, NAME)
        if over():
            raise _Enough

    with contextlib.suppress(_Enough):
        check()
        lattice = lattice_of(contracted, settings.max_ideals)
        assert lattice is not None
        prices, beyond = None, BEYOND
        while search.cost > 0.0 and beyond > LEAST:
            known = search.bound.value
            limit = min(search.cost, beyond * known) if known > 0.0 else search.cost
            sets = sets_of(contracted, lattice, limit, settings.max_sets, check)
            if sets is None:
                beyond = math.sqrt(limit / known) if known > 0.0 else 0.0
                continue
            ascent = Ascent(contracted, lattice, sets, limit, lambda: search.cost, check)
            prices = ascent.run(prices, settings.rounds)
            check(ascent.bound)
            if ascent.bound < limit or limit >= search.cost:
                return
