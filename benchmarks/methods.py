"""Placement methods on the same problems, each with the same budget: the one program that compares methods.

``python -m benchmarks.methods WHAT`` runs one of the comparisons of :mod:`benchmarks.comparisons`; the published
workloads are ``benchmarks.exact``, the papers' tables ``loadmaster reproduce``.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from statistics import mean
from typing import Any

from benchmarks.comparisons import COMPARISONS, Comparison, Entry, Given
from loadmaster.errors import InfeasibleError, UnsupportedError
from loadmaster.problem import Problem
from loadmaster.problem.bounds import linear_bound, lower_bound
from loadmaster.studies import Case, Page, Row, Scope, Study, number, percent, placed, solved

__all__ = ["STUDY"]

QUICK = 3
"""So many problems are left of a quick run."""


def options(parser: argparse.ArgumentParser) -> None:
    """The budgets by default depend on what is compared."""
    parser.add_argument("what", choices=COMPARISONS)
    parser.add_argument("--budget", type=float, help="seconds for methods that are given seconds")
    parser.add_argument("--evaluations", type=int, help="for methods that are given evaluations")
    parser.add_argument("--methods", default="", help="only these, by commas")
    parser.add_argument(
        "--show", choices=("ms", "ratio", "gap"), help="in the table; ratio and gap are to the best"
    )
    parser.add_argument("--level", help="hsdag, ablations: kchain, kernels or ops")
    parser.add_argument("--model", choices=("serial", "concurrent"), help="ablations: the execution model")
    parser.add_argument("--paper", action="store_true", help="ablations: of hsdag-paper")
    parser.add_argument(
        "--runs", type=int, default=3, help="hsdag-concurrent: runs that share the evaluations"
    )
    parser.add_argument(
        "--settings",
        nargs="+",
        default=["default", "lean=0", "elites=0", "lean=0,elites=0"],
        help="settings: of hsdag, or of another method=NAME",
    )


def _comparison(scope: Scope) -> Comparison:
    return COMPARISONS[scope["what"]](scope)


def cases(scope: Scope) -> list[Case]:
    """Problem by problem, so that each is made once."""
    comparison = _comparison(scope)
    wanted = scope["methods"].split(",") if scope["methods"] else []
    problems = [given for given in comparison.problems if scope.only in given.name]
    found = []
    for given in problems[:QUICK] if scope.quick else problems:
        for entry in comparison.entries:
            if not wanted or entry.name in wanted:
                found += [_case(scope["what"], given, entry, seed) for seed in range(entry.seeds)]
        if comparison.bounds is not None and not wanted:
            key = {
                "what": scope["what"],
                "problem": given.name,
                "part": "bounds",
                "budget": comparison.bounds,
            }
            found.append(Case(key, partial(_bounds, given, comparison.bounds)))
    return found


def _case(what: str, given: Given, entry: Entry, seed: int) -> Case:
    key: Row = {"what": what, "problem": given.name, "part": "method", "method": entry.name}
    key |= {"placer": entry.method or entry.name, "settings": {**entry.settings}, "seed": seed}
    key |= {"budget": entry.seconds, "limit": entry.evaluations, "simulated": entry.simulated}
    return Case(key, partial(_run, given, entry, seed))


@lru_cache(maxsize=1)
def _problem(given: Given) -> Problem:
    return given.make()


def _run(given: Given, entry: Entry, seed: int) -> Mapping[str, Any]:
    problem = _problem(given)
    limit = entry.evaluations
    if limit is not None and entry.simulated is not None:
        limit = min(limit, entry.simulated // problem.n)
    how: dict[str, Any] = {"budget": entry.seconds, "evaluations": limit, "seed": seed}
    row = placed(problem, entry.method or entry.name, parameters=dict(entry.settings), **how)
    return {"ops": problem.n, "least": lower_bound(problem).value, **row}


def _bounds(given: Given, seconds: float) -> Row:
    """The cheap bounds, the linear relaxation, and CP-SAT begun with what ``auto`` finds in as many seconds."""
    problem = _problem(given)
    best = solved(problem, "auto", budget=seconds)
    cheap = lower_bound(problem)
    row: Row = {"ops": problem.n, "cheap": cheap.value, "cheap_by": cheap.name}
    row["linear"] = linear_bound(problem, known=best.cost, seconds=seconds).value
    try:
        proof = solved(problem, "cp-sat", budget=seconds, start=best.placement)
    except (InfeasibleError, UnsupportedError):
        return row | {"cost": best.cost, "cp-sat": None}
    return row | {"cost": proof.cost, "cp-sat": proof.bound if "CP-SAT" in proof.bound_by else None}


# -- the page ------------------------------------------------------------------------------------------------


def write(page: Page, scope: Scope, rows: Sequence[Row]) -> None:
    """Costs, then what they took."""
    comparison = _comparison(scope)
    show = scope["show"] or comparison.show
    page.text(
        {
            "ms": "Milliseconds, the best of each problem in bold.",
            "ratio": "Cost / best cost of the problem.",
            "gap": "Per cent above the best cost of the problem.",
        }[show]
        + " Where a method had several seeds: mean (worst). Gap: 1 - bound / best."
    )
    groups = {given.name: given.group for given in comparison.problems}
    table = _Table(rows, show, groups)
    table.write(page, transposed=comparison.transposed)
    table.write_bounds(page)
    table.write_effort(page, transposed=comparison.transposed)


class _Table:
    """Rows by problem and method."""

    def __init__(self, rows: Sequence[Row], show: str, groups: Mapping[str, str]) -> None:
        self.show, self.groups = show, groups
        self.runs: dict[tuple[str, str], list[Row]] = {}
        self.bounds = {row["problem"]: row for row in rows if row["part"] == "bounds"}
        for row in rows:
            if row["part"] == "method":
                self.runs.setdefault((row["problem"], row["method"]), []).append(row)
        self.problems = list(dict.fromkeys(problem for problem, _ in self.runs))
        useful = [m for (_, m), runs in self.runs.items() if any(row["cost"] is not None for row in runs)]
        self.methods = list(dict.fromkeys(useful))
        self.ops = {row["problem"]: row["ops"] for row in rows}
        self.best: dict[str, float] = {}
        self.least: dict[str, float] = {}
        for problem in self.problems:
            mine = [row for method in self.methods for row in self.runs.get((problem, method), ())]
            extra = [self.bounds[problem]["cost"]] if problem in self.bounds else []
            costs = [row["cost"] for row in mine if row["cost"] is not None] + extra
            self.best[problem] = min(costs, default=float("nan"))
            self.least[problem] = max(
                (max(row["least"], row.get("bound") or 0.0) for row in mine), default=0.0
            )

    def values(self, problem: str, method: str) -> list[float]:
        best = self.best[problem]
        costs = [row["cost"] for row in self.runs.get((problem, method), ()) if row["cost"] is not None]
        return [
            1e3 * cost
            if self.show == "ms"
            else cost / best
            if self.show == "ratio"
            else 100 * (cost / best - 1)
            for cost in costs
        ]

    def cell(self, problem: str, method: str) -> str:
        found = self.values(problem, method)
        if not found:
            return "-"
        form = "{:.4g}" if self.show == "ms" else "{:.3f}" if self.show == "ratio" else "{:.2f}"
        text = form.format(mean(found)) + (f" ({form.format(max(found))})" if len(found) > 1 else "")
        worth = 1e3 * self.best[problem] if self.show == "ms" else None
        return f"**{text}**" if worth is not None and min(found) <= worth * (1 + 1e-9) else text

    def write(self, page: Page, *, transposed: bool) -> None:
        gap = [percent(1 - self.least[p] / self.best[p]) for p in self.problems]
        if not transposed:
            page.table(
                ("problem", "ops", *self.methods, "bound, ms", "gap"),
                [
                    (p, self.ops[p], *(self.cell(p, m) for m in self.methods), number(1e3 * self.least[p]), g)
                    for p, g in zip(self.problems, gap, strict=True)
                ],
            )
            return
        means = list(dict.fromkeys(self.groups[p] for p in self.problems))
        lines: list[Sequence[Any]] = []
        for method in self.methods:
            line = [method, *(self.cell(p, method) for p in self.problems)]
            for group in means:
                found = [
                    mean(v)
                    for p in self.problems
                    if self.groups[p] == group and (v := self.values(p, method))
                ]
                line.append(f"{mean(found):.3f} ({max(found):.3f})" if found else "-")
            lines.append(line)
        empty = [""] * len(means)
        lines.append(("best, ms", *(number(1e3 * self.best[p]) for p in self.problems), *empty))
        lines.append(("bound, ms", *(number(1e3 * self.least[p]) for p in self.problems), *empty))
        lines.append(("gap", *gap, *empty))
        heads = [f"{p} ({self.ops[p]:,} ops)" for p in self.problems]
        page.table(("method", *heads, *(f"{group}: mean (worst problem)" for group in means)), lines)

    def write_bounds(self, page: Page) -> None:
        if not self.bounds:
            return
        page.section("Bounds")
        page.text("As shares of the best cost; CP-SAT begins with what `auto` finds in as many seconds.")

        def share(problem: str, value: float | None) -> str:
            best: float = self.best[problem]
            return f"{value / best:.3f}" if value else "-"

        page.table(
            ("problem", "auto, then cp-sat", "cheap", "cheap by", "linear", "cp-sat"),
            [
                (
                    p,
                    share(p, r["cost"]),
                    share(p, r["cheap"]),
                    r["cheap_by"],
                    share(p, r["linear"]),
                    share(p, r["cp-sat"]),
                )
                for p, r in self.bounds.items()
            ],
        )

    def write_effort(self, page: Page, *, transposed: bool) -> None:
        page.section("Effort")
        if len(self.methods) <= 2:
            runs = [row for found in self.runs.values() for row in found if row["cost"] is not None]
            page.table(
                ("problem", "method", "proved", "gap", "s", "found by", "proved by"),
                [
                    (
                        r["problem"], r["method"], r["optimal"], percent(r["gap"]), number(r["seconds"], 2),
                        r["found_by"], r["bound_by"],
                    )
                    for r in runs
                ],
            )  # fmt: skip
            return
        page.text(
            "Evaluations, evaluations until the cost was within 1 % of the final one, and CPU seconds "
            "(the first run of a method also compiles its kernels); means over seeds."
        )

        def cell(problem: str, method: str) -> str:
            runs = [row for row in self.runs.get((problem, method), ()) if row["cost"] is not None]
            if not runs:
                return "-"
            keys = ("evaluations", "within_1_percent_after", "cpu_seconds")
            made, near, spent = (mean(row[key] for row in runs) for key in keys)
            return f"{made:,.0f} / {near:,.0f} / {number(float(spent), 2)}"

        rows, columns = (self.methods, self.problems) if transposed else (self.problems, self.methods)
        page.table(
            ("", *columns),
            [(r, *(cell(c, r) if transposed else cell(r, c) for c in columns)) for r in rows],
        )


STUDY = Study("methods", "Methods compared", cases, write, options)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
