"""The placer ``stages``: optimal against brute force, bounds that hold, constraints respected."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadmaster.errors import InfeasibleError, NoPlacementError
from loadmaster.placers import Budget, get_placer
from loadmaster.placers.stages.steps import Stages
from loadmaster.problem import Pipeline, Placement, Problem, SimulatedEvaluator, Tie, evaluate
from loadmaster.problem.bounds import all_bounds
from loadmaster.testing import strategies


def brute_force(problem: Problem) -> float:
    """The least cost of any placement with any stages: every class in any stage, every stage on any device."""
    model = problem.model
    assert isinstance(model, Pipeline)
    check, best = SimulatedEvaluator(problem), math.inf
    devices = range(problem.devices)
    for ranks in devices:
        ranks += 1
        stages = ranks * model.stages_per_rank if ranks > 1 else 1
        if stages > problem.classes:
            break
        for of in itertools.product(range(stages), repeat=problem.classes):
            if len(set(of)) < stages:
                continue
            stage = np.array(of, np.int32)[problem.class_of]
            for line in itertools.permutations(devices, ranks):
                device = np.array(line, np.int32)[stage % ranks]
                best = min(best, check.evaluate(Placement(device, call=stage)).value)
    return best


@st.composite
def small_steps(draw: st.DrawFn) -> Problem:
    """Problems with few classes, ties, things kept, tight memory."""
    per_rank = draw(st.sampled_from([1, 1, 1, 2]))
    model = Pipeline(
        microbatches=draw(st.integers(1, 5)),
        schedule=draw(st.sampled_from(["1f1b", "gpipe"])) if per_rank == 1 else "1f1b",
        stages_per_rank=per_rank,
        checkpoint=draw(st.sampled_from(["never", "auto"])),
    )
    problem = draw(
        strategies.problems(
            model, max_ops=6, devices=st.sampled_from([2, 3]), backward=draw(st.booleans()), min_ops=2
        )
    )
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    ties = (Tie((0, problem.n - 1), 1.0, 0.5),) if rng.random() < 0.4 else ()
    capacity = problem.capacity.copy()
    if rng.random() < 0.3:
        capacity[:] = capacity[0]
    time = problem.time.copy()
    if rng.random() < 0.5:  # like devices
        time[:] = np.where(np.isinf(time).all(axis=1), 1.0, np.where(np.isinf(time), 1.0, time)[:, 0])[
            :, None
        ]
    return replace(
        problem, kept=rng.choice([0.0, 0.5, 1.0], problem.n), ties=ties, capacity=capacity, time=time
    )


@given(small_steps())
@settings(max_examples=60)
def test_it_proves_the_optimum_of_brute_force(problem: Problem) -> None:
    least = brute_force(problem)
    try:
        found = Stages().place(problem, budget=Budget())
    except InfeasibleError:
        assert math.isinf(least)
        return
    except NoPlacementError:
        pytest.fail("undecided")
    assert found.cost == pytest.approx(least, rel=1e-9, abs=1e-12)
    assert found.optimal or found.cost == 0
    assert evaluate(problem, found.placement).cost == found.cost
    for bound in all_bounds(problem):
        assert bound.value <= least * (1 + 1e-9), bound


def layers(count: int, devices: int, model: Pipeline, *, seed: int = 0, **more: object) -> Problem:
    """A training chain of uneven layers."""
    from loadmaster.graph import GraphBuilder
    from loadmaster.hardware import Cluster, Device

    rng, builder = np.random.default_rng(seed), GraphBuilder("layers")
    forward = rng.uniform(0.5, 2.0, count)
    times = np.concatenate([forward, forward * rng.uniform(1.5, 2.5, count)])
    for i in range(count):
        builder.op(f"f{i}")
    for i in range(count):
        builder.op(f"g{i}", backward=True)
    for i in range(count):
        builder.tensor(i, bytes=1.0, consumers=[*([i + 1] if i + 1 < count else []), count + i])
        builder.tensor(count + i, bytes=1.0, consumers=[count + i - 1] if i else [])
    return Problem.make(
        builder.build(),
        Cluster("c", tuple(Device(f"r{d}", "gpu") for d in range(devices))),
        model,
        time=np.repeat(times[:, None], devices, axis=1) * more.pop("speed", np.ones(devices)),
        latency=np.full((devices, devices), 0.01),
        rate=np.full((devices, devices), 0.1),
        memory=more.pop("memory", np.zeros(2 * count)),
        colocation=[(i, count + i) for i in range(count)],
        **more,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
def test_sixty_layers_on_six_ranks_are_proved(schedule: str) -> None:
    problem = layers(60, 6, Pipeline(microbatches=12, schedule=schedule))  # type: ignore[arg-type]
    found = Stages().place(problem, budget=Budget())
    assert found.optimal
    equal = np.array([i % 60 // 10 for i in range(120)], np.int32)
    assert found.cost <= evaluate(problem, Placement(equal)).cost


def test_fast_and_slow_ranks_are_used_for_what_they_are() -> None:
    problem = layers(12, 2, Pipeline(microbatches=4), speed=np.array([1.0, 2.0]))
    found = Stages().place(problem, budget=Budget())
    assert found.optimal
    slow = found.placement.device == 1
    assert 0 < slow.sum() < 12


def test_memory_in_flight_decides_where_to_cut() -> None:
    """1F1B keeps more at the first stage: with tight memory it gets fewer layers."""
    model = Pipeline(microbatches=4)
    free = layers(8, 2, model, kept=np.array([1.0] * 8 + [0.0] * 8))
    tight = replace(free, capacity=np.array([14.0, 14.0]))
    least = Stages().place(free, budget=Budget())
    found = Stages().place(tight, budget=Budget())
    assert found.optimal
    assert found.cost >= least.cost
    detail = evaluate(tight, found.placement)
    assert (detail.memory <= 14).all()


def test_what_cannot_fit_is_proved_and_named() -> None:
    problem = layers(
        8, 2, Pipeline(microbatches=4, schedule="gpipe"), kept=np.array([1.0] * 8 + [0.0] * 8),
        capacity=np.array([12.0, 12.0]),
    )  # fmt: skip
    for method in ("stages", "auto"):
        with pytest.raises(InfeasibleError, match="gpipe keeps all 4 microbatches"):
            get_placer(method).place(problem, budget=Budget(seconds=20))
    with_checkpoints = problem.with_model(Pipeline(microbatches=4, schedule="gpipe", checkpoint="auto"))
    found = Stages().place(with_checkpoints, budget=Budget())
    assert any(
        stage.checkpoint for stage in evaluate(problem=with_checkpoints, placement=found.placement).stages
    )


def test_a_wide_graph_is_cut_along_orders_and_improved() -> None:
    from loadmaster.graph import layered
    from loadmaster.hardware import accelerators, roofline

    graph, cluster = layered(300, width=12, seed=3), accelerators(3, 0)
    problem = Problem.make(graph, cluster, Pipeline(microbatches=6), time=roofline(graph, cluster))
    found = Stages(orders=2, nodes=2000).place(problem, budget=Budget(evaluations=6000))
    assert found.cost < get_placer("single").place(problem, budget=Budget()).cost
    assert found.bound <= found.cost


def test_interleaved_stages_are_found() -> None:
    problem = layers(8, 2, Pipeline(microbatches=4, stages_per_rank=2))
    found = get_placer("auto").place(problem, budget=Budget(seconds=20))
    detail = evaluate(problem, found.placement)
    assert len(detail.stages) in (1, 4)
    assert found.cost < get_placer("single").place(problem, budget=Budget()).cost


def test_other_methods_say_that_they_do_not_know_steps() -> None:
    problem = layers(4, 2, Pipeline(microbatches=4))
    for name in ("ideal-dp", "linear-dp", "local-search", "gdp"):
        assert "no step of microbatches" in (get_placer(name).supports(problem) or "")
    assert "use --model concurrent" in (get_placer("heft").supports(problem) or "")
    assert get_placer("stages").supports(problem.with_model(Pipeline())) is not None


def test_plans_keep_stages_ties_and_what_is_kept(tmp_path: object) -> None:
    from loadmaster import api
    from loadmaster.plan import Plan

    problem = layers(
        6, 2, Pipeline(microbatches=4, stages_per_rank=2), kept=np.ones(12), ties=[Tie((0, 5), 2.0, 3.0)]
    )
    solution = api.place(problem, "stages")
    path = f"{tmp_path}/plan.json"
    Plan.from_solution(problem, solution).save(path)
    again = Plan.load(path)
    assert again.problem() == problem
    assert again.problem().ties == problem.ties
    assert evaluate(again.problem(), again.solution().placement).cost == solution.cost


def test_problem_files_keep_ties_and_what_is_kept() -> None:
    from loadmaster.problem import dump_problem, parse_problem

    problem = layers(3, 2, Pipeline(microbatches=4), kept=np.arange(6.0), ties=[Tie((0, 2), 2.0, 3.0)])
    again = parse_problem(dump_problem(problem), "file", problem.model)
    assert again.ties == problem.ties
    assert again.kept is not None
    assert again.kept.tolist() == list(range(6))
