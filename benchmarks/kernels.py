"""Evaluations per second of the ``concurrent`` kernels, against a simulator in pure Python in the same run.

Run ``python -m benchmarks.kernels [--quick] [--json]`` from the root of the repository. Rates are in CPU time
of one thread, with compiled kernels, the best of some repeats; every evaluation is of a placement that was
not seen before (evaluating one again would flatter by up to 1.9x, through branch prediction). The graphs are
layered, with about two edges per op.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numba import njit
from rich.console import Console
from rich.table import Table

from benchmarks.heapq_simulator import heapq_simulator
from benchmarks.moves import moves_per_second
from loadmaster.arrays import IntArray
from loadmaster.graph import layered
from loadmaster.hardware import accelerators, roofline
from loadmaster.problem import Concurrent, Problem
from loadmaster.problem.concurrent import ConcurrentSimulator
from loadmaster.problem.concurrent._delta import prepare, static_delta, try_move
from loadmaster.problem.concurrent._static import LANES, static_costs, static_lanes

Evaluate = Callable[[IntArray], Any]

METHODS = ("event", "event, peak", "static", "lanes", "heapq")
OPS_PER_SECOND = {"event": 15e6, "event, peak": 7e6, "static": 80e6, "lanes": 160e6, "heapq": 0.5e6}
"""What to expect, roughly: it says how many placements make a measurement of a given length."""


@dataclass(frozen=True)
class Rates:
    """What was measured on one graph and cluster, per second of CPU time."""

    ops: int
    devices: int
    evaluations: dict[str, float]
    static_moves: float
    """Makespans after moving one op, in the static schedule, without a cutoff."""
    load_moves: float
    """Largest loads after moving one op, in the pipeline model."""

    def ratio(self, method: str, reference: str) -> float:
        """How many times faster ``method`` is than ``reference``."""
        return self.evaluations[method] / self.evaluations[reference]

    def nanoseconds(self, method: str) -> float:
        """Nanoseconds per op."""
        return 1e9 / self.evaluations[method] / self.ops


def measure(ops: int, devices: int, *, seconds: float, repeats: int) -> Rates:
    """The rates of all methods on one layered graph, after checking that they agree."""
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
    return Rates(
        ops,
        devices,
        best,
        static_moves_per_second(problem, rng, seconds=seconds, repeats=repeats),
        moves_per_second(ops, devices, moves=round(4e6 * seconds), repeats=repeats),
    )


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


def tables(measured: list[Rates]) -> Iterator[Table]:
    """The rates, and what they say about each other."""
    rates = Table(title="Per second of CPU time, one thread")
    ratios = Table(title="Ratios, and nanoseconds per op")
    for table in (rates, ratios):
        table.add_column("ops", justify="right")
        table.add_column("devices", justify="right")
    for name in (*METHODS, "static moves", "max-load moves"):
        rates.add_column(name, justify="right")
    for name in (
        "event / heapq",
        "event, peak / heapq",
        "static / event",
        "lanes / event",
        "ns event",
        "ns lanes",
    ):
        ratios.add_column(name, justify="right")
    for row in measured:
        where = (f"{row.ops:,}", str(row.devices))
        numbers = [*(row.evaluations[name] for name in METHODS), row.static_moves, row.load_moves]
        rates.add_row(*where, *(f"{number:,.0f}" for number in numbers))
        pairs = [("event", "heapq"), ("event, peak", "heapq"), ("static", "event"), ("lanes", "event")]
        ratios.add_row(
            *where,
            *(f"{row.ratio(*pair):.1f}x" for pair in pairs),
            *(f"{row.nanoseconds(name):.1f}" for name in ("event", "lanes")),
        )
    yield rates
    yield ratios


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kernels", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller graphs, shorter measurements")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    options = parser.parse_args()
    console = Console(stderr=True)
    measured = []
    for ops in (1_000, 10_000) if options.quick else (1_000, 10_000, 50_000):
        for devices in (2, 4):
            with console.status(f"{ops:,} ops on {devices} devices"):
                seconds, repeats = (0.05, 3) if options.quick else (0.2, 7)
                measured.append(measure(ops, devices, seconds=seconds, repeats=repeats))
    if options.json:
        print(json.dumps([asdict(rates) for rates in measured], indent=2))
        return
    output = Console()
    output.width = max(output.width, 110)
    for table in tables(measured):
        output.print(table)
    for devices in (2, 4):
        small, *_, large = (row.nanoseconds("event") for row in measured if row.devices == devices)
        print(f"event, {devices} devices: time per op grows {large / small:.2f}x to the largest graph")


if __name__ == "__main__":
    main()
