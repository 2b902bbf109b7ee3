"""ideal-dp finds the best chain of stages, proves it, and says how many ideals there are."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from brute_force import least_cost
from chain_problems import MODELS, SEEDS, ladder, random_problem, small_enough, throughput
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from loadmaster import api
from loadmaster.errors import InfeasibleError, UnsupportedError
from loadmaster.graph import GraphBuilder, layered
from loadmaster.hardware import Cluster, Device, accelerators, roofline
from loadmaster.placers import Budget
from loadmaster.placers.stages._contraction import contract, without_weightless
from loadmaster.placers.stages._tables import MOST_STATES
from loadmaster.placers.stages.ideal_dp import IdealDp, _ideals, count_ideals
from loadmaster.problem import Pipeline, Problem, Solution
from loadmaster.testing import reference


def solve(problem: Problem, placer: IdealDp | None = None) -> Solution | None:
    """What the placer finds, confirmed by the plain definition; None if it says that there is nothing."""
    try:
        found = (placer or IdealDp()).place(problem, budget=Budget())
    except InfeasibleError:
        return None
    evaluation = reference.evaluate(problem, found.placement)
    assert evaluation.feasible, evaluation.why
    assert found.cost == pytest.approx(evaluation.cost, rel=1e-12)
    return found


# -- optimal -------------------------------------------------------------------------------------------------


@settings(max_examples=250, deadline=None)
@given(seed=SEEDS, model=st.sampled_from(MODELS), orders=st.sampled_from([0, 4]))
def test_no_placement_is_better(seed: int, model: Pipeline, orders: int) -> None:
    problem = random_problem(seed, model)
    assume(small_enough(problem))
    best = least_cost(problem)
    found = solve(problem, IdealDp(orders=orders))
    assert (found is None) == math.isinf(best)
    if found is not None:
        assert found.cost == pytest.approx(best, rel=1e-12)
        assert found.bound <= best
        assert found.optimal


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS, contiguity=st.sampled_from(["none", "device"]), model=st.sampled_from(MODELS))
def test_under_another_contiguity_the_bound_is_one_for_that(
    seed: int, contiguity: str, model: Pipeline
) -> None:
    problem = random_problem(seed, Pipeline(contiguity, model.comm, model.objective))  # type: ignore[arg-type]
    assume(small_enough(problem))
    best = least_cost(problem)
    found = solve(problem)
    if found is None:
        assert math.isinf(best)
    else:
        assert found.cost >= best
        assert found.bound <= best
        assert not found.optimal or found.cost == pytest.approx(best, rel=1e-6)


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS, model=st.sampled_from(MODELS))
def test_stations_change_nothing_but_the_time(seed: int, model: Pipeline) -> None:
    def best(narrow: int) -> float:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_ideals, "NARROW", narrow)
            found = solve(ladder(seed, model), IdealDp(max_ideals=20_000, orders=1))
        assume(found is None or found.optimal)
        return math.inf if found is None else found.cost

    # With 0 no size has stations, and every pair of ideals is looked at.
    assert best(0) == pytest.approx(best(4), rel=1e-12)
    assert best(0) == pytest.approx(best(40), rel=1e-12)


def four_ops(contiguity: str) -> Problem:
    b = GraphBuilder("four")
    ops = [b.op(name) for name in "abcd"]
    for u, v in ((0, 1), (2, 3)):
        b.tensor(ops[u], bytes=0.0, consumers=[ops[v]])
    cluster = Cluster("two", (Device("x", "acc"), Device("y", "acc")))
    time = np.repeat([[4.0], [2.0], [3.0], [1.0]], 2, axis=1)
    return Problem.make(b.build(), cluster, Pipeline(contiguity), time=time)  # type: ignore[arg-type]


def test_a_chain_may_cost_more_than_convex_devices() -> None:
    found = solve(four_ops("chain"))
    assert found is not None
    assert (found.cost, found.optimal) == (6.0, True)
    assert least_cost(four_ops("device")) == 5.0
    relaxed = solve(four_ops("device"))
    assert relaxed is not None
    assert (relaxed.cost, relaxed.optimal) == (6.0, False)


# -- published workloads -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", throughput())
def test_published_optima_and_ideals(workloads, name: str) -> None:
    problem = api.problem(workloads / name, contiguity="chain")
    assert count_ideals(problem) == throughput()[name]["ideals"]
    found = solve(problem)
    assert found is not None
    assert 1000 * found.cost == pytest.approx(throughput()[name]["contiguous_optimum"], rel=1e-9)
    assert found.optimal
    assert found.bound_by == "ideal-dp"


# -- ideals ----------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS)
def test_ideals_are_counted_right(seed: int) -> None:
    contracted = contract(random_problem(seed, MODELS[0], ops=9))
    n = contracted.atoms
    before = [
        set(
            contracted.predecessor[contracted.predecessor_ptr[v] : contracted.predecessor_ptr[v + 1]].tolist()
        )
        for v in range(n)
    ]
    sets = itertools.chain.from_iterable(itertools.combinations(range(n), size) for size in range(n + 1))
    ideals = sum(all(before[v] <= set(members) for v in members) for members in sets)
    assert count_ideals(contracted.problem) == ideals
    assert count_ideals(contracted.problem, limit=ideals) == ideals
    assert count_ideals(contracted.problem, limit=ideals - 1) is None
    lattice = _ideals.lattice_of(contracted, ideals)
    assert lattice is not None
    assert lattice.ideals == ideals
    assert _ideals.lattice_of(contracted, ideals - 1) is None


def test_a_graph_without_edges_has_a_power_of_two_of_ideals() -> None:
    graph = layered(20, width=20, degree=0.0)
    problem = api.problem(graph, "2acc", model="pipeline")
    assert count_ideals(problem) == 2 ** without_weightless(contract(problem)).atoms


# -- contraction -----------------------------------------------------------------------------------------------


def idle_tail(**limits: object) -> Problem:
    """work -> rest, where rest takes no time, on two equal devices."""
    b = GraphBuilder("tail")
    work, rest = b.op("work"), b.op("rest")
    b.tensor(work, bytes=1.0, consumers=[rest])
    cluster = Cluster("two", (Device("x", "acc"), Device("y", "acc")))
    common = {"time": [[1.0, 1.0], [0.0, 0.0]], "send_rate": [1.0, 1.0], "recv_rate": [1.0, 1.0]}
    return Problem.make(b.build(), cluster, Pipeline("chain"), **{**common, **limits})  # type: ignore[arg-type]


def test_an_idle_op_joins_its_neighbour() -> None:
    assert contract(idle_tail()).atoms == 1


@pytest.mark.parametrize(
    "limits",
    [
        {"memory": [1.0, 1.0], "capacity": [1.0, 1.0]},
        {"pins": {1: 1}},
        {"forbids": [(1, 0)]},
        {"time": [[1.0, 1.0], [np.inf, 0.0]]},
    ],
    ids=["memory", "pin", "forbid", "unsupported"],
)
def test_an_idle_op_stays_apart_where_joining_could_cost_something(limits: dict[str, object]) -> None:
    problem = idle_tail(**limits)
    assert contract(problem).atoms == 2
    found = solve(problem)
    assert found is not None
    assert found.cost == least_cost(problem)


def test_equal_devices_are_one_kind_until_a_pin_tells_them_apart() -> None:
    graph, cluster = layered(12, seed=1), accelerators(4, 1)
    time = roofline(graph, cluster)
    free = contract(Problem.make(graph, cluster, Pipeline("chain"), time=time))
    assert [len(kind) for kind in free.kinds] == [4, 1]
    pinned = contract(Problem.make(graph, cluster, Pipeline("chain"), time=time, pins={3: 1}))
    assert sorted(len(kind) for kind in pinned.kinds) == [1, 1, 3]


def test_too_many_kinds_are_refused_with_the_reason() -> None:
    graph, cluster = layered(30, seed=2), accelerators(13, 0)
    time = roofline(graph, cluster) * np.linspace(1.0, 2.0, 13)
    problem = Problem.make(graph, cluster, Pipeline("chain"), time=time)
    with pytest.raises(UnsupportedError, match=f"8192 combinations .*at most {MOST_STATES}"):
        api.place(problem, "ideal-dp")


# -- limits ------------------------------------------------------------------------------------------------------


def wide() -> Problem:
    return api.problem(layered(60, width=12, seed=3), "3acc+1cpu", model="pipeline", contiguity="chain")


def test_with_too_many_ideals_the_answer_is_a_chain_with_a_valid_bound() -> None:
    problem = wide()
    assert count_ideals(problem, limit=10_000) is None
    found = solve(problem, IdealDp(max_ideals=10_000))
    assert found is not None
    assert found.bound <= found.cost
    assert found.bound_by != "ideal-dp"


def test_without_time_the_answer_is_a_chain() -> None:
    found = IdealDp().place(wide(), budget=Budget(seconds=0.0))
    assert found.stopped == "budget"
    assert reference.evaluate(wide(), found.placement).feasible


@settings(max_examples=30, deadline=None)
@example(amounts=[0.1, 0.2, 0.3], share=1.0)
@given(
    amounts=st.lists(st.floats(0.1, 1.0), min_size=3, max_size=6), share=st.sampled_from([0.5, 0.6, 0.7, 1.0])
)
def test_memory_that_fits_only_by_rounding_is_never_a_false_proof(amounts: list[float], share: float) -> None:
    b = GraphBuilder("line")
    ops = [b.op(f"op{i}") for i in range(len(amounts))]
    for u, v in itertools.pairwise(ops):
        b.tensor(u, bytes=1.0, consumers=[v])
    cluster = Cluster("two", (Device("x", "acc"), Device("y", "acc")))
    problem = Problem.make(
        b.build(),
        cluster,
        Pipeline("chain"),
        time=np.ones((len(ops), 2)),
        send_rate=[1.0, 1.0],
        recv_rate=[1.0, 1.0],
        memory=amounts,
        capacity=[sum(sorted(amounts)) * share] * 2,
    )
    best = least_cost(problem)
    found = solve(problem)
    assert (found is None) == math.isinf(best)
    if found is not None:
        assert found.cost >= best
        assert found.bound <= best


def test_under_a_budget_of_evaluations_it_gives_up_where_there_are_too_many_pairs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("loadmaster.placers.stages.ideal_dp.ideal_dp.PAIRS", 0)
    monkeypatch.setattr("loadmaster.placers.stages.ideal_dp.ideal_dp.PAIRS_AN_EVALUATION", 1)
    problem = api.problem("zoo:layered-40?width=5", "2acc+1cpu", model="pipeline", contiguity="chain")
    one, two = (IdealDp().place(problem, budget=Budget(evaluations=100)) for _ in range(2))
    assert one.placement == two.placement
    assert one.stopped == two.stopped
    assert one.evaluations <= 100
