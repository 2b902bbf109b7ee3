"""Training runs of ``gdp`` from beginning to end: pre-training on many problems, fine-tuning on one."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from loadmaster import __version__
from loadmaster.arrays import FloatArray
from loadmaster.errors import InputError
from loadmaster.placers.learned._scalars import Curves
from loadmaster.placers.learned.gdp._evolution import (
    Drawn,
    Evolution,
    Map,
    Report,
    Task,
    Trainer,
    cost_table,
    families_without,
    pretrain_tasks,
    threads,
)
from loadmaster.placers.learned.gdp._tracks import tracks_of
from loadmaster.placers.learned.gdp._weights import KINDS, Weights
from loadmaster.problem import Problem

__all__ = ["Evolution", "Map", "Report", "finetune", "pretrain", "validate"]


SAVE_SECONDS = 20.0
"""Time between two saves of the state."""
CHECKED = 24
"""Problems of each kind on which the result is compared with the beginning: of the same families, but not
trained on."""
FINETUNED = Evolution(pairs=4, problems=1, noise=0.05, rate=0.02, average=0.9, passes=3)
"""Settings of fine-tuning: few decodings in a step."""

Listener = Callable[[Report], None]


def pretrain(
    *,
    minutes: float | None = None,
    generations: int | None = None,
    seed: int = 0,
    settings: Evolution | None = None,
    left_out: Sequence[str] = (),
    state: str | Path | None = None,
    resume: bool = False,
    log_dir: str = "",
    workers: int | None = None,
    run: Map | None = None,
    on_report: Listener = lambda report: None,
) -> Weights:
    """Weights trained on the zoo's families and random graphs, for so many minutes or generations.

    Parameters
    ----------
    left_out : families that are not trained on.
    state : file that holds the state of the run while it lasts; ``resume`` continues from it if it exists.
    workers : threads; by default one per core. Results do not depend on it.
    run : who decodes, if not threads: a map over processes, perhaps of other machines, that has so many ``workers``.
    """
    if minutes is None and generations is None:
        raise InputError("a training run needs an end: give minutes or generations")
    settings = settings or Evolution()
    families = families_without(left_out)
    trainer = Trainer(pretrain_tasks(seed, settings, families), settings, seed, workers=workers, run=run)
    if state is not None and resume and Path(state).exists():
        trainer.resume(state, families)
    curves = Curves(log_dir, "pretrain")
    saved = time.monotonic()
    try:
        while not _over(trainer, minutes, generations):
            report = trainer.step()
            on_report(report)
            values = {f"log cost, {kind}": value for kind, value in report.gain.items()}
            curves.write(report.generation, {**values, "seconds": report.seconds})
            if state is not None and time.monotonic() - saved > SAVE_SECONDS:
                trainer.save(state, families)
                saved = time.monotonic()
    finally:
        if state is not None:
            trainer.save(state, families)
    recipe: dict[str, Any] = {
        "trained": True,
        "settings": asdict(settings),
        "seed": seed,
        "generations": trainer.generation,
        "seconds": round(trainer.seconds, 1),
        "decoded": trainer.evaluations,
        "families": list(families),
        "left_out": list(left_out),
        "version": __version__,
    }
    gain = validate(trainer.average, trainer.start, families, seed, CHECKED, run=run)
    recipe["validation"] = {kind: round(value, 5) for kind, value in gain.items()}
    return Weights(trainer.average, recipe)


def _over(trainer: Trainer, minutes: float | None, generations: int | None) -> bool:
    late = minutes is not None and trainer.seconds >= 60.0 * minutes
    return late or (generations is not None and trainer.generation >= generations)


def validate(
    vector: FloatArray,
    start: FloatArray,
    families: Sequence[str],
    seed: int,
    count: int,
    *,
    run: Map | None = None,
) -> dict[str, float]:
    """Kind -> mean logarithm of the cost against the weights at the beginning, on held-out problems; below 0 is
    better."""
    found = {}
    for number, kind in enumerate(KINDS):
        tasks = [(Drawn((seed, 11, number, i), kind, tuple(families), 3), i) for i in range(count)]
        costs = cost_table(tasks, np.stack([vector, start]), run or threads(1), 1)
        found[kind] = float(np.mean(costs[:, 0] - costs[:, 1]))
    return found


def finetune(
    problem: Problem,
    weights: Weights,
    *,
    steps: int = 50,
    seed: int = 0,
    settings: Evolution = FINETUNED,
    workers: int | None = None,
    on_report: Listener = lambda report: None,
) -> tuple[Weights, float]:
    """Weights fine-tuned on one problem, and the cost of the best placement that they decode to.

    Of all sets of weights that were tried the one with the cheapest placement is kept: decoding repeats, so that
    ``place`` finds it again.
    """
    task = _Remembering(problem, settings.passes)
    trainer = Trainer(
        lambda generation, kind: [task], settings, seed, weights.vector, kinds=(task.kind,), workers=workers
    )
    task.cost(weights.vector, 0)
    for _ in range(steps):
        on_report(trainer.step())
    for turn in range(4):
        task.cost(trainer.average, turn)
    assert task.best is not None
    recipe = {
        **weights.recipe,
        "finetuned": {
            "graph": problem.graph.digest,
            "model": problem.model.name,
            "steps": steps,
            "seed": seed,
            "settings": asdict(settings),
            "from": weights.digest,
        },
    }
    return Weights(task.best[1], recipe), math.exp(task.best[0])


class _Remembering(Task):
    """A task that remembers the weights with the cheapest placement."""

    def __init__(self, problem: Problem, passes: int) -> None:
        super().__init__(problem, passes)
        self.tracks = tracks_of(problem, passes)  # as ``place`` decodes
        self.best: tuple[float, FloatArray] | None = None
        self._lock = threading.Lock()

    def cost(self, vector: FloatArray, turn: int) -> float:
        costs = self.costs(vector, turn)
        with self._lock:  # of equals the first by their bytes, whichever thread was first
            if costs and (self.best is None or (min(costs), vector.tobytes()) < _key(self.best)):
                self.best = min(costs), vector.copy()
        return float(np.mean(costs)) if costs else 0.0


def _key(best: tuple[float, FloatArray]) -> tuple[float, bytes]:
    return best[0], best[1].tobytes()
