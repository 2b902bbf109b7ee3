"""``surrogate``: what a machine has that its model does not is learnt from runs, and used."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from loadmaster import api
from loadmaster.arrays import BoolArray, FloatArray, IntArray
from loadmaster.errors import InputError
from loadmaster.placers import Budget, get_placer
from loadmaster.placers.learned.surrogate import Surrogate
from loadmaster.placers.learned.surrogate._loop import solved
from loadmaster.placers.learned.surrogate._residual import Posterior, Residual, Trace, moved_seconds
from loadmaster.problem import (
    Concurrent,
    ExecutionModel,
    Outcome,
    Placement,
    Problem,
    Serial,
    SimulatedEvaluator,
)


class Machine:
    """Answers from another problem than the one that is told."""

    def __init__(self, told: Problem, true: Problem) -> None:
        self.problem, self.true = told, SimulatedEvaluator(true)
        self.asked: list[bytes] = []

    @property
    def evaluations(self) -> int:
        return len(self.asked)

    def evaluate(self, placement: Placement) -> Outcome:
        self.asked.append(placement.device.tobytes())
        return self.true.evaluate(placement)

    def evaluate_batch(self, device: IntArray) -> tuple[FloatArray, BoolArray]:
        found = [self.evaluate(Placement(row)) for row in device]
        return np.array([one.cost for one in found]), np.array([one.feasible for one in found])


def told(model: ExecutionModel) -> Problem:
    return api.problem("zoo:inception-v3", "hsdag", model=model)


def slower(problem: Problem) -> Problem:
    """Convolutions of the last device take three times as long as thought, and every transfer twice."""
    time = problem.time.copy()
    slow = np.array(
        [name == problem.graph.op_types[int(problem.time[:, 0].argmax())] for name in problem.graph.op_types]
    )
    time[slow, -1] *= 3.0
    return replace(problem, time=time, latency=2 * problem.latency, rate=2 * problem.rate)


@pytest.mark.parametrize("model", [Serial(), Concurrent()], ids=lambda model: model.name)
def test_finds_what_the_wrong_model_hides(model: ExecutionModel) -> None:
    seen = told(model)
    true = slower(seen)
    check = SimulatedEvaluator(true)
    first = solved(seen, 500, 0, None)
    wrong = check.evaluate(Placement(first)).value
    best = check.evaluate(Placement(solved(true, 500, 0, None))).value
    assert wrong > 1.05 * best
    machine = Machine(seen, true)
    found = Surrogate(solving=500).place(seen, budget=Budget(evaluations=15), evaluator=machine)
    assert found.cost < best + 0.2 * (wrong - best)
    assert found.cost == check.evaluate(found.placement).value
    assert machine.evaluations <= 15
    assert len(set(machine.asked)) == len(machine.asked)  # nothing is run twice


def test_a_seed_makes_runs_repeat_and_a_start_is_kept() -> None:
    seen = told(Serial())
    true = slower(seen)
    start = Placement(np.zeros(seen.n, np.int32))
    runs = [
        Surrogate().place(
            seen, budget=Budget(evaluations=6), seed=3, start=start, evaluator=Machine(seen, true)
        )
        for _ in range(2)
    ]
    assert np.array_equal(runs[0].placement.device, runs[1].placement.device)
    assert runs[0].cost <= SimulatedEvaluator(true).evaluate(start).value


def test_where_the_model_is_the_machine_it_is_local_search() -> None:
    seen = told(Serial())
    budget = Budget(evaluations=300)
    found = get_placer("surrogate").place(seen, budget=budget)
    assert found.evaluations <= 300
    assert found.cost <= get_placer("single").place(seen, budget=budget).cost


def test_traces_say_at_once_which_ops_are_slow() -> None:
    seen = told(Serial())
    true = slower(seen)
    device = np.full(seen.n, seen.devices - 1, np.int32)
    device[: seen.n // 2] = 0
    device = np.where(seen.pin >= 0, seen.pin, device).astype(np.int32)
    cost = SimulatedEvaluator(true).evaluate(Placement(device)).cost
    pieces = [np.array([v]) for v in range(seen.n) if seen.time[v, device[v]] > 0]
    took = np.array([true.time[ops, device[ops]].sum() for ops in pieces])
    posterior = Posterior(Residual(seen))
    posterior.learn(device, cost, Trace(pieces, took, moved_seconds(true, device)))
    posterior.update(4)
    learnt = posterior.residual.problem(posterior.mean)
    there = device == seen.devices - 1
    error = np.log(learnt.time[there, -1].sum() / true.time[there, -1].sum())
    assert abs(error) < 0.1 < abs(np.log(seen.time[there, -1].sum() / true.time[there, -1].sum()))
    assert moved_seconds(learnt, device) == pytest.approx(moved_seconds(true, device), rel=0.1)


def test_without_runs_the_numbers_are_the_models() -> None:
    seen = told(Concurrent())
    residual = Residual(seen)
    device = np.zeros((1, seen.n), np.int32)
    assert residual.costs(np.zeros(residual.count), device) == pytest.approx(
        SimulatedEvaluator(seen).costs(device)[0]
    )


def test_runs_are_logged_with_what_was_believed_of_them(tmp_path: Path) -> None:
    seen = told(Serial())
    machine = Machine(seen, slower(seen))
    Surrogate(log_dir=str(tmp_path)).place(seen, budget=Budget(evaluations=4), evaluator=machine)
    lines = [line.split(",") for line in next(tmp_path.glob("*.csv")).read_text().splitlines()[1:]]
    assert {name.strip('"') for _, name, _ in lines} == {
        "best",
        "evaluations",
        "cost",
        "believed",
        "unexplained",
    }
    off = [abs(float(a[2]) / float(b[2]) - 1) for a, b in zip(lines[2::5], lines[3::5], strict=True)]
    assert len(off) == 4
    assert off[-1] < off[0]
    assert list(tmp_path.glob("events.out.tfevents.*"))


def test_bad_settings_are_refused() -> None:
    with pytest.raises(InputError, match="runs and solving"):
        Surrogate(runs=0)
