"""What the pre-trained policy is worth on families of graphs that it was not trained on.

python -m benchmarks.gdp train --folder DIR [--fold NAME] [--trained 0] [--seconds 600]    weights of the folds
python -m benchmarks.gdp held-out --folder DIR --rows FILE [--model pipeline] [--auto 10] [--draws 3] [--trained 0,1]
python -m benchmarks.gdp context --folder DIR [--fold images] [--seconds 600]    trained with and without the context

Training is counted in seconds of one core, and goes on where it was killed. A graph is only ever placed with the
weights of the fold that its family was left out of. Equal evaluations are those that the greedy policy needed.
``--trained`` are seeds of the training, ``--draws`` the number of seeds of the methods.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks.gdp.columns import columns
from benchmarks.gdp.folds import FOLDS, fold_of, held_out, train, weights_of
from benchmarks.gdp.page import write_context, write_families, write_trainings
from loadmaster import api
from loadmaster.errors import UnsupportedError
from loadmaster.placers.learned.gdp import Gdp
from loadmaster.placers.learned.gdp._tracks import TimeTracks, tracks_of
from loadmaster.problem import SimulatedEvaluator
from loadmaster.studies import Case, Page, Row, Scope, Study

__all__ = ["STUDY"]


def options(parser: argparse.ArgumentParser) -> None:
    """What is trained, and what is placed."""
    parser.add_argument("what", choices=("train", "held-out", "context"))
    parser.add_argument("--folder", type=Path, default=Path("gdp-folds"), help="of the weights")
    parser.add_argument("--fold", choices=(*FOLDS, "none"))
    parser.add_argument("--trained", default="0", help="seeds of the training, by commas")
    parser.add_argument("--draws", type=int, default=1, help="seeds of the methods")
    parser.add_argument("--seconds", type=float, default=600.0, help="of training")
    parser.add_argument("--model", default="concurrent")
    parser.add_argument("--auto", type=float, default=10.0, help="seconds for auto")


def cases(scope: Scope) -> list[Case]:
    """Folds to train, or held-out graphs to place with what was trained."""
    seeds = [int(text) for text in scope["trained"].split(",")]
    found = {"train": _trainings, "held-out": _held_out, "context": _contexts}[scope["what"]](scope, seeds)
    return found[:1] if scope.quick else found


def _trainings(scope: Scope, seeds: Sequence[int]) -> list[Case]:
    seconds = scope["seconds"]
    return [
        Case(
            {"part": "train", "fold": fold, "seed": seed, "seconds": seconds},
            partial(_train, scope["folder"], fold, seed, seconds),
        )
        for seed in seeds
        for fold in ((scope["fold"],) if scope["fold"] else FOLDS)
    ]


def _train(folder: Path, fold: str, seed: int, seconds: float) -> Row:
    train(folder, fold, seed, seconds)
    return {"weights": str(weights_of(folder, fold, seed))}


def _held_out(scope: Scope, seeds: Sequence[int]) -> list[Case]:
    """A graph has a case once the weights of its fold are there."""
    found = []
    for draw in range(scope["draws"]):
        for seed in seeds:
            for family, name, cluster in held_out():
                weights = weights_of(scope["folder"], fold_of(family), seed)
                if weights.exists() and scope.only in name and (draw == 0 or seed == seeds[0]):
                    key: Row = {"part": "held-out", "family": family, "graph": name, "cluster": cluster}
                    key |= {
                        "model": scope["model"],
                        "seed": seed,
                        "draw": draw,
                        "auto_seconds": scope["auto"],
                    }
                    run = partial(_placed, name, cluster, scope["model"], str(weights), scope["auto"], draw)
                    found.append(Case(key, run))
    return found


def _placed(name: str, cluster: str, model: str, weights: str, auto: float, draw: int) -> Row:
    problem = api.problem(f"zoo:{name}", cluster, model)
    return {"ops": problem.n, **columns(problem, weights, auto, draw)}


def _contexts(scope: Scope, seeds: Sequence[int]) -> list[Case]:
    fold, seconds = scope["fold"] or "images", scope["seconds"]
    return [
        Case(
            {"part": "context", "graph": n, "cluster": c, "fold": fold, "seed": seeds[0], "seconds": seconds},
            partial(_context, scope["folder"], fold, seeds[0], seconds, n, c),
        )
        for family, n, c in held_out()
        if family in FOLDS[fold] and scope.only in n
    ]


def _context(folder: Path, fold: str, seed: int, seconds: float, name: str, cluster: str) -> Row:
    """The same training with and without the context of the graph: the ratio of the costs."""
    for context in (True, False):
        train(folder, fold, seed, seconds, context=context)
    problem = api.problem(f"zoo:{name}", cluster, "concurrent")
    tracks, check = tracks_of(problem), SimulatedEvaluator(problem)
    if not isinstance(tracks, TimeTracks):
        raise UnsupportedError(f"{name}: the policy has no tracks on it: give a graph under concurrent")
    row: Row = {}
    for kind in ("3 passes", "zero-shot"):
        costs = []
        for context in (True, False):
            vector = Gdp(weights=str(weights_of(folder, fold, seed, context=context))).read().vector
            made = tracks.track(vector, "ops") if kind == "3 passes" else tracks.all(vector)
            costs.append(min(check.evaluate(p).value for p in made))
        row[kind] = costs[1] / costs[0]
    return row


def write(page: Page, scope: Scope, rows: Sequence[Row]) -> None:
    """What belongs to what was asked for."""
    if scope["what"] == "train":
        page.table(("fold", "seed", "weights"), [(r["fold"], r["seed"], r["weights"]) for r in rows])
    elif scope["what"] == "context":
        write_context(page, rows)
    elif rows:
        write_families(page, rows, rows[0]["seed"])
        write_trainings(page, rows)


STUDY = Study("gdp", "GDP on families left out", cases, write, options)
