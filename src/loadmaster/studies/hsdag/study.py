"""HSDAG's tables (S. Duan et al., NeurIPS 2024) on a model of its hardware and on this machine."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from loadmaster.errors import InputError, NoPlacementError, UnsupportedError
from loadmaster.files import scratch_folder
from loadmaster.hardware import load_cluster
from loadmaster.problem import Problem, Serial
from loadmaster.problem.coarsening import coarsen
from loadmaster.studies.harness.placing import placed, solved
from loadmaster.studies.harness.study import Case, Row, Scope, Study
from loadmaster.studies.hsdag.measured import measured
from loadmaster.studies.hsdag.page import write
from loadmaster.studies.hsdag.problems import MODELS, everything_on, study_problem
from loadmaster.studies.hsdag.variants import PAPER_VARIANTS, VARIANTS

__all__ = ["STUDY", "cases"]

EXECUTIONS = ("serial", "concurrent")
PAPER_EVALUATIONS = 2000
"""100 episodes of 20 placements: the paper's table 6."""
MORE_EVALUATIONS = 10_000
"""For the methods that need seconds for them."""
LEARNED = ("hsdag", "rnn", "placeto")
OTHERS = ("random", "local-search")
"""At the same number of evaluations."""
ABLATED = (
    "without output shape", "without position", "without structure (fractal, degrees)",
    "without costs (the paper's features)", "no learning", "no groups", "random groups", "singletons off",
    "no elites", "no leaning",
)  # fmt: skip
"""Variants of ``hsdag``; of ``hsdag-paper`` there are the paper's, and the one without learning."""
PAPER_ABLATED = (
    "without output shape", "without position", "without structure (fractal, degrees)", "no learning",
)  # fmt: skip


def cases(scope: Scope) -> list[Case]:
    """Graphs, optima, methods at equal evaluations, ablations, and runs on this machine."""
    wanted = scope.only
    models = [name for name in MODELS if wanted in name]
    seeds = range(1 if scope.quick else scope.seeds)
    found = [Case({"part": "graph", "model": name}, partial(_graph, name)) for name in models]
    for execution in EXECUTIONS:
        for name in models:
            seconds = 10.0 if scope.quick else 60.0
            key = {"part": "optimum", "model": name, "execution": execution, "seconds": seconds}
            found.append(Case(key, partial(_optimum, name, execution, seconds)))
    found += _methods(models, (*OTHERS, *LEARNED), PAPER_EVALUATIONS, seeds)
    for name in models:
        if not scope.quick or name == "resnet-50":
            samples = 10 if scope.quick else 30
            key = {"part": "measured", "model": name, "samples": samples}
            found.append(Case(key, partial(measured, MODELS[name][0], samples=samples), here=True))
    if not scope.quick:
        found += _variants(models, "hsdag", ABLATED, seeds)
        found += _methods(models, ("hsdag-paper",), PAPER_EVALUATIONS, seeds)  # slow: a step at a time
        found += _methods(models, (*OTHERS, "hsdag"), MORE_EVALUATIONS, seeds)
        found += _variants(models, "hsdag-paper", PAPER_ABLATED, seeds)
    return found


def _methods(
    models: Sequence[str], methods: Sequence[str], evaluations: int, seeds: Iterable[int]
) -> list[Case]:
    return [
        _method(name, execution, method, evaluations, seed)
        for execution in EXECUTIONS
        for method in methods
        for name in models
        for seed in seeds
    ]


def _variants(
    models: Sequence[str], method: str, variants: Sequence[str], seeds: Iterable[int]
) -> list[Case]:
    return [
        _variant(name, method, variant, seed) for variant in variants for name in models for seed in seeds
    ]


def _method(name: str, execution: str, method: str, evaluations: int, seed: int) -> Case:
    key = {
        "part": "method", "model": name, "execution": execution, "method": method, "evaluations": evaluations,
        "seed": seed,
    }  # fmt: skip
    return Case(key, partial(_placed, name, execution, method, evaluations, seed, {}))


def _variant(name: str, method: str, variant: str, seed: int) -> Case:
    key = {
        "part": "ablation", "model": name, "method": method, "variant": variant,
        "evaluations": PAPER_EVALUATIONS, "seed": seed,
    }  # fmt: skip
    change = (VARIANTS if method == "hsdag" else PAPER_VARIANTS)[variant]
    return Case(key, partial(_placed, name, "serial", method, PAPER_EVALUATIONS, seed, change))


@cache
def _problem(name: str, execution: str) -> Problem:
    return study_problem(name, model=execution, whole=True)


def _graph(name: str) -> Row:
    """Nodes and edges of the model's OpenVINO file, and of the graphs that are made of it."""
    row: Row = {"ours": None, "colocated": None, "why": ""}
    for level in ("kernels", "kchain"):
        graph = study_problem(name, level=level).graph
        row[level] = [graph.n, len(graph.arcs[0])]
    try:
        from loadmaster.graph import load_openvino
        from loadmaster.zoo import export_model

        with scratch_folder() as folder:
            file = Path(folder) / "model.xml"
            export_model(MODELS[name][0], file)
            network = load_openvino(file, counting="layers")
    except (InputError, ImportError) as error:
        return row | {"why": str(error)}
    graph, cluster = network.graph, load_cluster("hsdag")
    bare = Problem.make(graph, cluster, Serial(), time=np.ones((graph.n, len(cluster))))  # nothing is pinned
    groups = coarsen(bare, "chain").coarse.graph
    return row | {
        "ours": [graph.n, len(graph.arcs[0])],
        "colocated": [groups.n, len(groups.arcs[0])],
    }


def _optimum(name: str, execution: str, seconds: float) -> Row:
    """What can be reached at all, what is proved about it, and single devices and rules beside it."""
    problem = _problem(name, execution)
    row = placed(problem, "min-cut" if execution == "serial" else "auto", budget=seconds)
    row["cpu"], row["gpu"] = (everything_on(problem, device) for device in ("cpu", "gpu"))
    for device in ("cpu", "gpu"):
        parameters = {"priority": (device,)}
        row[f"openvino-{device}"] = placed(problem, "openvino", evaluations=9, parameters=parameters)["cost"]
    row["heft"] = placed(problem, "heft", evaluations=99)["cost"]
    return row | {"ops": problem.n, "base": MODELS[name][3]}


def _placed(
    name: str, execution: str, method: str, evaluations: int, seed: int, parameters: Mapping[str, Any]
) -> Row:
    """One run: cost, evaluations and seconds, and how the cost fell."""
    problem = _problem(name, execution)
    began = time.process_time()
    try:
        found = solved(problem, method, evaluations=evaluations, seed=seed, parameters=parameters)
    except (NoPlacementError, UnsupportedError) as error:
        return {"cost": None, "why": str(error)}
    return {
        "cost": found.cost,
        "made": found.evaluations,
        "seconds": found.seconds,
        "cpu_seconds": time.process_time() - began,
        "history": [[point.evaluations, point.cost] for point in found.history],
    }


STUDY = Study("hsdag", "HSDAG, reproduced", cases, write)
