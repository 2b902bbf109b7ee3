"""How fast two of our own algorithms are: ``python -m benchmarks.speed [--parts min-cut,hsdag] [--seconds 10]``.

``min-cut``: from a problem's arrays to the proven optimum, on random layered graphs, an accelerator and a CPU without
memory limits; CPU time, median of repeats, kernels compiled. ``hsdag``: updates of 64 placements drawn, costed and
learnt from, on 1,000 ops and two devices.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import replace
from functools import partial

import numpy as np

from loadmaster import api
from loadmaster.graph import layered
from loadmaster.hardware import accelerators, roofline
from loadmaster.problem import Concurrent, Problem, Serial
from loadmaster.studies import Case, Row, Scope, Study, solved

__all__ = ["STUDY"]

BATCH = 64
"""Placements of an update of ``hsdag``."""


def options(parser: argparse.ArgumentParser) -> None:
    """What is timed."""
    parser.add_argument("--parts", default="min-cut,hsdag")
    parser.add_argument("--seconds", type=float, default=10.0, help="of learning")


def cases(scope: Scope) -> list[Case]:
    """Sizes of graphs for the cut, execution models for learning."""
    sizes = (1000,) if scope.quick else (1000, 10_000, 50_000)
    seconds = 0.2 if scope.quick else scope["seconds"]
    found = [Case({"part": "min-cut", "ops": ops}, partial(min_cut, ops)) for ops in sizes]
    found += [
        Case({"part": "hsdag", "model": model.name, "given": seconds}, partial(hsdag, model, seconds))
        for model in (Serial(), Concurrent())
    ]
    return [case for case in found if case.key["part"] in scope["parts"].split(",")]


def min_cut(ops: int, repeats: int = 7) -> Row:
    """Milliseconds of CPU time."""
    problem = api.problem(f"zoo:layered-{ops}", "1acc+1cpu", model="serial")
    problem = replace(problem, capacity=np.full(problem.devices, np.inf))
    seconds = []
    for _ in range(repeats + 1):
        fresh = problem.with_model(problem.model)  # a problem keeps what was derived from it
        began = time.process_time()
        solution = solved(fresh, "min-cut", budget=60.0)
        seconds.append(time.process_time() - began)
    return {
        "edges": problem.graph.edges,
        "CPU ms": 1e3 * statistics.median(seconds[1:]),
        "optimal": solution.optimal,
    }


def hsdag(model: Serial | Concurrent, seconds: float) -> Row:
    """Updates a minute, by the clock and by processor time."""
    graph, cluster = layered(1000, seed=1), accelerators(1, 1)
    rng = np.random.default_rng(0)
    times = roofline(graph, cluster) * (0.5 + rng.random((graph.n, 2)))
    problem = Problem.make(graph, cluster, model, time=times)
    solved(problem, "hsdag", budget=1e-3)  # compiles, or loads from the cache
    began = time.process_time()
    found = solved(problem, "hsdag", budget=seconds)
    updates, processor = found.evaluations / BATCH, time.process_time() - began
    return {"updates a minute": 60 * updates / found.seconds, "per CPU minute": 60 * updates / processor}


STUDY = Study("speed", "Speed of min-cut and hsdag", cases, options=options, here=True)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
