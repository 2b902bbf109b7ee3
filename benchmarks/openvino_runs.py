"""Plans on real devices: equal outputs, prediction against measurement, f32 beside bf16.

    python -m benchmarks.openvino_runs equality --models resnet-50 --count 60
    python -m benchmarks.openvino_runs prediction --models inception-v3,resnet-50,bert-base
    python -m benchmarks.openvino_runs precision --models inception-v3

Models are exported from the zoo into --folder. On a machine that others use, too, ``--clock core`` counts the time on
the core; every table says which clock it is by.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

from loadmaster import api
from loadmaster.errors import InputError, RunError
from loadmaster.plan import Plan
from loadmaster.problem import Placement, Problem
from loadmaster.problem._evaluator import evaluate
from loadmaster.runtime import (
    Cache,
    Measurement,
    ModelProfile,
    Session,
    lint,
    parse_devices,
    profile_model,
    run_plan,
)
from loadmaster.runtime._calibration import split_features
from loadmaster.zoo._export import export_model

MODELS = "resnet-50,inception-v3,bert-base,gpt2-decode,two-tower"


@dataclass
class Options:
    folder: Path
    models: list[str]
    count: int
    samples: int
    clock: str
    seed: int


def model_file(name: str, options: Options) -> Path:
    path = options.folder / f"{name.replace('?', '_').replace('&', '_')}.xml"
    if not path.exists():
        export_model(name, path)
    return path


def profiled(name: str, devices: list[str], options: Options) -> tuple[Path, ModelProfile]:
    path = model_file(name, options)
    cache = Cache(options.folder / "measured.sqlite")
    return path, profile_model(path, parse_devices(devices), cache=cache, clock=options.clock)


def interval(found: Measurement) -> str:
    return f"{found.median * 1e3:.2f} ms [{found.low * 1e3:.2f}, {found.high * 1e3:.2f}]"


def spread(rows: list[str]) -> None:
    print("\n".join(rows), flush=True)


# -- equal outputs -------------------------------------------------------------------------------------------


def equality(options: Options) -> None:
    """Random placements of co-location groups on two and three devices, against the unplaced model."""
    spread(
        [
            "| model | devices | ran and equal | refused | failed | largest error | smallest control |",
            "|---|---|---|---|---|---|---|",
        ]
    )
    for name in options.models:
        for devices in (["A=cpu", "B=cpu"], ["A=cpu", "B=cpu", "C=cpu"]):
            path, profile = profiled(name, devices, options)
            problem = profile.problem()
            generator = np.random.default_rng(options.seed)
            equal, refused, failed, errors, controls = 0, [], [], [0.0], [np.inf]
            with Session(path, parse_devices(devices), clock=options.clock) as session:
                for _ in range(options.count):
                    placement = Placement(
                        generator.integers(len(devices), size=problem.classes)[problem.class_of]
                    )
                    wrong = [f for f in lint(problem, placement, profile.network) if f.level == "error"]
                    if wrong:
                        refused.append(wrong[0].text)
                        continue
                    try:
                        candidate = session.load("hetero", placement=placement.to_names(problem))
                        found = candidate.verify()
                    except RunError as error:
                        failed.append(str(error))
                        continue
                    candidate.close()
                    equal += 1
                    errors.append(found.error.relative)
                    controls.append(found.control)
            spread(
                [
                    f"| {name} | {len(devices)} | {equal} of {options.count} | {len(refused)} | {len(failed)} | "
                    f"{max(errors):.1e} | {min(controls):.1e} |",
                    *[f"  {text}" for text in (*refused, *failed)],
                ]
            )


# -- prediction ----------------------------------------------------------------------------------------------


def varied(problem: Problem, count: int, seed: int) -> list[Placement]:
    """Placements on two devices, from one cut to cuts everywhere: pieces of a topological order between random
    places, scattered groups, and both."""
    generator = np.random.default_rng(seed)
    first = np.full(problem.classes, problem.n)
    np.minimum.at(first, problem.class_of, problem.graph.position)
    rank = np.argsort(np.argsort(first))
    found = []
    for i in range(count):
        pieces = int(np.exp(generator.uniform(np.log(2), np.log(max(3, problem.classes // 3)))))
        places = np.sort(generator.choice(problem.classes - 1, pieces - 1, replace=False) + 1)
        side = np.searchsorted(places, rank, side="right") % 2
        if i % 2:
            scattered = generator.random(problem.classes) < generator.uniform(0.0, 0.5)
            side = np.where(scattered, 1 - side, side)
        found.append(Placement(side[problem.class_of]))
    return found


def prediction(options: Options) -> None:
    """The calibrated ``serial`` model against runs, on placements that it was not calibrated on."""
    spread(
        [
            f"clock {options.clock}",
            "| model | placements | tensors moved | relative to one device | rank correlation | median error | worst |",
            "|---|---|---|---|---|---|---|",
        ]
    )
    for name in options.models:
        devices = ["A=cpu", "B=cpu"]
        path, profile = profiled(name, devices, options)
        problem = profile.problem()
        predicted, measured, moved = [], [], []
        log = options.folder / f"prediction-{name}-{options.clock}.json"
        with Session(path, parse_devices(devices), clock=options.clock) as session:
            alone = session.load("single", device="A")
            for placement in varied(problem, options.count, options.seed):
                candidate = session.load("hetero", placement=placement.to_names(problem))
                base, found = session.measure([alone, candidate], samples=options.samples)
                candidate.close()
                predicted.append(evaluate(problem, placement).cost / profile.profiles["A"].wall)
                measured.append(found.median / base.median)
                moved.append(split_features(problem.graph, placement.device)[0])
                log.write_text(json.dumps({"predicted": predicted, "measured": measured, "moved": moved}))
        error = np.abs(np.array(predicted) - measured) / measured
        spread(
            [
                f"| {name} | {len(measured)} | {min(moved)} – {max(moved)} | "
                f"{min(measured):.2f} – {max(measured):.2f} | "
                f"{spearmanr(predicted, measured).statistic:.3f} | {np.median(error):.1%} | {error.max():.1%} |"
            ]
        )


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
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    count = given.count or (60 if given.what == "equality" else 40)
    options = Options(given.folder, given.models.split(","), count, given.samples, given.clock, given.seed)
    began = time.perf_counter()
    try:
        {"equality": equality, "prediction": prediction, "precision": precision}[given.what](options)
    except InputError as error:
        print(f"cannot be shown on this machine: {error}")
        sys.exit(1)
    print(f"\nin {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
