"""What every placer must do. A new placer joins by being in the table of names; nothing here knows any of them."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys

import numpy as np
import pytest

from loadmaster.errors import InfeasibleError
from loadmaster.graph import Graph, GraphBuilder, layered
from loadmaster.hardware import accelerators, roofline
from loadmaster.placers import PLACERS, Budget, Placer, Progress
from loadmaster.placers.learned._learner import Learner
from loadmaster.problem import Concurrent, ExecutionModel, Offload, Pipeline, Placement, Problem, Serial
from loadmaster.problem._evaluator import SimulatedEvaluator, evaluate
from loadmaster.problem.bounds import lower_bound

MODELS: list[ExecutionModel] = [
    Serial(),
    Concurrent(),
    Concurrent(schedule="static"),
    Concurrent(memory="peak"),
    Pipeline(),
    Pipeline(contiguity="device"),
    Pipeline(contiguity="chain"),
    Pipeline(comm="overlap"),
    Pipeline(objective="fw+bw"),
    Offload(),
    Offload(max_calls=2),
]
LIMIT = 300
"""Evaluations that the placers get here."""


def label(model: ExecutionModel) -> str:
    return " ".join([model.name, *(f"{v}" for v in model.settings.values())])


def simple(graph: Graph, model: ExecutionModel, devices: int = 2, **more: object) -> Problem:
    cluster = accelerators(devices, 1)
    return Problem.make(graph, cluster, model, time=roofline(graph, cluster), **more)  # type: ignore[arg-type]


def training(n: int = 12) -> Graph:
    """A chain with skips and its mirror image as the backward pass."""
    b = GraphBuilder("training")
    forward = [b.op(f"f{i}", flops=1e9 * (1 + i % 3), bytes_written=1e6, param_bytes=1e6) for i in range(n)]
    backward = [b.op(f"b{i}", flops=2e9 * (1 + i % 3), bytes_written=1e6, backward=True) for i in range(n)]
    for i in range(n):
        readers = [forward[j] for j in (i + 1, i + 3) if j < n] + [backward[i]]
        b.tensor(forward[i], bytes=1e6, consumers=readers)
        if i:
            b.tensor(backward[i], bytes=1e6, consumers=[backward[i - 1]])
    return b.build()


def constrained(model: ExecutionModel) -> Problem:
    """Memory that no device has enough of alone, a pin, a forbidden op, an unsupported op, colocation."""
    graph = layered(24, width=3, seed=5)
    cluster = accelerators(3, 1)
    time = roofline(graph, cluster)
    time[3, 0] = np.inf
    memory = np.full(graph.n, 1.0)
    capacity = np.array([10.0, 10.0, 10.0, 12.0])
    if isinstance(model, Offload):
        capacity[3] = np.inf
    if isinstance(model, Concurrent) and model.memory == "peak":
        capacity[3] = np.inf
    first, second = graph.topological_order[[0, 1]].tolist()
    last = int(graph.topological_order[-1])
    return Problem.make(
        graph, cluster, model, time=time, memory=memory, capacity=capacity, colocation=[[first, second]],
        pins={last: 3}, forbids=[(10, 0)],
    )  # fmt: skip


def run(placer: Placer, problem: Problem, **more: object):  # type: ignore[no-untyped-def]
    more.setdefault("budget", Budget(evaluations=LIMIT))
    solution = placer.place(problem, **more)  # type: ignore[arg-type]
    detail = evaluate(problem, solution.placement)
    assert detail.feasible, detail.why
    assert detail.cost == solution.cost
    again = SimulatedEvaluator(problem).evaluate(solution.placement)
    assert again.cost == solution.cost
    assert again.feasible
    assert solution.bound <= solution.cost
    assert solution.bound >= min(lower_bound(problem).value, solution.cost)
    assert 0 <= solution.gap <= 1
    assert solution.method == placer.name
    assert solution.bound_by
    costs = [point.cost for point in solution.history]
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] == solution.cost
    return solution


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every placer with every execution model that it supports."""
    if "model" in metafunc.fixturenames:
        pairs = [
            (p, m) for p in PLACERS.values() for m in MODELS if p.supports(simple(layered(4), m)) is None
        ]
        metafunc.parametrize(("placer", "model"), pairs, ids=[f"{p.name}-{label(m)}" for p, m in pairs])
    elif "placer" in metafunc.fixturenames:
        metafunc.parametrize("placer", PLACERS.values(), ids=list(PLACERS))


def test_every_placer_supports_some_model() -> None:
    assert all(any(p.supports(simple(layered(4), m)) is None for m in MODELS) for p in PLACERS.values())


def test_a_plain_graph(placer: Placer, model: ExecutionModel) -> None:
    run(placer, simple(layered(40, seed=1), model))


def test_all_constraints_at_once(placer: Placer, model: ExecutionModel) -> None:
    problem = constrained(model)
    solution = run(placer, problem)
    assert solution.placement.device[problem.graph.topological_order[-1]] == 3


def test_a_training_graph(placer: Placer, model: ExecutionModel) -> None:
    if not isinstance(model, Offload):  # offload is for inference
        run(placer, simple(training(), model, colocation=[[i, 12 + i] for i in range(12)]))


@pytest.mark.parametrize("evaluations", [1, 2, 7])
def test_a_budget_of_evaluations_is_kept(placer: Placer, model: ExecutionModel, evaluations: int) -> None:
    solution = run(
        placer, simple(layered(15, width=3, seed=2), model), budget=Budget(evaluations=evaluations)
    )
    assert solution.evaluations <= evaluations


def test_no_time_at_all_still_gives_an_answer(placer: Placer, model: ExecutionModel) -> None:
    run(placer, simple(layered(20, seed=3), model), budget=Budget(seconds=0.0))


def test_an_interrupt_keeps_the_best_so_far(placer: Placer, model: ExecutionModel) -> None:
    def interrupt(progress: Progress) -> None:
        if math.isfinite(progress.cost) and not told:
            told.append(progress)
            raise KeyboardInterrupt

    told: list[Progress] = []
    solution = run(placer, simple(layered(30, seed=4), model), on_progress=interrupt)
    assert not told or solution.stopped == "interrupted" or solution.cost <= told[0].cost


def test_a_start_is_never_made_worse(placer: Placer, model: ExecutionModel) -> None:
    problem = simple(layered(30, seed=6), model)
    best = run(PLACERS["local-search"], problem, budget=Budget(evaluations=2000))
    if placer.name in {"local-search", "annealing", "random"}:
        assert run(placer, problem, start=best.placement).cost <= best.cost


@pytest.mark.parametrize(
    "graph",
    [
        GraphBuilder("empty").build(),
        layered(1),
        layered(12, width=12, degree=0.0, seed=7),
        layered(8, width=2, seed=8),
    ],
    ids=["empty", "one op", "disconnected", "small"],
)
def test_odd_graphs(placer: Placer, model: ExecutionModel, graph: Graph) -> None:
    run(placer, simple(graph, model))


def test_zero_costs(placer: Placer, model: ExecutionModel) -> None:
    graph = layered(10, width=2, seed=9)
    none, nothing = np.zeros((3, 3)), np.zeros(3)
    solution = run(
        placer,
        Problem.make(
            graph, accelerators(2, 1), model, time=np.zeros((10, 3)), latency=none, rate=none, send_latency=nothing,
            send_rate=nothing, recv_latency=nothing, recv_rate=nothing,
        ),
    )  # fmt: skip
    assert solution.cost == 0
    assert solution.optimal


def test_one_device(placer: Placer, model: ExecutionModel) -> None:
    graph = layered(10, width=2, seed=10)
    cluster = accelerators(0, 1)
    solution = run(placer, Problem.make(graph, cluster, model, time=roofline(graph, cluster)))
    if not isinstance(model, Offload):
        assert solution.gap < 1e-9


def test_two_hundred_devices(placer: Placer, model: ExecutionModel) -> None:
    run(placer, simple(layered(60, seed=11), model, devices=199), budget=Budget(evaluations=50))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("unsupported", "op2"),
        ("pin", "acc0"),
        ("forbidden", "op4"),
        ("colocation", "op5"),
        ("one op too large", "memory"),
        ("all too large", "memory"),
        ("pinned too large", "acc1"),
    ],
)
def test_an_impossible_constraint_is_named(
    placer: Placer, model: ExecutionModel, change: str, named: str
) -> None:
    graph = layered(8, width=2, seed=12)
    cluster = accelerators(2, 1)
    time = roofline(graph, cluster)
    memory, capacity = np.ones(8), np.full(3, np.inf)
    more: dict[str, object] = {}
    if change == "unsupported":
        time[2] = np.inf
    elif change == "pin":
        time[3, 0] = np.inf
        more["pins"] = {3: 0}
    elif change == "forbidden":
        more["forbids"] = [(4, d) for d in range(3)]
    elif change == "colocation":
        time[5, :2] = np.inf
        more["colocation"] = [[5, 6]]
        more["forbids"] = [(6, 2)]
    elif change == "one op too large":
        memory[1], capacity = 9.0, np.full(3, 8.0)
    elif change == "all too large":
        capacity = np.full(3, 2.0)
    elif change == "pinned too large":
        capacity = np.array([9.0, 2.0, 9.0])
        more["pins"] = {v: 1 for v in range(3)}
    problem = Problem.make(graph, cluster, model, time=time, memory=memory, capacity=capacity, **more)  # type: ignore[arg-type]
    with pytest.raises(InfeasibleError, match=named):
        placer.place(problem, budget=Budget(evaluations=10))


def test_another_evaluator_is_asked(placer: Placer, model: ExecutionModel) -> None:
    class Doubled(SimulatedEvaluator):
        """Stands for a runtime that measures."""

        def evaluate(self, placement: Placement):  # type: ignore[no-untyped-def]
            outcome = super().evaluate(placement)
            return outcome._replace(cost=2 * outcome.cost)

        def evaluate_batch(self, device):  # type: ignore[no-untyped-def]
            cost, feasible = super().evaluate_batch(device)
            return 2 * cost, feasible

    class Measured:
        def __init__(self, problem: Problem) -> None:
            self._inner = Doubled(problem)
            self.problem = problem

        @property
        def evaluations(self) -> int:
            return self._inner.evaluations

        def evaluate(self, placement: Placement):  # type: ignore[no-untyped-def]
            return self._inner.evaluate(placement)

        def evaluate_batch(self, device):  # type: ignore[no-untyped-def]
            return self._inner.evaluate_batch(device)

    problem = simple(layered(12, width=3, seed=13), model)
    measured = Measured(problem)
    solution = placer.place(problem, budget=Budget(evaluations=40), evaluator=measured)
    assert solution.cost == 2 * SimulatedEvaluator(problem).evaluate(solution.placement).cost
    assert 1 <= measured.evaluations <= 40
    assert solution.evaluations == measured.evaluations


def fingerprints(name: str) -> dict[str, object]:
    """What a placer finds under an evaluation budget, for all models it supports."""
    found: dict[str, object] = {}
    for model in MODELS:
        problem = constrained(model)
        placer = PLACERS[name]
        if placer.supports(problem) is None:
            # Training is the slower part by far, and a few updates say whether it repeats.
            limit = LIMIT // 4 if isinstance(placer, Learner) else LIMIT
            s = placer.place(problem, budget=Budget(evaluations=limit), seed=3)
            history = [(p.evaluations, p.cost) for p in s.history]
            order = None if s.placement.order is None else s.placement.order.tolist()
            found[label(model)] = [s.cost, s.placement.device.tolist(), order, s.evaluations, history]
    return found


def test_a_run_repeats_in_another_process(placer: Placer) -> None:
    script = (
        "import json, sys; sys.path.insert(0, sys.argv[1]); import test_conformance; "
        "print(json.dumps(test_conformance.fingerprints(sys.argv[2])))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "17"}
    here = os.path.dirname(__file__)
    done = subprocess.run(
        [sys.executable, "-c", script, here, placer.name],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    assert json.loads(done.stdout) == json.loads(json.dumps(fingerprints(placer.name)))
