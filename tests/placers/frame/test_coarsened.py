"""Placing groups: whatever the placer and the model, the answer is one about the full problem."""

from __future__ import annotations

import math

import numpy as np
import pytest

from loadmaster.errors import InfeasibleError
from loadmaster.graph import GraphBuilder, layered
from loadmaster.hardware import accelerators, roofline
from loadmaster.placers import PLACERS, Budget, Progress
from loadmaster.placers.frame.coarsened import GroupEvaluator, place_coarse
from loadmaster.problem import Concurrent, ExecutionModel, Offload, Pipeline, Placement, Problem, Serial
from loadmaster.problem._evaluator import SimulatedEvaluator, evaluate
from loadmaster.problem.bounds import lower_bound
from loadmaster.problem.coarsening import coarsen

MODELS: list[ExecutionModel] = [
    Serial(),
    Concurrent(),
    Concurrent(schedule="static"),
    Concurrent(memory="peak"),
    Pipeline(),
    Pipeline(contiguity="chain"),
    Pipeline(objective="fw+bw"),
    Offload(),
    Offload(max_calls=2),
]


def problem_of(model: ExecutionModel, n: int = 60) -> Problem:
    graph, cluster = layered(n, width=4, seed=1), accelerators(2, 1)
    return Problem.make(
        graph, cluster, model, time=roofline(graph, cluster), colocation=[[3, 4]], pins={0: 1}
    )


@pytest.mark.parametrize("method", ["single", "heft", "local-search"])
@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_the_solution_is_one_of_the_full_problem(model: ExecutionModel, method: str) -> None:
    problem, placer = problem_of(model), PLACERS[method]
    if placer.supports(problem) is not None:
        return
    solution = place_coarse(placer, coarsen(problem, "chain,matching:12"), budget=Budget(evaluations=200))
    detail = evaluate(problem, solution.placement)
    assert detail.feasible, detail.why
    assert detail.cost == solution.cost
    assert solution.bound == min(lower_bound(problem).value, solution.cost)
    assert solution.bound_by == lower_bound(problem).name
    assert solution.evaluations <= 200
    costs = [point.cost for point in solution.history]
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] == solution.cost
    assert solution.parameters["coarsen"] == "chain,matching:12"


@pytest.mark.parametrize("evaluations", [1, 2, 7])
@pytest.mark.parametrize("model", [Serial(), Concurrent(), Offload()], ids=repr)
def test_a_budget_of_evaluations_is_kept(model: ExecutionModel, evaluations: int) -> None:
    problem = problem_of(model)
    groups = coarsen(problem, "matching:12")
    solution = place_coarse(PLACERS["local-search"], groups, budget=Budget(evaluations=evaluations))
    assert solution.evaluations <= evaluations
    assert evaluate(problem, solution.placement).cost == solution.cost


def test_groups_are_kept_together() -> None:
    problem = problem_of(Concurrent())
    groups = coarsen(problem, "matching:12")
    device = place_coarse(PLACERS["local-search"], groups, budget=Budget(evaluations=300)).placement.device
    for g in range(groups.coarse.n):
        assert len(set(device[groups.group_of == g].tolist())) == 1


def test_an_interrupt_keeps_what_was_found() -> None:
    def interrupt(progress: Progress) -> None:
        if math.isfinite(progress.cost):
            raise KeyboardInterrupt

    problem = problem_of(Pipeline())
    groups = coarsen(problem, "matching:12")
    solution = place_coarse(PLACERS["annealing"], groups, budget=Budget(seconds=60.0), on_progress=interrupt)
    assert solution.stopped == "interrupted"
    assert evaluate(problem, solution.placement).cost == solution.cost


def test_progress_shows_the_bound_of_the_full_problem() -> None:
    seen: list[Progress] = []
    problem = problem_of(Pipeline())
    budget = Budget(evaluations=5000)
    place_coarse(
        PLACERS["annealing"], coarsen(problem, "matching:12"), budget=budget, on_progress=seen.append
    )
    assert seen
    assert {progress.bound for progress in seen} <= {lower_bound(problem).value, *(p.cost for p in seen)}


def test_a_start_that_keeps_groups_together_is_not_made_worse() -> None:
    problem = problem_of(Serial())
    groups = coarsen(problem, "matching:12")
    good = place_coarse(PLACERS["local-search"], groups, budget=Budget(evaluations=2000))
    again = place_coarse(PLACERS["local-search"], groups, budget=Budget(evaluations=1), start=good.placement)
    assert again.cost <= good.cost * (1 + 1e-12)


def test_groups_that_do_not_fit_are_not_said_to_prove_anything_about_ops() -> None:
    builder = GraphBuilder()
    for name in "abcd":
        builder.op(name, "Conv", flops=1e9)
    builder.tensor("a", bytes=1.0, consumers=["b"])
    builder.tensor("c", bytes=1.0, consumers=["d"])
    graph, cluster = builder.build(), accelerators(1, 1)
    problem = Problem.make(
        graph,
        cluster,
        Serial(),
        time=np.ones((4, 2)),
        memory=np.array([2.0, 1, 2, 1]),
        capacity=np.array([4.0, 2.0]),
    )
    groups = coarsen(problem, [lambda _: np.array([0, 0, 2, 2], np.int32)])
    with pytest.raises(InfeasibleError, match=r"2 groups of 4 ops .* coarsen less"):
        place_coarse(PLACERS["single"], groups, budget=Budget(evaluations=10))
    found = PLACERS["single"].place(problem, budget=Budget(evaluations=10))
    assert evaluate(problem, found.placement).feasible


def test_peak_memory_that_only_shows_between_ops_is_not_overlooked() -> None:
    builder = GraphBuilder()
    builder.op("a", "Conv")
    builder.op("b", "Conv")
    builder.tensor("a", bytes=10.0, consumers=["b"])
    problem = Problem.make(
        builder.build(),
        accelerators(1, 1),
        Concurrent(memory="peak"),
        time=np.array([[1.0, 5.0], [1.0, 5.0]]),
        capacity=np.array([4.0, 100.0]),
        resident=np.zeros(2),
    )
    groups = coarsen(problem, "chain")
    assert evaluate(groups.coarse, Placement(np.zeros(1, np.int32))).feasible
    found = place_coarse(PLACERS["single"], groups, budget=Budget(evaluations=10))
    assert evaluate(problem, found.placement).feasible
    assert found.cost == 10.0


@pytest.mark.parametrize("model", [Concurrent(), Concurrent(schedule="static"), Serial()], ids=repr)
def test_an_evaluator_of_the_full_problem_makes_costs_of_groups_exact(model: ExecutionModel) -> None:
    problem = problem_of(model)
    groups = coarsen(problem, "matching:12")
    evaluator = GroupEvaluator(groups, SimulatedEvaluator(problem))
    device = np.random.default_rng(0).integers(0, 3, (5, groups.coarse.n)).astype(np.int32)
    cost, _ = evaluator.evaluate_batch(device)
    for row in range(5):
        assert cost[row] == evaluate(problem, groups.expand(Placement(device[row]))).cost
        assert evaluator.evaluate(Placement(device[row])).cost == cost[row]
    assert evaluator.evaluations == 10
    found = place_coarse(
        PLACERS["local-search"], groups, budget=Budget(evaluations=100), evaluator=SimulatedEvaluator(problem)
    )
    assert evaluate(problem, found.placement).cost == found.cost
