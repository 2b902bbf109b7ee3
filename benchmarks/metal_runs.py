"""Few real runs on unlike devices: who finds the best plan, and how it compares with that of ``optimize``.

    python -m benchmarks.metal_runs contest --models inception-v3,resnet-50,bert-base --runs 100 --rows FILE
    python -m benchmarks.metal_runs contest --models 'resnet-50?size=64' --runs 4 --budget 15 --clock core --samples 3
    python -m benchmarks.metal_runs record --models inception-v3,resnet-50,bert-base --clock core

``contest``: a core and a core of half the speed. Every contender is told the profiled model and begins with its best
placement; an evaluation loads a placement, checks its outputs and measures it in turns with the first device. In the
end the best of all is measured afresh, beside the plan of ``optimize`` and the first device.

``record`` writes the op times that were measured, and those of a roofline that is right in the sum of each device, to
benchmarks/results/recorded: the machines of the kind ``recorded`` in :mod:`benchmarks.metal_gap`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.openvino_runs import Options, common, interval, model_file, profiled, short
from loadmaster import api
from loadmaster.arrays import IntArray
from loadmaster.errors import BusyError, RunError
from loadmaster.optimize import optimize
from loadmaster.placers import Budget
from loadmaster.placers.learned.hsdag import Hsdag
from loadmaster.placers.learned.surrogate._loop import Loop
from loadmaster.placers.learned.surrogate._residual import Trace
from loadmaster.placers.search.local_search import LocalSearch
from loadmaster.problem import Concurrent, Outcome, Placement, Problem, SimulatedEvaluator, dump_problem
from loadmaster.runtime import Cache, Candidate, OverlapFit, Piece, cut
from loadmaster.runtime.openvino import OpenVinoSession, overlapping_cores, parse_devices
from loadmaster.studies import Case, Page, Row, Scope, Study

__all__ = ["RECORDED", "STUDY"]

DEVICES = ["A=cpu:core=0", "B=cpu:core=1,speed=0.5"]
RECORDED = Path(__file__).parent / "results" / "recorded"
TRACES = 3


class Runs:
    """An evaluator that runs the pieces of a placement at once, with checked outputs, and remembers all of it."""

    def __init__(self, session: OpenVinoSession, problem: Problem, samples: int) -> None:
        self.problem, self.session, self.samples = problem, session, samples
        self.alone = session.alone("A")
        self.evaluations, self.pace = 0, 0.0
        self.found: list[tuple[float, IntArray]] = []
        self.failed: list[str] = []
        self.traces: dict[bytes, Trace] = {}
        self._constraints = SimulatedEvaluator(problem)

    def load(self, device: IntArray) -> tuple[Sequence[Piece], Candidate]:
        """A placement, ready to run."""
        pieces = cut(self.problem, Placement(device))
        return pieces, self.session.load("concurrent", pieces=pieces)

    def evaluate(self, placement: Placement) -> Outcome:
        """A run; infinite where it breaks a constraint, does not run or has other outputs."""
        self.evaluations += 1
        device = placement.device
        if not self._constraints.evaluate(Placement(device)).feasible:
            return Outcome(math.inf, False)
        try:
            pieces, candidate = self.load(device)
            try:
                candidate.verify()
                base, found = self.session.measure([self.alone, candidate], samples=self.samples)
                self.traces[device.tobytes()] = self._trace(pieces, candidate)
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
        cost = found.median * self.pace / base.median
        self.found.append((cost, device))
        return Outcome(cost, True)

    def evaluate_batch(self, device: IntArray) -> tuple[Any, Any]:
        """One after another."""
        found = [
            self.evaluate(Placement(np.ascontiguousarray(row, np.int32))) for row in np.atleast_2d(device)
        ]
        return np.array([one.cost for one in found]), np.array([one.feasible for one in found])

    def _trace(self, pieces: Sequence[Piece], candidate: Candidate) -> Trace:
        taken: dict[int, list[float]] = {}
        for _ in range(TRACES):
            for span in candidate.trace():
                taken.setdefault(span["submodel"], []).append(span["core"])
        index = self.problem.graph.index
        numbers = [n for n in taken if self._seconds(pieces[n]) > 0]
        ops = [np.array([index[op] for op in pieces[n].ops]) for n in numbers]
        return Trace(ops, np.array([min(taken[n]) for n in numbers]), 0.0)

    def _seconds(self, piece: Piece) -> float:
        d, index = self.problem.cluster.index[piece.device], self.problem.graph.index
        return float(self.problem.time[[index[op] for op in piece.ops], d].sum())


def _surrogate(problem: Problem, start: IntArray, runs: int, asked: Runs) -> None:
    def ask(device: IntArray) -> tuple[float, Trace | None]:
        return asked.evaluate(Placement(device)).value, asked.traces.get(device.tobytes())

    Loop(problem, 0, 2000).run(start, ask, runs)


def _placed(placer: Any, problem: Problem, start: IntArray, runs: int, asked: Runs) -> None:
    placer.place(problem, budget=Budget(evaluations=runs), start=Placement(start), evaluator=asked)


CONTENDERS: dict[str, Callable[[Problem, IntArray, int, Runs], None]] = {
    "surrogate + traces": _surrogate,
    "hsdag pre-trained": partial(_placed, Hsdag(weights="shipped")),
    "local-search": partial(_placed, LocalSearch(constructed=False)),
}


def contest(name: str, scope: Scope, options: Options) -> Row:
    """All contenders on one model, then what they found beside the plan of ``optimize``."""
    specs = parse_devices(DEVICES)
    path = model_file(name, options)
    ours = optimize(
        path,
        specs,
        budget=scope["budget"],
        samples=max(options.samples, 3),
        clock=options.clock,
        cache=Cache(options.folder / "measured.sqlite"),
    )
    path, profile = profiled(name, DEVICES, options, links_too=False)
    problem = OverlapFit().applied(profile.problem(model=Concurrent()))
    start = api.place(problem, "auto", budget=min(5.0, scope["budget"] / 4)).placement.device
    row: Row = {"pays": ours.pays}
    best: tuple[float, str, IntArray] = (math.inf, "", start)
    with OpenVinoSession(path, specs, cores=overlapping_cores(specs), clock=options.clock) as session:
        for contender in scope["contenders"].split(","):
            asked = Runs(session, problem, options.samples)
            CONTENDERS[contender](problem, np.ascontiguousarray(start, np.int32), scope["runs"], asked)
            for at in (1, 10, 30, scope["runs"]):
                if at <= len(asked.found):
                    row[f"{contender}, {at}"] = 1e3 * min(cost for cost, _ in asked.found[:at])
            row[f"{contender}, runs"] = f"{asked.evaluations} ({len(asked.failed)} failed)"
            if asked.found:
                cost, device = min(asked.found, key=lambda one: one[0])
                best = min(best, (cost, contender, device), key=lambda one: one[0])
            asked.alone.close()
        again = Runs(session, problem, options.samples)
        _, winner = again.load(best[2])
        winner.verify()
        beside = [again.alone, winner]
        placement = Placement(ours.plan.placement().device)
        if len(np.unique(placement.device)) > 1:
            beside.append(again.load(placement.device)[1])
            beside[-1].verify()
        measured = session.measure(beside, samples=scope["last"])
    row |= {"winner": best[1], "A alone": interval(measured[0]), "winner, afresh": interval(measured[1])}
    row["optimize, afresh"] = interval(measured[2]) if len(measured) > 2 else "one device"
    return row


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
    parser.add_argument("--contenders", default=",".join(CONTENDERS), help="by commas")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds for optimize")
    parser.add_argument("--last", type=int, default=30, help="samples of the last measurement")


def cases(scope: Scope) -> list[Case]:
    """One for each model."""
    given = Options.of(scope, 0)
    names = scope["models"].split(",")
    if scope["what"] == "record":
        return [Case({"part": "record", "model": name, "clock": given.clock}, partial(record, name, given))
                for name in names]  # fmt: skip
    more = {key: scope[key] for key in ("runs", "contenders", "budget", "last")}
    more |= {"samples": given.samples, "clock": given.clock}
    return [Case({"model": name, **more}, partial(contest, name, scope, given)) for name in names]


def write(page: Page, scope: Scope, rows: Sequence[Row]) -> None:
    """One column a model."""
    keys = [key for key in dict.fromkeys(key for row in rows for key in row) if key != "model"]
    page.table(
        ("", *(row["model"] for row in rows)), [(key, *(row.get(key) for row in rows)) for key in keys]
    )


STUDY = Study("metal_runs", "Few real runs on unlike devices", cases, write, options)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
