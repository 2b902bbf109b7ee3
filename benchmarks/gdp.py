"""What the pre-trained policy is worth on families of graphs that it was not trained on.

python -m benchmarks.gdp train --folder DIR [--fold NAME] [--seed S] [--seconds 600]   weights of the folds
python -m benchmarks.gdp run --folder DIR --results FILE [--model pipeline] [--auto 10]   held-out graphs
python -m benchmarks.gdp table --results FILE [--model pipeline]               ratios to the best known, in Markdown
python -m benchmarks.gdp unseen --results FILE [--auto 30]     the shipped weights on the published workloads
python -m benchmarks.gdp large                                    GNMT with 8 layers, 51,417 ops, zero-shot
python -m benchmarks.gdp ablations --folder DIR [--seconds 600]   trained with and without the context

Training is counted in seconds of one core. ``train`` and ``run`` leave out what is in the folder or file already, so
that they can be killed and started again. A graph is only ever placed with the weights of the fold that its family
was left out of. Equal evaluations are those that the greedy policy needed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from loadmaster import api
from loadmaster.errors import InfeasibleError
from loadmaster.placers import PLACERS, Budget
from loadmaster.placers.learned._evolution import Evolution, Trainer, families_without, pretrain_tasks
from loadmaster.placers.learned._list_candidates import TimeTracks, tracks_of
from loadmaster.placers.learned._list_weights import Weights, save_weights
from loadmaster.placers.learned.gdp import Gdp, GdpSearch
from loadmaster.placers.local_search import LocalSearch
from loadmaster.problem import Problem
from loadmaster.problem._evaluator import SimulatedEvaluator
from loadmaster.problem.bounds import lower_bound

WORKLOADS = Path(os.environ.get("LOADMASTER_WORKLOADS", Path(__file__).parents[2] / "shared" / "workloads"))

FOLDS = {
    "recurrent": ("rnnlm", "gnmt"),
    "transformers": ("transformer-xl", "bert", "gpt2", "gpt2-decode"),
    "images": ("inception", "resnet", "two-tower"),
    "cells": ("amoebanet", "unet", "wavenet"),
    "random": ("random", "switch"),
}
"""Fold -> families that are left out together."""

HELD_OUT = {
    "rnnlm": ("rnnlm-2?seq=12 p100-2", "rnnlm-4?seq=8 p100-4", "rnnlm-4?seq=20&training=0 p100-4",
              "rnnlm-2?seq=20&training=0&width=1024 2acc+1cpu", "rnnlm-8?seq=6 p100-8"),
    "gnmt": ("gnmt-2?seq=6 p100-2", "gnmt-2?seq=10&training=0 p100-4", "gnmt-4?seq=4 p100-4",
             "gnmt-4?seq=8&training=0 4acc+1cpu", "gnmt-8?seq=3&training=0 p100-8"),
    "transformer-xl": ("transformer-xl-2 p100-2", "transformer-xl-4 p100-4", "transformer-xl-8 p100-8",
                       "transformer-xl-6?training=0&batch=4 2acc+1cpu"),
    "bert": ("bert-base?seq=64 p100-2", "bert-base?layers=8&batch=8&training=1 p100-4", "bert-base?seq=8 hsdag",
             "bert-large?seq=128&batch=4 p100-4", "bert-base?seq=256&batch=2 laptop"),
    "gpt2": ("gpt2 p100-2", "gpt2?layers=8&training=1&batch=2 p100-4", "gpt2?seq=128&batch=8 4acc+1cpu"),
    "gpt2-decode": ("gpt2-decode p100-2", "gpt2-decode?batch=16 2acc+1cpu"),
    "inception": ("inception-v3 hsdag", "inception-v3?batch=16 p100-2", "inception-v3?batch=32&training=1 p100-4",
                  "inception-v3 laptop"),
    "resnet": ("resnet-50 hsdag", "resnet-101?batch=16 p100-4", "resnet-50?batch=16&training=1 p100-4",
               "resnet-152?batch=4 2acc+1cpu"),
    "two-tower": ("two-tower p100-2", "two-tower?batch=8 hsdag", "two-tower?depth=101&batch=4 4acc+1cpu",
                  "two-tower?batch=16&training=1 p100-4"),
    "amoebanet": ("amoebanet?layers=6&training=0 p100-4", "amoebanet?layers=6&batch=8 p100-4",
                  "amoebanet?layers=12&training=0&batch=4 2acc+1cpu"),
    "unet": ("unet?batch=4&training=1 p100-2", "unet hsdag", "unet?batch=8 p100-4", "unet?batch=2&training=1 p100-8"),
    "wavenet": ("wavenet-18 p100-2", "wavenet-36?training=0 p100-4", "wavenet-27 4acc+1cpu",
                "wavenet-36?seq=8000&training=0 p100-8"),
    "switch": ("switch-base-8 p100-4", "switch-base-4?batch=2 p100-2", "switch-base-8?batch=1 4acc+1cpu"),
    "random": ("layered-300 4acc+1cpu", "layered-500?width=20&intensity=50&seed=3 p100-8",
               "layered-200?width=3&seed=1 p100-2", "layered-400?width=40&degree=3&seed=2 p100-4",
               "layered-600?skip=0.5&seed=4 2acc+1cpu", "layered-250?spread=2&seed=5 p100-4",
               "layered-350?intensity=1000&width=12&seed=6 p100-8", "layered-800?width=5&intensity=300&seed=7 p100-4",
               "layered-150?degree=1&width=10&seed=8 hsdag", "layered-450?width=30&seed=9&spread=0 4acc+1cpu"),
}  # fmt: skip
"""Family -> graphs and clusters; sizes and clusters are others than in training."""

TUNED = 500
"""Evaluations in all where the policy is tuned on the graph (``tune=true``)."""
SECONDS = 2.0
"""Of search after a start."""


def fold_of(family: str) -> str:
    """The fold in which a family was left out."""
    return next(fold for fold, families in FOLDS.items() if family in families)


# -- training ------------------------------------------------------------------------------------------------


def train(folder: Path, fold: str, seed: int, seconds: float, *, context: bool = True) -> None:
    """Weights of a fold, by so many seconds of one core; the state survives a kill."""
    path = folder / f"{fold}-{seed}{'' if context else '-plain'}.npz"
    if path.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    settings, left = Evolution(context=context), FOLDS.get(fold, ())
    families = families_without(left)
    trainer = Trainer(pretrain_tasks(seed, settings, families), settings, seed, workers=1)
    state, spent = Path(f"{path}.state"), Path(f"{path}.seconds")
    if state.exists() and spent.exists():
        trainer.resume(state, families)
    used = float(spent.read_text()) if spent.exists() else 0.0
    began, saved = time.process_time(), time.monotonic()
    while used + time.process_time() - began < seconds:
        report = trainer.step()
        if report.generation % 10 == 0:
            print(
                fold,
                seed,
                report.generation,
                f"{used + time.process_time() - began:.0f} s",
                report.gain,
                flush=True,
            )
        if time.monotonic() - saved > 20:
            trainer.save(state, families)
            spent.write_text(str(used + time.process_time() - began))
            saved = time.monotonic()
    recipe = {"trained": True, "left_out": list(left), "seed": seed, "generations": trainer.generation}
    save_weights(path, Weights(trainer.average, {**recipe, "cpu_seconds": seconds}))


# -- held-out graphs -----------------------------------------------------------------------------------------


def columns(problem: Problem, weights: str, auto: float) -> dict[str, float]:
    """Method -> cost (nan where it has none)."""
    row: dict[str, float] = {}

    def note(name: str, make: Callable[[], float]) -> None:
        try:
            row[name] = make()
        except InfeasibleError:
            row[name] = math.nan

    greedy = Gdp(weights=weights, samples=0, guard=False)
    plain = replace(greedy, weights="untrained")
    api._warm_up(greedy, problem)
    began = time.perf_counter()
    found = greedy.place(problem, budget=Budget())
    row["seconds"], row["evaluations"] = time.perf_counter() - began, float(found.evaluations)
    row["zero-shot"] = found.cost
    row["untrained"] = plain.place(problem, budget=Budget()).cost
    tracks, check = tracks_of(problem), SimulatedEvaluator(problem)
    if isinstance(tracks, TimeTracks):
        for name, base in (("3 passes", greedy), ("untrained, 3 passes", plain)):
            row[name] = min(check.evaluate(p).value for p in tracks.track(base.read().vector, "ops"))
    row["guarded"] = replace(greedy, guard=True).place(problem, budget=Budget()).cost
    for name, base in (("best of 16", greedy), ("untrained, best of 16", plain)):
        row[name] = replace(base, samples=16).place(problem, budget=Budget()).cost
    for method in ("single", "metis", "expert", "heft", "lookahead"):
        if PLACERS[method].supports(problem) is None:
            note(method, lambda m=method: PLACERS[m].place(problem, budget=Budget(evaluations=200)).cost)  # type: ignore[misc]
    equal = Budget(evaluations=max(int(found.evaluations), 1))
    for method in ("random", "local-search"):
        note(f"{method}, equal", lambda m=method: PLACERS[m].place(problem, budget=equal).cost)  # type: ignore[misc]
    for name, base in (("fine-tuned", greedy), ("untrained, fine-tuned", plain)):
        tuned = replace(base, samples=16, tune=True)
        row[name] = tuned.place(problem, budget=Budget(evaluations=TUNED)).cost
    note(
        "local-search, 500",
        lambda: PLACERS["local-search"].place(problem, budget=Budget(evaluations=TUNED)).cost,
    )
    for name, base in (("gdp+ls", greedy), ("untrained+ls", plain)):
        policy = GdpSearch(weights=base.weights, samples=16, search=SECONDS)
        row[name] = api.place(problem, policy, budget=60.0).cost
    if "heft" in row:
        start = PLACERS["heft"].place(problem, budget=Budget(evaluations=200)).placement
        search = replace(LocalSearch(), constructed=False)
        row["heft + 2 s"] = api.place(problem, search, budget=SECONDS, start=start).cost
    else:
        row["rules + 2 s"] = api.place(problem, "local-search", budget=SECONDS).cost
    best = api.place(problem, "auto", budget=auto)
    row["auto"], row["bound"] = best.cost, max(best.bound, lower_bound(problem).value)
    return row


def held_out(model: str) -> Iterator[tuple[str, str, str]]:
    """(family, graph, cluster), one of every family in turn, so that a part of the run is a fair part."""
    for i in range(max(map(len, HELD_OUT.values()))):
        for family, cases in HELD_OUT.items():
            if i < len(cases):
                name, cluster = cases[i].split()
                yield family, name, cluster


def rows_in(path: Path) -> list[dict[str, Any]]:
    """The finished rows of a file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def run(folder: Path, results: Path, model: str, auto: float, seed: int) -> None:
    """Place what is not in the file yet."""
    known = {(row["graph"], row["cluster"], row["model"], row["seed"]) for row in rows_in(results)}
    for family, name, cluster in held_out(model):
        if (name, cluster, model, seed) in known:
            continue
        weights = folder / f"{fold_of(family)}-{seed}.npz"
        if not weights.exists():
            continue
        problem = api.problem(f"zoo:{name}", cluster, model)
        row = {
            "family": family,
            "graph": name,
            "cluster": cluster,
            "model": model,
            "seed": seed,
            "ops": problem.n,
        }
        row |= columns(problem, str(weights), auto)
        with results.open("a") as file:
            print(json.dumps(row), file=file)
        print(name, cluster, f"{row['zero-shot'] / row['auto']:.3f} of auto", file=sys.stderr, flush=True)


SHOWN = (
    "single", "random, equal", "local-search, equal", "metis", "expert", "heft", "lookahead", "untrained, 3 passes",
    "3 passes", "untrained", "zero-shot",
    "guarded", "untrained, best of 16", "best of 16", "local-search, 500", "untrained, fine-tuned",
    "fine-tuned", "heft + 2 s",
    "rules + 2 s", "untrained+ls", "gdp+ls", "auto", "bound",
)  # fmt: skip


def table(results: Path, model: str, seed: int) -> None:
    """Geometric means of cost / best known, by family and in all."""
    rows = [row for row in rows_in(results) if row["model"] == model and row["seed"] == seed]
    shown = [name for name in SHOWN if any(name in row for row in rows)]
    for row in rows:
        costs = [row[name] for name in shown if name != "bound" and math.isfinite(row.get(name, math.nan))]
        row["best"] = min(costs)
    families = [family for family in HELD_OUT if any(row["family"] == family for row in rows)]
    print(f"| method | all ({len(rows)}) | " + " | ".join(families) + " |")
    print("|---|" + "--:|" * (len(families) + 1))
    for name in shown:
        cells = []
        for family in (None, *families):
            ratio = [
                row[name] / row["best"] for row in rows if family in (None, row["family"]) and name in row
            ]
            ratio = [x for x in ratio if math.isfinite(x) and x > 0]
            cells.append(f"{np.exp(np.mean(np.log(ratio))):.3f}" if ratio else "")
        print(f"| {name} | " + " | ".join(cells) + " |")
    if all("heft" in row for row in rows):
        against = [row["zero-shot"] / row["heft"] for row in rows]
        print(f"\nzero-shot against heft: {np.exp(np.mean(np.log(against))):.3f}, worst {max(against):.3f}")
    against = [row["zero-shot"] / row["auto"] for row in rows]
    print(f"\nzero-shot against auto: {np.exp(np.mean(np.log(against))):.3f}, worst {max(against):.3f}")
    for name in ("3 passes", "zero-shot", "best of 16", "fine-tuned", "gdp+ls"):
        other = {"zero-shot": "untrained", "gdp+ls": "untrained+ls"}.get(name, f"untrained, {name}")
        pairs = [row for row in rows if math.isfinite(row.get(name, math.nan))]
        if not pairs:
            continue
        gain = np.log([row[name] / row[other] for row in pairs])
        error = gain.std(ddof=1) / math.sqrt(len(gain)) if len(gain) > 1 else math.nan
        print(
            f"\n{name} against {other}: {100 * np.expm1(gain.mean()):+.2f} % ± {100 * error:.2f} % (standard error)"
        )
    spent = np.mean([row["seconds"] for row in rows]), np.mean([row["evaluations"] for row in rows])
    print(f"\ngreedy decoding takes {spent[0]:.2f} s and {spent[1]:.0f} evaluations on average")


# -- other runs ----------------------------------------------------------------------------------------------


def unseen(results: Path, auto: float) -> None:
    """The published workloads: neither their graphs nor their costs were ever trained on."""
    known = {(row["graph"], row["model"]) for row in rows_in(results)}
    for path in sorted(WORKLOADS.glob("msr/throughput/*/*.json")):
        for model in ("concurrent", "pipeline"):
            name = f"{path.parent.name}/{path.stem}"
            if (name, model) not in known:
                problem = api.problem(path, model=model)
                row: dict[str, Any] = {"graph": name, "model": model, "ops": problem.n}
                for method in ("single", "metis", "expert", "heft", "gdp"):
                    if PLACERS[method].supports(problem) is None:
                        row[method] = api.place(problem, method, evaluations=1000).cost
                row["zero-shot"] = Gdp(samples=0, guard=False).place(problem, budget=Budget()).cost
                row["auto"] = api.place(problem, "auto", budget=auto).cost
                with results.open("a") as file:
                    print(json.dumps(row), file=file)
    print("| graph | model | ops | single | METIS | expert | HEFT | zero-shot | `gdp` | `auto` |")
    print("|---|---|--:|" + "--:|" * 7)
    for row in rows_in(results):
        cells = [
            f"{row[m] / row['auto']:.3f}" if m in row else ""
            for m in ("single", "metis", "expert", "heft", "zero-shot", "gdp")
        ]
        print(
            f"| {row['graph']} | {row['model']} | {row['ops']} | {' | '.join(cells)} | {1e3 * row['auto']:.4g} ms |"
        )


def ablations(folder: Path, fold: str, seed: int, seconds: float) -> None:
    """The same training with and without the context of the graph, on the held-out graphs of the fold."""
    for context in (True, False):
        train(folder, fold, seed, seconds, context=context)
    ratios: dict[str, list[float]] = {"3 passes": [], "zero-shot": []}
    for family, name, cluster in held_out("concurrent"):
        if family not in FOLDS[fold]:
            continue
        problem = api.problem(f"zoo:{name}", cluster, "concurrent")
        tracks, check = tracks_of(problem), SimulatedEvaluator(problem)
        assert isinstance(tracks, TimeTracks)
        for kind in ratios:
            costs = []
            for file in (f"{fold}-{seed}.npz", f"{fold}-{seed}-plain.npz"):
                vector = Gdp(weights=str(folder / file)).read().vector
                made = tracks.track(vector, "ops") if kind == "3 passes" else tracks.all(vector)
                costs.append(min(check.evaluate(p).value for p in made))
            ratios[kind].append(costs[1] / costs[0])
        print(name, cluster, {k: round(v[-1], 4) for k, v in ratios.items()}, flush=True)
    for kind, found in ratios.items():
        gain = np.log(found)
        error = gain.std(ddof=1) / math.sqrt(len(gain))
        print(f"{kind}: without the context {100 * np.expm1(gain.mean()):+.2f} % ± {100 * error:.2f} %")


def large() -> None:
    """Load, then decode; milliseconds and seconds."""
    for model in ("concurrent", "pipeline"):
        began = time.perf_counter()
        problem = api.problem("zoo:gnmt-8", "p100-8", model)
        loaded = time.perf_counter()
        found = Gdp().place(problem, budget=Budget())
        done = time.perf_counter()
        row = f"{model}: gdp {1e3 * found.cost:.1f} ms, loading {loaded - began:.1f} s, placing {done - loaded:.1f} s"
        for method in ("heft", "expert", "metis", "single"):
            if PLACERS[method].supports(problem) is None:
                row += f", {method} {1e3 * PLACERS[method].place(problem, budget=Budget(evaluations=20)).cost:.1f} ms"
        print(row, flush=True)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gdp", description=__doc__)
    parser.add_argument("part", choices=("train", "run", "table", "unseen", "large", "ablations"))
    parser.add_argument("--folder", type=Path, default=Path("gdp-folds"))
    parser.add_argument("--results", type=Path, default=Path("gdp-results.jsonl"))
    parser.add_argument("--fold", choices=(*FOLDS, "none"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--model", default="concurrent")
    parser.add_argument("--auto", type=float, default=10.0)
    options = parser.parse_args()
    if options.part == "train":
        for fold in (options.fold,) if options.fold else FOLDS:
            train(options.folder, fold, options.seed, options.seconds)
    elif options.part == "ablations":
        ablations(options.folder, options.fold or "images", options.seed, options.seconds)
    elif options.part == "run":
        run(options.folder, options.results, options.model, options.auto, options.seed)
    elif options.part == "table":
        table(options.results, options.model, options.seed)
    elif options.part == "unseen":
        unseen(options.results, options.auto)
    else:
        large()


if __name__ == "__main__":
    main()
