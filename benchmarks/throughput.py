"""Pipelined throughput on published workloads: the contiguous optimum, and bounds without contiguity.

Run ``python -m benchmarks.throughput [--budget 60] [--method frontier] [--chain | --baselines | --free] [--json]``
from the root of the
repository; the workloads are read from ``LOADMASTER_WORKLOADS`` (see CONTRIBUTING). Times in milliseconds as
in the files; CPU seconds of the process, kernels compiled. Each optimum is computed in a process of its own,
whose largest resident memory is given (Python, numpy and numba included).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from loadmaster import api
from loadmaster.placers.stages._contraction import contract, without_weightless
from loadmaster.placers.stages.ideal_dp import count_ideals
from loadmaster.placers.stages.ideal_dp._ideals import lattice_of

WORKLOADS = Path(os.environ.get("LOADMASTER_WORKLOADS", Path(__file__).parents[2] / "shared" / "workloads"))

BASELINES = ("linear-dp", "balanced", "pipedream", "metis", "greedy")


def chain(path: Path, published: dict[str, Any]) -> dict[str, Any]:
    """The optimum of contiguity ``chain``, against the published code."""
    problem = api.problem(path, contiguity="chain")
    ideals = count_ideals(problem)
    lattice = lattice_of(without_weightless(contract(problem)), limit=10**6)
    visited = lattice.ideals if lattice is not None else None
    api.place(problem, "ideal-dp", budget=60.0)  # compiles, or loads from the cache
    problem = api.problem(path, contiguity="chain")  # afresh: a problem keeps its contraction and bounds
    began = time.process_time()
    solution = api.place(problem, "ideal-dp", budget=120.0)
    seconds = time.process_time() - began
    return {
        "chain": 1e3 * solution.cost,
        "error": abs(1e3 * solution.cost / published["contiguous_optimum"] - 1),
        "proved": solution.optimal,
        "ideals": ideals,
        "ideals right": ideals == published["ideals"],
        "visited": visited,
        "CPU s": seconds,
        "published CPU s": published["published_code_cpu_seconds"],
        "ratio": published["published_code_cpu_seconds"] / seconds,
        "peak MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def apart(path: Path, published: dict[str, Any]) -> dict[str, Any]:
    """:func:`chain` in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(chain, path, published).result()


def baselines(path: Path) -> dict[str, Any]:
    """The chains that other methods find, relative to the optimum."""
    problem = api.problem(path, contiguity="chain")
    optimum = api.place(problem, "ideal-dp", budget=120.0)
    row: dict[str, Any] = {"optimum": 1e3 * optimum.cost, "proved": optimum.optimal}
    for method in BASELINES:
        row[method] = api.place(problem, method, budget=10.0).cost / optimum.cost
    return row


def free(path: Path, published: dict[str, Any], budget: float, method: str) -> dict[str, Any]:
    """Value and bound without contiguity, against the best known."""
    solution = api.place(api.problem(path), method, budget=budget)
    known = published["non_contiguous"]
    return {
        "none": 1e3 * solution.cost,
        "over best known": 1e3 * solution.cost / known["best_known"] - 1,
        "bound": 1e3 * solution.bound,
        "gap": solution.gap,
        "s": solution.seconds,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--budget", type=float, default=60.0, help="seconds for each workload without contiguity"
    )
    parser.add_argument("--method", default="frontier", help="the placer without contiguity")
    parser.add_argument("--free", action="store_true", help="only without contiguity")
    parser.add_argument("--chain", action="store_true", help="only the contiguous optimum")
    parser.add_argument(
        "--baselines", action="store_true", help="other methods against the contiguous optimum"
    )
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    reference = json.loads((WORKLOADS / "reference.json").read_text())["throughput"]
    rows = []
    for name, published in reference.items():
        row: dict[str, Any] = {"workload": name.removeprefix("msr/throughput/").removesuffix(".json")}
        if arguments.baselines:
            row |= baselines(WORKLOADS / name)
            rows.append(row)
            continue
        if not arguments.free:
            row |= apart(WORKLOADS / name, published)
        if not arguments.chain:
            row |= free(WORKLOADS / name, published, arguments.budget, arguments.method)
        rows.append(row)
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return
    table = Table()
    for key in rows[0]:
        table.add_column(key, justify="left" if key == "workload" else "right")
    for row in rows:
        table.add_row(*(f"{value:.6g}" if isinstance(value, float) else str(value) for value in row.values()))
    Console(width=200).print(table)


if __name__ == "__main__":
    main()
