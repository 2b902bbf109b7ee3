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
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from benchmarks.resumable import Log
from loadmaster import api
from loadmaster.errors import InputError, RunError
from loadmaster.plan import Plan
from loadmaster.problem import Placement, Problem
from loadmaster.problem._evaluator import evaluate
from loadmaster.runtime import Cache, Candidate, Measurement, busy_ticks, lint, split_features
from loadmaster.runtime.openvino import ModelProfile, OpenVinoSession, parse_devices, profile_model, run_plan
from loadmaster.zoo import export_model

MODELS = "resnet-50,inception-v3,bert-base,gpt2-decode,two-tower"


@dataclass
class Options:
    folder: Path
    models: list[str]
    count: int
    samples: int
    clock: str
    seed: int
    batch: int = 10
    patience: float = 0.0


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


def spread(rows: list[str]) -> None:
    print("\n".join(rows), flush=True)


# -- equal outputs -------------------------------------------------------------------------------------------


def equality(options: Options) -> None:
    """Random placements of co-location groups on two and three devices, against the unplaced model."""
    spread([EQUALITY_HEAD, "|---|---|---|---|---|---|---|---|"])
    for name in options.models:
        for devices in (["A=cpu", "B=cpu"], ["A=cpu", "B=cpu", "C=cpu"]):
            path, profile = profiled(name, devices, options, links_too=False)
            problem = profile.problem()
            specs = parse_devices(devices)
            with OpenVinoSession(path, specs, clock=options.clock) as session:

                def load(
                    placement: Placement, session: OpenVinoSession = session, problem: Problem = problem
                ) -> Candidate:
                    return session.load("hetero", placement=placement.to_names(problem))

                equality_of(name, f"hetero, {len(devices)} devices", problem, profile, options, load)


EQUALITY_HEAD = (
    "| model | runtime | ran and equal | refused | failed | largest error | smallest control | submodels |"
)


def equality_of(
    name: str,
    runtime: str,
    problem: Problem,
    profile: ModelProfile,
    options: Options,
    load: Callable[[Placement], Candidate],
) -> None:
    """One row: random placements of co-location groups, refused by the linter, failed, or compared."""
    log = Log(
        options.folder / f"equality-{short(name)}-{runtime.replace(', ', '-').replace(' ', '-')}.jsonl",
        {"graph": problem.graph.digest, "classes": problem.classes, "seed": options.seed},
    )
    generator = np.random.default_rng(options.seed)
    rows = []
    for number in range(options.count):
        side = generator.integers(problem.devices, size=problem.classes)[problem.class_of]
        placement = Placement(side)

        def compare(placement: Placement = placement) -> dict[str, Any]:
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

        rows.append(log.result(number, compare))
    equal = [row for row in rows if "error" in row]
    refused, failed = ([row[what] for row in rows if what in row] for what in ("refused", "failed"))
    parts = [row["submodels"] for row in equal]
    spread(
        [
            f"| {name} | {runtime} | {len(equal)} of {options.count} | {len(refused)} | {len(failed)} | "
            f"{max((row['error'] for row in equal), default=0):.1e} | "
            f"{min((row['control'] for row in equal), default=np.inf):.1e} | "
            f"{min(parts, default=0)} – {max(parts, default=0)} |",
            *[f"  {text}" for text in (*refused, *failed)],
        ]
    )


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


PREDICTION_HEAD = [
    "| model | placements | cuts | relative to one device | rank correlation | of two halves of the samples | "
    "median error | worst |",
    "|---|---|---|---|---|---|---|---|",
]


@dataclass
class Guess:
    """A placement, ready to be loaded, with what it is predicted to take relative to one device."""

    how: str
    options: dict[str, Any]
    predicted: float
    cuts: int


def prediction_row(
    name: str, log: Log, session: OpenVinoSession, guesses: Sequence[Guess], options: Options
) -> None:
    """Measure in batches, all of a batch and one device alone in turns, twice; then compare."""
    alone = session.load("single", device="A")
    numbers = [n for n in range(len(guesses)) if n not in log.rows]
    for at in range(0, len(numbers), options.batch):
        batch = numbers[at : at + options.batch]
        loaded = [session.load(guesses[n].how, **guesses[n].options) for n in batch]
        for candidate in loaded:
            candidate.verify()
        wait_for_calm(options.patience)
        halves = [session.measure([alone, *loaded], samples=options.samples) for _ in range(2)]
        for position, n in enumerate(batch):
            ratios = [half[1 + position].median / half[0].median for half in halves]
            log.result(n, lambda ratios=ratios: {"halves": ratios})  # type: ignore[misc]
        for candidate in loaded:
            candidate.close()
    rows = [log.rows[n] for n in range(len(guesses))]
    first, second = (np.array([row["halves"][half] for row in rows]) for half in (0, 1))
    measured, predicted = (first + second) / 2, np.array([guess.predicted for guess in guesses])
    error = np.abs(predicted - measured) / measured
    spread(
        [
            f"| {name} | {len(rows)} | {min(g.cuts for g in guesses)} – {max(g.cuts for g in guesses)} | "
            f"{measured.min():.2f} – {measured.max():.2f} | "
            f"{spearmanr(predicted, measured).statistic:.3f} | {spearmanr(first, second).statistic:.3f} | "
            f"{np.median(error):.1%} | {error.max():.1%} |"
        ]
    )


def wait_for_calm(patience: float) -> None:
    """Until the machine does nothing else for two seconds, or the patience is over."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        before = sum(busy_ticks().values())
        time.sleep(2.0)
        if sum(busy_ticks().values()) - before <= 0.1 * 2.0 * os.sysconf("SC_CLK_TCK"):
            return


def prediction(options: Options) -> None:
    """The calibrated ``serial`` model against runs, on placements that it was not calibrated on."""
    spread([f"clock {options.clock}", *PREDICTION_HEAD])
    for name in options.models:
        devices = ["A=cpu", "B=cpu"]
        path, profile = profiled(name, devices, options)
        problem = profile.problem()
        log = Log(
            options.folder / f"prediction-{short(name)}-hetero-{options.clock}.jsonl",
            {"graph": problem.graph.digest, "classes": problem.classes, "seed": options.seed},
        )
        with OpenVinoSession(path, parse_devices(devices), clock=options.clock) as session:
            guesses = [
                Guess(
                    "hetero",
                    {"placement": placement.to_names(problem)},
                    evaluate(problem, placement).cost / profile.profiles["A"].wall,
                    split_features(problem.graph, placement.device)[0],
                )
                for placement in varied(problem, options.count, options.seed)
            ]
            prediction_row(name, log, session, guesses, options)
        for ends, link in profile.links.items():
            spread([f"  link {ends}: {link.latency * 1e6:.1f} us + {link.rate * 1e12:.0f} us/MB"])


# -- precision -----------------------------------------------------------------------------------------------


def precision(options: Options) -> None:
    """f32 beside bf16: the plan of ``min-cut`` with some ops pinned to f32, against all in f32."""
    for name in options.models:
        path, profile = profiled(name, ["F=cpu:precision=f32", "H=cpu:precision=bf16"], options)
        graph = profile.network.graph
        last = [graph.names[v] for v in graph.topological_order[-6:]]
        problem = profile.problem().constrained(pins=[f"{op}=F" for op in last])
        solution = api.place(problem, "min-cut", budget=30.0)
        run = run_plan(
            path, Plan.from_solution(problem, solution), samples=options.samples, clock=options.clock
        )
        alone = next(line.measurement for line in run.lines if line.name == "F alone")
        assert alone is not None
        faster = "faster beyond the noise" if run.plan.faster_than(alone) else "NOT faster beyond the noise"
        spread([f"{name}: plan {interval(run.plan)}, all f32 {interval(alone)}: {faster}"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("equality", "prediction", "precision"))
    parser.add_argument("--folder", type=Path, default=Path("build/openvino"))
    parser.add_argument("--models", default=MODELS)
    parser.add_argument(
        "--count", type=int, default=0, help="placements: by default 60 (equality) or 40 (prediction)"
    )
    parser.add_argument("--samples", type=int, default=7)
    parser.add_argument("--clock", default="wall", choices=("wall", "core"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--batch", type=int, default=10, help="prediction: placements measured in turns")
    parser.add_argument(
        "--patience", type=float, default=0.0, help="prediction: seconds to wait for a calm machine"
    )
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    count = given.count or (60 if given.what == "equality" else 40)
    options = Options(
        given.folder,
        given.models.split(","),
        count,
        given.samples,
        given.clock,
        given.seed,
        given.batch,
        given.patience,
    )
    began = time.perf_counter()
    try:
        {"equality": equality, "prediction": prediction, "precision": precision}[given.what](options)
    except InputError as error:
        print(f"cannot be shown on this machine: {error}")
        sys.exit(1)
    print(f"\nin {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
