"""linear-dp cuts topological orders into stages: a good chain for graphs of any size."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
from brute_force import least_cost
from chain_problems import MODELS, SEEDS, ladder, random_problem, small_enough
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from loadmaster import api
from loadmaster.errors import InfeasibleError
from loadmaster.graph import GraphBuilder, layered
from loadmaster.hardware import Cluster, Device
from loadmaster.placers import Budget, Search
from loadmaster.placers.frame.search import OutOfBudget
from loadmaster.placers.stages._chain import chain_loads
from loadmaster.placers.stages._contraction import contract, without_weightless
from loadmaster.placers.stages._windows import chain_bound, windows_of
from loadmaster.placers.stages.linear_dp import LinearDp, _kernel
from loadmaster.placers.stages.linear_dp._kernel import best_cut
from loadmaster.placers.stages.linear_dp._orders import some_order
from loadmaster.placers.stages.linear_dp._search import LinearSearch
from loadmaster.placers.stages.linear_dp._stage_moves import improve_stages
from loadmaster.problem import Pipeline, Placement, Problem
from loadmaster.problem._evaluator import SimulatedEvaluator
from loadmaster.testing import reference


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS, model=st.sampled_from(MODELS))
def test_the_answer_is_feasible_and_its_bound_valid(seed: int, model: Pipeline) -> None:
    problem = random_problem(seed, model)
    assume(small_enough(problem))
    best = least_cost(problem)
    try:
        found = LinearDp(orders=8, rounds=1).place(problem, budget=Budget())
    except InfeasibleError:
        assert math.isinf(best)
        return
    evaluation = reference.evaluate(problem, found.placement)
    assert evaluation.feasible, evaluation.why
    assert found.cost == pytest.approx(evaluation.cost, rel=1e-12)
    assert found.bound <= best <= found.cost * (1 + 1e-12)


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS, model=st.sampled_from(MODELS), room=st.floats(0.3, 1.2))
def test_with_short_memory_the_bound_by_atoms_is_valid(seed: int, model: Pipeline, room: float) -> None:
    problem = random_problem(seed, model)
    assume(small_enough(problem))
    shares = np.random.default_rng(seed).uniform(0.2, 1.0, problem.devices)
    problem = dataclasses.replace(problem, capacity=np.ceil(room * problem.memory.sum() * shares))
    contracted = contract(problem)
    assume(contracted.kinds)
    assert chain_bound(contracted).value <= least_cost(problem) * (1 + 1e-9)


def test_an_atom_takes_what_it_takes_where_it_fits() -> None:
    graph = layered(4, width=1)
    cluster = Cluster("two", (Device("cpu", "cpu"), Device("acc", "acc")))
    time = np.array([[8.0, 1.0]] * 4)
    problem = Problem.make(
        graph, cluster, Pipeline("chain"), time=time, memory=np.full(4, 10.0), colocation=[range(4)]
    )
    assert chain_bound(contract(problem)).value == pytest.approx(4.0)
    short = dataclasses.replace(problem, capacity=np.array([np.inf, 39.0]))
    assert chain_bound(contract(short)).value == pytest.approx(32.0)


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS, comm=st.sampled_from(["sum", "overlap"]), number=st.integers(0, 12))
def test_no_other_cut_of_the_order_is_better(seed: int, comm: str, number: int) -> None:
    problem = random_problem(seed, Pipeline("chain", comm), ops=6, devices=3)  # type: ignore[arg-type]
    contracted = without_weightless(contract(problem))
    assume(contracted.kinds)
    order = some_order(contracted, number, seed)
    found = best_cut(contracted, windows_of(contracted), order)
    evaluator = SimulatedEvaluator(problem)
    least = math.inf
    for places in range(min(contracted.atoms, problem.devices)):
        for cuts in itertools.combinations(range(1, contracted.atoms), places):
            pieces = np.split(order, cuts)
            for kinds in itertools.product(range(len(contracted.kinds)), repeat=len(pieces)):
                if (np.bincount(kinds, minlength=len(contracted.kinds)) <= contracted.count).all():
                    devices = contracted.devices_of(list(zip(pieces, kinds, strict=True)))
                    least = min(least, evaluator.evaluate(Placement(devices)).value)
    assert (found is None) == math.isinf(least)
    if found is not None:
        assert found[0] == pytest.approx(least, rel=1e-12)


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, number=st.integers(0, 12))
def test_every_order_is_topological(seed: int, number: int) -> None:
    contracted = contract(ladder(seed, Pipeline("chain")))
    place = np.argsort(some_order(contracted, number, seed))
    tail = np.repeat(np.arange(contracted.atoms), np.diff(contracted.successor_ptr))
    assert sorted(place) == list(range(contracted.atoms))
    assert (place[tail] < place[contracted.successor]).all()


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS, model=st.sampled_from(MODELS), temperature=st.sampled_from([0.0, 0.05]))
def test_moves_between_stages_keep_the_chain_and_never_end_worse(
    seed: int, model: Pipeline, temperature: float
) -> None:
    problem = ladder(seed, model)
    contracted = without_weightless(contract(problem))
    found = best_cut(contracted, windows_of(contracted), some_order(contracted, 3, seed))
    assume(found is not None)
    assert found is not None
    before = chain_loads(contracted, found[1]).max(axis=0).sum()
    stages, _ = improve_stages(contracted, found[1], seed % 1000, 2000, temperature)
    after = chain_loads(contracted, stages).max(axis=0).sum()
    assert after <= before * (1 + 1e-12)
    evaluation = reference.evaluate(problem, Placement(contracted.devices_of(stages)))
    assert evaluation.feasible, evaluation.why
    assert evaluation.cost == pytest.approx(after, rel=1e-9)
    again = contracted.stages_of(contracted.devices_of(stages))
    assert chain_loads(contracted, again).max(axis=0).sum() == pytest.approx(after, rel=1e-9)


def test_a_large_graph_is_searched_coarsened_first() -> None:
    problem = api.problem(layered(4000, width=6, seed=1), "4acc+1cpu", model="pipeline", contiguity="chain")
    budget = Budget(evaluations=400_000)
    fine = LinearDp(orders=4, rounds=2, coarsening="").place(problem, budget=budget)
    both = LinearDp(orders=4, rounds=2).place(problem, budget=budget)
    for found in (fine, both):
        evaluation = reference.evaluate(problem, found.placement)
        assert evaluation.feasible, evaluation.why
    single = api.place(problem, "single", evaluations=10)
    assert both.cost < 0.6 * single.cost
    assert both.cost < 1.2 * fine.cost


def test_names_keep_layers_together_where_time_would_tear_them_apart() -> None:
    """Two layers unrolled over many steps: a cut between the layers is cheap, one in time carries the weights."""
    b = GraphBuilder("unrolled")
    steps = 12
    weights = [b.op(f"layer{i}/weights") for i in range(2)]
    cells = [[b.op(f"layer{i}/t{t}/cell") for t in range(steps)] for i in range(2)]
    for i in range(2):
        b.tensor(weights[i], bytes=100.0, consumers=cells[i])
        for t in range(steps):
            readers = ([cells[i][t + 1]] if t + 1 < steps else []) + ([cells[1][t]] if i == 0 else [])
            if readers:
                b.tensor(cells[i][t], bytes=0.01, consumers=readers)
    graph = b.build()
    cluster = Cluster("two", (Device("x", "acc"), Device("y", "acc")))
    time = np.zeros((graph.n, 2))
    time[cells[0] + cells[1]] = 1.0
    rates = {"send_rate": [1.0, 1.0], "recv_rate": [1.0, 1.0]}
    problem = Problem.make(graph, cluster, Pipeline("chain"), time=time, size=graph.tensor_bytes, **rates)  # type: ignore[arg-type]
    contracted = without_weightless(contract(problem))
    found = best_cut(contracted, windows_of(contracted), some_order(contracted, 2, 0))
    assert found is not None
    assert found[0] == pytest.approx(steps + 0.01 * steps)


def test_a_placement_that_is_no_chain_of_the_atoms_is_not_gone_on_from() -> None:
    """Devices that wait for each other have no order; groups of ops may be a chain where atoms are not."""
    problem = api.problem("zoo:layered-60", "2acc+1cpu", model="pipeline")
    device = np.zeros(problem.n, np.int32)
    device[problem.graph.topological_order[20:40]] = 1  # there and back again
    with Search(problem, Budget(), "test", None, None) as search:
        linear = LinearSearch(search, contract(problem), 0)
        linear.adopt(device)
        assert linear.placements == []
        linear.adopt(np.zeros(problem.n, np.int32))
        assert len(linear.placements) == 1


def test_a_cut_looks_at_the_clock_again_and_again_and_ends_there() -> None:
    problem = api.problem("zoo:layered-3000?width=30", "4acc+1cpu", model="pipeline:chain")
    contracted = without_weightless(contract(problem))
    looks: list[int] = []

    def check() -> None:
        looks.append(1)
        if len(looks) == 3:
            raise KeyboardInterrupt

    order = some_order(contracted, 0, 0)
    with pytest.raises(KeyboardInterrupt):
        best_cut(contracted, windows_of(contracted), order, check=check)
    assert len(looks) == 3


@given(seed=SEEDS, model=st.sampled_from(MODELS))
@settings(max_examples=30, deadline=None)
def test_cutting_in_steps_changes_nothing(seed: int, model: Pipeline) -> None:
    contracted = contract(random_problem(seed, model))
    assume(contracted.kinds and contracted.atoms)
    order = np.arange(contracted.atoms, dtype=np.int32)
    with pytest.MonkeyPatch.context() as patch:
        found = []
        for some in (1, 3, 10**6):
            patch.setattr(_kernel, "FIRST_CUTS", some)
            patch.setattr(_kernel, "STEP", 0.0 if some == 1 else 1.0)
            found.append(best_cut(contracted, windows_of(contracted), order))
    values = [None if best is None else best[0] for best in found]
    assert values[0] == values[1] == values[2]


def test_the_threads_of_a_search_that_is_left_end_as_well() -> None:
    problem = api.problem("zoo:layered-200?width=10", "3acc", model="pipeline:chain")
    with Search(problem, Budget(), "test") as search:
        linear = LinearSearch(search, without_weightless(contract(problem)), 0)
        with pytest.raises(KeyboardInterrupt), linear._pool():
            raise KeyboardInterrupt
        with pytest.raises(OutOfBudget):
            linear._look_at_clock()
        search.try_device(np.zeros(problem.n, np.int32))
