"""``min-cut`` under ``serial``: how fast it is with two devices, how tight with three.

``python -m benchmarks.serial [--speed | --zoo] [--json]``. Speed: random layered graphs on an accelerator and a
CPU without memory limits, CPU time, median of repeats, kernels compiled. Zoo: every architecture of up to 5,000
ops on the three devices of the ``hsdag`` preset, against the proven bound, at most 30 seconds each.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import replace
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from loadmaster import api
from loadmaster.problem import Problem

MODELS = (
    "inception-v3",
    "resnet-50",
    "resnet-101",
    "bert-base",
    "bert-base?seq=8",
    "bert-large",
    "gpt2",
    "gpt2-decode",
    "amoebanet",
    "unet",
    "wavenet-18",
    "switch-base-8",
    "resnet-50?batch=32&training=1",
    "bert-base?training=1",
    "gpt2?training=1",
)
MOST_OPS = 5000


def speed(ops: int, repeats: int = 7) -> dict[str, Any]:
    """Milliseconds that a cut takes, from the problem's arrays to the proven optimum."""
    problem = api.problem(f"zoo:layered-{ops}", "1acc+1cpu", model="serial")
    problem = replace(problem, capacity=np.full(problem.devices, np.inf))
    seconds = []
    for _ in range(repeats + 1):
        fresh = problem.with_model(problem.model)  # a problem keeps what was derived from it
        began = time.process_time()
        solution = api.place(fresh, "min-cut", budget=60.0)
        seconds.append(time.process_time() - began)
    return {
        "ops": ops,
        "edges": problem.graph.edges,
        "CPU ms": 1e3 * statistics.median(seconds[1:]),
        "optimal": solution.optimal,
    }


def tightness(name: str) -> dict[str, Any] | None:
    """Value and bound with three devices."""
    problem: Problem = api.problem(f"zoo:{name}", "hsdag", model="serial")
    if problem.n > MOST_OPS:
        return None
    solution = api.place(problem, "min-cut", budget=30.0)
    single = api.place(problem, "single", evaluations=10)
    return {
        "model": name,
        "ops": problem.n,
        "best single ms": 1e3 * single.cost,
        "min-cut ms": 1e3 * solution.cost,
        "bound ms": 1e3 * solution.bound,
        "gap %": 100 * solution.gap,
        "s": solution.seconds,
    }


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description="min-cut: speed and tightness")
    parser.add_argument("--speed", action="store_true", help="only how fast it is")
    parser.add_argument("--zoo", action="store_true", help="only how tight it is")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    tables: dict[str, list[dict[str, Any]]] = {}
    if not arguments.zoo:
        tables["speed"] = [speed(ops) for ops in (1000, 10_000, 50_000)]
    if not arguments.speed:
        tables["zoo"] = [row for row in map(tightness, MODELS) if row is not None]
    if arguments.json:
        print(json.dumps(tables, indent=2))
        return
    for name, rows in tables.items():
        table = Table(title=name)
        for key in rows[0]:
            table.add_column(key)
        for row in rows:
            table.add_row(*(f"{v:.4g}" if isinstance(v, float) else str(v) for v in row.values()))
        Console().print(table)


if __name__ == "__main__":
    main()
