"""GDP's table 1, its batch training, hold-out experiments and ablations, on the zoo's graphs and P100 presets."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

from loadmaster import api
from loadmaster.errors import NoPlacementError
from loadmaster.files import scratch_folder
from loadmaster.placers.frame.feasible import atoms_of
from loadmaster.placers.learned.gdp_paper import GdpPaper, train_batch
from loadmaster.problem import Problem, Solution
from loadmaster.problem.bounds import lower_bound
from loadmaster.problem.coarsening import coarsen
from loadmaster.studies.gdp.models import (
    ABLATIONS,
    FINE_TUNING,
    GROUPS,
    MANY,
    MODELS,
    NETWORKS,
    QUICK,
    RULES,
    SEARCHES,
    Model,
)
from loadmaster.studies.gdp.page import write
from loadmaster.studies.harness.placing import solved
from loadmaster.studies.harness.study import Case, Row, Scope, Study

__all__ = ["STUDY", "cases"]

SECONDS = {False: 30.0, True: 5.0}
"""For ``auto``, in the full and the quick run."""
TRAINING = {False: 500, True: 200}
"""Evaluations of each graph in batch training."""


def evaluations_of(model: Model, quick: bool) -> int:
    """What every search may spend on a graph."""
    return 200 if quick else 300 if model.large else 1000


@cache
def problem_of(model: Model) -> Problem:
    """The training step on one CPU and so many P100, all devices working at once."""
    return api.problem(f"zoo:{model.graph}", f"p100-{model.gpus}", "concurrent")


def groups_of(model: Model) -> str:
    """The coarsening that a network is given."""
    return GROUPS if problem_of(model).n > MANY else ""


# -- what is run ---------------------------------------------------------------------------------------------


def cases(scope: Scope) -> list[Case]:
    """Rules, then searches on one graph, ablations, batch training and hold-outs."""
    wanted = scope.only.lower()
    models = [m for m in MODELS if wanted in m.title.lower() and (not scope.quick or m.title in QUICK)]
    seeds = 1 if scope.quick else scope.seeds
    seconds = SECONDS[scope.quick]
    found = [Case({"part": "rules", "model": m.title}, partial(_rules, m)) for m in models]
    trained = sorted((m for m in models if not m.large), key=lambda m: problem_of(m).n)
    found += _searched(trained, scope, seeds)
    found += [_one(model, "gdp-paper", "without attention", scope, 0) for model in trained]
    if trained:
        found += [_batch(trained, variant, scope) for variant in ("", *ABLATIONS)]
        found += [_held_out(models, family, scope) for family in dict.fromkeys(m.family for m in models)]
    found += _searched([m for m in models if m.large], scope, seeds)
    for model in models:
        key = {"part": "auto", "model": model.title, "seconds": seconds}
        found.append(Case(key, partial(_auto, model, seconds)))
    return found


def _searched(models: Sequence[Model], scope: Scope, seeds: int) -> list[Case]:
    return [_one(m, method, "", scope, seed) for method in SEARCHES for m in models for seed in range(seeds)]


def _one(model: Model, method: str, variant: str, scope: Scope, seed: int) -> Case:
    limit = evaluations_of(model, scope.quick)
    key = {"part": "one", "model": model.title, "method": method, "variant": variant, "evaluations": limit}
    if SEARCHES[method][1]:
        key["settings"] = SEARCHES[method][1]
    return Case({**key, "seed": seed}, partial(_placed, model, method, variant, limit, seed))


def _batch(models: Sequence[Model], variant: str, scope: Scope) -> Case:
    limit = TRAINING[scope.quick]
    key = {"part": "batch", "variant": variant, "models": [m.title for m in models], "evaluations": limit}
    return Case(key, partial(_train, models, variant, limit))


def _held_out(models: Sequence[Model], family: str, scope: Scope) -> Case:
    limit = TRAINING[scope.quick]
    key = {"part": "held out", "family": family, "models": [m.title for m in models], "evaluations": limit}
    return Case({**key, "updates": FINE_TUNING}, partial(_transfer, models, family, limit))


def _rules(model: Model) -> Row:
    problem = problem_of(model)
    bound = lower_bound(problem)
    rule = groups_of(model)
    groups = atoms_of(coarsen(problem, rule).coarse if rule else problem).count
    row: Row = {"ops": problem.n, "nodes": groups, "bound": bound.value, "bound_by": bound.name}
    for method in RULES:
        try:
            row[method] = api.place(problem, method, evaluations=100).cost
        except NoPlacementError:
            row[method] = None
    return row


def _placed(model: Model, method: str, variant: str, evaluations: int, seed: int) -> Row:
    placer, settings = SEARCHES[method]
    more: dict[str, Any] = {**settings, **(ABLATIONS[variant] if variant else {})}
    if method in NETWORKS:
        more["colocate"] = groups_of(model)
    problem = problem_of(model)
    began = time.process_time()
    solution = solved(problem, placer, evaluations=evaluations, seed=seed, parameters=more)
    return _row(solution) | {"cpu_seconds": time.process_time() - began}


def _auto(model: Model, seconds: float) -> Row:
    return _row(solved(problem_of(model), "auto", budget=seconds))


def _row(solution: Solution) -> Row:
    if solution.stopped == "interrupted":
        raise KeyboardInterrupt  # what was cut short must not be kept as if it had run
    reached = [p.evaluations for p in solution.history if p.cost <= 1.01 * solution.cost]
    return {
        "cost": solution.cost,
        "bound": solution.bound,
        "found_by": solution.found_by or solution.method,
        "evaluations_made": solution.evaluations,
        "within_1_percent_after": reached[0] if reached else solution.evaluations,
        "seconds": solution.seconds,
    }


def _train(models: Sequence[Model], variant: str, evaluations: int) -> Row:
    began = time.process_time()
    settings = GdpPaper(**ABLATIONS[variant]) if variant else GdpPaper()
    _, solutions = train_batch(
        [problem_of(m) for m in models],
        settings,
        evaluations=evaluations,
        colocate=[groups_of(m) for m in models],
    )
    costs = {m.title: _row(s)["cost"] for m, s in zip(models, solutions, strict=True)}
    return {"costs": costs, "cpu_seconds": time.process_time() - began}


def _transfer(models: Sequence[Model], family: str, evaluations: int) -> Row:
    """Train on the other families; place the graphs of this one without and with a little training."""
    seen = [m for m in models if m.family != family and not m.large]
    held = [m for m in models if m.family == family]
    if not seen:
        return {"zero": {}, "tuned": {}, "untrained": {}}
    widest = max(m.gpus for m in held)
    began = time.process_time()
    # The policy knows devices by number: graphs it is trained on get at least as many as the held-out ones.
    problems = [
        problem_of(m) if m.gpus >= widest else api.problem(f"zoo:{m.graph}", f"p100-{widest}", "concurrent")
        for m in seen
    ]
    state, solutions = train_batch(problems, evaluations=evaluations, colocate=[groups_of(m) for m in seen])
    for solution in solutions:
        _row(solution)
    trained = time.process_time() - began
    row: Row = {"zero": {}, "tuned": {}, "untrained": {}, "cpu_seconds": trained}
    with scratch_folder() as folder:
        file = str(Path(folder) / "state.npz")
        state.save(file)
        for model in held:
            groups = {"colocate": groups_of(model)}
            for name, more in (
                ("untrained", {"learn": False}),
                ("zero", {"learn": False, "weights": file}),
                ("tuned", {"updates": FINE_TUNING, "weights": file}),
            ):
                # The first evaluation is that of any feasible placement.
                batch = GdpPaper().batch + 1
                limit = 1 + batch * (FINE_TUNING if name == "tuned" else 1)
                began = time.process_time()
                solution = solved(
                    problem_of(model), "gdp-paper", evaluations=limit, parameters={**groups, **more}
                )
                spent = time.process_time() - began
                row[name][model.title] = _row(solution) | {"cpu_seconds": spent}
    return row


STUDY = Study("gdp", "GDP, reproduced", cases, write)
