"""Evaluations per second of the ``concurrent`` kernels, against a simulator in pure Python in the same run.

Run ``python -m benchmarks.kernels [--quick] [--json]`` from the root of the repository. Rates are in CPU time
of one thread, with compiled kernels, the best of some repeats; every evaluation is of a placement that was
not seen before (evaluating one again would flatter by up to 1.9x, through branch prediction). The graphs are
layered, with about two edges per op.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numba import njit

from benchmarks.kernels.heapq_simulator import heapq_simulator
from benchmarks.kernels.moves import moves_per_second
from loadmaster.arrays import IntArray
from loadmaster.graph import layered
from loadmaster.hardware import accelerators, roofline
from loadmaster.problem import Concurrent, Problem
from loadmaster.problem.concurrent import ConcurrentSimulator
from loadmaster.problem.concurrent._delta import prepare, static_delta, try_move
from loadmaster.problem.concurrent._static import LANES, static_costs, static_lanes
from loadmaster.studies import Case, Page, Row, Scope, Study

__all__ = ["STUDY", "measure"]

Evaluate = Callable[[IntArray], Any]

METHODS = ("event", "event, peak", "static", "lanes", "heapq")
OPS_PER_SECOND = {"event": 15e6, "event, peak": 7e6, "static": 80e6, "lanes": 160e6, "heapq": 0.5e6}
"""What to expect, roughly: it says how many placements make a measurement of a given length."""


def options(parser: argparse.ArgumentParser) -> None:
    """Sizes of graphs."""
    parser.add_argument("--ops", type=int, nargs="+", help="sizes of the graphs (1000 10000 50000)")
    parser.add_argument("--seconds", type=float, help="of a measurement (0.2, or 0.05 with --quick)")


def cases(scope: Scope) -> list[Case]:
    """A case per size of graph and number of devices."""
    seconds, repeats = (0.05, 3) if scope.quick else (0.2, 7)
    seconds = scope["seconds"] or seconds
    return [
        Case(
            {"ops": ops, "devices": devices, "seconds": seconds, "repeats": repeats},
            partial(measure, ops, devices, seconds=seconds, repeats=repeats),
        )
        for ops in scope["ops"] or ((1_000, 10_000) if scope.quick else (1_000, 10_000, 50_000))
        for devices in (2, 4)
    ]


def measure(ops: int, devices: int, *, seconds: float, repeats: int) -> Row:
    """The rates of all methods on one layered graph, per CPU second, after checking that they agree.

    ``static_moves``: makespans after moving one op, in the static schedule, without a cutoff; ``load_moves``: largest
    loads after moving one op, in the pipeline model.
    """
    graph, cluster = layered(ops), accelerators(devices - 1, 1)
    problem = Problem.make(graph, cluster, Concurrent(), time=roofline(graph, cluster))
    rng = np.random.default_rng(ops + devices)
    methods = evaluators(problem)
    check(problem, methods, rng)
    best = dict.fromkeys(METHODS, 0.0)
    for _ in range(repeats):
        for name in METHODS:
            rows = max(2, round(seconds * OPS_PER_SECOND[name] / ops))
            if name == "lanes":
                rows = -(-rows // LANES) * LANES
            device = rng.integers(0, devices, (rows, ops)).astype(np.int32)
            best[name] = max(best[name], rows / cpu_seconds(methods[name], device))
    return {
        "evaluations": best,
        "static_moves": static_moves_per_second(problem, rng, seconds=seconds, repeats=repeats),
        "load_moves": moves_per_second(ops, devices, moves=round(4e6 * seconds), repeats=repeats),
    }


def evaluators(problem: Problem) -> dict[str, Evaluate]:
    """Functions from (k, n) devices to k costs."""
    simulator = ConcurrentSimulator(problem)
    peak = ConcurrentSimulator(problem.with_model(Concurrent(memory="peak")))
    pure = heapq_simulator(problem)

    def static(device: IntArray) -> Any:
        cost = np.empty(len(device))
        static_costs(simulator.space, device, cost)
        return cost

    def lanes(device: IntArray) -> Any:
        cost = np.empty(len(device))
        static_lanes(simulator.space, device, cost)
        return cost

    return {
        "event": lambda device: simulator.costs(device)[0],
        "event, peak": lambda device: peak.costs(device)[0],
        "static": static,
        "lanes": lanes,
        "heapq": lambda device: [pure(row) for row in device.tolist()],
    }


def check(problem: Problem, methods: dict[str, Evaluate], rng: np.random.Generator) -> None:
    """Methods that simulate the same schedule must agree to the last bit; this also compiles them."""
    device = rng.integers(0, problem.devices, (3, problem.n)).astype(np.int32)
    cost = {name: np.asarray(method(device)).tolist() for name, method in methods.items()}
    assert cost["event"] == cost["event, peak"] == cost["heapq"], (
        "the kernel and the Python simulator disagree"
    )
    assert cost["static"] == cost["lanes"], "placements side by side and one by one disagree"


def cpu_seconds(function: Callable[..., Any], *arguments: Any) -> float:
    """Seconds that this thread spends in a call."""
    began = time.thread_time()
    function(*arguments)
    return time.thread_time() - began


@njit(cache=True, nogil=True)
def _try_moves(state, ranks, targets):  # type: ignore[no-untyped-def]
    total, one = 0.0, np.empty(1, np.int64)
    for i in range(len(ranks)):
        one[0] = ranks[i]
        total += try_move(state, one, (state.at[ranks[i]] + targets[i]) % state.time.shape[1], np.inf)
    return total


def static_moves_per_second(
    problem: Problem, rng: np.random.Generator, *, seconds: float, repeats: int
) -> float:
    """How many moves of random ops to random other devices can be evaluated by suffixes."""
    state = static_delta(problem)
    prepare(state, rng.integers(0, problem.devices, problem.n).astype(np.int32))
    count, best = max(2, round(seconds * 1e8 / problem.n)), 0.0
    _try_moves(state, np.zeros(1, np.int64), np.ones(1, np.int64))
    for _ in range(repeats):
        ranks, targets = rng.integers(0, problem.n, count), rng.integers(1, problem.devices, count)
        best = max(best, count / cpu_seconds(_try_moves, state, ranks, targets))
    return best


RATIOS = (("event", "heapq"), ("event, peak", "heapq"), ("static", "event"), ("lanes", "event"))


def write(page: Page, scope: Scope, rows: Sequence[Row]) -> None:
    """The rates, and what they say about each other."""
    page.section("Per second of CPU time, one thread")
    page.table(
        ("ops", "devices", *METHODS, "static moves", "max-load moves"),
        [
            (
                row["ops"],
                row["devices"],
                *(f"{row['evaluations'][name]:,.0f}" for name in METHODS),
                *(f"{row[name]:,.0f}" for name in ("static_moves", "load_moves")),
            )
            for row in rows
        ],
    )
    page.section("Ratios, and nanoseconds per op")
    page.table(
        ("ops", "devices", *(" / ".join(pair) for pair in RATIOS), "ns event", "ns lanes"),
        [
            (
                row["ops"],
                row["devices"],
                *(f"{row['evaluations'][a] / row['evaluations'][b]:.1f}x" for a, b in RATIOS),
                *(f"{nanoseconds(row, name):.1f}" for name in ("event", "lanes")),
            )
            for row in rows
        ],
    )
    for devices in dict.fromkeys(row["devices"] for row in rows):
        found = [nanoseconds(row, "event") for row in rows if row["devices"] == devices]
        page.text(
            f"event, {devices} devices: time per op grows {found[-1] / found[0]:.2f}x to the largest graph"
        )


def nanoseconds(row: Row, method: str) -> float:
    """Per op."""
    return float(1e9 / row["evaluations"][method] / row["ops"])


STUDY = Study("kernels", "Speed of the kernels", cases, write, options, here=True)
