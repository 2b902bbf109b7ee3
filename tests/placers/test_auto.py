"""``auto``: never worse than a single device, members that hear of each other, a deadline that holds."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from strategies import problems

from loadmaster import api, bench
from loadmaster.errors import InfeasibleError, UndecidedError
from loadmaster.placers import PLACERS, Budget, Progress, Searcher
from loadmaster.placers._lineup import Lineup, lineup_of
from loadmaster.placers.auto import Auto, _Run
from loadmaster.placers.cuts.min_cut import MinCut
from loadmaster.placers.frame.board import Board, using
from loadmaster.placers.frame.search import OutOfBudget, Search
from loadmaster.placers.search.annealing import Annealing
from loadmaster.placers.stages.linear_dp import LinearDp
from loadmaster.problem import Placement, Problem, Solution
from loadmaster.problem.bounds import Bound, lower_bound

MODELS = ["serial", "concurrent", "pipeline", "offload"]


def wind_down() -> None:
    """Wait for members that were in the middle of a step at the deadline."""
    for thread in threading.enumerate():
        if thread.name == "auto":
            thread.join()


@given(problems(max_ops=8))
@settings(max_examples=20)
def test_it_is_never_worse_than_the_best_single_device(problem: Problem) -> None:
    try:
        single = PLACERS["single"].place(problem, budget=Budget(evaluations=100))
    except InfeasibleError:
        return
    solution = Auto().place(problem, budget=Budget(evaluations=60))
    assert solution.cost <= single.cost
    assert solution.bound <= solution.cost


@pytest.mark.parametrize("model", MODELS)
def test_side_by_side_it_is_never_worse_than_its_members(model: str) -> None:
    problem = api.problem("zoo:layered-40?width=4", "2acc+1cpu", model=model)
    members = lineup_of(problem)
    solution = Auto().place(problem, budget=Budget(seconds=2.0))
    for rule in (PLACERS["single"], *members.rules):
        assert solution.cost <= rule.place(problem, budget=Budget(seconds=1.0)).cost
    assert solution.method == "auto"
    assert solution.found_by in PLACERS
    assert api.evaluate(problem, solution.placement).cost == solution.cost


@pytest.mark.parametrize("model", MODELS)
def test_the_deadline_holds_and_nothing_is_left_running(model: str) -> None:
    problem = api.problem("zoo:layered-300", "2acc+1cpu", model=model)
    api.place(problem, "auto", budget=0.1)  # compiles everything first
    wind_down()
    before, began = threading.active_count(), time.perf_counter()
    Auto().place(problem, budget=Budget(seconds=1.0))
    assert time.perf_counter() - began < 15.0  # far from the deadline only if a member ignores it
    wind_down()
    assert threading.active_count() == before


def test_it_stops_at_the_gap_asked_for() -> None:
    problem = api.problem("zoo:layered-40", "2acc+1cpu", model="pipeline")
    solution = Auto(gap=0.5).place(problem, budget=Budget(seconds=60.0))
    assert solution.gap <= 0.5
    assert solution.stopped == "finished"
    assert solution.seconds < 30.0


def test_an_interrupt_keeps_the_best_so_far() -> None:
    problem = api.problem("zoo:layered-300", "2acc+1cpu", model="concurrent")
    api.place(problem, "auto", budget=0.1)  # compiles everything first

    def stop(progress: Progress) -> None:
        if progress.seconds > 0.5:
            raise KeyboardInterrupt

    solution = Auto().place(problem, budget=Budget(seconds=60.0), on_progress=stop)
    assert solution.stopped == "interrupted"
    assert solution.seconds < 30.0


def test_a_given_placement_counts() -> None:
    problem = api.problem("zoo:layered-40", "2acc+1cpu", model="concurrent")
    best = PLACERS["local-search"].place(problem, budget=Budget(evaluations=20_000))
    solution = Auto().place(problem, budget=Budget(evaluations=10), start=best.placement)
    assert solution.cost <= best.cost


def test_searches_on_a_board_share_what_they_know() -> None:
    problem = api.problem("zoo:layered-20", "2acc+1cpu", model="pipeline")
    board = Board(problem, lower_bound(problem), 0.0)
    poor, good = np.full(problem.n, 2, np.int32), np.zeros(problem.n, np.int32)
    with using(board):
        one, other = Search(problem, Budget(), "one"), Search(problem, Budget(), "other")
    stranger = Search(problem, Budget(), "stranger")
    one.try_device(poor)
    assert board.found_by == "one"
    other.try_device(good)
    other.bound = Bound(other.bound.value * 1.01, "a proof")
    one.check()
    assert one.cost == other.cost
    assert one.best == Placement(good)
    assert one.bound.name == "a proof"
    assert stranger.best is None
    board.close()
    with pytest.raises(OutOfBudget):
        one.check()


class _Stubborn(Searcher):
    """A prover in the middle of a step that does not look at the clock."""

    name = "stubborn"
    summary = "waits for ever"

    def __init__(self) -> None:
        self.begun, self.released = threading.Event(), threading.Event()

    def place(self, problem: Problem, **_: object) -> Solution:
        self.begun.set()
        self.released.wait()
        raise UndecidedError("nothing was proved")


class _Witness(Searcher):
    """A searcher that remembers that it has had a turn beside the prover."""

    name = "witness"
    summary = "looks on"

    def __init__(self, stubborn: _Stubborn) -> None:
        self.stubborn, self.seeds, self.beside = stubborn, [], False

    def place(self, problem: Problem, *, seed: int = 0, **rest: object) -> Solution:
        self.stubborn.begun.wait()
        self.beside = not self.stubborn.released.is_set()
        self.seeds.append(seed)
        return PLACERS["greedy"].place(problem, budget=Budget(evaluations=10))


def test_searchers_do_not_wait_for_a_prover_nor_does_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = api.problem("zoo:layered-40", "2acc+1cpu", model="pipeline")
    stubborn = _Stubborn()
    one, other = _Witness(stubborn), _Witness(stubborn)
    lineup = Lineup((), (stubborn,), (one, other))
    monkeypatch.setattr("loadmaster.placers.auto.lineup_of", lambda problem: lineup)
    solution = Auto().place(problem, budget=Budget(seconds=0.5))
    assert not stubborn.released.is_set()
    stubborn.released.set()
    assert one.beside
    assert other.beside
    assert one.seeds != other.seeds
    assert solution.stopped == "budget"


def test_where_memory_decides_a_prover_that_does_not_know_of_it_is_brief() -> None:
    short = bench.instances()["memory-resnet-50-pipeline"].problem()
    roomy = bench.instances()["hsdag-resnet-50-pipeline"].problem()
    assert lineup_of(short).brief is not None
    assert lineup_of(short).brief[0] == lineup_of(short).provers[0]
    assert lineup_of(roomy).brief is None
    found = Auto().place(short, budget=Budget(seconds=4.0))
    wind_down()
    assert found.bound > 1.1 * lower_bound(short).value  # of the solvers that follow it
    assert found.bound <= found.cost


def test_a_prover_that_another_follows_goes_on_while_its_bound_rises() -> None:
    problem = bench.instances()["memory-resnet-50-serial"].problem()
    prover = MinCut()
    run = _Run(time.perf_counter(), Auto(), problem, Budget(seconds=1.0), 0, None, None, None)
    run.board.cost = 2.0
    over = run._lasting(prover, 0.0)
    assert not over()  # nobody is over at once
    deadline = time.perf_counter() + 0.5
    value = 1.0
    while time.perf_counter() < deadline:
        value += 0.1 * (2.0 - value)
        run.board.prove(Bound(value, "rising"), prover.name)
        assert not over()
        time.sleep(0.02)
    time.sleep(0.25)
    assert over()
    run.board.prove(Bound(value + 0.5 * (2.0 - value), "another's"), "milp")
    assert over()


def test_where_single_moves_are_walled_in_annealing_has_as_much_time_as_groups() -> None:
    roomy = bench.instances()["hsdag-inception-v3-serial"].problem()
    short = bench.instances()["memory-inception-v3-serial"].problem()
    assert Annealing in lineup_of(short).slow
    assert Annealing not in lineup_of(roomy).slow


@pytest.mark.parametrize("model", ["pipeline:chain", "pipeline:device"])
def test_orders_for_stages_have_their_turns_beside_a_prover_that_never_ends(model: str) -> None:
    problem = api.problem("zoo:layered-400?width=20", "3acc", model=model)
    lineup = lineup_of(problem)
    assert any(isinstance(member, LinearDp) for member in lineup.searchers)
    assert not any(isinstance(member, LinearDp) for member in lineup.provers)
    alone = LinearDp(orders=2, rounds=1).place(problem, budget=Budget())
    assert Auto().place(problem, budget=Budget(seconds=4.0)).cost <= 1.02 * alone.cost
    wind_down()


def test_on_a_huge_graph_nobody_waits_for_the_bounds_but_they_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem = api.problem("zoo:layered-60", "2acc+1cpu", model="concurrent")
    monkeypatch.setattr("loadmaster.placers.auto.HUGE", 10)
    solution = Auto().place(problem, budget=Budget(seconds=1.0))
    assert solution.bound >= lower_bound(problem).value
    assert solution.history[0].cost >= solution.cost == api.evaluate(problem, solution.placement).cost
    wind_down()


def test_a_board_of_another_problem_is_left_alone() -> None:
    problem = api.problem("zoo:layered-20", "2acc+1cpu", model="pipeline")
    board = Board(problem, lower_bound(problem), 0.0)
    with using(board):
        search = Search(api.problem("zoo:layered-30", "2acc+1cpu", model="pipeline"), Budget(), "coarse")
    search.try_device(np.zeros(30, np.int32))
    assert board.best is None
