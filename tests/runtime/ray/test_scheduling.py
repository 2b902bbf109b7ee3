"""Tasks over workers that may die, and the bulletin of several searches: without Ray, by simulated workers."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadmaster import api
from loadmaster.api._bulletin import Bulletin, Correspondent, period_for
from loadmaster.errors import RunError
from loadmaster.placers.frame.board import Board
from loadmaster.problem import Placement, evaluate
from loadmaster.problem.bounds import Bound
from loadmaster.runtime.ray import Scheduler, SimulatedCrew


@given(
    workers=st.integers(1, 6),
    seconds=st.lists(st.floats(0.1, 5.0), max_size=20),
    deaths=st.lists(st.floats(0.0, 8.0), max_size=6),
    ahead=st.integers(1, 3),
    way=st.sampled_from([0.0, 0.2]),
)
def test_every_task_ends_once_whoever_dies(workers, seconds, deaths, ahead, way):
    """Each worker's first life may be short; nothing is lost, and nothing is told twice."""

    def life(worker, before):
        return deaths[worker] if before == 0 and worker < len(deaths) else math.inf

    crew = SimulatedCrew(
        workers, seconds.__getitem__, result=lambda task: 10 * task, way=way, startup=0.5, life=life
    )
    scheduler = Scheduler(crew, len(seconds), ahead=ahead)
    told = []
    scheduler.run(ended=lambda task, result: told.append(task))
    assert scheduler.results == {task: 10 * task for task in range(len(seconds))}
    assert sorted(told) == list(range(len(seconds)))


def test_without_deaths_the_workers_are_never_idle_while_a_task_waits():
    crew = SimulatedCrew(4, lambda task: 1.0)
    Scheduler(crew, 40).run()
    assert crew.now == pytest.approx(10.0)


def test_tasks_ahead_hide_the_way_to_a_worker():
    took = {}
    for ahead in (1, 2):
        crew = SimulatedCrew(2, lambda task: 1.0, way=0.25)
        Scheduler(crew, 20, ahead=ahead).run()
        took[ahead] = crew.now
    assert took[1] == pytest.approx(15.0)
    assert took[2] == pytest.approx(10.5)


def test_a_task_that_kills_its_worker_again_and_again_is_given_up():
    crew = SimulatedCrew(2, lambda task: 100.0 if task == 1 else 1.0, life=lambda worker, before: 50.0)
    scheduler = Scheduler(crew, 3)
    with pytest.raises(RunError, match="failed 4 times"):
        scheduler.run()
    assert set(scheduler.results) == {0, 2}


def test_workers_that_never_start_are_an_error():
    crew = SimulatedCrew(1, lambda task: 1.0, startup=2.0, life=lambda worker, before: 1.0)
    with pytest.raises(RunError, match="cannot be started"):
        Scheduler(crew, 1).run()


def test_a_run_can_be_left_and_drained_without_beginning_more():
    crew = SimulatedCrew(2, lambda task: 1.0)
    scheduler = Scheduler(crew, 10)
    scheduler.run(tick=lambda: len(scheduler.results) < 4, every=0.3)
    assert len(scheduler.results) == 4
    while scheduler.drain():
        pass
    assert len(scheduler.results) == 6  # the two that were at work


@pytest.fixture(scope="module")
def problem():
    return api.problem("zoo:layered-24", "2acc+1cpu", model="serial")


def single(problem, device):
    placement = Placement([device] * problem.n)
    return placement, evaluate(problem, placement).cost


def correspondents(problem, count=2):
    boards = [Board(problem, Bound(0.0, "nothing"), 1e-6) for _ in range(count)]
    return [Correspondent(str(number), board) for number, board in enumerate(boards)]


def test_what_one_search_finds_and_proves_the_others_know(problem):
    bulletin, (a, b) = Bulletin(1e-6), correspondents(problem)
    placement, cost = single(problem, 0)
    a.board.offer(placement, cost, "heft")
    b.board.prove(Bound(cost / 2, "windows"), "cp-sat")
    for one in (a, b, a):
        one.hear(bulletin.exchange(one.message()))
    assert (b.board.cost, b.board.found_by, b.board.best) == (cost, "heft", placement)
    assert (a.board.bound, a.board.proved_by) == (Bound(cost / 2, "windows"), "cp-sat")
    assert a.message().found is None  # nothing new: nothing is sent
    assert not a.board.closed
    b.board.prove(Bound(cost, "exact"), "cp-sat")
    for one in (b, a):
        one.hear(bulletin.exchange(one.message()))
    assert a.board.closed


def test_a_bulletin_that_began_anew_is_told_everything_again(problem):
    first, (a, b) = Bulletin(1e-6), correspondents(problem)
    placement, cost = single(problem, 0)
    a.board.offer(placement, cost, "heft")
    a.board.prove(Bound(cost / 3, "windows"), "")
    a.hear(first.exchange(a.message()))
    a.hear(None)  # it did not answer
    second = Bulletin(1e-6)
    for one in (a, a, b):
        one.hear(second.exchange(one.message()))
    assert second.state()[:2] == (cost, cost / 3)
    assert b.board.best == placement


def test_the_evaluations_of_a_search_that_died_count(problem):
    bulletin, (a, b) = Bulletin(1e-6), correspondents(problem)
    a.evaluations, b.evaluations = 100, 20
    for one in (a, b):
        one.hear(bulletin.exchange(one.message()))
    assert bulletin.state()[2] == 120


def test_with_many_searches_each_asks_less_often():
    assert period_for(2, 0.001) == 0.5
    assert period_for(512, 0.002) == pytest.approx(2.048)
    busy = [0.0]
    bulletin = Bulletin(1e-6, 0.5, clock=lambda: 0.0, cpu=lambda: busy[0])
    some = correspondents(None, 100)
    for number in range(10_000):
        busy[0] += 0.01
        some[number % 100].hear(bulletin.exchange(some[number % 100].message()))
    assert some[0].period == pytest.approx(100 * 0.01 / 0.5)
