"""Families of graphs that are left out together, and training without them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from loadmaster.placers.learned.gdp import Weights, save_weights
from loadmaster.placers.learned.gdp._evolution import Evolution, Trainer, families_without, pretrain_tasks

__all__ = ["FOLDS", "HELD_OUT", "fold_of", "held_out", "train", "weights_of"]

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


def fold_of(family: str) -> str:
    """The fold in which a family was left out."""
    return next(fold for fold, families in FOLDS.items() if family in families)


def held_out() -> Iterator[tuple[str, str, str]]:
    """(family, graph, cluster), one of every family in turn, so that a part of the run is a fair part."""
    for i in range(max(map(len, HELD_OUT.values()))):
        for family, cases in HELD_OUT.items():
            if i < len(cases):
                name, cluster = cases[i].split()
                yield family, name, cluster


def weights_of(folder: Path, fold: str, seed: int, *, context: bool = True) -> Path:
    """The file of a fold's weights."""
    return folder / f"{fold}-{seed}{'' if context else '-plain'}.npz"


def train(folder: Path, fold: str, seed: int, seconds: float, *, context: bool = True) -> None:
    """Weights of a fold, by so many seconds of one core; the state survives a kill."""
    path = weights_of(folder, fold, seed, context=context)
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
