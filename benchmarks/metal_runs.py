"""Few real runs on unlike devices: who finds the best plan, and how it compares with that of ``optimize``.

    python -m benchmarks.metal_runs contest --models inception-v3,resnet-50,bert-base --runs 100 --rows FILE
    python -m benchmarks.metal_runs contest --models 'resnet-50?size=64' --runs 4 --budget 15 --clock core --samples 3
    python -m benchmarks.metal_runs record --models inception-v3,resnet-50,bert-base --clock core

``contest``: a core and a core of half the speed. Every contender is told the profiled model and begins with its best
placement; an evaluation loads a placement, checks its outputs and measures it in turns with the first device. In the
end the three that a contender measured best are measured again, and the best of these is its answer. Then the answers
of all, the plan of ``optimize`` and the first device are measured afresh, in turns. Every contender is a case of its
own, so that a long contest can be run in pieces (``--contenders``, ``--last 0`` without the last measurement); answers
are kept in --folder.

``record`` writes the op times that were measured, and those of a roofline that is right in the sum of each device, to
benchmarks/results/recorded: the machines of the kind ``recorded`` in :mod:`benchmarks.metal_gap`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.openvino_runs import Options, common, interval, model_file, profiled, short
from loadmaster import api
from loadmaster.arrays import IntArray
from loadmaster.errors import BusyError, InputError, RunError
from loadmaster.optimize import optimize, refine
from loadmaster.placers import Budget
from loadmaster.placers.learned.hsdag import Hsdag
from loadmaster.placers.learned.surrogate._loop import Loop
from loadmaster.placers.learned.surrogate._residual import Trace
from loadmaster.placers.search.local_search import LocalSearch
from loadmaster.plan import Plan
from loadmaster.problem import Concurrent, Outcome, Placement, Problem, SimulatedEvaluator, dump_problem
from loadmaster.runtime import (
    Cache,
    Candidate,
    OverlapFit,
    Piece,
    Traced,
    corrected,
    cut,
    fit_overlap,
    pieces_of,
)
from loadmaster.runtime.openvino import OpenVinoSession, overlapping_cores, parse_devices
from loadmaster.studies import Case, Page, Row, Scope, Study

__all__ = ["RECORDED", "STUDY"]

DEVICES = ["A=cpu:core=0", "B=cpu:core=1,speed=0.5"]
RECORDED = Path(__file__).parent / "results" / "recorded"
TRACES = 2
AGAIN = 3
"""Of the best of a contender, how many are measured again."""
PRICES = (1.0, 4.0)
"""What a cut is taken to cost in turn, as in ``optimize``."""
PLACING = 1.5
"""Seconds for every placement of ``fit``, half of them for refining it."""
STALE = 3
"""Rounds of ``fit`` without a new placement, after which it ends."""


class Runs:
    """An evaluator that runs the pieces of a placement at once, with checked outputs, and remembers all of it."""

    def __init__(self, session: OpenVinoSession, plain: Problem, samples: int, traces: int = TRACES) -> None:
        self.plain, self.problem = plain, OverlapFit().applied(plain)
        self.session, self.samples, self._traces = session, samples, traces
        self.alone = session.alone("A")
        self.evaluations, self.pace = 0, 0.0
        self.asked: list[float | None] = []
        """Of every evaluation, the time against the first device beside it; None where it did not run."""
        self.found: list[tuple[float, IntArray]] = []
        self.failed: list[str] = []
        self.traces: dict[bytes, Trace] = {}
        self.traced: list[Traced] = []
        self._constraints = SimulatedEvaluator(self.problem)

    def load(self, device: IntArray) -> tuple[Sequence[Piece], Candidate]:
        """A placement, ready to run."""
        pieces = cut(self.problem, Placement(device))
        return pieces, self.session.load("concurrent", pieces=pieces)

    def evaluate(self, placement: Placement) -> Outcome:
        """A run; infinite where it breaks a constraint, does not run or has other outputs."""
        self.evaluations += 1
        self.asked.append(None)
        device = placement.device
        if not self._constraints.evaluate(Placement(device)).feasible:
            return Outcome(math.inf, False)
        try:
            pieces, candidate = self.load(device)
            try:
                candidate.verify()
                base, found = self.session.measure([self.alone, candidate], samples=self.samples)
                self._trace(pieces, candidate, device)
            finally:
                candidate.close()
        except BusyError:
            raise
        except RunError as error:
            if not self.session.worker.alive:
                raise
            self.failed.append(str(error))
            return Outcome(math.inf, False)
        self.pace = self.pace or base.median
        self.asked[-1] = round(found.median / base.median, 4)
        cost = found.median * self.pace / base.median
        self.found.append((cost, device))
        return Outcome(cost, True)

    def evaluate_batch(self, device: IntArray) -> tuple[Any, Any]:
        """One after another."""
        found = [
            self.evaluate(Placement(np.ascontiguousarray(row, np.int32))) for row in np.atleast_2d(device)
        ]
        return np.array([one.cost for one in found]), np.array([one.feasible for one in found])

    def again(self, count: int) -> IntArray | None:
        """Of the best so many, measured once more in turns, the best; None where nothing ran."""
        best: dict[bytes, IntArray] = {}
        for _, device in sorted(self.found, key=lambda one: one[0]):
            best.setdefault(device.tobytes(), device)
        chosen = list(best.values())[:count]
        if len(chosen) < 2:
            return chosen[0] if chosen else None
        loaded = [self.load(device)[1] for device in chosen]
        measured = self.session.measure(loaded, samples=2 * self.samples)
        for candidate in loaded:
            candidate.close()
        return chosen[int(np.argmin([one.median for one in measured]))]

    def _trace(self, pieces: Sequence[Piece], candidate: Candidate, device: IntArray) -> None:
        taken: dict[int, list[float]] = {}
        for _ in range(self._traces):
            for span in candidate.trace():
                taken.setdefault(span["submodel"], []).append(span["core"])
        if not taken:
            return
        index = self.problem.graph.index
        numbers = [n for n in taken if self._seconds(pieces[n]) > 0]
        ops = [np.array([index[op] for op in pieces[n].ops]) for n in numbers]
        self.traces[device.tobytes()] = Trace(ops, np.array([min(taken[n]) for n in numbers]), 0.0)
        self.traced.append((pieces, {n: min(values) for n, values in taken.items()}))

    def _seconds(self, piece: Piece) -> float:
        d, index = self.problem.cluster.index[piece.device], self.problem.graph.index
        return float(self.problem.time[[index[op] for op in piece.ops], d].sum())


def _fit(start: IntArray, runs: int, asked: Runs) -> None:
    """The loop of ``optimize``, which has two rounds, for as long as new placements come up."""
    fit, plain, tried, stale, number = OverlapFit(), asked.plain, {start.tobytes()}, 0, 0
    asked.evaluate(Placement(start))
    while asked.evaluations < runs and stale < STALE:
        number, stale = number + 1, stale + 1
        for price in PRICES:
            problem = fit.applied(plain, price=price)
            placed = api.place(problem, "auto", budget=PLACING / 2, seed=number).placement
            refined = refine(plain, placed, fit, seconds=PLACING / 2, seed=number).device
            if refined.tobytes() not in tried and asked.evaluations < runs:
                tried.add(refined.tobytes())
                asked.evaluate(Placement(refined))
                stale = 0
        fit = fit_overlap(asked.plain, asked.traced, OverlapFit())
        plain = corrected(asked.plain, asked.traced, fit)


def _surrogate(pieces: bool, start: IntArray, runs: int, asked: Runs) -> None:
    """A model whose errors are learnt; with ``pieces`` its answers are refined by what their pieces would take."""

    def ask(device: IntArray) -> tuple[float, Trace | None]:
        return asked.evaluate(Placement(device)).value, asked.traces.get(device.tobytes())

    def improve(problem: Problem, device: IntArray) -> IntArray:
        fit = fit_overlap(problem, asked.traced, OverlapFit())
        return refine(problem, Placement(device), fit, seconds=PLACING / 2, seed=asked.evaluations).device

    Loop(asked.problem, 0, 2000, improve=improve if pieces else None).run(start, ask, runs)


def _placed(placer: Any, start: IntArray, runs: int, asked: Runs) -> None:
    placer.place(asked.problem, budget=Budget(evaluations=runs), start=Placement(start), evaluator=asked)


CONTENDERS: dict[str, tuple[int, Callable[[IntArray, int, Runs], None]]] = {
    "fit": (TRACES, _fit),
    "surrogate + traces": (TRACES, partial(_surrogate, False)),
    "surrogate + pieces": (TRACES, partial(_surrogate, True)),
    "hsdag pre-trained": (0, partial(_placed, Hsdag(weights="shipped"))),
    "local-search": (0, partial(_placed, LocalSearch(constructed=False))),
}
"""Traces that they see of every run, and what they do with a start, a number of runs and an evaluator."""


def optimized(name: str, scope: Scope, options: Options) -> Row:
    """The plan of ``optimize``, kept."""
    ours = optimize(
        model_file(name, options),
        parse_devices(DEVICES),
        budget=scope["budget"],
        samples=max(options.samples, 3),
        clock=options.clock,
        cache=Cache(options.folder / "measured.sqlite"),
    )
    ours.plan.save(options.folder / f"{short(name)}-optimize.json")
    return {"pays": ours.pays, "screened": dict(ours.screened), "seconds": ours.seconds}


def contended(name: str, contender: str, scope: Scope, options: Options) -> Row:
    """One contender on one model: all its runs, and its answer, kept."""
    path, plain = _problem(name, options)
    with _session(path, options) as session:
        began = time.monotonic()
        traces, method = CONTENDERS[contender]
        asked = Runs(session, plain, options.samples, traces)
        method(_start(plain), scope["runs"], asked)
        answer = asked.again(AGAIN)
        _answer(name, contender, scope, options).write_text(
            json.dumps(None if answer is None else answer.tolist())
        )
        row: Row = {"evaluations": asked.evaluations, "failed": len(asked.failed), "against A": asked.asked}
        row |= {"A ms": 1e3 * asked.pace, "seconds": time.monotonic() - began}
    return row


def afresh(name: str, scope: Scope, options: Options) -> Row:
    """The answers of all contenders, the plan of ``optimize`` and the first device, in turns."""
    path, plain = _problem(name, options)
    plan = Plan.load(options.folder / f"{short(name)}-optimize.json")
    with _session(path, options) as session:
        ways = Runs(session, plain, options.samples)
        running = {"A alone": ways.alone}
        if len(set(plan.document["placement"].values())) > 1:
            running["optimize"] = session.load("concurrent", pieces=pieces_of(plan))
        for contender in scope["contenders"].split(","):
            answer = json.loads(_answer(name, contender, scope, options).read_text())
            if answer is not None:
                running[contender] = ways.load(np.array(answer, np.int32))[1]
        measured = session.measure(list(running.values()), samples=scope["last"])
    row: Row = {way: interval(found) for way, found in zip(running, measured, strict=True)}
    row.setdefault("optimize", "one device")
    base = measured[0].median
    row["against A"] = {w: round(f.median / base, 4) for w, f in zip(running, measured, strict=True)}
    return row


def _problem(name: str, options: Options) -> tuple[Path, Problem]:
    path, profile = profiled(name, DEVICES, options, links_too=False)
    return path, profile.problem(model=Concurrent())


def _session(path: Path, options: Options) -> OpenVinoSession:
    specs = parse_devices(DEVICES)
    return OpenVinoSession(path, specs, cores=overlapping_cores(specs), clock=options.clock)


def _start(plain: Problem) -> IntArray:
    """What ``optimize`` would run first: by evaluations, so that all contenders have the same."""
    problem = OverlapFit().applied(plain)
    placed = api.place(problem, "local-search", evaluations=20_000, seed=0).placement
    device = refine(plain, placed, OverlapFit(), seconds=2 * PLACING, seed=0).device
    return np.ascontiguousarray(device, np.int32)


def _answer(name: str, contender: str, scope: Scope, options: Options) -> Path:
    return (
        options.folder
        / f"{short(name)}-{contender.replace(' + ', '-').replace(' ', '-')}-{scope['runs']}.json"
    )


def record(name: str, options: Options) -> Row:
    """One model's times, as a file."""
    _, profile = profiled(name, DEVICES, options, links_too=False)
    true = OverlapFit().applied(profile.problem(model=Concurrent()))
    graph = true.graph
    rough = np.maximum(graph.flops / 5e10, (graph.bytes_read + graph.bytes_written) / 1e10)[:, None]
    known = np.isfinite(true.time)
    rough = np.where(known & (true.time > 0), rough, true.time)
    total = [np.where(known, times, 0.0).sum(axis=0) for times in (true.time, rough)]
    told = np.where(known, rough * (total[0] / np.maximum(total[1], 1e-30)), np.inf)
    RECORDED.mkdir(parents=True, exist_ok=True)
    path = RECORDED / f"{short(name)}.json.gz"
    document = {"true": dump_problem(true), "told": told.tolist(), "devices": DEVICES, "clock": options.clock}
    path.write_bytes(gzip.compress(json.dumps(document).encode(), mtime=0))
    return {"ops": graph.n, "file": path.name, "bytes": path.stat().st_size, "A ms": 1e3 * total[0][0]}


def options(parser: argparse.ArgumentParser) -> None:
    """What is run, and how long."""
    parser.add_argument("what", choices=("contest", "record"))
    common(parser, "inception-v3,resnet-50,bert-base", 5)
    parser.add_argument("--runs", type=int, default=100, help="evaluations of every contender")
    parser.add_argument("--contenders", default="fit,surrogate + pieces,hsdag pre-trained", help="by commas")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds for optimize")
    parser.add_argument("--last", type=int, default=30, help="samples of the last measurement; 0: without")


def cases(scope: Scope) -> list[Case]:
    """For each model the plan of ``optimize``, every contender, and the last measurement."""
    given = Options.of(scope, 0)
    names, found = scope["models"].split(","), []
    if scope["what"] == "record":
        return [Case({"part": "record", "model": name, "clock": given.clock}, partial(record, name, given))
                for name in names]  # fmt: skip
    contenders = scope["contenders"].split(",")
    for word in contenders:
        if word not in CONTENDERS:
            raise InputError(f"--contenders {word!r}: choose from {', '.join(CONTENDERS)}")
    for name in names:
        key: Row = {"model": name, "samples": given.samples, "clock": given.clock}
        ours = {**key, "part": "optimize", "budget": scope["budget"]}
        found.append(Case(ours, partial(optimized, name, scope, given)))
        key["runs"] = scope["runs"]
        for word in contenders:
            mine = {**key, "part": "contender", "contender": word}
            found.append(Case(mine, partial(contended, name, word, scope, given)))
        if scope["last"]:
            last = {**key, "part": "afresh", "contenders": scope["contenders"], "last": scope["last"]}
            found.append(Case(last, partial(afresh, name, scope, given)))
    return found


def write(page: Page, scope: Scope, rows: Sequence[Row]) -> None:
    """The best so far by its own measurement, then the answers measured afresh."""
    if scope["what"] == "record":
        page.table(tuple(rows[0]), [tuple(row.values()) for row in rows]) if rows else None
        return
    page.section("The best so far, against the first device beside it")
    counts = sorted({n for n in (1, 3, 10, 30, 100, scope["runs"]) if n <= scope["runs"]})
    lines: list[Sequence[Any]] = []
    for row in rows:
        if row["part"] == "contender":
            ran = [value for value in row["against A"] if value is not None]
            cells = [min(ran[:n], default=None) if n <= len(ran) else None for n in counts]
            lines.append((row["model"], row["contender"], row["evaluations"], row["failed"], *cells))
    page.table(("model", "contender", "runs", "failed", *map(str, counts)), lines)
    page.section("Measured afresh, in turns")
    last = [row for row in rows if row["part"] == "afresh"]
    ways = list(dict.fromkeys(way for row in last for way in ("A alone", "optimize", *row["against A"])))
    page.table(
        ("", *(row["model"] for row in last)), [(way, *(row.get(way) for row in last)) for way in ways]
    )


STUDY = Study("metal_runs", "Few real runs on unlike devices", cases, write, options)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
