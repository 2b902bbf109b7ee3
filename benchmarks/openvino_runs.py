"""Plans on real devices: equal outputs, prediction against measurement, f32 beside bf16.

    python -m benchmarks.openvino_runs equality --models resnet-50 --count 60
    python -m benchmarks.openvino_runs prediction --models inception-v3,resnet-50,bert-base
    python -m benchmarks.openvino_runs precision --models inception-v3

Models are exported from the zoo into --folder. On a machine that others use, too, ``--clock core`` counts the time on
the core; every table says which clock it is by.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from loadmaster import api
from loadmaster.errors import RunError
from loadmaster.plan import Plan
from loadmaster.problem import Placement, Problem
from loadmaster.runtime import Cache, Candidate, Measurement, busy_ticks, lint, split_features
from loadmaster.runtime.openvino import ModelProfile, OpenVinoSession, parse_devices, profile_model, run_plan
from loadmaster.studies import Case, Row, Rows, Scope, Study, run_cases, solved
from loadmaster.zoo import export_model

__all__ = ["STUDY"]

MODELS = "resnet-50,inception-v3,bert-base,gpt2-decode,two-tower"


@dataclass
class Options:
    folder: Path
    count: int
    samples: int
    clock: str
    seed: int
    batch: int
    patience: float

    @classmethod
    def of(cls, scope: Scope, count: int) -> Options:
        """What was asked for; ``count`` placements by default."""
        scope["folder"].mkdir(parents=True, exist_ok=True)
        rest = (scope[name] for name in ("samples", "clock", "seed", "batch", "patience"))
        return cls(scope["folder"], scope["count"] or count, *rest)

    def kept(self, what: str, name: str, runtime: str) -> Rows:
        """Every placement is a row of its own: a run that was stopped goes on behind the last one."""
        words = [what, short(name), *runtime.replace(",", "").split(), self.clock]
        return Rows(self.folder / f"{'-'.join(words)}.jsonl")


def common(parser: argparse.ArgumentParser, models: str, samples: int) -> None:
    """Options of all programs that run on devices."""
    parser.add_argument("--folder", type=Path, default=Path("build/openvino"))
    parser.add_argument("--models", default=models)
    parser.add_argument(
        "--count", type=int, default=0, help="placements (60, or 40 for prediction) or inferences"
    )
    parser.add_argument("--samples", type=int, default=samples)
    parser.add_argument("--clock", default="wall", choices=("wall", "core"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--batch", type=int, default=10, help="prediction: placements measured in turns")
    parser.add_argument(
        "--patience", type=float, default=0.0, help="prediction: seconds to wait for a calm machine"
    )


def short(name: str) -> str:
    """A model's name as part of a file's."""
    return name.replace("?", "_").replace("&", "_").replace("=", "-")


def model_file(name: str, options: Options) -> Path:
    path = options.folder / f"{short(name)}.xml"
    if not path.exists():
        export_model(name, path)
    return path


def profiled(
    name: str, devices: list[str], options: Options, *, links_too: bool = True
) -> tuple[Path, ModelProfile]:
    path = model_file(name, options)
    cache = Cache(options.folder / "measured.sqlite")
    specs = parse_devices(devices)
    return path, profile_model(path, specs, cache=cache, clock=options.clock, links_too=links_too)


def interval(found: Measurement) -> str:
    return f"{found.median * 1e3:.2f} ms [{found.low * 1e3:.2f}, {found.high * 1e3:.2f}]"


# -- equal outputs -------------------------------------------------------------------------------------------


def equality(name: str, devices: list[str], options: Options) -> Row:
    """Random placements of co-location groups on two or three devices, against the unplaced model."""
    path, profile = profiled(name, devices, options, links_too=False)
    problem = profile.problem()
    with OpenVinoSession(path, parse_devices(devices), clock=options.clock) as session:

        def load(placement: Placement) -> Candidate:
            return session.load("hetero", placement=placement.to_names(problem))

        return equality_of(name, f"hetero, {len(devices)} devices", problem, profile, options, load)


def equality_of(
    name: str,
    runtime: str,
    problem: Problem,
    profile: ModelProfile,
    options: Options,
    load: Callable[[Placement], Candidate],
) -> Row:
    """Random placements of co-location groups: refused by the linter, failed, or compared."""

    def compare(placement: Placement) -> Row:
        wrong = [f for f in lint(problem, placement, profile.network) if f.level == "error"]
        if wrong:
            return {"refused": wrong[0].text}
        try:
            candidate = load(placement)
            found = candidate.verify()
        except RunError as error:
            return {"failed": str(error)}
        candidate.close()
        return {"error": found.error.relative, "control": found.control, "submodels": candidate.submodels}

    generator = np.random.default_rng(options.seed)
    about = {"graph": problem.graph.digest, "classes": problem.classes, "seed": options.seed}
    cases = []
    for number in range(options.count):
        side = generator.integers(problem.devices, size=problem.classes)[problem.class_of]
        cases.append(Case({**about, "number": number}, partial(compare, Placement(side.astype(np.int32)))))
    rows = run_cases(cases, options.kept("equality", name, runtime))
    if len(rows) < len(cases):
        raise KeyboardInterrupt  # what was cut short must not count as a result
    equal = [row for row in rows if "error" in row]
    parts = [row["submodels"] for row in equal]
    return {
        "placements": len(rows),
        "ran and equal": len(equal),
        "refused": sum("refused" in row for row in rows),
        "failed": sum("failed" in row for row in rows),
        "largest error": max((row["error"] for row in equal), default=0.0),
        "smallest control": min((row["control"] for row in equal), default=None),
        "submodels": f"{min(parts, default=0)} – {max(parts, default=0)}",
        "why": "; ".join(sorted({row[key] for row in rows for key in ("refused", "failed") if key in row})),
    }


# -- prediction ----------------------------------------------------------------------------------------------


def varied(problem: Problem, count: int, seed: int) -> list[Placement]:
    """Placements on two devices that differ in both respects that matter: how often they change the device, and how
    much of the model each device has.

    A topological order is cut at 1 to a third of all places (uniform in the logarithm). Each piece goes to the second
    device with a probability drawn between 0.05 and 0.95. Of every other placement a share of groups, drawn between
    0 and one half, is then moved to the other device.
    """
    generator = np.random.default_rng(seed)
    first = np.full(problem.classes, problem.n)
    np.minimum.at(first, problem.class_of, problem.graph.position)
    rank = np.argsort(np.argsort(first))
    found: list[Placement] = []
    while len(found) < count:
        pieces = int(np.exp(generator.uniform(np.log(2), np.log(max(3, problem.classes // 3)))))
        places = np.sort(generator.choice(problem.classes - 1, pieces - 1, replace=False) + 1)
        owner = generator.random(pieces) < generator.uniform(0.05, 0.95)
        side = owner[np.searchsorted(places, rank, side="right")].astype(np.int32)
        if len(found) % 2:
            scattered = generator.random(problem.classes) < generator.uniform(0.0, 0.5)
            side = np.where(scattered, 1 - side, side)
        if 0 < side.sum() < problem.classes:
            found.append(Placement(side[problem.class_of]))
    return found


@dataclass
class Guess:
    """A placement, ready to be loaded, with what it is predicted to take relative to one device."""

    how: str
    options: dict[str, Any]
    predicted: float
    cuts: int


def prediction_row(
    name: str,
    runtime: str,
    problem: Problem,
    session: OpenVinoSession,
    guesses: Sequence[Guess],
    options: Options,
) -> Row:
    """Measure in batches, all of a batch and one device alone in turns, twice; then compare."""
    kept = options.kept("prediction", name, runtime)
    about = {"graph": problem.graph.digest, "classes": problem.classes, "seed": options.seed}
    keys = [{**about, "number": number} for number in range(len(guesses))]
    alone = session.load("single", device="A")
    missing = [n for n, key in enumerate(keys) if kept.get(key) is None]
    for at in range(0, len(missing), options.batch):
        batch = missing[at : at + options.batch]
        loaded = [session.load(guesses[n].how, **guesses[n].options) for n in batch]
        for candidate in loaded:
            candidate.verify()
        wait_for_calm(options.patience)
        halves = [session.measure([alone, *loaded], samples=options.samples) for _ in range(2)]
        for position, n in enumerate(batch):
            kept.add(keys[n], {"halves": [half[1 + position].median / half[0].median for half in halves]})
        for candidate in loaded:
            candidate.close()
    rows = [row for key in keys if (row := kept.get(key)) is not None]
    first, second = (np.array([row["halves"][half] for row in rows]) for half in (0, 1))
    measured, predicted = (first + second) / 2, np.array([guess.predicted for guess in guesses])
    error = np.abs(predicted - measured) / measured
    return {
        "placements": len(rows),
        "cuts": f"{min(g.cuts for g in guesses)} – {max(g.cuts for g in guesses)}",
        "relative to one device": f"{measured.min():.2f} – {measured.max():.2f}",
        "rank correlation": float(spearmanr(predicted, measured).statistic),
        "of two halves of the samples": float(spearmanr(first, second).statistic),
        "median error %": 100 * float(np.median(error)),
        "worst %": 100 * float(error.max()),
    }


def wait_for_calm(patience: float) -> None:
    """Until the machine does nothing else for two seconds, or the patience is over."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        before = sum(busy_ticks().values())
        time.sleep(2.0)
        if sum(busy_ticks().values()) - before <= 0.1 * 2.0 * os.sysconf("SC_CLK_TCK"):
            return


def prediction(name: str, options: Options) -> Row:
    """The calibrated ``serial`` model against runs, on placements that it was not calibrated on."""
    devices = ["A=cpu", "B=cpu"]
    path, profile = profiled(name, devices, options)
    problem = profile.problem()
    with OpenVinoSession(path, parse_devices(devices), clock=options.clock) as session:
        guesses = [
            Guess(
                "hetero",
                {"placement": placement.to_names(problem)},
                api.evaluate(problem, placement).cost / profile.profiles["A"].wall,
                split_features(problem.graph, placement.device)[0],
            )
            for placement in varied(problem, options.count, options.seed)
        ]
        row = prediction_row(name, "hetero", problem, session, guesses, options)
    links = (
        f"{ends}: {x.latency * 1e6:.1f} us + {x.rate * 1e12:.0f} us/MB" for ends, x in profile.links.items()
    )
    return row | {"links": "; ".join(links)}


# -- precision -----------------------------------------------------------------------------------------------


def precision(name: str, options: Options) -> Row:
    """f32 beside bf16: the plan of ``min-cut`` with some ops pinned to f32, against all in f32."""
    path, profile = profiled(name, ["F=cpu:precision=f32", "H=cpu:precision=bf16"], options)
    graph = profile.network.graph
    last = [graph.names[v] for v in graph.topological_order[-6:]]
    problem = profile.problem().constrained(pins=[f"{op}=F" for op in last])
    plan = Plan.from_solution(problem, solved(problem, "min-cut", budget=30.0))
    run = run_plan(path, plan, samples=options.samples, clock=options.clock)
    alone = next(line.measurement for line in run.lines if line.name == "F alone")
    assert alone is not None
    return {
        "plan": interval(run.plan),
        "all f32": interval(alone),
        "faster beyond the noise": run.plan.faster_than(alone),
    }


def options(parser: argparse.ArgumentParser) -> None:
    """What is shown."""
    parser.add_argument("what", choices=("equality", "prediction", "precision"))
    common(parser, MODELS, 7)


def cases(scope: Scope) -> list[Case]:
    """A case per model, and per number of devices."""
    what = scope["what"]
    given = Options.of(scope, 40 if what == "prediction" else 60)
    key: Row = {"part": what, "clock": given.clock, "seed": given.seed}
    key |= {"precision": {"samples": given.samples}}.get(what, {"count": given.count})
    found = []
    for name in scope["models"].split(","):
        mine = {**key, "model": name}
        if what == "equality":
            for devices in (["A=cpu", "B=cpu"], ["A=cpu", "B=cpu", "C=cpu"]):
                many = {**mine, "runtime": f"hetero, {len(devices)} devices"}
                found.append(Case(many, partial(equality, name, devices, given)))
        else:
            found.append(Case(mine, partial(prediction if what == "prediction" else precision, name, given)))
    return found


STUDY = Study("openvino_runs", "Plans on real devices", cases, options=options, here=True)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
