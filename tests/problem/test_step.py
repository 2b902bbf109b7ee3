"""One step of a pipeline: golden cases by hand, and the kernel against the plain reference."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadmaster.errors import InputError
from loadmaster.graph import GraphBuilder
from loadmaster.hardware import Cluster, Device
from loadmaster.problem import (
    Evaluation,
    Pipeline,
    Placement,
    Problem,
    SimulatedEvaluator,
    Tie,
    evaluate,
    named_model,
    reference,
)
from loadmaster.testing import strategies


def chain(
    forward: list[float],
    backward: list[float] | None,
    model: Pipeline,
    *,
    size: float = 0.0,
    latency: float = 0.0,
    rate: float = 0.0,
    devices: int | None = None,
    **more: object,
) -> Problem:
    """A chain of layers, each a forward op and (in training) its backward op."""
    n, builder = len(forward), GraphBuilder("chain")
    count = devices or n
    for i in range(n):
        builder.op(f"f{i}")
    times = list(forward)
    colocation = []
    for i in range(n if backward else 0):
        builder.op(f"g{i}", backward=True)
        colocation.append((i, n + i))
    for i in range(n):
        readers = [i + 1] if i + 1 < n else []
        builder.tensor(i, bytes=size, consumers=readers + ([n + i] if backward else []))
        if backward:
            builder.tensor(n + i, bytes=size, consumers=[n + i - 1] if i else [])
    times += backward or []
    return Problem.make(
        builder.build(),
        Cluster("c", tuple(Device(f"r{d}", "gpu") for d in range(count))),
        model,
        time=np.repeat(np.array(times)[:, None], count, axis=1),
        latency=np.full((count, count), latency),
        rate=np.full((count, count), rate),
        memory=more.pop("memory", np.zeros(len(times))),
        colocation=colocation,
        **more,  # type: ignore[arg-type]
    )


def one_each(problem: Problem) -> Placement:
    """Layer i on device i."""
    n = problem.devices
    return Placement(np.array([v % n for v in range(problem.n)], np.int32))


def step(problem: Problem, placement: Placement | None = None) -> Evaluation:
    placement = placement or one_each(problem)
    found = evaluate(problem, placement)
    plain = reference.evaluate(problem, placement)
    assert_same(found, plain)
    return found


def assert_same(found: Evaluation, plain: Evaluation) -> None:
    assert found.cost == plain.cost or found.cost == pytest.approx(plain.cost, rel=1e-12)
    assert {v.kind for v in found.violations} - {"contiguity"} == {v.kind for v in plain.violations} - {
        "contiguity"
    } or math.isinf(found.cost)
    assert found.feasible == plain.feasible
    np.testing.assert_allclose(found.memory, plain.memory, rtol=1e-12)
    if math.isfinite(found.cost):
        np.testing.assert_allclose(found.busy, plain.busy, rtol=1e-12)
        np.testing.assert_allclose(found.comm, plain.comm, rtol=1e-9, atol=1e-12)
        assert found.stages == plain.stages
        assert sorted(map(repr, found.actions)) == sorted(map(repr, plain.actions))
        assert sorted(map(repr, found.messages)) == sorted(map(repr, plain.messages))
        np.testing.assert_array_equal(found.reduced, plain.reduced)


def test_two_stages_two_microbatches_1f1b() -> None:
    """r0: F0 0-1, F1 1-2, B0 4-6, B1 7-9; r1: F0 1-2, B0 2-4, F1 4-5, B1 5-7."""
    found = step(chain([1, 1], [2, 2], Pipeline(microbatches=2)))
    assert found.cost == 9
    assert [(a.stage, a.microbatch, a.backward, a.start, a.end) for a in found.actions] == [
        (0, 0, False, 0, 1),
        (0, 1, False, 1, 2),
        (0, 0, True, 4, 6),
        (0, 1, True, 7, 9),
        (1, 0, False, 1, 2),
        (1, 0, True, 2, 4),
        (1, 1, False, 4, 5),
        (1, 1, True, 5, 7),
    ]
    assert [stage.in_flight for stage in found.stages] == [2, 1]


def test_two_stages_two_microbatches_gpipe() -> None:
    """r0: F 0-2, B0 5-7, B1 7-9; r1: F0 1-2, F1 2-3, B0 3-5, B1 5-7."""
    found = step(chain([1, 1], [2, 2], Pipeline(microbatches=2, schedule="gpipe")))
    assert found.cost == 9
    assert [stage.in_flight for stage in found.stages] == [2, 2]


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize(("stages", "every"), [(1, 5), (2, 4), (3, 3), (4, 8), (5, 7)])
def test_balanced_stages_take_their_sum_and_once_more_the_largest_per_further_microbatch(
    schedule: str, stages: int, every: int
) -> None:
    problem = chain([1.0] * stages, [2.0] * stages, Pipeline(microbatches=every, schedule=schedule))  # type: ignore[arg-type]
    assert step(problem).cost == 3 * stages + (every - 1) * 3


def test_gpipe_without_transfers_is_the_textbook_formula_for_any_stages() -> None:
    forward, backward = [1.0, 4.0, 2.0], [5.0, 3.0, 8.0]
    problem = chain(forward, backward, Pipeline(microbatches=6, schedule="gpipe"))
    assert step(problem).cost == 7 + 5 * 4 + 16 + 5 * 8


def test_1f1b_may_take_less_than_the_textbook_formula() -> None:
    """The first stage is never idle: 4 * (4 + 4) = 32, where sum + (M - 1) * largest = 10 + 3 * 8 = 34."""
    assert step(chain([4, 1], [4, 1], Pipeline(microbatches=4))).cost == 32


def test_inference_is_forward_only() -> None:
    problem = chain([1, 2, 1], None, Pipeline(microbatches=4, schedule="gpipe"))
    found = step(problem)
    assert found.cost == 4 + 3 * 2
    assert not any(action.backward for action in found.actions)


def test_a_transfer_waits_until_both_sides_are_ready() -> None:
    """GPipe inference, F = 1 and 3, a hop of 1: r1 receives 1-2, F0 2-5, and only then receives the next, 5-6."""
    found = step(chain([1, 3], None, Pipeline(microbatches=2, schedule="gpipe"), size=1.0, rate=1.0))
    assert [(m.start, m.end) for m in found.messages] == [(1, 2), (5, 6)]
    assert found.cost == 9


def test_a_value_that_crosses_two_boundaries_pays_twice() -> None:
    builder = GraphBuilder("skip")
    for name in "abc":
        builder.op(name)
    builder.tensor(0, bytes=1.0, consumers=[1, 2])
    builder.tensor(1, bytes=2.0, consumers=[2])
    problem = Problem.make(
        builder.build(),
        Cluster("c", tuple(Device(f"r{d}", "gpu") for d in range(3))),
        Pipeline(microbatches=1, schedule="gpipe"),
        time=np.ones((3, 3)),
        latency=np.full((3, 3), 0.5),
        rate=np.ones((3, 3)),
    )
    found = step(problem)
    assert [m.end - m.start for m in found.messages] == [1.5, 3.5]
    assert found.cost == 3 + 1.5 + 3.5


def test_tied_weights_are_reduced_after_the_step() -> None:
    """Ring of two: 2 * (latency 0.5 + half of 4) = 5."""
    problem = chain(
        [1, 1, 1],
        [2, 2, 2],
        Pipeline(microbatches=3),
        latency=0.5,
        rate=1.0,
        ties=[Tie((0, 2), 4.0, 7.0)],
        devices=3,
    )
    apart, together = one_each(problem), Placement(np.array([0, 0, 0, 0, 0, 0], np.int32))
    found = step(problem, apart)
    alone = step(chain([1, 1, 1], [2, 2, 2], Pipeline(microbatches=3), latency=0.5, rate=1.0), apart)
    assert found.cost == alone.cost + 5
    assert found.memory.tolist() == [7, 0, 7]
    assert step(problem, together).cost == 27
    assert step(problem, together).memory.tolist() == [7, 0, 0]


def test_memory_counts_the_microbatches_in_flight() -> None:
    """Held 10, kept 3, and a buffer of 1 for each of 4 microbatches from either side."""
    memory, kept = np.array([10.0] * 3 + [0.0] * 3), np.array([3.0] * 3 + [0.0] * 3)
    for schedule, flying in (("gpipe", [4, 4, 4]), ("1f1b", [3, 2, 1])):
        model = Pipeline(microbatches=4, schedule=schedule)  # type: ignore[arg-type]
        found = step(chain([1, 1, 1], [2, 2, 2], model, size=1.0, memory=memory, kept=kept))
        buffers = [4, 8, 4]
        assert found.memory.tolist() == [10 + 3 * f + b for f, b in zip(flying, buffers, strict=True)]


def test_a_stage_that_does_not_fit_is_checkpointed() -> None:
    """Kept 3 x 2 in flight does not fit into 4, 3 does; backward becomes 2 + 1."""
    model = Pipeline(microbatches=2, checkpoint="auto")
    problem = chain([1, 1], [2, 2], model, kept=np.array([3.0, 3.0, 0, 0]), capacity=[4.0, 4.0])
    found = step(problem)
    assert [stage.checkpoint for stage in found.stages] == [True, False]
    assert found.stages[0].backward == 3
    assert found.memory.tolist() == [3, 3]
    assert found.feasible
    never = chain(
        [1, 1], [2, 2], Pipeline(microbatches=2), kept=np.array([3.0, 3.0, 0, 0]), capacity=[4.0, 4.0]
    )
    assert [violation.kind for violation in step(never).violations] == ["capacity"]


def test_interleaved_stages_shorten_the_bubble() -> None:
    """4 layers of F = 1, B = 2 on two ranks, 4 microbatches: 24 of work, and half the bubble of two stages."""
    problem = chain([1] * 4, [2] * 4, Pipeline(microbatches=4, stages_per_rank=2), devices=2)
    device = np.array([0, 1, 0, 1] * 2, np.int32)
    found = step(problem, Placement(device, call=np.array([0, 1, 2, 3] * 2, np.int32)))
    assert found.cost == 27
    plain = chain([1] * 4, [2] * 4, Pipeline(microbatches=4), devices=2)
    assert step(plain, Placement(np.array([0, 0, 1, 1] * 2, np.int32))).cost == 30


def test_what_the_engine_has_no_schedule_for_has_no_cost() -> None:
    few = step(chain([1, 1, 1], [1, 1, 1], Pipeline(microbatches=2)))
    assert math.isinf(few.cost)
    assert "at least as many microbatches as stages" in few.violations[0].text
    problem = chain([1] * 4, [1] * 4, Pipeline(microbatches=5, stages_per_rank=2), devices=2)
    device = np.array([0, 1, 0, 1] * 2, np.int32)
    odd = step(problem, Placement(device, call=np.array([0, 1, 2, 3] * 2, np.int32)))
    assert "no multiple" in odd.violations[0].text
    assert "must bring the stage" in step(problem, Placement(device)).violations[0].text
    swapped = step(problem, Placement(device, call=np.array([0, 1, 3, 2] * 2, np.int32)))
    assert "must be on rank s modulo 2" in swapped.violations[0].text


def test_a_circle_of_devices_has_no_cost() -> None:
    problem = chain([1, 1, 1], [1, 1, 1], Pipeline(microbatches=4))
    back = step(problem, Placement(np.array([0, 1, 0] * 2, np.int32)))
    assert math.isinf(back.cost)
    assert [violation.kind for violation in back.violations] == ["contiguity"]


def test_settings() -> None:
    assert repr(Pipeline()) == "Pipeline(contiguity='none', comm='sum', objective='sum')"
    assert Pipeline().settings == {"contiguity": "none", "comm": "sum", "objective": "sum"}
    model = named_model("pipeline:gpipe,microbatches=8")
    assert model == Pipeline(microbatches=8, schedule="gpipe", contiguity="chain")
    for bad, why in (
        ("pipeline:gpipe", "needs microbatches"),
        ("pipeline:microbatches=4,overlap", "leave it out"),
        ("pipeline:microbatches=4,device", "form a chain"),
        ("pipeline:microbatches=4,gpipe,stages_per_rank=2", "needs schedule=1f1b"),
        ("pipeline:microbatches=99999", "from 0 to 4096"),
    ):
        with pytest.raises(InputError, match=why):
            named_model(bad)


MODELS = st.builds(
    Pipeline,
    microbatches=st.integers(1, 6),
    schedule=st.sampled_from(["gpipe", "1f1b"]),
    checkpoint=st.sampled_from(["never", "auto"]),
)


@st.composite
def steps(draw: st.DrawFn) -> tuple[Problem, Placement]:
    """A random problem with what is kept and ties, and a placement that is a chain more often than not."""
    training = draw(st.booleans())
    interleaved = draw(st.integers(1, 3))
    model = draw(MODELS)
    if interleaved > 1:
        model = Pipeline(
            microbatches=model.microbatches, stages_per_rank=interleaved, checkpoint=model.checkpoint
        )
    problem = draw(strategies.problems(model, max_ops=9, backward=training))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    from dataclasses import replace

    ties = tuple(
        Tie(tuple(rng.choice(problem.n, 2, replace=False).tolist()), 1.0, 0.5)
        for _ in range(rng.integers(0, 3) if problem.n > 1 else 0)
    )
    problem = replace(problem, kept=rng.choice([0.0, 0.5, 1.0], problem.n), ties=ties)
    if draw(st.booleans()):
        return problem, draw(strategies.placements(problem))
    # Classes by the position of their first op, cut into stages.
    per_rank = model.stages_per_rank
    ranks = int(rng.integers(1, problem.devices + 1))
    stages = ranks * per_rank if ranks > 1 else 1
    position = np.full(problem.classes, problem.n, np.int64)
    forward = problem.graph.position + problem.n * problem.graph.backward
    np.minimum.at(position, problem.class_of, forward)
    place = np.argsort(np.argsort(position, kind="stable"))
    stage = (place * stages // max(problem.classes, 1))[problem.class_of].astype(np.int32)
    order = rng.permutation(problem.devices)
    device = order[stage % ranks].astype(np.int32)
    return problem, Placement(device, call=stage if per_rank > 1 or draw(st.booleans()) else None)


@given(steps())
@settings(max_examples=400)
def test_kernel_and_reference_agree(case: tuple[Problem, Placement]) -> None:
    problem, placement = case
    found, plain = evaluate(problem, placement), reference.evaluate(problem, placement)
    assert_same(found, plain)
    outcome = SimulatedEvaluator(problem).evaluate(placement)
    assert outcome.cost == found.cost
    assert outcome.feasible == found.feasible


@pytest.mark.parametrize(
    ("ranks", "per_rank", "every"), [(2, 2, 4), (3, 2, 6), (4, 3, 8), (2, 4, 3), (4, 2, 10)]
)
def test_interleaved_lists_are_those_of_torch(ranks: int, per_rank: int, every: int) -> None:
    schedules = pytest.importorskip("torch.distributed.pipelining.schedules")
    from types import SimpleNamespace

    from loadmaster.problem.step.plain import schedule

    rounds = max(1, every // ranks)
    me = SimpleNamespace(
        n_local_stages=per_rank,
        pp_group_size=ranks,
        _n_microbatches=every,
        number_of_rounds=rounds,
        microbatches_per_round=every // rounds,
    )
    make = schedules.ScheduleInterleaved1F1B._calculate_single_rank_operations
    orders = {
        r: schedules._add_reduce_grad(schedules._add_unshard_reshard(make(me, r)), every)
        for r in range(ranks)
    }
    theirs = schedules._add_send_recv(orders, lambda s: s % ranks, ranks * per_rank)
    names = {
        "FORWARD": ("forward", 0),
        "FULL_BACKWARD": ("backward", 0),
        "SEND_F": ("send activations", 0),
        "RECV_F": ("receive activations", -1),
        "SEND_B": ("send gradients", -1),
        "RECV_B": ("receive gradients", 0),
    }
    for r, mine in enumerate(schedule("1f1b", every, ranks, per_rank, True)):
        expected = [
            (names[kind][0], action.stage_index + names[kind][1], action.microbatch_index)
            for action in theirs[r]
            if (kind := action.computation_type.name) in names
        ]
        assert [entry for entry in mine if not entry[0].startswith("wait")] == expected
