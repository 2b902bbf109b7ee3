"""Searches, studies and training on the workers of a cluster: the same results, whoever dies."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from loadmaster import api, bench
from loadmaster.api import _together
from loadmaster.errors import InfeasibleError, InputError, RunError
from loadmaster.placers.frame.board import board_of
from loadmaster.placers.learned.gdp._evolution import Evolution, Trainer, pretrain_tasks
from loadmaster.runtime import ray
from loadmaster.studies import Case, Rows, run_cases

ON = "local:2"


@pytest.fixture(scope="module")
def problem():
    return api.problem("zoo:layered-40", "2acc+1cpu", model="concurrent")


def dies_once(folder, number):
    """The first process that is given number 1 is killed."""
    mark = folder / "mark"
    if number == 1 and not mark.exists():
        mark.touch()
        os._exit(9)
    if number == 7:
        raise InputError("seven")
    return number**2


def test_workers_of_a_crew_die_and_are_replaced_and_train_bit_for_bit(machines, tmp_path):
    """One crew for all of it: to start one takes seconds."""
    settings = Evolution(pairs=2, problems=2, pool=4, passes=1)
    source = pretrain_tasks(0, settings, ("random",))
    alone = Trainer(source, settings, 0, workers=1)
    with ray.crew(2) as crew:
        begun, ended = [], []
        scheduler = crew.scheduled(dies_once, [(number,) for number in range(9)], shared=(tmp_path,))
        scheduler.run(started=begun.append, ended=lambda task, result: ended.append(task))
        crew.take_back(scheduler)
        assert begun.count(1) == 2  # again, and nothing else was
        assert sorted(ended) == list(range(9))
        assert isinstance(scheduler.results.pop(7), InputError)
        assert scheduler.results == {number: number**2 for number in range(9) if number != 7}
        with pytest.raises(InputError, match="seven"):
            crew.map(dies_once, [(tmp_path, 7), (tmp_path, 2)])

        together = Trainer(source, settings, 0, workers=crew.workers, run=crew.map)
        for _ in range(2):
            assert alone.step().gain == together.step().gain
        assert alone.average.tobytes() == together.average.tobytes()
        assert alone.vector.tobytes() == together.vector.tobytes()

        with pytest.raises(RunError, match="ZeroDivisionError"):
            crew.map(divmod, [(1, 0)])


def test_under_evaluations_the_answer_is_that_of_the_runs_one_after_another(machines, problem):
    for workers in (1, 3):  # more than there are cores
        there = api.place(problem, "local-search", evaluations=400, seed=5, on=ON, workers=workers)
        shares = [400] if workers == 1 else [134, 133, 133]
        here = [
            api.place(problem, "local-search", evaluations=share, seed=_together.seed_of(5, run))
            for run, share in enumerate(shares)
        ]
        best = min(here, key=lambda solution: solution.cost)
        assert there.placement == best.placement
        assert there.cost == best.cost == there.history[-1].cost
        assert there.bound == max(solution.bound for solution in here)
        assert there.evaluations == sum(solution.evaluations for solution in here)
        assert (there.seed, there.parameters["workers"]) == (5, workers)


def test_what_a_search_found_before_it_was_killed_is_kept(machines, problem, monkeypatch, tmp_path):
    """The first process of a run finds what the method never finds, tells the others and dies."""
    good = api.place(problem, "heft", evaluations=10)
    assert good.cost < api.place(problem, "single", evaluations=10).cost
    mark = tmp_path / "mark"
    monkeypatch.setattr(_together, "_run", partial(killed_once, mark, good, _together._run))
    told = []
    found = api.place(problem, "single", budget=2.0, on=ON, on_progress=told.append)
    assert mark.exists()
    assert (found.cost, found.placement, found.found_by) == (good.cost, good.placement, "the dead")
    assert found.bound <= found.cost
    assert found.parameters["workers"] == ray.cores()
    assert told[-1].cost == found.cost


def killed_once(mark, good, run, job, bulletin, place, warm, number):
    if number == 0 and not mark.exists():
        mark.touch()

        def place(problem, *given, **more):
            board_of(problem).offer(good.placement, good.cost, "the dead")
            while bulletin("state")[0] > good.cost:  # until it is told
                time.sleep(0.05)
            os._exit(9)

    return run(job, bulletin, place, warm, number)


def test_what_cannot_be_placed_is_said_as_always(machines, problem):
    full = replace(problem, memory=np.full(problem.n, 2.0), capacity=np.ones(problem.devices))
    with pytest.raises(InfeasibleError):
        api.place(full, "heft", budget=1.0, on=ON, workers=1)


def test_wrong_settings_are_said_at_once(machines, problem):
    with pytest.raises(InputError, match="the cluster has"):
        api.place(problem, budget=1.0, on=ON, workers=1000)
    with pytest.raises(InputError, match="give its address"):
        api.place(problem, budget=1.0, workers=2)


def measured():
    return {"process": os.getpid()}


def test_cases_give_the_same_rows_elsewhere_and_those_that_measure_stay(machines, tmp_path):
    plan = bench.Plan(
        names=("tiny-serial-0", "tiny-concurrent-1"), methods=("heft", "local-search"), evaluations=200,
        placements=str(tmp_path / "better"),
    )  # fmt: skip
    cases = [Case({"measured": True}, measured, here=True), *bench.bench_cases(plan)]
    cases[-1] = replace(cases[-1], finish=lambda row: {**row, "kept": os.getpid()})
    said = []
    file = tmp_path / "rows.jsonl"
    rows = run_cases(cases, Rows(file), on=ON, on_case=lambda number, count, title: said.append(number))
    assert rows[0]["process"] == rows[-1]["kept"] == os.getpid()
    assert sorted(said) == [1, 2, 3, 4, 5]
    assert said[-1] == 1  # after all others
    same = ("instance", "method", "seed", "cost", "bound", "bound_by", "evaluations_made", "found_by", "why")
    here = run_cases(cases, Rows())
    assert [[row.get(name) for name in same] for row in rows] == [
        [row.get(name) for name in same] for row in here
    ]
    assert len(file.read_text().splitlines()) == 5
    assert run_cases(cases, Rows(file), on=ON, on_case=pytest.fail) == rows  # nothing is run again
