"""Searches on random problems of 8 to 12 ops, against the optimum.

    python -m benchmarks.small_problems --draws 1000 --rows small.jsonl
    python -m benchmarks.small_problems --draws 100 --seed 7 --methods annealing,beam --evaluations 5000
    python -m benchmarks.small_problems --only peak

The problems are those of ``loadmaster.testing.drawn_problem``: all execution models and settings in turn, 3 to 7
devices, short memory, pins, forbidden devices, colocation, and 10^5 to 1.7 * 10^7 placements, far more than the
evaluations that a search is given here. The optimum is by ``loadmaster.testing.optimum``: all placements without orders
and calls of their own, so that a method that makes those can be below it.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from functools import lru_cache, partial

from loadmaster.errors import NoPlacementError
from loadmaster.placers.frame.enumeration import placements_of
from loadmaster.problem import Placement, Problem, SimulatedEvaluator
from loadmaster.studies import Case, Page, Row, Scope, Study, solved
from loadmaster.testing import drawn_problem, optimum
from loadmaster.testing._cases import label
from loadmaster.testing._drawn import DRAWN_MODELS

__all__ = ["STUDY"]

METHODS = "auto,local-search,annealing,multilevel,beam,min-cut,gdp+ls"
"""Those whose job is to search; ``linear-dp`` and the list schedulers only know part of the placements."""
ONLY = {"beam": "concurrent", "min-cut": "serial"}
"""Methods of one execution model."""
FAR = 1.1
"""A ratio above which a search has missed."""
QUICK = 44


def options(parser: argparse.ArgumentParser) -> None:
    """What is drawn, and what a search may do."""
    parser.add_argument("--draws", type=int, default=1000, help="number of problems (1000)")
    parser.add_argument("--seed", type=int, default=0, help="of the problems (0)")
    parser.add_argument("--evaluations", type=int, default=20_000, help="of every search (20000)")
    parser.add_argument("--methods", default=METHODS, help="by commas")


def cases(scope: Scope) -> list[Case]:
    """For each problem its optimum, then a case for each method that supports it."""
    seed, evaluations = scope["seed"], scope["evaluations"]
    draws = min(QUICK, scope["draws"]) if scope.quick else scope["draws"]
    found = []
    for draw in range(draws):
        model = DRAWN_MODELS[draw % len(DRAWN_MODELS)]
        key: Row = {"draw": draw, "seed": seed, "model": label(model)}
        found.append(Case({**key, "part": "optimum"}, partial(_optimum, draw, seed)))
        for method in scope["methods"].split(","):
            if ONLY.get(method, model.name) == model.name:
                settings = {"part": "method", "method": method, "evaluations": evaluations}
                found.append(Case({**key, **settings}, partial(_method, draw, seed, method, evaluations)))
    return [case for case in found if scope.only in case.title]


@lru_cache(maxsize=1)
def _problem(draw: int, seed: int) -> Problem:
    return drawn_problem(draw, seed)


def _optimum(draw: int, seed: int) -> Row:
    problem = _problem(draw, seed)
    # A good placement to begin with spares most of the work. It must be one of those that are tried.
    good = solved(problem, "local-search", evaluations=5000, seed=0).placement.device
    best = optimum(problem, SimulatedEvaluator(problem).evaluate(Placement(good)).value)
    return {
        "ops": problem.n,
        "devices": problem.devices,
        "placements": placements_of(problem),
        "optimum": best,
    }


def _method(draw: int, seed: int, method: str, evaluations: int) -> Row:
    try:
        found = solved(_problem(draw, seed), method, evaluations=evaluations, seed=draw)
    except NoPlacementError as error:
        return {"cost": None, "bound": 0.0, "why": str(error)}
    return {"cost": found.cost, "bound": found.bound}


def write(page: Page, scope: Scope, rows: Sequence[Row]) -> None:
    """How far each method is from the optimum, then every miss."""
    problems = {row["draw"]: row for row in rows if row["part"] == "optimum"}
    page.text(
        f"{len(problems)} problems, {scope['evaluations']:,} evaluations. Ratios to the optimum over all placements "
        f"without orders and calls of their own; a miss is a ratio above {FAR}."
    )
    lines, misses = [], []
    for method in scope["methods"].split(","):
        mine = [row for row in rows if row.get("method") == method and row["draw"] in problems]
        ratios = [_ratio(row["cost"], problems[row["draw"]]["optimum"]) for row in mine]
        if not mine:
            continue
        far = [(row["draw"], ratio) for row, ratio in zip(mine, ratios, strict=True) if ratio > FAR]
        optimal = sum(ratio <= 1 + 1e-9 for ratio in ratios) / len(ratios)
        lines.append((method, len(mine), f"{100 * optimal:.1f} %", f"{max(ratios):.3f}", len(far)))
        misses += [(method, draw, problems[draw], ratio) for draw, ratio in far]
    page.table(("method", "problems", "optimal", "worst", "misses"), lines)
    if misses:
        page.section("Misses")
        columns = ("method", "draw", "model", "ops", "devices", "ratio")
        page.table(
            columns, [(m, draw, p["model"], p["ops"], p["devices"], f"{r:.3f}") for m, draw, p, r in misses]
        )


def _ratio(cost: float | None, best: float) -> float:
    if cost is None:  # it found nothing
        return math.inf
    return cost / best if best > 0 else 1.0 if cost <= 0 else float("inf")


STUDY = Study("small_problems", "Searches on small problems", cases, write, options)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
