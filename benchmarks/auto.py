"""``auto`` on everything: published workloads under their natural models, and the zoo.

``python -m benchmarks.auto [--budget 10] [--part workloads|zoo] [--results FILE] [--json]`` prints, for every
case, cost, bound, gap, seconds, who found the placement and who proved the bound, beside the best single device. With
``--results`` every finished case is a line of that file, and cases that are in it already are not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.zoo import CASES as ZOO
from loadmaster import api

WORKLOADS = Path(os.environ.get("LOADMASTER_WORKLOADS", Path(__file__).parents[2] / "shared" / "workloads"))
CONTIGUITIES = ("none", "device", "chain")
MODELS = ("serial", "concurrent", "pipeline")


def cases(part: str | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """(name, arguments of :func:`api.problem`)."""
    if part in (None, "workloads"):
        for path in sorted(WORKLOADS.glob("msr/throughput/*/*.json")):
            for contiguity in CONTIGUITIES:
                name = f"{path.parent.name}/{path.stem}, {contiguity}"
                yield name, {"source": path, "model": "pipeline", "contiguity": contiguity}
        for path in sorted(WORKLOADS.glob("msr/latency/*/*.json")):
            yield f"{path.parent.name}/{path.stem}, offload", {"source": path, "model": "offload"}
    if part in (None, "zoo"):
        for model, cluster in ZOO:
            for execution in MODELS:
                yield (
                    f"{model} on {cluster}, {execution}",
                    {
                        "source": f"zoo:{model}",
                        "cluster": cluster,
                        "model": execution,
                    },
                )


def run(name: str, arguments: dict[str, Any], budget: float) -> dict[str, Any]:
    """One case."""
    problem = api.problem(**arguments)
    solution = api.place(problem, "auto", budget=budget)
    single = api.place(problem, "single", evaluations=1000)
    return {
        "case": name,
        "ops": problem.n,
        "single": 1e3 * single.cost,
        "cost": 1e3 * solution.cost,
        "bound": 1e3 * solution.bound,
        "gap %": 100 * solution.gap,
        "s": solution.seconds,
        "found by": solution.found_by,
        "proved by": solution.bound_by,
    }


def main() -> None:
    """Run what is missing, print everything."""
    parser = argparse.ArgumentParser(description="auto on published workloads and the zoo (milliseconds)")
    parser.add_argument("--budget", type=float, default=10.0, help="seconds for each case")
    parser.add_argument("--part", choices=("workloads", "zoo"))
    parser.add_argument("--results", type=Path, help="a file of finished cases, one JSON object a line")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    if arguments.results is not None and arguments.results.exists():
        rows = [json.loads(line) for line in arguments.results.read_text().splitlines()]
    known = {row["case"] for row in rows}
    for name, case in cases(arguments.part):
        if name in known:
            continue
        print(name, file=sys.stderr)
        rows.append(run(name, case, arguments.budget))
        if arguments.results is not None:
            with arguments.results.open("a") as file:
                print(json.dumps(rows[-1]), file=file)
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return
    table = Table()
    for key in rows[0]:
        table.add_column(key)
    for row in rows:
        table.add_row(*(f"{value:.4g}" if isinstance(value, float) else str(value) for value in row.values()))
    Console().print(table)


if __name__ == "__main__":
    main()
