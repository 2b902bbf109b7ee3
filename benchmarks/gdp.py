"""What the pre-trained policy is worth on families of graphs that it was not trained on.

python -m benchmarks.gdp train --folder DIR [--fold NAME] [--seed S] [--seconds 600]   weights of the folds
python -m benchmarks.gdp run --folder DIR --results FILE [--model pipeline] [--auto 10] [--draw D]   held-out graphs
python -m benchmarks.gdp table --results FILE [--model pipeline]               ratios to the best known, in Markdown
python -m benchmarks.gdp trainings --results FILE                 the folds that were trained with several seeds
python -m benchmarks.gdp unseen --results FILE [--auto 30]     the shipped weights on the published workloads
python -m benchmarks.gdp large                                    GNMT with 8 layers, 51,417 ops, zero-shot
python -m benchmarks.gdp ablations --folder DIR [--seconds 600]   trained with and without the context

Training is counted in seconds of one core. ``train`` and ``run`` leave out what is in the folder or file already, so
that they can be killed and started again. A graph is only ever placed with the weights of the fold that its family
was left out of. Equal evaluations are those that the greedy policy needed. ``--seed`` is that of the training,
``--draw`` that of the methods; ``auto`` and the bound are asked for once per graph and model.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from loadmaster import api
from loadmaster.errors import InfeasibleError
from loadmaster.files import write_atomically
from loadmaster.placers import PLACERS, Budget, Placer
from loadmaster.placers.learned.gdp import Gdp, GdpSearch, Weights, save_weights
from loadmaster.placers.learned.gdp._evolution import Evolution, Trainer, families_without, pretrain_tasks
from loadmaster.placers.learned.gdp._tracks import TimeTracks, tracks_of
from loadmaster.placers.search.local_search import LocalSearch
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


def columns(
    problem: Problem, weights: str, auto: float, seed: int, known: dict[str, Any]
) -> dict[str, float]:
    """Method -> cost (nan where it has none), for the methods that are not known yet."""
    row: dict[str, float] = {}

    def note(name: str, make: Callable[[], float]) -> None:
        if name not in known:
            try:
                row[name] = make()
            except InfeasibleError:
                row[name] = math.nan

    def place(method: str | Placer, budget: Budget) -> float:
        placer = PLACERS[method] if isinstance(method, str) else method
        return placer.place(problem, budget=budget, seed=seed).cost

    greedy = Gdp(weights=weights, samples=0, guard=False)
    both = (("", greedy), ("untrained", replace(greedy, weights="untrained")))

    def named(untrained: str, name: str) -> str:
        return f"{untrained}, {name}" if untrained else name

    if "seconds" not in known:
        api._warm_up(greedy, problem)
        began = time.perf_counter()
        found = greedy.place(problem, budget=Budget())
        row["seconds"], row["evaluations"] = time.perf_counter() - began, float(found.evaluations)
        row["zero-shot"] = found.cost
    note("untrained", lambda: place(both[1][1], Budget()))
    tracks, check = tracks_of(problem), SimulatedEvaluator(problem)

    def three_passes(tracks: TimeTracks, base: Gdp) -> float:
        return min(check.evaluate(p).value for p in tracks.track(base.read().vector, "ops"))

    def searched(base: Gdp) -> float:
        policy = GdpSearch(weights=base.weights, samples=16, search=SECONDS)
        return api.place(problem, policy, budget=60.0, seed=seed).cost

    for untrained, base in both:
        if isinstance(tracks, TimeTracks):
            note(named(untrained, "3 passes"), partial(three_passes, tracks, base))
        note(named(untrained, "best of 16"), partial(place, replace(base, samples=16), Budget()))
        tuned = replace(base, samples=16, tune=True)
        note(named(untrained, "fine-tuned"), partial(place, tuned, Budget(evaluations=TUNED)))
        note("untrained+ls" if untrained else "gdp+ls", partial(searched, base))
    note("guarded", partial(place, replace(greedy, guard=True), Budget()))
    note("as shipped", partial(place, Gdp(weights=weights), Budget()))
    few = Budget(evaluations=200)
    for method in ("single", "metis", "expert", "heft", "lookahead"):
        if PLACERS[method].supports(problem) is None:
            note(method, partial(place, method, few))
    equal = Budget(evaluations=max(int({**known, **row}["evaluations"]), 1))
    for method in ("random", "local-search"):
        note(f"{method}, equal", partial(place, method, equal))
    note("local-search, 500", partial(place, "local-search", Budget(evaluations=TUNED)))
    if PLACERS["heft"].supports(problem) is None:
        search = replace(LocalSearch(), constructed=False)

        def after_heft() -> float:
            start = PLACERS["heft"].place(problem, budget=few).placement
            return api.place(problem, search, budget=SECONDS, start=start, seed=seed).cost

        note("heft + 2 s", after_heft)
    else:
        note("rules + 2 s", lambda: api.place(problem, "local-search", budget=SECONDS, seed=seed).cost)
    if "auto" not in known:
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


def run(folder: Path, results: Path, model: str, auto: float, seed: int, draw: int) -> None:
    """Place what is not in the file yet, column by column."""
    rows = rows_in(results)
    for family, name, cluster in held_out(model):
        weights = folder / f"{fold_of(family)}-{seed}.npz"
        if not weights.exists():
            continue
        same = [row for row in rows if (row["graph"], row["cluster"], row["model"]) == (name, cluster, model)]
        row = next((row for row in same if (row["seed"], row.get("draw", 0)) == (seed, draw)), None)
        problem = api.problem(f"zoo:{name}", cluster, model)
        if row is None:
            row = {"family": family, "graph": name, "cluster": cluster, "model": model}
            row |= {"seed": seed, "draw": draw, "ops": problem.n}
            row |= {key: same[0][key] for key in ("auto", "bound") if same}
            rows.append(row)
        found = columns(problem, str(weights), auto, draw, row)
        if found:
            row |= found
            write_atomically(results, "".join(f"{json.dumps(row)}\n" for row in rows).encode())
            told = f"as shipped {row['as shipped'] / row['auto']:.3f} of auto"
            print(name, cluster, told, file=sys.stderr, flush=True)


SHOWN = (
    "single", "random, equal", "local-search, equal", "metis", "expert", "heft", "lookahead", "untrained, 3 passes",
    "3 passes", "untrained", "zero-shot",
    "guarded", "untrained, best of 16", "best of 16", "as shipped", "local-search, 500", "untrained, fine-tuned",
    "fine-tuned", "heft + 2 s",
    "rules + 2 s", "untrained+ls", "gdp+ls", "auto", "bound",
)  # fmt: skip


def ratios(results: Path, model: str) -> list[dict[str, Any]]:
    """The rows of a model with costs as multiples of the best known of their graph."""
    rows = [row for row in rows_in(results) if row["model"] == model]
    best: dict[tuple[str, str], float] = {}
    for row in rows:
        case = row["graph"], row["cluster"]
        costs = [row[name] for name in SHOWN if name != "bound" and math.isfinite(row.get(name, math.nan))]
        best[case] = min(best.get(case, math.inf), *costs)
    return [
        row | {name: row[name] / best[row["graph"], row["cluster"]] for name in SHOWN if name in row}
        for row in rows
    ]


def mean(rows: Sequence[dict[str, Any]], name: str) -> float:
    """Geometric mean of a column over the rows that have it."""
    found = [row[name] for row in rows if math.isfinite(row.get(name, math.nan)) and row[name] > 0]
    return float(np.exp(np.mean(np.log(found)))) if found else math.nan


def table(results: Path, model: str, seed: int) -> None:
    """Geometric means of cost / best known, by family and in all: the mean over the draws, and their range."""
    rows = [row for row in ratios(results, model) if row["seed"] == seed]
    draws = sorted({row.get("draw", 0) for row in rows})
    families = [family for family in HELD_OUT if any(row["family"] == family for row in rows)]
    graphs = len({(row["graph"], row["cluster"]) for row in rows})
    print(f"{graphs} graphs, seeds of the methods: {', '.join(map(str, draws))}\n")
    print("| method | all | over the seeds | " + " | ".join(families) + " |")
    print("|---|" + "--:|" * (len(families) + 2))
    for name in SHOWN:
        each = [mean([row for row in rows if row.get("draw", 0) == draw], name) for draw in draws]
        if not any(map(math.isfinite, each)):
            continue
        alone = [mean([row for row in rows if row["family"] == family], name) for family in families]
        cells = [f"{mean(rows, name):.3f}", f"{np.nanmin(each):.3f} – {np.nanmax(each):.3f}"]
        cells += [f"{x:.3f}" if math.isfinite(x) else "" for x in alone]
        print(f"| {name} | " + " | ".join(cells) + " |")
    for name, other in (("zero-shot", "heft"), ("zero-shot", "auto"), ("as shipped", "auto")):
        against = [row[name] / row[other] for row in rows if other in row]
        if against:
            print(
                f"\n{name} against {other}: {np.exp(np.mean(np.log(against))):.3f}, worst {max(against):.3f}"
            )
    for name in ("3 passes", "zero-shot", "best of 16", "fine-tuned", "gdp+ls"):
        other = {"zero-shot": "untrained", "gdp+ls": "untrained+ls"}.get(name, f"untrained, {name}")
        gain = np.log([row[name] / row[other] for row in rows if math.isfinite(row.get(name, math.nan))])
        if len(gain):
            error = gain.std(ddof=1) / math.sqrt(len(gain)) if len(gain) > 1 else math.nan
            print(
                f"\n{name} against {other}: {100 * np.expm1(gain.mean()):+.2f} % ± {100 * error:.2f} % (standard error)"
            )
    spent = np.mean([row["seconds"] for row in rows]), np.mean([row["evaluations"] for row in rows])
    print(f"\ngreedy decoding takes {spent[0]:.2f} s and {spent[1]:.0f} evaluations on average")


def trainings(results: Path, model: str) -> None:
    """Folds that were trained with several seeds: what a seed is worth."""
    rows = [row for row in ratios(results, model) if row.get("draw", 0) == 0]
    learnt = ("3 passes", "zero-shot", "best of 16", "as shipped", "fine-tuned", "gdp+ls")
    print("| fold | trained with seed | graphs | " + " | ".join(learnt) + " |")
    print("|---|--:|--:|" + "--:|" * len(learnt))
    for fold in FOLDS:
        mine = [row for row in rows if fold_of(row["family"]) == fold]
        seeds = sorted({row["seed"] for row in mine})
        if len(seeds) < 2:
            continue
        cells = []
        for seed in seeds:
            part = [row for row in mine if row["seed"] == seed]
            cells.append([mean(part, name) for name in learnt])
            print(f"| {fold} | {seed} | {len(part)} | " + " | ".join(f"{x:.3f}" for x in cells[-1]) + " |")
        plain = [
            mean([row for row in mine if row["seed"] == seeds[0]], f"untrained, {name}") for name in learnt
        ]
        plain[1] = mean([row for row in mine if row["seed"] == seeds[0]], "untrained")
        plain[-1] = mean([row for row in mine if row["seed"] == seeds[0]], "untrained+ls")
        print(
            f"| {fold} | untrained | {len(mine) // len(seeds)} | "
            + " | ".join(f"{x:.3f}" if math.isfinite(x) else "" for x in plain)
            + " |"
        )
        spread = np.std(cells, axis=0, ddof=1)
        print(f"| {fold} | standard deviation |  | " + " | ".join(f"{x:.3f}" for x in spread) + " |")


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
    worth: dict[str, list[float]] = {"3 passes": [], "zero-shot": []}
    for family, name, cluster in held_out("concurrent"):
        if family not in FOLDS[fold]:
            continue
        problem = api.problem(f"zoo:{name}", cluster, "concurrent")
        tracks, check = tracks_of(problem), SimulatedEvaluator(problem)
        assert isinstance(tracks, TimeTracks)
        for kind in worth:
            costs = []
            for file in (f"{fold}-{seed}.npz", f"{fold}-{seed}-plain.npz"):
                vector = Gdp(weights=str(folder / file)).read().vector
                made = tracks.track(vector, "ops") if kind == "3 passes" else tracks.all(vector)
                costs.append(min(check.evaluate(p).value for p in made))
            worth[kind].append(costs[1] / costs[0])
        print(name, cluster, {k: round(v[-1], 4) for k, v in worth.items()}, flush=True)
    for kind, found in worth.items():
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
    parser.add_argument(
        "part", choices=("train", "run", "table", "trainings", "unseen", "large", "ablations")
    )
    parser.add_argument("--folder", type=Path, default=Path("gdp-folds"))
    parser.add_argument("--results", type=Path, default=Path("gdp-results.jsonl"))
    parser.add_argument("--fold", choices=(*FOLDS, "none"))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--draw", type=int, default=0)
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
        run(options.folder, options.results, options.model, options.auto, options.seed, options.draw)
    elif options.part == "trainings":
        trainings(options.results, options.model)
    elif options.part == "table":
        table(options.results, options.model, options.seed)
    elif options.part == "unseen":
        unseen(options.results, options.auto)
    else:
        large()


if __name__ == "__main__":
    main()
