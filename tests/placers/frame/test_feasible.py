"""Feasible placements: found if and only if there are any, within the time given, and contradictions named."""

from __future__ import annotations

import contextlib
import itertools
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import problems

from loadmaster.errors import InfeasibleError, NoPlacementError, UndecidedError
from loadmaster.graph import GraphBuilder
from loadmaster.hardware import Cluster, Device
from loadmaster.placers import PLACERS, Budget
from loadmaster.placers.frame.feasible import first_feasible, prove_infeasible
from loadmaster.problem import Concurrent, ExecutionModel, Offload, Pipeline, Placement, Problem, Serial
from loadmaster.problem._evaluator import SimulatedEvaluator

LEARNED = {"hsdag", "hsdag-paper", "hsdag+polish", "gdp", "gdp+ls", "gdp-paper", "placeto", "rnn", "hdp"}
QUICK = [name for name in PLACERS if name not in LEARNED]


def any_feasible(problem: Problem) -> bool:
    """Whether some placement is feasible, by trying them all; in ``offload`` with all ways to number calls."""
    check = SimulatedEvaluator(problem)
    choices = [np.flatnonzero(problem.class_allowed[c]).tolist() for c in range(problem.classes)]
    for chosen in itertools.product(*choices):
        device = np.array(chosen, np.int32)[problem.class_of]
        if check.evaluate(Placement(device)).feasible:
            return True
        if isinstance(problem.model, Offload) and problem.model.max_calls > 1:
            where = np.flatnonzero(~problem.pool[device])
            for numbers in itertools.product(range(problem.model.max_calls), repeat=len(where)):
                call = np.zeros(problem.n, np.int32)
                call[where] = numbers
                if check.evaluate(Placement(device, call=call)).feasible:
                    return True
    return False


MODELS = st.one_of(
    st.builds(Serial),
    st.builds(Concurrent, st.just("event"), st.sampled_from(["sum", "peak"])),
    st.builds(Pipeline, st.sampled_from(["none", "device", "chain", "chain"])),
    st.builds(Offload, st.integers(1, 2)),
)


@st.composite
def knotted(draw: st.DrawFn, model: ExecutionModel | None = None) -> Problem:
    """Few devices, classes across the graph, pins and tight memory: hardly feasible, or not at all."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, devices = draw(st.integers(3, 7)), draw(st.integers(2, 3))
    builder = GraphBuilder("knotted")
    for v in range(n):
        builder.op(f"op{v}")
    for v in range(n - 1):
        readers = [u for u in range(v + 1, n) if rng.random() < 0.35]
        builder.tensor(v, bytes=1.0, consumers=readers)
    memory = rng.choice([0.0, 0.5, 1.0, 2.0, 3.0], n)
    capacity = np.full(devices, np.inf)
    if draw(st.booleans()):
        share = rng.dirichlet(np.full(devices, 8.0))
        capacity = np.ceil(2 * memory.sum() * float(rng.choice([1.0, 1.1, 1.3])) * share) / 2
    seconds = rng.choice([0.5, 1.0, 2.0], (n, devices))
    seconds[rng.random((n, devices)) < 0.15] = np.inf
    groups = [rng.choice(n, 2, replace=False).tolist() for _ in range(draw(st.integers(0, 3)))]
    pins = {int(v): int(rng.integers(devices)) for v in rng.choice(n, draw(st.integers(0, 3)), replace=False)}
    return Problem.make(
        builder.build(),
        Cluster(
            "few", tuple(Device(f"d{d}", ["acc", "cpu"][int(rng.random() < 0.3)]) for d in range(devices))
        ),
        draw(MODELS) if model is None else model,
        time=seconds,
        memory=memory,
        capacity=capacity,
        colocation=groups,
        pins=pins,
    )


@given(st.one_of(knotted(), problems(MODELS, max_ops=6, devices=st.integers(1, 3))))
@settings(max_examples=150, deadline=None)
def test_a_placement_is_found_if_and_only_if_there_is_one(problem: Problem) -> None:
    try:
        found = first_feasible(problem)
    except InfeasibleError:
        assert not any_feasible(problem)
    else:
        assert SimulatedEvaluator(problem).evaluate(found).feasible


@pytest.mark.parametrize("name", QUICK)
@given(data=st.data())
@settings(max_examples=12, deadline=None)
def test_every_method_finds_one_if_and_only_if_there_is_one(name: str, data: st.DataObject) -> None:
    model = data.draw(st.one_of(MODELS, st.just(Pipeline("chain"))))
    problem = data.draw(knotted(model))
    placer = PLACERS[name]
    if placer.supports(problem) is not None:
        return
    try:
        solution = placer.place(problem, budget=Budget(evaluations=30))
    except InfeasibleError:
        assert not any_feasible(problem)
    else:
        assert SimulatedEvaluator(problem).evaluate(solution.placement).feasible


@given(knotted(Offload(2)))
@settings(max_examples=40, deadline=None)
def test_calls_with_several_calls_finds_one_if_and_only_if_there_is_one(problem: Problem) -> None:
    try:
        PLACERS["calls"].place(problem, budget=Budget(evaluations=12_000))
    except InfeasibleError:
        assert not any_feasible(problem)


def test_an_error_names_the_limit_that_was_asked_for() -> None:
    builder = GraphBuilder("five in a row")
    for v in range(5):
        builder.op(f"op{v}")
    for v in range(4):
        builder.tensor(v, bytes=1.0, consumers=[v + 1])
    devices = (Device("a0", "acc"), Device("a1", "acc"))
    problem = Problem.make(
        builder.build(),
        Cluster("two", devices),
        Offload(2),
        time=np.ones((5, 2)),
        memory=np.zeros(5),
        pins={v: v % 2 for v in range(5)},
    )
    for name in ("calls", "auto", "cp-sat", "greedy"):
        with pytest.raises(InfeasibleError, match="at most 2 calls"):
            PLACERS[name].place(problem, budget=Budget(seconds=1.0))


def simple(arcs: list[tuple[int, int]], n: int, **more: object) -> Problem:
    builder = GraphBuilder("simple")
    for v in range(n):
        builder.op(f"op{v}")
    for tail, head in arcs:
        builder.tensor(tail, bytes=1.0, consumers=[head])
    devices = tuple(Device(f"d{d}", "acc") for d in range(3))
    return Problem.make(
        builder.build(),
        Cluster("three", devices),
        Pipeline("chain"),
        time=np.ones((n, 3)),
        memory=np.ones(n),
        **more,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("problem", "named"),
    [
        (simple([(0, 1), (1, 2)], 3, colocation=[[0, 2]], pins={0: 0, 1: 1}), r"'op0'.*'d0'.*'op1'.*'d1'"),
        (
            simple([(0, 1), (1, 2)], 3, pins={0: 0, 1: 1, 2: 0}),
            r"cycle.*'op0' on 'd0' comes before 'op1' on 'd1'",
        ),
        (simple([(0, 1), (2, 3)], 4, pins={0: 0, 1: 1, 2: 1, 3: 0}), "cycle"),
        (simple([(0, 1), (2, 3), (4, 5)], 6, pins={0: 0, 1: 1, 2: 1, 3: 2, 4: 2, 5: 0}), "'d0'.*'d1'.*'d2'"),
        (simple([(0, 1), (1, 2)], 3, pins={0: 0, 2: 0}, forbids=[(1, 0)]), "leaves op 'op1' no device"),
        (simple([(0, 1), (1, 2)], 3, pins={0: 0, 2: 0}, capacity=[2.0, 9.0, 9.0]), "memory.*'d0'"),
    ],
)
def test_what_contradicts_a_chain_is_named(problem: Problem, named: str) -> None:
    with pytest.raises(InfeasibleError, match=named):
        prove_infeasible(problem)
    for name in QUICK:
        if PLACERS[name].supports(problem) is None:
            with pytest.raises(InfeasibleError, match=named):
                PLACERS[name].place(problem, budget=Budget(seconds=1.0))


def tight(seed: int, n: int = 40, model: ExecutionModel | None = None) -> Problem:
    """Chains of some 40 ops that fill the memories to the last bytes, if they fit at all."""
    rng = np.random.default_rng(seed)
    devices = int(rng.integers(2, 6))
    builder = GraphBuilder("tight")
    for v in range(n):
        builder.op(f"op{v}")
    width = int(rng.integers(1, 8))
    for v in range(n):
        readers = [u for u in range(v + 1, min(n, v + 1 + 2 * width)) if rng.random() < 1.2 / width]
        builder.tensor(v, bytes=1.0, consumers=readers)
    memory = rng.integers(1, 50, n).astype(float)
    capacity = np.ceil(
        memory.sum() * float(rng.choice([1.0, 1.003, 1.03])) * rng.dirichlet(np.full(devices, 20.0))
    )
    return Problem.make(
        builder.build(),
        Cluster("tight", tuple(Device(f"d{d}", "acc") for d in range(devices))),
        model or Pipeline("chain"),
        time=0.1 + rng.random((n, devices)),
        memory=memory,
        capacity=capacity,
    )


@pytest.mark.parametrize("seed", range(20))
def test_tight_chains_of_forty_ops_are_decided(seed: int) -> None:
    problem = tight(seed)
    try:
        found = first_feasible(problem)
    except InfeasibleError:
        with pytest.raises(InfeasibleError):  # the dynamic program over ideals, if it comes to an end
            PLACERS["ideal-dp"].place(problem, budget=Budget(evaluations=100))
    else:
        assert SimulatedEvaluator(problem).evaluate(found).feasible


@pytest.mark.parametrize(
    "name", ["auto", "single", "greedy", "local-search", "ideal-dp", "linear-dp", "metis"]
)
def test_the_budget_holds_while_nothing_feasible_is_known(name: str) -> None:
    """By the processor time of the process, which a busy machine does not lengthen; two threads may run."""
    placer = PLACERS[name]
    for seed in range(8):
        problem = tight(seed, 42)
        if seed == 0:  # compiles
            with contextlib.suppress(NoPlacementError):
                placer.place(tight(0, 42), budget=Budget(seconds=0.35))
        began = time.process_time()
        with contextlib.suppress(NoPlacementError):
            placer.place(problem, budget=Budget(seconds=0.35))
        assert time.process_time() - began < 2 * (0.35 + 0.5)


def partition(n: int = 60) -> Problem:
    """Numbers without pattern that would have to fill two devices exactly: nobody can say."""
    memory = np.random.default_rng(0).random(n)
    builder = GraphBuilder("partition")
    for v in range(n):
        builder.op(f"op{v}")
    return Problem.make(
        builder.build(),
        Cluster("two", (Device("d0", "acc"), Device("d1", "acc"))),
        Pipeline(),
        time=np.ones((n, 2)),
        memory=memory,
        capacity=np.full(2, memory.sum() / 2 * (1 + 1e-14)),
    )


def test_time_that_runs_out_is_another_error_than_infeasible() -> None:
    asked = 0

    def out_of_time() -> bool:
        nonlocal asked
        asked += 1
        return asked > 5

    with pytest.raises(UndecidedError, match="in the time given"):
        first_feasible(partition(), 0, out_of_time)
    assert asked <= 7  # it gave up as soon as it was told
    for name in ("auto", "greedy", "local-search", "cp-sat"):
        with pytest.raises(UndecidedError):
            PLACERS[name].place(partition(), budget=Budget(seconds=0.1))


def test_an_interrupt_ends_the_search_for_any_placement() -> None:
    def out_of_time() -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        first_feasible(partition(), 0, out_of_time)


def test_memories_that_fit_only_in_one_order_of_addition_are_no_matter() -> None:
    """0.1 + 0.2 + 0.3 is more than 0.6, and 0.3 + 0.2 + 0.1 is not."""
    for memory in itertools.permutations([0.1, 0.2, 0.3, 0.6, 0.7]):
        for capacity in ([0.6, 1.3], [0.6, 0.6, 0.7], [0.3, 0.9, 0.7]):
            builder = GraphBuilder("rounding")
            for v in range(5):
                builder.op(f"op{v}")
            problem = Problem.make(
                builder.build(),
                Cluster("few", tuple(Device(f"d{d}", "acc") for d in range(len(capacity)))),
                Pipeline("chain"),
                time=np.ones((5, len(capacity))),
                memory=memory,
                capacity=capacity,
            )
            try:
                first_feasible(problem)
                found = True
            except InfeasibleError:
                found = False
            assert found == any_feasible(problem)
