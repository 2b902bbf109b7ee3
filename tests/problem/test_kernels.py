"""Every kernel gives what the plain-Python reference gives, for every execution model and setting."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import models, placements, problems

from loadmaster.errors import InputError
from loadmaster.graph import layered
from loadmaster.hardware import accelerators, roofline
from loadmaster.placers import PLACERS, Budget
from loadmaster.problem import (
    Concurrent,
    Evaluation,
    ExecutionModel,
    Offload,
    Pipeline,
    Placement,
    Problem,
    Serial,
)
from loadmaster.problem._evaluator import SimulatedEvaluator, evaluate
from loadmaster.problem.loads import Nets, cost_of, move_op, nets_of, nets_of_groups, new_ledger, reset
from loadmaster.testing import reference

SPACE = 4000
"""Most placements that brute force may look at."""


def same(a: np.ndarray | None, b: np.ndarray | None) -> bool:
    if a is None or b is None:
        return a is b
    return bool(np.allclose(a, b, rtol=1e-12, atol=1e-12, equal_nan=True))


def assert_equal(found: Evaluation, expected: Evaluation) -> None:
    assert found.cost == expected.cost or found.cost == pytest.approx(expected.cost, rel=1e-12)
    assert sorted(found.why) == sorted(expected.why)
    assert found.feasible == expected.feasible
    assert same(found.memory, expected.memory)
    if math.isfinite(expected.cost):
        for name in ("busy", "comm", "load", "peak", "start", "end"):
            assert same(getattr(found, name), getattr(expected, name)), name

        def moved(e: Evaluation) -> list[tuple[float, ...]]:
            return sorted(
                (t.tensor, t.source, t.target, round(t.start, 9), round(t.end, 9)) for t in e.transfers
            )

        assert moved(found) == moved(expected)
    assert [(c.device, c.ops) for c in found.calls] == [(c.device, c.ops) for c in expected.calls]


@given(st.data())
def test_detailed_evaluation_equals_the_reference(data: st.DataObject) -> None:
    problem = data.draw(problems(backward=data.draw(st.booleans())))
    placement = data.draw(placements(problem))
    assert_equal(evaluate(problem, placement), reference.evaluate(problem, placement))


@given(st.data())
def test_given_calls_are_honoured(data: st.DataObject) -> None:
    problem = data.draw(problems(st.builds(Offload, st.integers(1, 3))))
    device = data.draw(placements(problem)).device
    call = np.array(data.draw(st.lists(st.integers(0, 3), min_size=problem.n, max_size=problem.n)), np.int32)
    placement = Placement(device, call=call)
    expected = reference.evaluate(problem, placement)
    assert_equal(evaluate(problem, placement), expected)
    outcome = SimulatedEvaluator(problem).evaluate(placement)
    assert outcome.cost == pytest.approx(expected.cost)
    assert outcome.feasible == expected.feasible


@given(st.data())
def test_a_batch_equals_one_by_one(data: st.DataObject) -> None:
    problem = data.draw(problems(backward=data.draw(st.booleans())))
    rows = [data.draw(placements(problem)) for _ in range(data.draw(st.integers(1, 5)))]
    cost, feasible = SimulatedEvaluator(problem).evaluate_batch(np.stack([row.device for row in rows]))
    for i, row in enumerate(rows):
        expected = reference.evaluate(problem, row)
        assert cost[i] == pytest.approx(expected.cost, rel=1e-12)
        assert feasible[i] == expected.feasible
        assert SimulatedEvaluator(problem).evaluate(row) == (cost[i], feasible[i])


def test_a_large_batch_on_all_cores_equals_one_by_one() -> None:
    graph, cluster = layered(200, seed=1), accelerators(3, 1)
    rng = np.random.default_rng(0)
    device = rng.integers(0, 4, (64, graph.n)).astype(np.int32)
    for model in (
        Serial(),
        Pipeline(),
        Offload(),
        Concurrent(),
        Concurrent("static"),
        Concurrent("event", "peak"),
    ):
        problem = Problem.make(graph, cluster, model, time=roofline(graph, cluster))
        evaluator = SimulatedEvaluator(problem)
        cost, _ = evaluator.evaluate_batch(device)
        assert evaluator.evaluations == 64
        assert cost.tolist() == [evaluator.evaluate(Placement(row)).cost for row in device]


@given(st.data())
def test_moves_by_delta_equal_a_fresh_evaluation(data: st.DataObject) -> None:
    model = data.draw(models().filter(lambda m: isinstance(m, Serial | Pipeline)))
    problem = data.draw(problems(model, backward=data.draw(st.booleans()), constrained=False))
    device = data.draw(placements(problem)).device.copy()
    # Sums that hold an infinity cannot be taken back; search never goes there.
    problem = replace(problem, time=np.where(np.isinf(problem.time), 7.0, problem.time))
    nets = nets_of(problem)
    ledger = new_ledger(nets)
    reset(*nets, *ledger, device)
    for _ in range(data.draw(st.integers(1, 12))):
        v, d = data.draw(st.integers(0, problem.n - 1)), data.draw(st.integers(0, problem.devices - 1))
        move_op(*nets, *ledger, v, d)
        device[v] = d
        assert ledger.device.tolist() == device.tolist()
        assert cost_of(nets, ledger) == pytest.approx(
            reference.evaluate(problem, Placement(device)).cost, rel=1e-12
        )


@given(st.data())
def test_nets_between_groups_cost_what_all_ops_do(data: st.DataObject) -> None:
    model = data.draw(models().filter(lambda m: isinstance(m, Serial | Pipeline)))
    problem = data.draw(problems(model, backward=data.draw(st.booleans()), constrained=False))
    problem = replace(problem, time=np.where(np.isinf(problem.time), 7.0, problem.time))
    groups = data.draw(st.integers(1, problem.n))
    group = np.array([data.draw(st.integers(0, groups - 1)) for _ in range(problem.n)], np.int32)
    nets = nets_of_groups(problem, group, groups)
    if nets is None:  # forward and backward ops in one group, whose loads are added up apart
        assert isinstance(model, Pipeline)
        assert model.objective == "fw+bw"
        assert any(len(set(problem.graph.backward[group == g].tolist())) > 1 for g in range(groups))
        return
    ends = [tuple(row) for row in np.delete(nets.tensors, [1, 3], axis=1).tolist()]
    readers = [
        np.flatnonzero([t in touched(nets, g) for g in range(groups)]).tolist() for t in range(len(ends))
    ]
    assert len({(*a, *b) for a, b in zip(ends, readers, strict=True)}) == len(ends), (
        "put together where alike"
    )
    device = np.array([data.draw(st.integers(0, problem.devices - 1)) for _ in range(groups)], np.int32)
    ledger = new_ledger(nets)
    reset(*nets, *ledger, device)
    for _ in range(data.draw(st.integers(0, 8))):
        g, d = data.draw(st.integers(0, groups - 1)), data.draw(st.integers(0, problem.devices - 1))
        move_op(*nets, *ledger, g, d)
        device[g] = d
    expected = reference.evaluate(problem, Placement(device[group])).cost
    assert cost_of(nets, ledger) == pytest.approx(expected, rel=1e-12)


def touched(nets: Nets, v: int) -> list[int]:
    """What a group reads."""
    return nets.touch[nets.ops[v, 0] : nets.ops[v, 1]].tolist()


@given(problems(max_ops=6, devices=st.integers(1, 3), backward=True))
def test_search_reaches_the_brute_force_optimum(problem: Problem) -> None:
    everything = list(itertools.product(range(problem.devices), repeat=problem.n))
    cost, feasible = SimulatedEvaluator(problem).evaluate_batch(np.array(everything, np.int32))
    if not feasible.any():
        return
    best = cost[feasible].min()
    solution = PLACERS["local-search"].place(problem, budget=Budget(evaluations=2000))
    # HEFT may hand in a better sequence than the model would choose itself.
    assert (
        solution.cost == pytest.approx(best, rel=1e-9)
        or (solution.placement.order is not None and solution.cost <= best)
        or _hard(problem.model, solution.cost, best)
    )
    assert solution.bound <= best * (1 + 1e-12)


def _hard(model: ExecutionModel, cost: float, best: float) -> bool:
    """Where few single moves stay feasible, a small budget may end a little above the optimum."""
    peak = isinstance(model, Concurrent) and model.memory == "peak"
    tied = isinstance(model, Pipeline) and model.contiguity != "none"
    return (peak or tied) and cost <= 1.25 * best


def test_a_placement_that_does_not_fit_the_problem_is_refused() -> None:
    graph, cluster = layered(5, width=2), accelerators(1, 1)
    problem = Problem.make(graph, cluster, Serial(), time=roofline(graph, cluster))
    with pytest.raises(InputError, match="4 ops, the problem 5"):
        evaluate(problem, Placement(np.zeros(4, np.int32)))
    with pytest.raises(InputError, match="device 2"):
        evaluate(problem, Placement(np.full(5, 2, np.int32)))
