"""Runs: a case per instance, method and seed, kept as they end.

Each case is a plain function of plain values (names and numbers), so that it can as well be run elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from loadmaster.bench._instances import Instance, content_hash, find_instances, instances, suites
from loadmaster.bench._known import FOLDER, read_known
from loadmaster.bench._methods import find_method
from loadmaster.bench._submitting import submission, write_submission
from loadmaster.bench._verifying import CLOSE
from loadmaster.errors import InputError, NoPlacementError, UnsupportedError
from loadmaster.problem import Problem, Solution
from loadmaster.studies import Case, Row, Rows, machine, run_cases, versions

__all__ = ["Plan", "bench_cases", "run_bench", "run_case"]

POINTS = 40
"""Improvements of a search that a row keeps."""


@dataclass(frozen=True)
class Plan:
    """What is run: instances, methods, a budget in seconds or evaluations, seeds."""

    suite: str = ""
    names: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    """Empty: those that each suite states."""
    seconds: float | None = None
    evaluations: int | None = None
    seeds: int = 1
    programs: Mapping[str, str] = field(default_factory=dict)
    workloads: str | None = None
    placements: str | None = None
    """A folder for submissions: every placement that is better than the best known one."""


def bench_cases(plan: Plan) -> list[Case]:
    """All cases; every setting that a row depends on is in its key."""
    if plan.seconds is None and plan.evaluations is None:
        raise InputError("a run needs a budget, in seconds or in evaluations")
    cases = []
    for instance in find_instances(plan.suite, plan.names):
        for name in plan.methods or suites()[instance.suite].methods:
            method = find_method(name, plan.programs)
            for seed in range(plan.seeds if method.random else 1):
                key: Row = {"instance": instance.name, "hash": instance.hash[:16], "method": name}
                key |= {"command": plan.programs[name]} if name in plan.programs else {}
                key |= {"seconds": plan.seconds} if plan.seconds is not None else {}
                key |= {"evaluations": plan.evaluations} if plan.evaluations is not None else {}
                key |= {"seed": seed}
                run = partial(run_case, key, plan.workloads, plan.placements is not None)
                cases.append(Case(key, run, finish=partial(_keep, key, plan.placements)))
    return cases


def run_bench(
    plan: Plan,
    rows: Path | None,
    *,
    fresh: bool = False,
    on_case: Callable[[int, int, str], None] | None = None,
    on: str | None = None,
) -> tuple[list[Row], int]:
    """Run what is missing, on the cores of a Ray cluster if one is named; the rows, and how many cases there are."""
    cases = bench_cases(plan)
    return run_cases(cases, Rows(rows, fresh=fresh), on_case=on_case, on=on), len(cases)


@lru_cache(maxsize=1)
def _problem(name: str, workloads: str | None) -> Problem:
    """The instance of the last cases: methods run one after another on it."""
    instance = instances()[name]
    problem = instance.problem(workloads)
    if content_hash(problem) != instance.hash:
        raise InputError(f"{name}: made on this machine it has another hash than it should")
    return problem


def run_case(key: Mapping[str, Any], workloads: str | None = None, submitted: bool = False) -> Row:
    """One method on one instance: cost, bound, when it improved, on what machine and with what versions.

    With ``submitted`` also a ``submission``, where the placement or the bound is better than what is known.
    """
    instance = instances()[key["instance"]]
    programs = {key["method"]: key["command"]} if "command" in key else None
    method = find_method(key["method"], programs)
    problem = _problem(instance.name, workloads)
    row: Row = {"machine": machine(), "versions": versions()}
    began = time.perf_counter()
    try:
        found = method.run(instance, problem, key.get("seconds"), key.get("evaluations"), key["seed"])
    except UnsupportedError as error:
        return {"cost": None, "unsupported": True, "why": str(error), **row}
    except NoPlacementError as error:
        return {"cost": None, "why": str(error), "seconds_taken": time.perf_counter() - began, **row}
    if submitted:
        row["submission"] = _submission(instance, problem, found, key)
    history = [[round(point.seconds, 4), point.evaluations, point.cost] for point in found.history]
    step = max(1, -(-len(history) // POINTS))
    return {
        "cost": found.cost,
        "bound": found.bound,
        "bound_by": found.bound_by,
        "optimal": found.optimal,
        "seconds_taken": found.seconds,
        "evaluations_made": found.evaluations,
        "found_by": found.found_by or found.method,
        "history": [*history[:-1:step], *history[-1:]],
        **row,
    }


def _submission(
    instance: Instance, problem: Problem, found: Solution, key: Mapping[str, Any]
) -> dict[str, Any] | None:
    known = read_known(instance.name, FOLDER)
    cheaper = known is None or found.cost < known.cost * (1 - CLOSE)
    tighter = known is None or found.bound > known.bound * (1 + CLOSE)
    if not (cheaper or tighter):
        return None
    how = f"{key['seconds']:g} s" if "seconds" in key else f"{key['evaluations']:,} evaluations"
    inside = f" ({found.found_by})" if found.found_by and found.found_by != key["method"] else ""
    return submission(
        instance,
        found.placement,
        found.cost,
        found_by=f"{key['method']}{inside}, {how}, seed {key['seed']}",
        bound=found.bound,
        bound_by=f"{key['method']}: {found.bound_by}" if found.bound_by != key["method"] else found.bound_by,
    )


def _keep(key: Mapping[str, Any], placements: str | None, row: Mapping[str, Any]) -> Row:
    """The row, with its submission in a file."""
    kept = dict(row)
    document = kept.pop("submission", None)
    if document is not None and placements is not None:
        write_submission(document, Path(placements) / f"{key['instance']}.{key['method']}.{key['seed']}.json")
    return kept
