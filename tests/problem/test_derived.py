"""What is kept with a problem: computed once, and part of neither equality, copies nor pickles."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from loadmaster.graph import layered
from loadmaster.hardware import accelerators, roofline
from loadmaster.problem import Pipeline, Problem, Serial

calls: list[Problem] = []


def table_of(problem: Problem) -> list[float]:
    calls.append(problem)
    return problem.mean_time.tolist()


@pytest.fixture
def problem() -> Problem:
    calls.clear()
    graph, cluster = layered(20), accelerators(2)
    return Problem.make(graph, cluster, Serial(), time=roofline(graph, cluster))


def test_a_derived_table_is_computed_once(problem: Problem) -> None:
    assert problem.derived(table_of) is problem.derived(table_of)
    assert len(calls) == 1


def test_threads_are_given_one_and_the_same_table(problem: Problem) -> None:
    with ThreadPoolExecutor(4) as pool:
        tables = list(pool.map(lambda _: problem.derived(table_of), range(64)))
    assert all(table is tables[0] for table in tables)


def test_a_changed_problem_derives_its_own(problem: Problem) -> None:
    problem.derived(table_of)
    for other in (problem.with_model(Pipeline()), replace(problem, time=problem.time * 2)):
        other.derived(table_of)
        assert calls[-1] is other


def test_what_was_derived_is_in_neither_equality_nor_pickles(problem: Problem) -> None:
    fresh = replace(problem)
    problem.derived(lambda _: object())  # which could not be pickled
    problem.derived(table_of)
    again = pickle.loads(pickle.dumps(problem))
    assert again == problem == fresh
    assert hash(again) == hash(fresh)
    assert again.derived(table_of) == problem.derived(table_of)
    assert calls == [problem, again]
