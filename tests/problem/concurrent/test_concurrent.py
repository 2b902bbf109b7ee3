"""The compiled kernels of the concurrent model do exactly what the plain-Python reference does."""

from __future__ import annotations

import heapq
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import placements, problems

from loadmaster.graph import GraphBuilder, layered
from loadmaster.hardware import accelerators, roofline
from loadmaster.problem import Concurrent, Evaluation, Placement, Problem, execution_model
from loadmaster.problem._file import parse_problem
from loadmaster.problem.concurrent import ConcurrentSimulator
from loadmaster.problem.concurrent import _event as event
from loadmaster.problem.concurrent._delta import commit, prepare, static_delta, try_move
from loadmaster.problem.concurrent._static import static_costs, static_lanes
from loadmaster.testing import reference

SETTINGS = [Concurrent(schedule, memory) for schedule in ("event", "static") for memory in ("sum", "peak")]
EVENT, STATIC = Concurrent("event"), Concurrent("static")
every_setting = pytest.mark.parametrize(
    "model", SETTINGS, ids=lambda model: f"{model.schedule}-{model.memory}"
)
both_schedules = pytest.mark.parametrize("model", [EVENT, STATIC], ids=["event", "static"])


def assert_same(found: Evaluation, expected: Evaluation) -> None:
    assert found.cost == expected.cost
    for name in ("start", "end", "peak", "busy", "comm", "load", "memory"):
        a, b = getattr(found, name), getattr(expected, name)
        assert (a is None) == (b is None), name
        assert a is None or a.tolist() == b.tolist(), name
    assert sorted(map(by_tensor, found.transfers)) == sorted(map(by_tensor, expected.transfers))
    assert list(found.violations) == [v for v in expected.violations if v.kind == "deadlock"]


def by_tensor(transfer: Any) -> tuple[Any, ...]:
    return transfer.tensor, transfer.source, transfer.target, transfer.start, transfer.end


def fits(problem: Problem, evaluation: Evaluation) -> bool:
    if problem.model.memory == "sum" or evaluation.peak is None:
        return True
    return bool((evaluation.peak <= problem.capacity).all())


def random_devices(problem: Problem, rows: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, problem.devices, (rows, problem.n)).astype(np.int32)


def layered_problem(n: int, devices: int, model: Concurrent, seed: int = 0) -> Problem:
    graph, cluster = layered(n, seed=seed), accelerators(devices - 1, 1)
    return Problem.make(graph, cluster, model, time=roofline(graph, cluster))


@both_schedules
@given(data=st.data())
def test_a_schedule_is_that_of_the_reference(model: Concurrent, data: st.DataObject) -> None:
    problem = data.draw(problems(model, max_ops=14))
    placement = data.draw(placements(problem))
    assert_same(ConcurrentSimulator(problem).evaluate(placement), reference.evaluate(problem, placement))


@both_schedules
@given(data=st.data())
def test_a_schedule_on_very_many_devices_is_that_of_the_reference(
    model: Concurrent, data: st.DataObject
) -> None:
    problem = data.draw(problems(model, devices=st.integers(6, 80)))
    placement = data.draw(placements(problem))
    assert_same(ConcurrentSimulator(problem).evaluate(placement), reference.evaluate(problem, placement))


@both_schedules
@given(data=st.data())
def test_a_given_order_is_followed_or_deadlocks_as_in_the_reference(
    model: Concurrent, data: st.DataObject
) -> None:
    problem = data.draw(problems(model, max_ops=14))
    placement = data.draw(placements(problem, orders=True))
    simulator, expected = ConcurrentSimulator(problem), reference.evaluate(problem, placement)
    assert_same(simulator.evaluate(placement), expected)
    assert simulator.cost(placement) == (expected.cost, True)


@every_setting
@given(data=st.data())
def test_a_batch_has_the_costs_of_its_placements(model: Concurrent, data: st.DataObject) -> None:
    problem = data.draw(problems(model, max_ops=14))
    batch = data.draw(st.lists(placements(problem), min_size=1, max_size=5))
    simulator = ConcurrentSimulator(problem)
    expected = [reference.evaluate(problem, placement) for placement in batch]
    cost, fit = simulator.costs(np.stack([placement.device for placement in batch]))
    assert cost.tolist() == [evaluation.cost for evaluation in expected]
    assert fit.tolist() == [fits(problem, evaluation) for evaluation in expected]
    assert simulator.cost(batch[0]) == (cost[0], fit[0])


@given(data=st.data())
def test_peak_memory_decides_whether_a_given_order_fits(data: st.DataObject) -> None:
    problem = data.draw(problems(Concurrent(memory="peak"), max_ops=14))
    placement = data.draw(placements(problem, orders=True))
    expected = reference.evaluate(problem, placement)
    assert ConcurrentSimulator(problem).cost(placement) == (expected.cost, fits(problem, expected))


@given(data=st.data())
def test_placements_side_by_side_cost_what_they_cost_alone(data: st.DataObject) -> None:
    problem = data.draw(problems(STATIC, max_ops=14))
    rows = data.draw(st.sampled_from([1, 31, 32, 33, 49, 70]))
    device = random_devices(problem, rows, data.draw(st.integers(0, 99)))
    simulator = ConcurrentSimulator(problem)
    alone, beside = np.empty(rows), np.empty(rows)
    static_costs(simulator.space, device, alone)
    static_lanes(simulator.space, device, beside)
    assert alone.tolist() == beside.tolist() == simulator.costs(device)[0].tolist()
    assert alone[0] == reference.evaluate(problem, Placement(device[0])).cost


@given(data=st.data())
def test_moves_cost_what_the_moved_placement_costs(data: st.DataObject) -> None:
    problem = data.draw(problems(STATIC, max_ops=40, constrained=False))
    simulator, state = ConcurrentSimulator(problem), static_delta(problem)
    device = np.array(data.draw(placements(problem)).device)

    def cost() -> float:
        return float(simulator.costs(device[None])[0][0])

    current = prepare(state, device)
    assert current == cost()
    for _ in range(data.draw(st.integers(1, 12))):
        ops = data.draw(st.lists(st.integers(0, problem.n - 1), min_size=1, max_size=3, unique=True))
        target = data.draw(st.integers(0, problem.devices - 1))
        before = device[ops]
        device[ops] = target
        expected = cost()
        cutoff = data.draw(st.sampled_from([np.inf, expected, current, 0.75 * expected]))
        supported = np.isfinite(problem.time[np.arange(problem.n), device]).all()
        found = try_move(state, state.rank[ops], target, cutoff)
        if expected <= cutoff and supported:
            assert found == expected
        else:
            assert found in (expected, np.inf)
        if np.isfinite(found) and data.draw(st.booleans()):
            commit(state)
            current = found
        else:
            device[ops] = before
        assert state.makespan[0] == current
        assert state.at[state.rank].tolist() == device.tolist()


def test_many_committed_moves_leave_an_exact_schedule() -> None:
    problem = layered_problem(700, 3, STATIC)
    simulator, state, rng = ConcurrentSimulator(problem), static_delta(problem), np.random.default_rng(1)
    device = random_devices(problem, 1)[0]
    current = prepare(state, device)
    for _ in range(400):
        v, target = int(rng.integers(problem.n)), int(rng.integers(problem.devices))
        cost = try_move(state, state.rank[[v]], target, current)
        moved = device.copy()
        moved[v] = target
        expected = simulator.costs(moved[None])[0][0]
        assert cost == expected or (expected > current and np.isinf(cost))
        if cost <= current:
            commit(state)
            device, current = moved, cost
    assert current < 0.9 * prepare(state, random_devices(problem, 1)[0])
    assert state.end[: problem.n].max() == state.makespan[0]


def test_only_a_computed_move_can_be_committed() -> None:
    problem = layered_problem(20, 2, STATIC)
    state = static_delta(problem)
    cost = prepare(state, np.zeros(20, np.int32))
    assert try_move(state, np.array([3]), 1, 0.01 * cost) == np.inf
    with pytest.raises(ValueError, match="no tried move"):
        commit(state)


@both_schedules
@pytest.mark.parametrize("devices", [1, 2, 4, 7, 8, 9, 40])
def test_larger_graphs_agree_with_the_reference(model: Concurrent, devices: int) -> None:
    problem = layered_problem(150, devices, model, seed=devices)
    simulator = ConcurrentSimulator(problem)
    batch = random_devices(problem, 3, seed=devices)
    cost, _ = simulator.costs(batch)
    for device, its in zip(batch, cost, strict=True):
        expected = reference.evaluate(problem, Placement(device))
        found = simulator.evaluate(Placement(device))
        assert found.cost == its == expected.cost
        assert found.start.tolist() == expected.start.tolist()
        assert found.peak == pytest.approx(expected.peak)


def test_all_ways_to_the_same_schedule_agree_on_a_graph_of_many_levels_of_ready_ops() -> None:
    # More than 64 * 64 ready ops at once reach the top level of the bitset.
    builder = GraphBuilder("wide")
    for v in range(9000):
        builder.op(f"op{v}")
    builder.tensor(0, bytes=1.0, consumers=range(4500, 9000))
    graph, rng = builder.build(), np.random.default_rng(0)
    time = rng.integers(1, 9, (9000, 3)) / 4
    cluster = accelerators(2, 1)
    problem = Problem.make(graph, cluster, EVENT, time=time, latency=np.ones((3, 3)))
    device = random_devices(problem, 1)
    alone = ConcurrentSimulator(problem).evaluate(Placement(device[0]))
    # Nothing ever waits after the one tensor has arrived, so each device works without a gap.
    assert alone.cost == alone.busy.max()
    order = np.argsort(np.argsort(alone.start, kind="stable")).astype(np.int32)
    assert_same(ConcurrentSimulator(problem).evaluate(Placement(device[0], order)), alone)


def test_an_empty_graph_takes_no_time() -> None:
    graph, cluster = GraphBuilder("empty").build(), accelerators(1, 1)
    for model in SETTINGS:
        problem = Problem.make(graph, cluster, model, time=np.zeros((0, 2)))
        placement = Placement(np.zeros(0, np.int32))
        assert ConcurrentSimulator(problem).cost(placement) == (0.0, True)
        assert_same(ConcurrentSimulator(problem).evaluate(placement), reference.evaluate(problem, placement))


@every_setting
def test_two_threads_do_not_disturb_each_other(model: Concurrent) -> None:
    problem = layered_problem(300, 3, model)
    simulator = ConcurrentSimulator(problem)
    device = random_devices(problem, 200)
    device.flags.writeable = False
    with ThreadPoolExecutor(2) as pool:
        halves = list(pool.map(simulator.costs, np.array_split(device, 2)))
    cost, fit = simulator.costs(device)
    assert np.concatenate([half[0] for half in halves]).tolist() == cost.tolist()
    assert np.concatenate([half[1] for half in halves]).tolist() == fit.tolist()


@given(st.lists(st.integers(0, 600_000), unique=True), st.lists(st.booleans()))
def test_the_bitset_of_ready_ops_is_a_priority_queue(ops: list[int], pops: list[bool]) -> None:
    middle, top = 600_064 // 64 + 1, 0
    top = middle + 600_064 // 4096 + 1
    stride = top + 600_064 // 262_144 + 1
    ready, heap, best = np.zeros(2 * stride, np.uint64), [], int(event.NOBODY)
    shape = (np.uint64(stride), np.uint64(middle), np.uint64(top))
    for op, pop in zip(ops, [*pops, *[False] * len(ops)], strict=False):
        event._put(ready, *shape, np.uint64(op), np.uint64(1))
        event._put(ready, *shape, np.uint64(op), np.uint64(0))
        heapq.heappush(heap, op)
        best = min(best, op)
        if pop:
            assert best == heapq.heappop(heap)
            best = int(event._pop(ready, *shape, np.uint64(stride), np.uint64(best)))
    while heap:
        assert best == heapq.heappop(heap)
        best = int(event._pop(ready, *shape, np.uint64(stride), np.uint64(best)))
    assert best == event.NOBODY
    assert not ready.any()


GOLDEN: list[dict[str, Any]] = json.loads((Path(__file__).parents[2] / "golden.json").read_text())


@pytest.mark.parametrize("entry", GOLDEN, ids=lambda entry: entry["title"])
def test_golden_cases(entry: dict[str, Any]) -> None:
    for case in entry["cases"]:
        if case["model"] != "concurrent":
            continue
        problem = parse_problem(entry["problem"], "golden", execution_model("concurrent", **case["settings"]))
        order = None if case.get("order") is None else np.array(case["order"], np.int32)
        found = ConcurrentSimulator(problem).evaluate(Placement(np.array(case["device"], np.int32), order))
        assert found.cost == (np.inf if case["cost"] is None else case["cost"])
        if case["cost"] is not None:
            assert found.start.tolist() == case["start"]
            assert found.end.tolist() == case["end"]
            assert sorted(map(by_tensor, found.transfers)) == sorted(map(tuple, case["transfers"]))
