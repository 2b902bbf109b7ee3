"""The 520 examples that settle the four execution models (cost, schedule, calls, violations)."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadmaster.placers import PLACERS, Budget
from loadmaster.problem import Placement, Problem, execution_model
from loadmaster.problem._evaluator import SimulatedEvaluator, evaluate
from loadmaster.problem._file import parse_problem
from loadmaster.problem.bounds import all_bounds
from loadmaster.testing import reference

GOLDEN: list[dict[str, Any]] = json.loads((Path(__file__).parent.parent / "golden.json").read_text())
CASES = [(entry, case) for entry in GOLDEN for case in entry["cases"]]
BEST = [(entry, name) for entry in GOLDEN for name in entry["best"]]


def problem_of(entry: dict[str, Any], model: str, settings: dict[str, Any]) -> Problem:
    return parse_problem(entry["problem"], "golden", execution_model(model, **settings))


def words(violation: Any, problem: Problem) -> str:
    """A violation in the words of the golden file."""
    op, device = violation.ops, violation.device
    match violation.kind:
        case "capacity":
            return f"device {device} over capacity"
        case "pin":
            return f"op {op[0]} not on its pin"
        case "colocation":
            return f"colocation {list(op)} split"
        case "unsupported":
            return f"op {op[0]} unsupported on device {device}"
        case "calls":
            return f"device {device} needs {violation.text.split(' needs ')[1].split()[0]} calls"
        case "deadlock":
            return "calls wait for each other"
    raise AssertionError(violation)


def test_there_are_520_cases() -> None:
    assert len(CASES) == 520


@pytest.mark.parametrize("evaluator", [reference.evaluate, evaluate], ids=["reference", "kernels"])
@pytest.mark.parametrize("entry", GOLDEN, ids=lambda entry: entry["title"])
def test_cases(entry: dict[str, Any], evaluator: Any) -> None:
    for case in entry["cases"]:
        problem = problem_of(entry, case["model"], case["settings"])
        order = case.get("order")
        placement = Placement(
            np.array(case["device"], np.int32), None if order is None else np.array(order, np.int32)
        )
        found = evaluator(problem, placement)
        if case["cost"] is None:
            assert math.isinf(found.cost)
        else:
            assert found.cost == pytest.approx(case["cost"], rel=1e-12)
            assert SimulatedEvaluator(problem).evaluate(placement).cost == pytest.approx(
                case["cost"], rel=1e-12
            )
        expected = case["violations"] + case.get("call_violations", [])
        assert sorted(words(v, problem) for v in found.violations) == sorted(expected)
        if "start" in case and case["cost"] is not None:
            assert found.start.tolist() == case["start"]
            assert found.end.tolist() == case["end"]
            moved = [[t.tensor, t.source, t.target, t.start, t.end] for t in found.transfers]
            assert sorted(moved) == sorted(case["transfers"])
        if "calls" in case:
            assert [[call.device, list(call.ops)] for call in found.calls] == case["calls"]


def parse_name(name: str) -> tuple[str, dict[str, str]]:
    model, *settings = name.split(", ")
    return model, dict(text.split(" ", 1) for text in settings)


@pytest.mark.parametrize(("entry", "name"), BEST, ids=[f"{e['title']}: {n}" for e, n in BEST])
def test_the_best_cost_is_reached_by_search_and_never_beaten(entry: dict[str, Any], name: str) -> None:
    problem = problem_of(entry, *parse_name(name))
    best = entry["best"][name]
    everything = np.array(list(itertools.product(range(problem.devices), repeat=problem.n)), np.int32)
    cost, feasible = SimulatedEvaluator(problem).evaluate_batch(everything)
    assert cost[feasible].min() == pytest.approx(best, rel=1e-12)
    for bound in all_bounds(problem):
        assert bound.value <= best, bound
    solution = PLACERS["local-search"].place(problem, budget=Budget(evaluations=3000))
    assert solution.cost == pytest.approx(best, rel=1e-12)
