"""Offload latency on published workloads: values and proven bounds, against the best known.

Run ``python -m benchmarks.latency [--budget 60] [--method calls] [--max-calls 1] [--only NAME] [--json]`` from
the root of the repository; the workloads are read from ``LOADMASTER_WORKLOADS`` (see CONTRIBUTING). Times in
milliseconds as in the files; wall-clock seconds, kernels compiled.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from loadmaster import api

WORKLOADS = Path(os.environ.get("LOADMASTER_WORKLOADS", Path(__file__).parents[2] / "shared" / "workloads"))


def measure(path: Path, known: dict[str, Any], method: str, max_calls: int, budget: float) -> dict[str, Any]:
    """One workload."""
    solution = api.place(api.problem(path, model="offload", max_calls=max_calls), method, budget=budget)
    value = 1e3 * solution.cost
    return {
        "value": value,
        "best known": known["best_known_latency"],
        "over": value / known["best_known_latency"] - 1,
        "bound": 1e3 * solution.bound,
        "gap": solution.gap,
        "s": solution.seconds,
        "value after s": solution.history[-1].seconds,
        "finder": solution.found_by,
        "prover": solution.bound_by,
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", type=float, default=60.0, help="seconds for each workload")
    parser.add_argument("--method", default="calls")
    parser.add_argument("--max-calls", type=int, default=1)
    parser.add_argument("--only", default="", help="workloads with this in their name")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    reference = json.loads((WORKLOADS / "reference.json").read_text())["latency"]
    rows = []
    for name, known in reference.items():
        if arguments.only not in name:
            continue
        row = {"workload": name.removeprefix("msr/latency/").removesuffix("_inference.json")}
        row |= measure(WORKLOADS / name, known, arguments.method, arguments.max_calls, arguments.budget)
        rows.append(row)
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return
    table = Table()
    for key in rows[0] if rows else ():
        table.add_column(key, justify="left" if key in ("workload", "finder", "prover") else "right")
    for row in rows:
        table.add_row(*(f"{value:.7g}" if isinstance(value, float) else str(value) for value in row.values()))
    Console(width=200).print(table)


if __name__ == "__main__":
    main()
