"""What pre-training is worth to ``hsdag`` on families of graphs that it was not trained on.

    python -m benchmarks.hsdag_transfer train --folder DIR [--fold images] [--trained 0]
    python -m benchmarks.hsdag_transfer held-out --folder DIR --rows FILE [--draws 5] [--evaluations 400]
    python -m benchmarks.hsdag_transfer runs --folder DIR --rows FILE

``train`` makes the weights of the folds, as ``loadmaster pretrain hsdag --leave-out …`` does; it goes on where it was
killed. ``held-out`` places graphs of the families that were left out, on unlike devices drawn by seed, under ``serial``
and ``concurrent``: the likeliest placement without any evaluation (zero-shot), and how many evaluations it takes to
come within 1 % of the best known, from the weights and from scratch. There every evaluation counts, those of the
guesses that the network is given, too. ``runs`` counts runs on a machine that is as the model says instead, as where
evaluations are dear: what the model says of a guess costs nothing there. Rows that are kept need no weights.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from loadmaster import api, zoo
from loadmaster.arrays import BoolArray, FloatArray, IntArray
from loadmaster.errors import InputError
from loadmaster.placers import Budget
from loadmaster.placers.learned.gdp._training_problems import FAMILIES
from loadmaster.placers.learned.hsdag import Hsdag
from loadmaster.placers.learned.hsdag._messages import beliefs
from loadmaster.placers.learned.hsdag._network import PairNetwork
from loadmaster.placers.learned.hsdag._pairs import guesses
from loadmaster.placers.learned.hsdag._policy import Policy
from loadmaster.placers.learned.hsdag._unlike_problems import best_known, unlike
from loadmaster.placers.learned.hsdag._weights import load_weights, network_of
from loadmaster.placers.learned.units import units_of
from loadmaster.placers.rules.heft import list_schedule
from loadmaster.problem import Concurrent, Outcome, Placement, Problem, Serial, SimulatedEvaluator, Solution
from loadmaster.studies import Case, Page, Row, Scope, Study, number, percent

__all__ = ["FOLDS", "STUDY", "fold_of", "held_out", "held_out_problem"]

FOLDS = {
    "images": ("inception", "resnet", "two-tower"),
    "cells": ("amoebanet", "unet", "wavenet"),
    "transformers": ("transformer-xl", "bert", "gpt2", "gpt2-decode", "switch"),
    "recurrent": ("rnnlm", "gnmt"),
}
"""Fold -> families that are left out together; random graphs are always trained on, and never placed here."""
MOST, ATTEMPTS = 600, 20
"""Ops of a graph that is placed; draws until one device is not nearly the best."""
REFERENCE = 20_000
"""Evaluations for the best known, where a minimum cut does not say."""


def fold_of(family: str) -> str:
    """The fold in which a family was left out."""
    return next(fold for fold, families in FOLDS.items() if family in families)


def held_out(draws: int, folds: Sequence[str] = tuple(FOLDS)) -> Iterator[tuple[str, int]]:
    """Families and numbers of draws, one of each family first."""
    for draw in range(draws):
        for fold in folds:
            for family in FOLDS[fold]:
                yield family, draw


@lru_cache(maxsize=128)
def held_out_problem(family: str, draw: int) -> tuple[str, Problem, IntArray]:
    """A member of a family on unlike devices, ``serial`` for even draws: its name, the problem, the best placement
    known. Drawn again while HEFT or a minimum cut is not 1 % better than the best single device."""
    model = Serial() if draw % 2 == 0 else Concurrent()
    number_of = list(FAMILIES).index(family)
    for attempt in range(ATTEMPTS):
        rng = np.random.default_rng([77, number_of, draw, attempt])
        name = FAMILIES[family](rng)
        network = zoo.model(name)
        if network.graph.n > MOST and attempt < ATTEMPTS - 1:
            continue
        problem = unlike(rng, network, model)
        check = SimulatedEvaluator(problem)
        quick = _heft(problem) if draw % 2 else best_known(problem, REFERENCE)
        cost = math.inf if quick is None else check.evaluate(Placement(quick)).value
        if min(_singles(problem, check)) > 1.01 * cost:
            break
    return name, problem, best_known(problem, REFERENCE)


def _heft(problem: Problem) -> IntArray | None:
    """The devices of its schedule; None where it has none."""
    schedule = list_schedule(problem) if isinstance(problem.model, Concurrent) else None
    return None if schedule is None else schedule[0]


def _singles(problem: Problem, check: SimulatedEvaluator) -> list[float]:
    return [
        check.evaluate(Placement(np.where(problem.pin >= 0, problem.pin, d).astype(np.int32))).value
        for d in range(problem.devices)
    ]


class SimulatedMachine:
    """A machine that is exactly as the model says, which the placer does not know."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self._simulated = problem, SimulatedEvaluator(problem)
        self.evaluations = 0
        self.asked: list[float] = []

    def evaluate(self, placement: Placement) -> Outcome:
        """One run."""
        cost, feasible = self.evaluate_batch(placement.device[None])
        return Outcome(float(cost[0]), bool(feasible[0]))

    def evaluate_batch(self, device: IntArray) -> tuple[FloatArray, BoolArray]:
        """Some runs."""
        cost, feasible = self._simulated.evaluate_batch(device)
        self.evaluations += len(cost)
        self.asked += np.where(feasible, cost, np.inf).tolist()
        return cost, feasible


def placed(family: str, draw: int, weights: Path, evaluations: int) -> Row:
    """Costs as ratios to the best known, of this row's own runs too."""
    name, problem, answer = held_out_problem(family, draw)
    check, units = SimulatedEvaluator(problem), units_of(problem, "")

    def cost(choice: Any) -> float:
        return check.evaluate(Placement(np.asarray(choice, np.int32))).value

    known = guesses(units)
    guess = known[np.argmin([cost(one[units.of_op]) for one in known])]

    def likeliest(network: PairNetwork) -> float:
        policy = Policy(units, Hsdag(), network, guess[units.of_op])
        with torch.no_grad():
            return cost(policy.likeliest(policy())[units.of_op])

    heft, best = _heft(problem), cost(answer)
    ratios = {
        "single": min(_singles(problem, check)),
        "heft": None if heft is None else cost(heft),
        "messages": cost(beliefs(units, 1.0, 6).argmin(axis=1)[units.of_op]),
        "guess": cost(guess[units.of_op]),
        "zero-shot": likeliest(network_of(load_weights(weights))),
    }
    untrained = []
    for seed in range(3):
        torch.manual_seed(seed)
        untrained.append(likeliest(PairNetwork()))
    ratios["untrained"] = float(np.mean(untrained))
    first = SimulatedMachine(problem)
    Hsdag(weights=str(weights)).place(problem, budget=Budget(evaluations=2), evaluator=first)
    ratios["first run"] = first.asked[-1]
    budget = Budget(evaluations=evaluations)
    runs = {
        "tuned": Hsdag(weights=str(weights)).place(problem, budget=budget),
        "scratch": Hsdag(weights="none").place(problem, budget=budget),
    }
    least = min(best, *(run.cost for run in runs.values()), *(r for r in ratios.values() if r is not None))
    row: Row = {
        "graph": name,
        "ops": problem.n,
        "devices": problem.devices,
        "model": problem.model.name,
        "best": least,
    }
    row |= {key: None if value is None else value / least for key, value in ratios.items()}
    for key, run in runs.items():
        row[key] = run.cost / least
        row[f"{key}, within 1 %"] = _within(run, 1.01 * least)
        for at in (16, 100):
            row[f"{key}, {at}"] = _until(run, at) / least
    return row


def ran(family: str, draw: int, weights: Path, evaluations: int) -> Row:
    """Runs on a machine that is as the model says until one is within 1 % of the best known."""
    name, problem, answer = held_out_problem(family, draw)
    best = SimulatedEvaluator(problem).evaluate(Placement(answer)).value
    asked = {}
    for key, start in (("tuned", str(weights)), ("scratch", "none")):
        machine = SimulatedMachine(problem)
        Hsdag(weights=start).place(problem, budget=Budget(evaluations=evaluations), evaluator=machine)
        asked[key] = machine.asked
    least = min(best, *asked["tuned"], *asked["scratch"])
    row: Row = {"graph": name, "ops": problem.n, "devices": problem.devices, "model": problem.model.name}
    for key, costs in asked.items():
        row[key] = min(costs) / least
        row[f"{key}, within 1 %"] = next((n for n, c in enumerate(costs, 1) if c <= 1.01 * least), None)
    return row


def _within(run: Solution, aim: float) -> int | None:
    return next((point.evaluations for point in run.history if point.cost <= aim), None)


def _until(run: Solution, evaluations: int) -> float:
    costs = [point.cost for point in run.history if point.evaluations <= evaluations]
    return min(costs, default=run.history[0].cost)


def options(parser: argparse.ArgumentParser) -> None:
    """What is trained, and what is placed."""
    parser.add_argument("what", choices=("train", "held-out", "runs"))
    parser.add_argument("--folder", type=Path, default=Path("hsdag-folds"), help="of the weights")
    parser.add_argument("--fold", choices=tuple(FOLDS))
    parser.add_argument("--trained", default="0", help="seeds of the training, by commas")
    parser.add_argument("--draws", type=int, default=5, help="graphs of each family")
    parser.add_argument("--evaluations", type=int, default=400, help="of tuning and of training from scratch")


def weights_of(folder: Path, fold: str, seed: int) -> Path:
    """The file of a fold."""
    return folder / f"{fold}-{seed}.npz"


def _train(folder: Path, fold: str, seed: int) -> Row:
    folder.mkdir(parents=True, exist_ok=True)
    path = weights_of(folder, fold, seed)
    made = api.pretrain_hsdag(path, seed=seed, left_out=FOLDS[fold], resume=True)
    return {"weights": str(path), **made["validation"], "seconds": made["seconds"]}


def cases(scope: Scope) -> list[Case]:
    """Folds to train, or graphs to place with what was trained."""
    seeds = [int(text) for text in scope["trained"].split(",")]
    folds = (scope["fold"],) if scope["fold"] else tuple(FOLDS)
    folder: Path = scope["folder"]
    found = []
    if scope["what"] == "train":
        for seed in seeds:
            for fold in folds:
                key: Row = {"part": "train", "fold": fold, "seed": seed}
                found.append(Case(key, partial(_train, folder, fold, seed)))
        return found
    for seed in seeds:
        for family, draw in held_out(scope["draws"], folds):
            weights = weights_of(folder, fold_of(family), seed)
            if scope.only not in family:
                continue
            key = {"part": scope["what"], "family": family, "draw": draw, "seed": seed}
            key["evaluations"] = scope["evaluations"]
            method = ran if scope["what"] == "runs" else placed
            found.append(Case(key, partial(_with, weights, method, family, draw, scope["evaluations"])))
    return found[:2] if scope.quick else found


def _with(weights: Path, method: Callable[..., Row], family: str, draw: int, evaluations: int) -> Row:
    if not weights.exists():
        raise InputError(f"{weights}: is not there: run 'train' first, or name a --fold that was trained")
    return method(family, draw, weights, evaluations)


GAPS = ("single", "heft", "messages", "guess", "untrained", "zero-shot", "first run", "tuned, 16", "tuned, 100",
        "tuned", "scratch, 16", "scratch, 100", "scratch")  # fmt: skip


def write(page: Page, scope: Scope, rows: Sequence[Row]) -> None:
    """Mean gaps by model, and evaluations to within 1 %."""
    if scope["what"] == "train":
        page.table(
            ("fold", "seed", "trained", "untrained", "seconds"),
            [[row.get(k) for k in ("fold", "seed", "trained", "untrained", "seconds")] for row in rows],
        )
        return
    lines: list[Sequence[Any]] = []
    names = [name for name in GAPS if any(name in row for row in rows)]
    for model in ("serial", "concurrent", "all"):
        mine = [row for row in rows if model in ("all", row["model"])]
        if mine:
            graphs = len({(row["family"], row["draw"]) for row in mine})
            lines.append((model, graphs, len(mine), *(_gap(mine, name) for name in names)))
    page.section("Gap to the best known: mean over seeds, then over graphs, and standard error over graphs")
    page.table(("model", "graphs", "rows", *names), lines)
    page.section("Evaluations to within 1 % of the best known")
    lines = []
    for model in ("serial", "concurrent", "all"):
        mine = [row for row in rows if model in ("all", row["model"])]
        if mine:
            line: list[Any] = [model, len(mine)]
            for key in ("tuned", "scratch"):
                counts = [row[f"{key}, within 1 %"] for row in mine]
                line += [
                    number(float(np.median([math.inf if c is None else c for c in counts]))),
                    f"{sum(c is not None for c in counts)} of {len(counts)}",
                ]
            pairs = [
                (row["tuned, within 1 %"], row["scratch, within 1 %"] or 2 * row["evaluations"])
                for row in mine
            ]
            ratio = np.median([b / a if a is not None else 0.0 for a, b in pairs])
            lines.append([*line, float(ratio)])
    page.table(
        (
            "model",
            "rows",
            "tuned: median",
            "reached",
            "scratch: median",
            "reached",
            "median of scratch / tuned",
        ),
        lines,
    )
    page.text(
        "A run from scratch that did not come within 1 % counts as twice its evaluations in the last column, one "
        "from the weights that did not counts as 0."
    )
    if "zero-shot" in names:
        _say_aims(page, rows)


def _gap(rows: Sequence[Row], name: str) -> str:
    gaps: dict[tuple[str, int], list[float]] = {}
    for row in rows:
        if row.get(name) is not None and math.isfinite(row[name]):
            gaps.setdefault((row["family"], row["draw"]), []).append(row[name] - 1.0)
    if not gaps:
        return "-"
    means = np.array([np.mean(values) for values in gaps.values()])
    error = float(means.std(ddof=1)) / math.sqrt(len(means)) if len(means) > 1 else math.nan
    return f"{percent(float(means.mean()))} ± {percent(error)}"


def _say_aims(page: Page, rows: Sequence[Row]) -> None:
    """The aims, each with its number: met or not."""
    page.section("Aims, over all rows")
    mean = {
        name: float(np.mean([row[name] - 1.0 for row in rows]))
        for name in ("zero-shot", "first run", "untrained")
    }
    ratios = [
        (row["scratch, within 1 %"] or 2 * row["evaluations"]) / row["tuned, within 1 %"]
        if row["tuned, within 1 %"] is not None
        else 0.0
        for row in rows
    ]
    lines = []
    for name, what in (("zero-shot", "likeliest placement"), ("first run", "first run")):
        met = "met" if mean[name] <= 0.03 else "not met"
        lines.append((f"zero-shot within 3 %, {what}", percent(mean[name]), met))
        part = mean[name] / mean["untrained"]
        lines.append(
            (
                f"at most a third of the untrained gap, {what}",
                f"{part:.3f}",
                "met" if part <= 1 / 3 else "not met",
            )
        )
    median = float(np.median(ratios))
    lines.append(
        (
            "within 1 % in 5 times fewer evaluations (median)",
            f"{median:.1f}",
            "met" if median >= 5 else "not met",
        )
    )
    page.table(("aim", "measured", ""), lines)


STUDY = Study("hsdag_transfer", "hsdag on families left out", cases, write, options)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
