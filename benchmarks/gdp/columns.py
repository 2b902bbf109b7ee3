"""What every method makes of one held-out graph."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from loadmaster import api
from loadmaster.errors import InfeasibleError
from loadmaster.placers import PLACERS, Budget, Placer
from loadmaster.placers.learned.gdp import Gdp, GdpSearch
from loadmaster.placers.learned.gdp._tracks import TimeTracks, tracks_of
from loadmaster.problem import Problem, SimulatedEvaluator
from loadmaster.problem.bounds import lower_bound

__all__ = ["columns"]

TUNED = 500
"""Evaluations in all where the policy is tuned on the graph (``tune=true``)."""
SECONDS = 2.0
"""Of search after a start."""


def columns(problem: Problem, weights: str, auto: float, seed: int) -> dict[str, float | None]:
    """Method -> cost (None where it has none)."""
    row: dict[str, float | None] = {}

    def note(name: str, make: Callable[[], float]) -> None:
        try:
            row[name] = make()
        except InfeasibleError:
            row[name] = None

    def place(method: str | Placer, budget: Budget) -> float:
        placer = PLACERS[method] if isinstance(method, str) else method
        return placer.place(problem, budget=budget, seed=seed).cost

    greedy = Gdp(weights=weights, samples=0, guard=False)
    both = (("", greedy), ("untrained", replace(greedy, weights="none")))

    def named(untrained: str, name: str) -> str:
        return f"{untrained}, {name}" if untrained else name

    found = api.place(problem, greedy, budget=math.inf)  # which loads the kernels before the clock runs
    row["seconds"], row["evaluations"], row["zero-shot"] = found.seconds, float(found.evaluations), found.cost
    note("untrained", lambda: place(both[1][1], Budget()))
    tracks, check = tracks_of(problem), SimulatedEvaluator(problem)

    def three_passes(tracks: TimeTracks, base: Gdp) -> float:
        return min(check.evaluate(p).value for p in tracks.track(base.read().vector, "ops"))

    def searched(base: Gdp) -> float:
        policy = GdpSearch(weights=base.weights, samples=16, search=SECONDS)
        return api.place(problem, policy, budget=60.0, seed=seed).cost

    for untrained, base in both:
        if isinstance(tracks, TimeTracks):
            note(named(untrained, "3 passes"), partial(three_passes, tracks, base))
        note(named(untrained, "best of 16"), partial(place, replace(base, samples=16), Budget()))
        tuned = replace(base, samples=16, tune=True)
        note(named(untrained, "fine-tuned"), partial(place, tuned, Budget(evaluations=TUNED)))
        note("untrained+ls" if untrained else "gdp+ls", partial(searched, base))
    note("guarded", partial(place, replace(greedy, guard=True), Budget()))
    note("as shipped", partial(place, Gdp(weights=weights), Budget()))
    few = Budget(evaluations=200)
    for method in ("single", "metis", "expert", "heft", "lookahead"):
        if PLACERS[method].supports(problem) is None:
            note(method, partial(place, method, few))
    equal = Budget(evaluations=max(found.evaluations, 1))
    for method in ("random", "local-search"):
        note(f"{method}, equal", partial(place, method, equal))
    note("local-search, 500", partial(place, "local-search", Budget(evaluations=TUNED)))
    if PLACERS["heft"].supports(problem) is None:
        search = api.configured("local-search", {"constructed": False})

        def after_heft() -> float:
            start = PLACERS["heft"].place(problem, budget=few).placement
            return api.place(problem, search, budget=SECONDS, start=start, seed=seed).cost

        note("heft + 2 s", after_heft)
    else:
        note("rules + 2 s", lambda: api.place(problem, "local-search", budget=SECONDS, seed=seed).cost)
    best = api.place(problem, "auto", budget=auto)
    row["auto"], row["bound"] = best.cost, max(best.bound, lower_bound(problem).value)
    return row
