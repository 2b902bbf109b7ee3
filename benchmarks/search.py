"""Local search and annealing against HEFT on layered graphs, at equal budgets.

Run ``python -m benchmarks.search [--budget 4] [--json]`` from the root of the repository.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace

from rich.console import Console
from rich.table import Table

from loadmaster import api
from loadmaster.graph import layered
from loadmaster.hardware import accelerators, roofline
from loadmaster.placers import PLACERS
from loadmaster.placers.search.local_search import LocalSearch
from loadmaster.problem import Concurrent, Problem

METHODS = {
    "heft": PLACERS["heft"],
    "random": PLACERS["random"],
    "local-search, random starts": replace(LocalSearch(), constructed=False),
    "local-search": PLACERS["local-search"],
    "annealing": PLACERS["annealing"],
}


def rows(budget: float, seed: int) -> list[dict[str, float | int | str]]:
    """One row per graph: milliseconds of each method, and the bound."""
    found = []
    for n in (100, 300, 1000):
        for k in (2, 4):
            for width in (4, 16):
                graph, cluster = layered(n, width=width, seed=n), accelerators(k, 1)
                problem = Problem.make(graph, cluster, Concurrent(), time=roofline(graph, cluster))
                row: dict[str, float | int | str] = {"ops": n, "accelerators": k, "width": width}
                for name, placer in METHODS.items():
                    solution = api.place(problem, placer, budget=budget, seed=seed)
                    row[name] = 1e3 * solution.cost
                    row["bound"] = 1e3 * solution.bound
                found.append(row)
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", type=float, default=4.0, help="seconds for each method and graph")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found = rows(arguments.budget, arguments.seed)
    if arguments.json:
        print(json.dumps(found, indent=2))
        return
    table = Table(title=f"Makespan in ms, {arguments.budget:g} s each")
    for name in found[0]:
        table.add_column(name, justify="right")
    for row in found:
        table.add_row(*(f"{value:.4f}" if isinstance(value, float) else str(value) for value in row.values()))
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
