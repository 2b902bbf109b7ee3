"""No bound exceeds the cost of any feasible placement; how tight they are where that can be said."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from loadmaster.graph import Graph, GraphBuilder, layered
from loadmaster.hardware import Cluster, Device, accelerators, roofline
from loadmaster.problem import Concurrent, Offload, Pipeline, Placement, Problem, Serial
from loadmaster.problem.bounds import all_bounds, lower_bound
from loadmaster.problem.bounds._crowding import crowding
from loadmaster.problem.bounds._load_dual import load_dual
from loadmaster.problem.reference import evaluate
from tests.strategies import models, problems

CONCURRENT = st.builds(Concurrent, st.sampled_from(["event", "static"]), st.sampled_from(["sum", "peak"]))
PIPELINE = st.builds(
    Pipeline,
    st.sampled_from(["none", "device", "chain"]),
    st.sampled_from(["sum", "overlap"]),
    st.sampled_from(["sum", "fw+bw"]),
)
OFFLOAD = st.builds(Offload, st.integers(1, 3))
SMALL = st.integers(1, 3)


# -- validity ----------------------------------------------------------------------------------------------


def placed(problem: Problem) -> Iterator[np.ndarray]:
    """Every (n,) choice of devices that keeps to what ops are allowed, and to colocation."""
    choices = [np.flatnonzero(row) for row in problem.class_allowed]
    for at in itertools.product(*choices):
        yield np.array(at, np.int32)[problem.class_of]


def assert_below(problem: Problem, placements: Iterator[Placement]) -> None:
    """Every bound is at most the cost of each of these placements that is feasible."""
    best = math.inf
    for placement in placements:
        evaluation = evaluate(problem, placement)
        if evaluation.feasible:
            best = min(best, evaluation.cost)
    for bound in all_bounds(problem):
        assert math.isfinite(bound.value)
        assert 0 <= bound.value <= best * (1 + 1e-12), bound


@given(problems(Serial(), max_ops=5, devices=SMALL))
def test_serial_bounds_are_below_every_placement(problem):
    assert_below(problem, (Placement(device) for device in placed(problem)))


@given(problems(PIPELINE, max_ops=5, devices=SMALL, backward=True))
def test_pipeline_bounds_are_below_every_placement(problem):
    assert_below(problem, (Placement(device) for device in placed(problem)))


@given(
    st.lists(
        st.lists(st.sampled_from([1.0, 2.0, 3.0, 5.0, math.inf]), min_size=2, max_size=2),
        min_size=1,
        max_size=5,
    ),
    st.integers(1, 2),
    st.integers(1, 2),
)
def test_crowding_is_below_the_best_division_of_the_classes(cost, some, others):
    """Kinds of one or two devices each; the largest load of every division, by brute force."""
    assume(all(min(row) < math.inf for row in cost))
    kind = [0] * some + [1] * others
    best = math.inf
    for at in itertools.product(range(len(kind)), repeat=len(cost)):
        load = [0.0] * len(kind)
        for row, device in zip(cost, at, strict=True):
            load[device] += row[kind[device]]
        best = min(best, max(load))
    table = np.array(cost)
    assert crowding(table, table, np.array([float(some), float(others)])) <= best


def test_crowding_sees_that_two_of_three_heavy_classes_share_a_device():
    cost = np.array([[5.0], [4.0], [3.0], [0.1]])
    assert crowding(cost, cost, np.array([2.0])) == 7.0
    assert crowding(cost, cost, np.array([3.0])) == 4.1


@given(problems(CONCURRENT, max_ops=3, devices=SMALL))
def test_concurrent_bounds_are_below_every_placement_with_every_order(problem):
    orders = [None, *(np.array(p, np.int32) for p in itertools.permutations(range(problem.n)))]
    assert_below(problem, (Placement(device, order) for device in placed(problem) for order in orders))


@given(
    problems(CONCURRENT, min_ops=4, max_ops=6, devices=st.integers(1, 2)), st.randoms(use_true_random=False)
)
def test_concurrent_bounds_are_below_every_placement_with_some_orders(problem, random):
    def placements() -> Iterator[Placement]:
        for device in placed(problem):
            yield Placement(device)
            yield Placement(device, np.array(random.sample(range(problem.n), problem.n), np.int32))
            yield Placement(device, problem.graph.position)

    assert_below(problem, placements())


@given(problems(OFFLOAD, max_ops=5, devices=SMALL), st.randoms(use_true_random=False))
def test_offload_bounds_are_below_every_placement_with_some_calls(problem, random):
    def placements() -> Iterator[Placement]:
        for device in placed(problem):
            yield Placement(device)
            yield Placement(device, call=np.array(random.choices(range(3), k=problem.n), np.int32))

    assert_below(problem, placements())


@settings(max_examples=30)
@given(problems(models(), min_ops=7, max_ops=8, devices=st.just(2), constrained=False))
def test_bounds_are_below_every_placement_of_somewhat_larger_graphs(problem):
    """Long enough for paths that cross devices several times, and for more ancestors than are looked at."""
    assert_below(problem, (Placement(device) for device in placed(problem)))


def with_twins(problem: Problem) -> Problem:
    """The first two devices become alike in every respect; nothing is pinned or forbidden."""
    d = np.array([0, 0, 2])

    def twins(table: np.ndarray) -> np.ndarray:
        table = table[np.ix_(d, d)].copy()
        table[0, 1] = table[1, 0] = table[0, 2] / 2
        return table

    return replace(
        problem,
        cluster=Cluster(
            "twins", tuple(Device(f"d{i}", problem.cluster.devices[j].kind) for i, j in enumerate(d))
        ),
        time=problem.time[:, d],
        latency=twins(problem.latency),
        rate=twins(problem.rate),
        send_latency=problem.send_latency[d],
        send_rate=problem.send_rate[d],
        recv_latency=problem.recv_latency[d],
        recv_rate=problem.recv_rate[d],
        pin=np.full(problem.n, -1, np.int32),
        forbidden=np.zeros((problem.n, 3), np.bool_),
    )


@given(problems(models(), max_ops=5, devices=st.just(3), backward=True).map(with_twins))
def test_bounds_are_below_every_placement_on_devices_that_are_alike(problem):
    assert_below(problem, (Placement(device) for device in placed(problem)))


@pytest.mark.parametrize("model", [Serial(), Concurrent(), Pipeline(), Offload()])
@pytest.mark.parametrize("width", [2, 8])
def test_bounds_are_below_good_placements_of_graphs_too_large_to_enumerate(model, width):
    graph, cluster = layered(150, width=width, seed=3), accelerators(2)
    problem = Problem.make(graph, cluster, model, time=roofline(graph, cluster))
    half = np.where(graph.position < 75, 0, 1).astype(np.int32)
    fastest = problem.time.argmin(axis=1).astype(np.int32)
    costs = [evaluate(problem, Placement(device)).cost for device in (half * 0, half, fastest)]
    assert 0 < lower_bound(problem).value <= min(costs)


def test_a_bound_is_never_above_the_exact_sum():
    """0.1 + 0.2 > 0.3 in floating point; the bound is rounded the other way."""
    time = np.random.default_rng(0).random((2000, 1))
    for model in (Serial(), Concurrent(), Pipeline()):
        problem = chain_problem(time, model)
        exact = math.fsum(time[:, 0])
        for bound in all_bounds(problem):
            assert bound.value <= exact
        assert lower_bound(problem).value == pytest.approx(exact, rel=1e-9)


# -- strength: never below the textbook bounds -------------------------------------------------------------


def linear_load_dual(cost: np.ndarray) -> float:
    """min T such that fractions of classes, each spread over the devices, load no device more than T."""
    rows, devices = cost.shape
    where = np.argwhere(np.isfinite(cost))
    if not len(where):
        return 0.0
    equal = np.zeros((rows, len(where) + 1))
    loads = np.zeros((devices, len(where) + 1))
    for i, (c, d) in enumerate(where):
        equal[c, i], loads[d, i] = 1.0, cost[c, d]
    loads[:, -1] = -1.0
    some = equal.any(axis=1)
    objective = np.eye(len(where) + 1)[-1]
    return linprog(objective, loads, np.zeros(devices), equal[some], np.ones(some.sum())).fun


def fastest(problem: Problem) -> list[float]:
    """The smallest time of each op where it may go by itself; 0 where it may not go anywhere."""
    time = np.where(problem.allowed, problem.time, math.inf).min(axis=1)
    return np.where(np.isinf(time), 0.0, time).tolist()


def heads(problem: Problem, successors: tuple[np.ndarray, np.ndarray], order: list[int]) -> list[float]:
    """Longest path to the start of each op, at smallest times."""
    time, head = fastest(problem), [0.0] * problem.n
    ptr, op = successors
    for v in order:
        for u in op[ptr[v] : ptr[v + 1]].tolist():
            head[u] = max(head[u], head[v] + time[v])
    return head


def textbook(problem: Problem) -> dict[str, float]:
    """The bounds of ARCHITECTURE.md, word by word."""
    graph, allowed = problem.graph, problem.allowed
    time = np.where(allowed, problem.time, math.inf)
    if isinstance(problem.model, Serial):
        return {"fastest": sum(fastest(problem))}
    if isinstance(problem.model, Pipeline):
        return {"load dual": linear_load_dual(time), "largest op": max(fastest(problem))}
    order = graph.topological_order.tolist()
    head = heads(problem, graph.successors, order)
    tail = heads(problem, graph.predecessors, order[::-1])
    bounds = {"critical path": max(h + t for h, t in zip(head, fastest(problem), strict=True))}
    if isinstance(problem.model, Offload):
        stuck = ~(allowed & problem.pool).any(axis=1)
        bounds["load dual"] = linear_load_dual(time[stuck][:, ~problem.pool])
    else:
        bounds["load dual"] = linear_load_dual(time)
        for a, b in itertools.product(set(head), set(tail)):
            rows = [v for v in range(problem.n) if head[v] >= a and tail[v] >= b]
            bounds[f"window {a}, {b}"] = a + b + linear_load_dual(time[rows]) if rows else 0.0
    return bounds


@given(problems(models(), max_ops=6, devices=SMALL, backward=True))
def test_the_lower_bound_is_never_below_a_textbook_bound(problem):
    assume(problem.class_allowed.any(axis=1).all())
    problem = replace(problem, capacity=np.full(problem.devices, math.inf))
    best = lower_bound(problem).value
    for name, value in textbook(problem).items():
        assert best >= value * (1 - 2e-3) - 1e-9, name


@given(
    st.integers(1, 12).flatmap(
        lambda kinds: st.lists(
            st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0, 7.0, math.inf]), min_size=kinds, max_size=kinds),
            min_size=1,
            max_size=12,
        )
    ),
)
def test_the_load_dual_equals_the_linear_program(rows):
    cost = np.array(rows)
    number = np.ones(cost.shape[1])
    value, weight = load_dual(cost, number)
    assert value == pytest.approx(linear_load_dual(cost), rel=1e-6, abs=1e-9)
    assert (weight >= 0).all()
    assert (weight * number).sum() == pytest.approx(1.0)


@settings(max_examples=20)
@given(st.integers(2, 30), st.integers(20, 60), st.integers(0, 2**31))
def test_the_load_dual_is_close_to_the_linear_program_for_many_unlike_devices(devices, ops, seed):
    cost = np.exp(np.random.default_rng(seed).standard_normal((ops, devices)))
    exact = linear_load_dual(cost)
    value, _ = load_dual(cost, np.ones(devices))
    assert exact * 0.8 <= value <= exact * (1 + 1e-9)


@given(problems(st.sampled_from([Serial(), Concurrent(), Pipeline()]), devices=st.just(1), constrained=False))
def test_on_one_device_the_bound_is_the_cost(problem):
    cost = evaluate(problem, Placement(np.zeros(problem.n, np.int32))).cost
    assert lower_bound(problem).value == pytest.approx(cost, rel=1e-9)


# -- strength: what each argument is there for -------------------------------------------------------------


def chain(n: int, sizes: list[float] | None = None) -> Graph:
    builder = GraphBuilder("chain")
    for v in range(n):
        builder.op(f"op{v}")
    for v in range(n - 1):
        builder.tensor(v, bytes=sizes[v] if sizes else 0.0, consumers=[v + 1])
    return builder.build()


def devices(*kinds: str) -> Cluster:
    return Cluster("test", tuple(Device(f"d{d}", kind) for d, kind in enumerate(kinds)))


def apart(size: int, value: float) -> np.ndarray:
    return value * (1 - np.eye(size))


def chain_problem(time: np.ndarray, model, **arrays) -> Problem:
    return Problem.make(chain(len(time)), devices(*["acc"] * time.shape[1]), model, time=time, **arrays)


def optimum(problem: Problem) -> float:
    costs = (evaluate(problem, Placement(device)) for device in placed(problem))
    return min((e.cost for e in costs if e.feasible), default=math.inf)


@given(st.integers(1, 6), st.integers(1, 3), st.randoms(use_true_random=False))
def test_the_serial_bound_with_transfers_is_exact_on_chains(n, size, random):
    def table(*shape: int) -> np.ndarray:
        return np.array([random.choice([0.0, 0.5, 1.0, 3.0]) for _ in range(math.prod(shape))]).reshape(shape)

    graph = chain(n, [random.choice([0.0, 1.0, 2.0]) for _ in range(n)])
    problem = Problem.make(
        graph,
        devices(*["acc"] * size),
        Serial(),
        time=table(n, size),
        latency=table(size, size),
        rate=table(size, size),
    )
    assert lower_bound(problem).value == pytest.approx(optimum(problem), rel=1e-9)


def test_a_transfer_that_pins_force_is_on_the_critical_path():
    problem = chain_problem(
        np.ones((2, 2)), Concurrent(), pins={0: 0, 1: 1}, latency=apart(2, 5.0), rate=np.zeros((2, 2))
    )
    assert lower_bound(problem).value == pytest.approx(7.0)


def test_ops_that_are_too_far_from_elsewhere_queue_for_one_device():
    """Three sources feed a sink over slow links: whatever is not on the sink's device comes too late."""
    builder = GraphBuilder("join")
    for v in range(4):
        builder.op(f"op{v}")
    for v in range(3):
        builder.tensor(v, bytes=0.0, consumers=[3])
    problem = Problem.make(
        builder.build(),
        devices("acc", "acc", "acc"),
        Concurrent(),
        time=np.ones((4, 3)),
        latency=apart(3, 2.5),
    )
    assert optimum(problem) == 4.0
    assert {b.name: b.value for b in all_bounds(problem)}["critical path"] == pytest.approx(2.0)
    assert lower_bound(problem).value == pytest.approx(4.0)
    backwards = Problem.make(
        fan_out(), devices("acc", "acc", "acc"), Concurrent(), time=np.ones((4, 3)), latency=apart(3, 2.5)
    )
    assert lower_bound(backwards).value == pytest.approx(4.0)


def test_ops_that_do_not_fit_the_accelerators_count_with_their_time_on_the_cpu():
    time = np.array([[1.0, 10.0]] * 8)
    zero = np.zeros((2, 2))
    memory, capacity = np.ones(8), np.array([3.0, np.inf])
    problem = Problem.make(
        chain(8), devices("acc", "cpu"), Offload(), time=time, latency=zero, rate=zero, memory=memory,
        capacity=capacity,
    )  # fmt: skip
    found = lower_bound(problem)
    assert found.name == "crowded critical path"
    assert found.value == pytest.approx(3 * 1.0 + 5 * 10.0)


def fan_out() -> Graph:
    builder = GraphBuilder("fork")
    for v in range(4):
        builder.op(f"op{v}")
    builder.tensor(0, bytes=0.0, consumers=[1, 2, 3])
    return builder.build()


def test_a_window_counts_what_is_before_and_behind_the_crowd():
    """One op, four in parallel, one op: on two devices that is 1 + 2 + 1."""
    builder = GraphBuilder("diamond")
    for v in range(6):
        builder.op(f"op{v}")
    builder.tensor(0, bytes=0.0, consumers=[1, 2, 3, 4])
    for v in (1, 2, 3, 4):
        builder.tensor(v, bytes=0.0, consumers=[5])
    problem = Problem.make(builder.build(), devices("acc", "acc"), Concurrent(), time=np.ones((6, 2)))
    found = {b.name: b.value for b in all_bounds(problem)}
    assert found["placed critical path"] == found["load dual"] == pytest.approx(3.0)
    assert found["windows"] == pytest.approx(4.0) == optimum(problem)


def test_a_slow_pair_is_left_out_once_it_alone_costs_more_than_the_bound():
    """Two ops of 2 on the only good device: the dual spreads them over the bad one, of 100, as well."""
    graph = GraphBuilder("two")
    graph.op("a")
    graph.op("b")
    time = np.array([[2.0, 100.0], [2.0, 100.0]])
    for model in (Concurrent(), Pipeline()):
        problem = Problem.make(graph.build(), devices("acc", "acc"), model, time=time)
        found = {b.name: b.value for b in all_bounds(problem)}
        assert found["load dual"] == pytest.approx(400 / 102)
        assert lower_bound(problem).value == pytest.approx(4.0) == optimum(problem)


def test_two_classes_that_share_a_device_also_wait_for_what_comes_before():
    """Three classes of two ops of 2 on two devices, all after an op of 1: two of them share."""
    builder = GraphBuilder("shared")
    builder.op("before")
    for v in range(6):
        builder.op(f"op{v}")
    builder.tensor("before", consumers=[f"op{v}" for v in range(6)])
    problem = Problem.make(
        builder.build(), devices("acc", "acc"), Concurrent(), time=np.array([[1.0] * 2] + [[2.0] * 2] * 6),
        latency=np.zeros((2, 2)), rate=np.zeros((2, 2)), colocation=[[1, 2], [3, 4], [5, 6]],
    )  # fmt: skip
    found = {b.name: b.value for b in all_bounds(problem)}
    assert found["windows"] == pytest.approx(7.0)
    assert found["crowding and windows"] == pytest.approx(9.0) == optimum(problem)


def test_a_colocation_class_is_run_by_one_device():
    for model in (Concurrent(), Pipeline(), Serial()):
        graph = GraphBuilder("two")
        graph.op("a")
        graph.op("b")
        time = np.array([[1.0, 5.0], [5.0, 1.0]])
        problem = Problem.make(graph.build(), devices("acc", "acc"), model, time=time, colocation=[[0, 1]])
        assert lower_bound(problem).value == pytest.approx(6.0)


def test_offload_forces_onto_the_accelerator_what_the_pool_is_too_slow_for():
    """Four ops of 3 on the accelerator, 100 in the pool: below 100 the accelerator runs all of them."""
    builder = GraphBuilder("four")
    for v in range(4):
        builder.op(f"op{v}")
    problem = Problem.make(
        builder.build(), devices("acc", "cpu"), Offload(), time=np.tile([3.0, 100.0], (4, 1))
    )
    assert lower_bound(problem).value == pytest.approx(12.0) == optimum(problem)


@pytest.mark.parametrize("colocation", [[], [[0, 1, 2]]])
def test_the_pool_of_offload_has_no_load(colocation):
    builder = GraphBuilder("four")
    for v in range(4):
        builder.op(f"op{v}")
    time = np.tile([1.0, 9.0], (4, 1))
    problem = Problem.make(
        builder.build(), devices("cpu", "acc"), Offload(), time=time, colocation=colocation
    )
    assert lower_bound(problem).value == pytest.approx(1.0)


def test_a_device_that_is_alike_may_take_some_of_the_queue():
    """As above, but the links are fast: the bound must not keep all sources on one of the two devices."""
    builder = GraphBuilder("join")
    for v in range(4):
        builder.op(f"op{v}")
    for v in range(3):
        builder.tensor(v, bytes=0.0, consumers=[3])
    problem = Problem.make(
        builder.build(), devices("acc", "acc"), Concurrent(), time=np.full((4, 2), 2.0), latency=apart(2, 0.5)
    )
    assert optimum(problem) == 6.0
    assert lower_bound(problem).value == pytest.approx(5.0)  # load and window see 3 * 2 / 2 before the sink


def test_a_device_that_is_alike_may_take_a_whole_branch():
    """Two branches a -> b into a sink, a slow link within a branch and a fast one behind it."""
    builder = GraphBuilder("branches")
    for name in ("a1", "b1", "a2", "b2", "sink"):
        builder.op(name)
    for tail, head, size in ((0, 1, 5.0), (2, 3, 5.0), (1, 4, 0.125), (3, 4, 0.125)):
        builder.tensor(tail, bytes=size, consumers=[head])
    time = np.repeat([[3.0], [1.0], [3.0], [1.0], [1.0]], 2, axis=1)
    problem = Problem.make(
        builder.build(), devices("acc", "acc"), Concurrent(), time=time, rate=apart(2, 1.0)
    )
    assert lower_bound(problem).value == pytest.approx(5.125) == optimum(problem)


def test_a_tensor_is_sent_once_whatever_the_number_of_readers():
    builder = GraphBuilder("fork")
    for v in range(3):
        builder.op(f"op{v}")
    builder.tensor(0, bytes=1.0, consumers=[1, 2])
    problem = Problem.make(
        builder.build(),
        devices("acc", "acc"),
        Pipeline(),
        time=np.array([[4.0, math.inf], [math.inf, 1.0], [math.inf, 1.0]]),
        send_latency=[3.0, 3.0],
    )
    assert lower_bound(problem).value == pytest.approx(7.0) == optimum(problem)


def test_flush_adds_the_bounds_of_forward_and_backward():
    builder = GraphBuilder("training")
    for v in range(4):
        builder.op(f"op{v}", backward=v >= 2)
    time = np.array([[4.0, 4.0], [1.0, 1.0], [1.0, 1.0], [6.0, 6.0]])
    problem = Problem.make(builder.build(), devices("acc", "acc"), Pipeline(objective="fw+bw"), time=time)
    assert lower_bound(problem).value == pytest.approx(10.0)
    assert lower_bound(problem.with_model(Pipeline())).value == pytest.approx(6.0)


def test_transfers_join_the_load_dual_of_unlike_devices():
    """Each device is good at every other op of the chain, but what is sent and received eats the gain."""
    time = np.array([[1.0, 3.0], [3.0, 1.0], [1.0, 3.0], [3.0, 1.0]])
    costs = {"send_latency": [2.0, 2.0], "recv_latency": [2.0, 2.0]}
    problem = chain_problem(time, Pipeline(), **costs)
    assert {b.name: b.value for b in all_bounds(problem)}["load dual"] == pytest.approx(2.0)
    assert 3.9 < lower_bound(problem).value <= optimum(problem)


# -- odd problems ------------------------------------------------------------------------------------------

ALL_MODELS = [Serial(), Concurrent(), Pipeline(), Pipeline(objective="fw+bw", comm="overlap"), Offload()]


@pytest.mark.parametrize("model", ALL_MODELS)
def test_nothing_to_place_costs_nothing(model):
    problem = Problem.make(GraphBuilder("empty").build(), devices("cpu"), model, time=np.zeros((0, 1)))
    assert lower_bound(problem).value == 0.0


@pytest.mark.parametrize("model", ALL_MODELS)
def test_an_op_without_a_device_is_ignored(model):
    time = np.array([[1.0, 1.0], [math.inf, math.inf], [2.0, 2.0]])
    assert math.isfinite(lower_bound(chain_problem(time, model)).value)
    assert lower_bound(chain_problem(time[1:2], model)).value == 0.0


@pytest.mark.parametrize("model", ALL_MODELS)
def test_ops_of_zero_time_cost_nothing(model):
    assert lower_bound(chain_problem(np.zeros((4, 3)), model)).value == 0.0


@pytest.mark.parametrize("model", ALL_MODELS)
def test_devices_that_are_not_there_are_not_used(model):
    problem = chain_problem(np.array([[5.0, 1.0], [5.0, 1.0]]), model, surplus=(1,))
    assert lower_bound(problem).value == pytest.approx(10.0)


@pytest.mark.parametrize("model", ALL_MODELS)
def test_a_device_that_is_too_small_for_an_op_is_not_used_for_it(model):
    time, memory = np.array([[5.0, 1.0]]), [8.0]
    problem = chain_problem(time, model, memory=memory, capacity=[10.0, 4.0])
    assert lower_bound(problem).value == pytest.approx(5.0)


@pytest.mark.parametrize("model", ALL_MODELS)
def test_two_hundred_unlike_devices(model):
    graph = layered(40, width=4)
    size = 200
    time = np.exp(np.random.default_rng(0).standard_normal((graph.n, size)))
    cluster = devices(*["cpu"] * 2, *["acc"] * (size - 2))
    problem = Problem.make(graph, cluster, model, time=time, latency=apart(size, 1.0))
    one = evaluate(problem, Placement(np.full(graph.n, time[:, 2:].sum(axis=0).argmin() + 2, np.int32))).cost
    assert 0 < lower_bound(problem).value <= one


@given(problems(models(), max_ops=5, backward=True))
def test_bounds_repeat_and_are_computed_once(problem):
    first = all_bounds(problem)
    assert all_bounds(problem) is first
    assert all_bounds(problem.with_model(problem.model)) == first
    assert lower_bound(problem) in first
