"""A placement is tidied up: it costs no more, and nothing is left that the linter calls foolish without need."""

import numpy as np
import pytest

from loadmaster import api
from loadmaster.graph import GraphBuilder
from loadmaster.hardware import Cluster, Device, Link
from loadmaster.placers.frame.polish import polish
from loadmaster.problem import Concurrent, Pipeline, Placement, Problem, Serial, SimulatedEvaluator, evaluate
from loadmaster.runtime import lint


def random_problem(seed, model):
    problem = api.problem(f"zoo:layered-40?seed={seed}", "2acc+1cpu")
    return problem.with_model(model)


@pytest.mark.parametrize("model", [Serial(), Concurrent(), Pipeline()], ids=lambda model: model.name)
@pytest.mark.parametrize("seed", range(3))
def test_the_cost_never_rises_and_no_free_move_is_left(model, seed):
    problem = random_problem(seed, model)
    generator = np.random.default_rng(seed)
    device = np.zeros(problem.n, np.int32)
    device[generator.random(problem.n) < 0.15] = 1
    device = device[np.array([np.flatnonzero(problem.class_of == c)[0] for c in problem.class_of])]
    if not evaluate(problem, Placement(device)).feasible:
        pytest.skip("the random placement is not feasible")
    before = evaluate(problem, Placement(device)).cost
    found, cost, used = polish(problem, Placement(device), before)
    assert cost == SimulatedEvaluator(problem).evaluate(found).cost <= before
    assert polish(problem, Placement(device), before)[0] == found
    assert used <= 400
    for finding in lint(problem, found):
        if finding.rule == "ping-pong":  # only where moving it costs
            moved = found.device.copy()
            ops = [problem.graph.index[op] for op in finding.ops]
            ptr, successors = problem.graph.successors
            outside = [u for v in ops for u in successors[ptr[v] : ptr[v + 1]].tolist() if u not in ops]
            moved[np.isin(problem.class_of, problem.class_of[ops])] = found.device[outside[0]]
            tried = SimulatedEvaluator(problem).evaluate(Placement(moved))
            assert not tried.feasible or tried.cost > cost


def lone_sigmoid():
    """A chain whose middle op is as quick on either device, beside a longer branch that hides what it costs."""
    builder = GraphBuilder("lone")
    for name in ("in", "conv", "sigmoid", "mul", "long", "out"):
        builder.op(name, name)
    for u, v in ((0, 1), (1, 2), (2, 3), (0, 4), (3, 5), (4, 5)):
        builder.tensor(u, bytes=8.0, consumers=[v])
    link = Link(1e-4, 1e9)
    cluster = Cluster("two", (Device("gpu", "gpu"), Device("cpu", "cpu")), ((None, link), (link, None)))
    time = np.full((6, 2), 1e-3)
    time[4] = 1.0
    time[2] = 1e-6
    return Problem.make(builder.build(), cluster, Concurrent(), time=time, latency=np.full((2, 2), 1e-4))


def test_a_lone_op_that_costs_nothing_goes_to_its_neighbours():
    problem = lone_sigmoid()
    device = np.array([0, 0, 1, 0, 1, 0], np.int32)
    before = evaluate(problem, Placement(device)).cost
    assert any(finding.rule == "ping-pong" for finding in lint(problem, Placement(device)))
    found, cost, _ = polish(problem, Placement(device), before)
    assert found.device.tolist()[2] == 0
    assert cost <= before
    assert polish(problem, Placement(device), before, evaluations=0)[0] == Placement(device)
    assert polish(problem, Placement(device), before, over=lambda: True)[0] == Placement(device)


def test_auto_leaves_no_lone_op_behind():
    problem = lone_sigmoid()
    solution = api.place(problem, "auto", evaluations=400)
    assert [f for f in lint(problem, solution.placement) if f.rule == "ping-pong"] == []
    assert solution.evaluations <= 400
