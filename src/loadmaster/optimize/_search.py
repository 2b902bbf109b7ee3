"""Placements found, loaded, verified and traced, two rounds of them, while the budget lasts."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from loadmaster import api
from loadmaster.errors import BusyError, RunError
from loadmaster.optimize._budget import Spending, monotonic
from loadmaster.optimize._refine import refine
from loadmaster.placers import Placer
from loadmaster.problem import Placement, Problem, Serial, Solution
from loadmaster.runtime import Candidate, OverlapFit, Piece, Session, Traced, corrected, cut, fit_overlap

__all__ = ["Search", "Tried"]

PRICES = (1.0, 4.0)
"""What a cut is taken to cost, against what is known of it: dearer cuts give plans with fewer of them."""
SEARCHING = {"concurrent": 0.5, "pipeline": 0.25, "serial": 0.4}
"""Share of what profiling leaves of the budget that is for placing; the rest is for running, which takes longer for
streams."""
LEAST = 1.0
"""Seconds for every one of the placements, where the budget has room for them."""
TRACES = 5
LOADING = 2.0
"""What a first candidate is taken to need, against the slowest device alone: it has more submodels."""


@dataclass(frozen=True)
class Tried:
    """A placement that was run."""

    name: str
    placement: Placement
    pieces: Sequence[Piece]
    candidate: Candidate


class Search:
    """What was tried so far, what was left out and why, and the problem as the traces correct it."""

    def __init__(
        self,
        by: Any,
        session: Session,
        plain: Problem,
        placer: Placer,
        spending: Spending,
        *,
        reserved: Callable[[int], float],
        loading: float,
        items: int,
        most: float,
        seed: int,
        say: Callable[[str], None],
    ) -> None:
        """``reserved``: seconds for measuring so many placements. ``loading``: seconds to load a device alone.

        ``most``: placements that may be loaded at once; a model that no device holds has no room for more than one.
        """
        self.by, self.session, self.plain, self.seed, self.say = by, session, plain, seed, say
        self.placer, self.spending = placer, spending
        self._reserved, self._loading, self._items, self._most = reserved, LOADING * loading, items, most
        rest = spending.left - reserved(2 * len(PRICES)) - 2 * len(PRICES) * self._loading
        share = min(SEARCHING[plain.model.name] * spending.left, rest) / (2 * len(PRICES))
        self.share = max(share, min(LEAST, 0.05 * max(0.0, spending.left)))
        self.tried: list[Tried] = []
        self.left_out: list[str] = []
        self.broken: list[str] = []
        """Those among what was left out that do not run."""
        self.interrupted = False

    @property
    def has_time(self) -> bool:
        """Whether one more candidate can be placed and loaded."""
        return self._room(1) >= self._loading + self.share

    def _room(self, more: int) -> float:
        """Seconds until the placements so far, and so many more, must be measured."""
        return self.spending.left - self._reserved(len(self.tried) + more)

    def round(self, fit: OverlapFit, number: int) -> Solution | None:
        """Place with every price of a cut; the solution at the price that is believed, if there was time for it."""
        first: Solution | None = None
        for price in PRICES:
            name = f"round {number}, transfer costs x{price:g}"
            if len(self.tried) >= self._most:
                self._leave_out(name, "the devices have no room for another placement")
                continue
            if not self.has_time:
                self._leave_out(name, "the budget has no room for it")
                continue
            self.say(f"placing, round {number}: transfer costs x{price:g}, {self.share:.1f} s")
            with self.spending.phase("placing"):
                solution, refined = self._place(fit, price)
            first = first or solution
            with self.spending.phase("loading placements"):
                self._load(name, refined, fit)
            if solution.stopped == "interrupted":  # go on with what there is
                self.interrupted = True
                self._leave_out("what was not placed yet", "it was interrupted")
                break
        return first

    def _place(self, fit: OverlapFit, price: float) -> tuple[Solution, Placement]:
        problem = fit.applied(self.plain, price=price)
        # The portfolio's answer is refined by what its pieces would take; another method is on its own.
        alone = self.placer.name != "auto"
        seconds = self.share if alone else self.share / 2
        solution = api.place(problem, self.placer, budget=seconds, seed=self.seed)
        if solution.stopped == "interrupted" or alone:
            return solution, solution.placement
        refined = refine(self.plain, solution.placement, fit, seconds=self.share / 2, seed=self.seed)
        return solution, refined

    def _leave_out(self, name: str, why: str) -> None:
        self.left_out.append(f"{name}: {why}")
        self.say(f"{name} is left out: {why}")

    def _load(self, name: str, placement: Placement, fit: OverlapFit) -> None:
        if len(set(placement.device.tolist())) == 1:
            return
        wait = fit.wait + (float(self.plain.latency.max()) if fit.links else 0.0)
        pieces = cut(self.plain, placement, piece=fit.piece, wait=wait)
        if any(list(tried.pieces) == pieces for tried in self.tried):
            return
        how, options = self.by.how_to_run(self.plain.model)
        if isinstance(self.plain.model, Serial):
            options["placement"] = placement.to_names(self.plain)
        else:
            options["pieces"] = pieces
        if "items" in options:
            options["items"] = self._items
        began = monotonic()
        try:
            candidate = self.session.load(how, seconds=max(self._loading, self._room(1)), **options)
            candidate.verify()
        except BusyError:
            raise
        except RunError as error:  # one that does not run is no candidate; the others may be
            if not self.session.worker.alive:
                raise
            self._leave_out(name, str(error))
            self.broken.append(self.left_out[-1])
            return
        self._loading = monotonic() - began
        self.tried.append(Tried(name, placement, pieces, candidate))

    def fitted(self, start: OverlapFit) -> OverlapFit:
        """What the traces of the candidates so far say about costs; the times of ops are corrected by them, too."""
        traced: list[Traced] = []
        with self.spending.phase("tracing"):
            for tried in self.tried:
                spans = self._traces(tried)
                if spans:
                    traced.append((tried.pieces, spans))
            fit = fit_overlap(self.plain, traced, start)
            self.plain = corrected(self.plain, traced, fit)
        return fit

    def _traces(self, tried: Tried) -> dict[int, float]:
        """Piece -> its seconds on the core. HETERO does not say, so that there a chain of the same pieces is traced."""
        serial = isinstance(self.plain.model, Serial)
        if self._room(0) < serial * self._loading:
            return {}
        try:
            candidate: Any = tried.candidate
            if serial:
                candidate = self.session.load("chain", pieces=tried.pieces)
            taken: dict[int, list[float]] = {}
            for number in range(TRACES):
                if number and self._room(0) < 0:
                    break
                for span in candidate.trace():
                    taken.setdefault(span["submodel"], []).append(span["core"])
            if serial:
                candidate.close()
        except BusyError:
            raise
        except RunError as error:
            if not self.session.worker.alive:
                raise
            self.say(f"{tried.name} cannot be traced: {error}")
            return {}
        # Other work slows the caches down, too: by the clock that drops nothing the quickest run had least of it.
        typical = min if self.session.clock == "core" else statistics.median
        return {number: float(typical(values)) for number, values in taken.items()}
