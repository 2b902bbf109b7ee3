"""Cost, bound and gap under ``concurrent``: every placer with the same budget, on zoo models and layered graphs.

``python -m benchmarks.concurrent --budget 5`` prints a table of costs relative to the best one found, with
the bounds behind it; ``--json`` prints the numbers. ``--quick`` takes small graphs only.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from rich.console import Console
from rich.table import Table

from loadmaster import api
from loadmaster.errors import InfeasibleError
from loadmaster.placers import PLACERS, Budget
from loadmaster.placers.frame.search import Search
from loadmaster.placers.solvers.concurrent.cpsat import solve_concurrent, too_large_to_schedule
from loadmaster.problem import Problem, Solution
from loadmaster.problem.bounds import linear_bound, lower_bound

__all__ = ["CASES", "bounds", "run"]

CASES = (
    ("layered-20?width=4", "2acc+1cpu"),
    ("layered-40?width=4", "2acc+1cpu"),
    ("layered-300", "2acc+1cpu"),
    ("layered-2000", "2acc+1cpu"),
    ("resnet-50", "hsdag"),
    ("inception-v3", "hsdag"),
    ("bert-base?seq=8", "hsdag"),
    ("transformer-xl-4", "p100-4"),
    ("wavenet-18", "p100-2"),
    ("rnnlm-2", "p100-2"),
    ("gnmt-2", "p100-2"),
)
"""Model and cluster."""
QUICK = 4


def run(problem: Problem, budget: float) -> dict[str, Solution]:
    """What every placer that supports the problem finds; compiled kernels do not count as search."""
    found = {}
    for name, placer in PLACERS.items():
        if placer.supports(problem) is None:
            try:
                placer.place(problem, budget=Budget(evaluations=3))
                found[name] = placer.place(problem, budget=Budget(seconds=budget))
            except InfeasibleError:
                continue
    return found


def bounds(problem: Problem, best: Solution, budget: float) -> dict[str, Any]:
    """The cheap bounds, the linear relaxation and CP-SAT (started at the best placement of all)."""
    with Search(problem, Budget(seconds=budget), "cp-sat") as search:
        search.try_placement(best.placement)
        if too_large_to_schedule(problem) is None:
            solve_concurrent(search)
    cheap = lower_bound(problem)
    linear = linear_bound(problem, known=best.cost, seconds=budget).value
    proved = max(cheap.value, linear, search.bound.value)
    return {
        "best, then cp-sat": search.cost,
        "cheap bound": cheap.value,
        "cheap by": cheap.name,
        "linear bound": linear,
        "cp-sat bound": search.bound.value if search.bound.name.startswith("CP-SAT") else 0.0,
        "gap": 1.0 - proved / search.cost,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", type=float, default=5.0, help="seconds for every placer and bound")
    parser.add_argument("--quick", action="store_true", help="small graphs only")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name, cluster in CASES[:QUICK] if arguments.quick else CASES:
        problem = api.problem(f"zoo:{name}", cluster, "concurrent")
        found = run(problem, arguments.budget)
        best = min(found.values(), key=lambda solution: solution.cost)
        row: dict[str, Any] = {"model": name, "cluster": cluster, "ops": problem.n}
        row |= {method: solution.cost for method, solution in found.items()}
        rows.append(row | bounds(problem, best, arguments.budget))
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return
    table = Table("method", *(f"{row['model']}\n{row['ops']} ops" for row in rows))
    for method in dict.fromkeys(key for row in rows for key in row):
        if method in PLACERS or method == "best, then cp-sat":
            table.add_row(method, *(_ratio(row, row.get(method)) for row in rows))
    table.add_section()
    for bound in ("cheap bound", "linear bound", "cp-sat bound"):
        table.add_row(bound, *(_ratio(row, row[bound]) for row in rows))
    table.add_row("cheap by", *(row["cheap by"] for row in rows))
    table.add_row("best, ms", *(f"{1e3 * _best(row):.4g}" for row in rows))
    table.add_row("gap", *(f"{row['gap']:.1%}" for row in rows))
    Console(width=240).print(table)


def _best(row: dict[str, Any]) -> float:
    return float(min(value for key, value in row.items() if key in PLACERS or key == "best, then cp-sat"))


def _ratio(row: dict[str, Any], value: float | None) -> str:
    return "" if not value else f"{value / _best(row):.3f}"


if __name__ == "__main__":
    main()
