"""Multilevel search: groups that can be placed, levels that cost what all ops cost, runs that repeat."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from strategies import problems

from loadmaster import api
from loadmaster.errors import InfeasibleError, InputError, UndecidedError
from loadmaster.placers import PLACERS, Budget
from loadmaster.placers.frame.feasible import atoms_of, first_feasible
from loadmaster.placers.frame.search import Search
from loadmaster.placers.search.local_search import LocalSearch
from loadmaster.placers.search.multilevel import Multilevel
from loadmaster.placers.search.multilevel._cycles import Cycles, sizes_of
from loadmaster.placers.search.multilevel._groups import heavy_groups
from loadmaster.placers.search.multilevel._levels import make_level
from loadmaster.problem import Problem, SimulatedEvaluator

MODELS = ["serial", "concurrent", "pipeline", "offload"]
RATINGS = ["heavy", "even", "chain", "random", "alike", "repeated"]


@pytest.mark.parametrize("rating", RATINGS)
@given(problem=problems(max_ops=8))
@settings(max_examples=15)
def test_a_group_always_has_a_device_that_can_hold_it(rating, problem: Problem) -> None:
    atoms = atoms_of(problem)
    group = heavy_groups(problem, 2, np.random.default_rng(0), rating)
    for g in range(int(group.max(initial=-1)) + 1):
        mine = np.flatnonzero(group == g)
        if len(mine) > 1 and atoms.allowed[mine].any(axis=1).all():
            common = atoms.allowed[mine].all(axis=0)
            assert common.any()
            assert (atoms.memory[mine].sum() <= problem.capacity[common]).any()


@given(problems(max_ops=8))
@settings(max_examples=15)
def test_a_level_costs_what_the_ops_cost_and_a_placement_that_groups_respect_stays(problem: Problem) -> None:
    try:
        device = first_feasible(problem).device
    except (InfeasibleError, UndecidedError):
        return
    atoms, check = atoms_of(problem), SimulatedEvaluator(problem)
    at = np.empty(atoms.count, np.int32)
    at[atoms.of_op] = device
    group = heavy_groups(problem, 2, np.random.default_rng(1), "heavy", at=at)
    level = make_level(problem, group, check)
    start = level.restrict(device, check)
    assert start is not None
    assert (level.expand(start) == device).all()
    chain = level.chain(1, check)
    chain.start(start)
    assert chain.cost == pytest.approx(check.evaluate_batch(device)[0][0])
    chain.advance(200, 0.0, 1.0)
    cost, feasible = check.evaluate_batch(level.expand(chain.best))
    assert feasible[0]
    assert chain.best_cost == pytest.approx(cost[0])


def test_levels_are_well_apart() -> None:
    assert sizes_of(20_000, (40, 500)) == [40, 500]
    assert sizes_of(700, (40, 500)) == [40]
    assert sizes_of(60, (40, 500)) == []


@pytest.mark.parametrize(
    "placer", [Multilevel(), Multilevel(cycles=2, finest=False, constructed=False)], ids=str
)
@pytest.mark.parametrize("model", MODELS)
def test_a_run_of_evaluations_repeats_and_is_not_worse_than_its_start(model: str, placer: Multilevel) -> None:
    problem = api.problem("zoo:layered-300", "2acc+1cpu", model=model)
    start = PLACERS["expert"].place(problem, budget=Budget(evaluations=50))
    once, again = (
        placer.place(problem, budget=Budget(evaluations=1500), seed=3, start=start.placement)
        for _ in range(2)
    )
    assert once.cost <= start.cost
    assert once.cost == again.cost
    assert once.placement == again.placement
    assert once.evaluations <= 1500


@given(problems(min_ops=6, max_ops=10))
@settings(max_examples=15)
def test_without_single_ops_groups_that_do_not_fit_end_no_walk(problem: Problem) -> None:
    try:
        start = first_feasible(problem)
    except (InfeasibleError, UndecidedError):
        return
    check = SimulatedEvaluator(problem)
    before = check.evaluate_batch(start.device)[0][0]
    placer = Multilevel(small=2, large=3, cycles=2, finest=False, constructed=False)
    found = placer.place(problem, budget=Budget(evaluations=600), start=start)
    cost, feasible = check.evaluate_batch(found.placement.device)
    assert feasible[0]
    assert found.cost <= before * (1 + 1e-9)
    assert found.placement.order is not None or cost[0] == pytest.approx(found.cost)


def test_the_first_cycle_without_single_ops_is_free_of_the_start() -> None:
    problem = api.problem("zoo:layered-2000", "4acc+1cpu", model="concurrent")
    start = PLACERS["expert"].place(problem, budget=Budget(evaluations=50)).placement
    with Search(problem, Budget(evaluations=1000), "multilevel") as search:
        search.try_placement(start)
        cycles = Cycles(search, LocalSearch(), (40, 500), 8, seed=1, finest=False)
        groups = []
        for _ in range(40):
            cycles.walk(10)
            assert cycles._level is not None
            groups.append(cycles._level.coarse.class_of)
    mixed = [len(np.unique(start.device[groups[0] == g])) for g in np.unique(groups[0])]
    assert 100 <= len(mixed) <= 400
    assert max(mixed) > 1


def test_it_refuses_sizes_that_make_no_levels() -> None:
    with pytest.raises(InputError, match="small must be >= 2"):
        Multilevel(small=50, large=10)
    with pytest.raises(InputError, match="kicks must be >= 0"):
        Multilevel(kicks=-1)
    with pytest.raises(InputError, match="cycles must be 1 or 2"):
        Multilevel(cycles=3)
