"""``auto`` against members of it alone on random graphs of odd shapes, on which nothing here was ever tuned.

    python -m benchmarks.shapes --rows shapes.jsonl
    python -m benchmarks.shapes --only "dense serial" --ops 1500 --budget 3 --methods annealing,multilevel
    python -m benchmarks.busy 6 python -m benchmarks.shapes --rows busy.jsonl

Chains, stars, trees, grids, dense graphs and long skips, many small graphs side by side, one op that outweighs all
others; three to nine unlike devices, 3 % of the pairs of op and device unsupported, and where the draw is odd, memory
for 1.15 of what the ops need.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial

import numpy as np

from loadmaster.graph import Graph, GraphBuilder
from loadmaster.hardware import Cluster, Device
from loadmaster.placers import get_placer
from loadmaster.problem import Problem, named_model
from loadmaster.studies import Case, Page, Row, Scope, Study, placed

__all__ = ["STUDY", "shaped_problem"]

SHAPES = ("chain", "star", "tree", "grid", "dense", "skip", "many", "giant", "layers")
MODELS = ("serial", "concurrent", "pipeline", "pipeline:chain", "pipeline:device", "offload")
METHODS = "local-search,multilevel,annealing,gdp,beam,linear-dp,ideal-dp,min-cut,calls"
ROOM = 1.15
"""Memory of all devices together over that of all ops, where it is short."""
UNSUPPORTED = 0.03


def options(parser: argparse.ArgumentParser) -> None:
    """What is drawn, and how long each method has."""
    parser.add_argument("--ops", type=int, default=600, help="of each graph (600)")
    parser.add_argument("--draws", type=int, default=2, help="problems of each shape and model (2)")
    parser.add_argument("--budget", type=float, default=5.0, help="seconds of each method (5)")
    parser.add_argument("--methods", default=METHODS, help="beside auto, by commas")


def cases(scope: Scope) -> list[Case]:
    """For each problem ``auto``, then the others that support it."""
    ops, budget = (60, 0.5) if scope.quick else (scope["ops"], scope["budget"])
    methods = ["auto", *scope["methods"].split(",")]
    found = []
    for shape in SHAPES:
        for model in MODELS:
            for draw in range(1 if scope.quick else scope["draws"]):
                key: Row = {"shape": shape, "model": model, "ops": ops, "draw": draw, "budget": budget}
                for method in methods:
                    run = partial(_method, shape, model, ops, draw, method, budget)
                    found.append(Case({**key, "method": method}, run))
    return [case for case in found if scope.only in case.title]


def edges(shape: str, ops: int, rng: np.random.Generator) -> Iterator[tuple[int, int]]:
    """Pairs (from, to), from the lower number to the higher."""
    for v in range(1, ops):
        match shape:
            case "chain" | "giant":
                yield v - 1, v
            case "star":
                yield 0, v
            case "tree":
                yield (v - 1) // 3, v
            case "grid":
                side = max(int(ops**0.5), 1)
                if v % side:
                    yield v - 1, v
                if v >= side:
                    yield v - side, v
            case "dense":
                for u in rng.choice(v, min(v, 12), replace=False).tolist():
                    yield u, v
            case "skip":
                yield v - 1, v
                if v > 2 and rng.random() < 0.2:
                    yield int(rng.integers(v - 1)), v
            case "many":
                if v % 7:
                    yield v - 1, v
            case "layers":
                width = 8
                if v >= width:
                    first = (v // width - 1) * width
                    for u in rng.choice(width, 2, replace=False).tolist():
                        yield first + u, v


@lru_cache(maxsize=1)
def shaped_problem(shape: str, model: str, ops: int, draw: int) -> Problem:
    """A problem on unlike devices; the same arguments give the same problem."""
    rng = np.random.default_rng([SHAPES.index(shape), MODELS.index(model), ops, draw])
    readers: list[list[int]] = [[] for _ in range(ops)]
    for u, v in edges(shape, ops, rng):
        readers[u].append(v)
    builder = GraphBuilder(f"{shape}-{ops}-{draw}")
    for v in range(ops):
        builder.op(f"op{v}", param_bytes=float(rng.lognormal()))
    for v, consumers in enumerate(readers):
        builder.tensor(v, bytes=float(rng.lognormal()), consumers=consumers)
    graph: Graph = builder.build()

    devices = int(rng.integers(3, 10))
    kinds = ["cpu", *("acc" for _ in range(devices - 1))]
    speed = rng.choice([0.5, 1.0, 1.0, 2.0, 4.0], devices)
    time = rng.lognormal(0.0, 1.0, (ops, 1)) * rng.lognormal(0.0, 0.3, (ops, devices)) * speed * 1e-3
    if shape == "giant":
        time[ops // 2] *= ops / 4
    unsupported = rng.random((ops, devices)) < UNSUPPORTED
    unsupported[np.arange(ops), rng.integers(0, devices, ops)] = False
    unsupported[:, 0] &= model != "offload"  # with few calls there is mostly no placement without the CPU
    time[unsupported] = np.inf
    dear = float(rng.choice([0.1, 1.0, 3.0])) * 1e-3
    rate = dear * rng.choice([0.5, 1.0, 2.0], (devices, devices))
    memory = rng.lognormal(0.0, 1.0, ops)
    capacity = np.full(devices, np.inf)
    if draw % 2:
        capacity = np.maximum(ROOM * memory.sum() * rng.dirichlet(np.full(devices, 8.0)), memory.max())
        capacity[0] = np.inf if model == "offload" else capacity[0]
    return Problem.make(
        graph,
        Cluster("drawn", tuple(Device(f"d{d}", kind) for d, kind in enumerate(kinds))),
        named_model(model),
        time=time,
        latency=np.full((devices, devices), 0.05 * dear),
        rate=rate,
        send_rate=np.full(devices, dear),
        recv_rate=np.full(devices, dear),
        memory=memory,
        resident=memory,
        capacity=capacity,
    )


def _method(shape: str, model: str, ops: int, draw: int, method: str, budget: float) -> Row:
    problem = shaped_problem(shape, model, ops, draw)
    if get_placer(method).supports(problem) is not None:
        return {"cost": None, "why": "not supported"}
    return placed(problem, method, budget=budget)


def write(page: Page, scope: Scope, rows: Sequence[Row]) -> None:
    """How ``auto`` stands beside the best of the others, and every problem where it is worse by 0.5 %."""
    by: dict[tuple[str, str, int, int], dict[str, Row]] = {}
    for row in rows:
        problem = by.setdefault((row["shape"], row["model"], row["ops"], row["draw"]), {})
        problem[row["method"]] = row
    lines = []
    for key, runs in by.items():
        others = {m: r["cost"] for m, r in runs.items() if m != "auto" and r.get("cost") is not None}
        mine = runs.get("auto", {})
        if not others or mine.get("cost") is None:
            continue
        best = min(others, key=lambda method: others[method])
        lines.append((*key, mine["cost"], others[best], best, mine["cost"] / others[best], mine["gap"]))
    ratios = np.array([line[-2] for line in lines])
    seconds = [runs["auto"].get("seconds") or 0.0 for runs in by.values() if "auto" in runs]
    late = sum(took > 1.05 * scope["budget"] + 0.5 for took in seconds)
    if len(lines):
        close, far = int((ratios <= 1.005).sum()), int((ratios > 1.02).sum())
        page.text(
            f"{len(lines)} problems; `auto` at most 0.5 % worse than the best of the others: {close}, over 2 % worse: "
            f"{far}, geometric mean {np.exp(np.log(ratios).mean()):.4f}; late: {late}."
        )
    columns = ("shape", "model", "ops", "draw", "auto, ms", "best other, ms", "by", "ratio", "gap")
    page.table(
        columns,
        [
            (
                *line[:4],
                f"{1e3 * line[4]:.4g}",
                f"{1e3 * line[5]:.4g}",
                line[6],
                f"{line[7]:.4f}",
                f"{100 * line[8]:.2f} %",
            )
            for line in sorted(lines, key=lambda line: -line[-2])
            if line[-2] > 1.005
        ],
    )


STUDY = Study("shapes", "auto on odd shapes", cases, write, options)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
