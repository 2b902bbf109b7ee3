"""The pre-trained policy: what it is before training, what its decoders do, and how it is trained and stored."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from loadmaster import api, cli
from loadmaster.errors import InfeasibleError, InputError
from loadmaster.graph import GraphBuilder, layered
from loadmaster.hardware import Cluster, Device, accelerators, roofline
from loadmaster.placers import PLACERS, Budget
from loadmaster.placers.frame.feasible import atoms_of, prove_infeasible
from loadmaster.placers.learned.gdp import Gdp, GdpSearch, _evolution, pretraining
from loadmaster.placers.learned.gdp._decoder import LoadDecoder, Schedule, TimeDecoder, hidden_of
from loadmaster.placers.learned.gdp._evolution import Evolution, Trainer, centred_ranks, pretrain_tasks
from loadmaster.placers.learned.gdp._features import static_of
from loadmaster.placers.learned.gdp._tracks import tracks_of
from loadmaster.placers.learned.gdp._training_problems import FAMILIES, training_problem
from loadmaster.placers.learned.gdp._weights import (
    SHIPPED,
    SIZE,
    Weights,
    load_weights,
    parts_of,
    save_weights,
    shipped,
    untrained,
)
from loadmaster.placers.rules.lookahead import children_of, lookahead_schedule
from loadmaster.problem import Concurrent, Pipeline, Placement, Problem, Serial
from loadmaster.problem._evaluator import SimulatedEvaluator, evaluate
from tests.strategies import problems

QUICK = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])


def some_weights(seed: int = 1, scale: float = 0.3) -> np.ndarray:
    """Weights that say something everywhere."""
    return np.random.default_rng(seed).standard_normal(SIZE) * scale


def random_problem(n: int = 60, devices: int = 3, seed: int = 0, model=None) -> Problem:  # type: ignore[no-untyped-def]
    graph, cluster = layered(n, seed=seed), accelerators(devices, 1)
    return Problem.make(graph, cluster, model or Concurrent(), time=roofline(graph, cluster))


def possible(problem: Problem) -> bool:
    """Whether no constraint alone is impossible to meet: placers check that first."""
    try:
        prove_infeasible(problem)
    except InfeasibleError:
        return False
    return True


# -- before training -----------------------------------------------------------------------------------------


@given(problems(Concurrent(), max_ops=12))
@QUICK
def test_untrained_it_is_lookahead_to_the_last_bit(problem: Problem) -> None:
    assume(possible(problem))
    found = TimeDecoder(problem).run(untrained().vector)
    device, begin = lookahead_schedule(problem)
    assert found.device.tolist() == device.tolist()
    assert found.begin.tolist() == begin.tolist()


def test_untrained_it_is_lookahead_on_a_model_of_the_zoo() -> None:
    problem = api.problem("zoo:rnnlm-2?seq=3", "p100-4")
    found = TimeDecoder(problem).run(untrained(3).vector)
    device, begin = lookahead_schedule(problem)
    assert (found.device == device).all()
    assert (found.begin == begin).all()


def test_training_begins_with_random_hidden_weights_and_no_output() -> None:
    for kind in ("time", "load"):
        part = untrained().arrays(kind)
        assert part["pair"].any()
        assert not part["out"].any()
        assert not part["context"].any()


# -- the kernels against slow and obvious ones ---------------------------------------------------------------


def squash(x: float) -> float:
    return x / (1 + abs(x))


def slow_decode(
    problem: Problem, vector: np.ndarray, prior: Schedule | None
) -> tuple[list[int], list[float]]:
    """The list scheduler op by op, with dictionaries and lists of busy intervals; None where memory runs out."""
    graph, atoms, static = problem.graph, atoms_of(problem), static_of(problem)
    part = parts_of(vector, "time")
    hidden_op, hidden_device = hidden_of(problem, part)
    devices = range(problem.devices)
    before, order, priority = [-1] * problem.n, problem.priority_order.tolist(), problem.upward_rank
    busy, slack = [0.0] * problem.devices, [0.0] * problem.n
    if prior is not None:
        before = prior.device.tolist()
        rank = [0.0] * problem.n
        for v in reversed(problem.priority_order.tolist()):
            below = 0.0
            for t in range(graph.tensors):
                if graph.tensor_producer[t] == v:
                    for u in graph.consumers(t).tolist():
                        below = max(below, link(problem, t, before[v], before[u]) + rank[u])
            rank[v] = float(problem.time[v, before[v]]) + below
        load = [sum(problem.time[v, d] for v in range(problem.n) if before[v] == d) for d in devices]
        busy = [x / max(np.mean(load), 1e-300) - 1 for x in load]
        whole = max(max((prior.begin[v] + rank[v] for v in range(problem.n)), default=0.0), 1e-300)
        slack = [1 - (prior.begin[v] + rank[v]) / whole for v in range(problem.n)]
        hidden_device = hidden_device + part["later"]
        priority = np.array(rank)
    wish = np.round(np.maximum(hidden_op, 0) @ part["order"][0], 9)
    wanted = priority + 0.1 * priority.max(initial=0.0) * wish
    order, waiting = [], set(range(problem.n))
    ptr, parent = graph.predecessors
    while waiting:
        ready = [v for v in waiting if not waiting & set(parent[ptr[v] : ptr[v + 1]].tolist())]
        order.append(min(ready, key=lambda v: (-wanted[v], graph.position[v])))
        waiting.discard(order[-1])
    child_ptr, child, child_size = children_of(problem)
    spans: list[list[tuple[float, float]]] = [[] for _ in devices]
    there: dict[tuple[int, int], float] = {}
    free: dict[tuple[int, int], float] = {}
    known = np.zeros((problem.n, problem.devices))
    device, begin, end = [-1] * problem.n, [0.0] * problem.n, [0.0] * problem.n
    home: dict[int, int] = {}
    left = problem.capacity.copy()
    committed, horizon = [0.0] * problem.devices, [0.0] * problem.devices

    def fit(d: int, ready: float, length: float) -> float:
        """Start in the first gap that is long enough."""
        gaps, at = [], 0.0
        for a, b in sorted(spans[d]):
            if a > at:
                gaps.append((at, a))
            at = max(at, b)
        gaps.append((at, np.inf))
        return next(max(a, ready) for a, b in gaps if max(a, ready) + length <= b)

    in_ptr, in_tensor = graph.inputs
    for v in order:
        a = int(atoms.of_op[v])
        inputs = in_tensor[in_ptr[v] : in_ptr[v + 1]].tolist()
        children = list(range(child_ptr[v], child_ptr[v + 1]))
        choices: dict[int, dict[str, float]] = {}
        for d in devices:
            if a in home and d != home[a]:
                continue
            if a not in home and (not atoms.allowed[a, d] or atoms.memory[a] > left[d]):
                continue
            ready, local = 0.0, 0.0
            for t in inputs:
                u = int(graph.tensor_producer[t])
                s = device[u]
                if s == d:
                    arrival, local = end[u], local + problem.size[t]
                elif (t, d) in there:
                    arrival, local = there[t, d], local + problem.size[t]
                else:
                    arrival = max(end[u], free.get((s, d), 0.0)) + link(problem, t, s, d)
                ready = max(ready, arrival)
            start = fit(d, ready, float(problem.time[v, d]))
            finish = start + float(problem.time[v, d])
            score = finish
            if a not in home:
                queue = [0.0] * problem.devices
                for j in children:
                    u, b = int(child[j]), int(atoms.of_op[child[j]])
                    options = []
                    for e in devices:
                        if b == a or b in home:
                            if e != (d if b == a else home[b]):
                                continue
                        elif not atoms.allowed[b, e]:
                            continue
                        lands = finish
                        if e != d:
                            way = problem.latency[d, e] + child_size[j] * problem.rate[d, e]
                            lands = max(finish, free.get((d, e), 0.0)) + way
                        lands = max(lands, known[u, e], queue[e])
                        options.append((fit(e, lands, float(problem.time[u, e])) + problem.time[u, e], e))
                    if options:
                        soonest, where = min(options)
                        queue[where] = soonest
                        score = max(score, soonest)
            choices[d] = dict(ready=ready, start=start, finish=finish, score=score, local=local)
        assert choices
        least = {key: min(c[key] for c in choices.values()) for key in ("ready", "finish", "score")}
        quickest = min(problem.time[v, d] for d in choices)
        idle = min(horizon[d] for d in choices)
        total = sum(child_size[j] for j in children)
        came = sum(problem.size[t] for t in inputs)
        first = int(child[children[0]]) if children else -1
        unit = static.unit[v]
        per = 1.0 / unit

        values = {}
        for d, c in choices.items():
            cap = problem.capacity[d]
            placed = sum(child_size[j] for j in children if home.get(int(atoms.of_op[child[j]])) == d)
            was = sum(
                child_size[j] for j in children
                if int(atoms.of_op[child[j]]) not in home and before[child[j]] == d
            )  # fmt: skip
            x = [
                squash((c["finish"] - least["finish"]) * per),
                squash((c["score"] - least["score"]) * per),
                squash((c["ready"] - least["ready"]) * per),
                squash((c["start"] - c["ready"]) * per),
                squash((problem.time[v, d] - quickest) * per),
                c["local"] / came if came > 0 else 0.0,
                squash((committed[d] + atoms.time[a, d]) * static.fair),
                squash((horizon[d] - idle) * per),
                1 - (left[d] - atoms.memory[a]) / cap if 0 < cap < np.inf else 0.0,
                float(before[v] == d),
                was / total if total > 0 else 0.0,
                placed / total if total > 0 else 0.0,
                squash((known[first, d] - known[first].min()) * per) if first >= 0 else 0.0,
                squash(busy[d]),
                float(before[v] == d) * (1 - slack[v]),
            ]
            h = hidden_op[v] + hidden_device[d]
            for feature, weight in zip(x, part["pair"], strict=True):
                h = h + feature * weight
            own = shared = 0.0  # one by one: ties are settled by the last bit
            for j, value in enumerate(np.maximum(h, 0.0).tolist()):
                own += value * part["out"][0, j]
                shared += value * part["out"][1, j]
            values[d] = c["score"] + (own * unit + shared * static.common), c["finish"], d

        best = min(values, key=values.__getitem__) if len(choices) > 1 else next(iter(choices))
        if a not in home:
            home[a] = best
            left[best] -= atoms.memory[a]
            committed[best] += float(atoms.time[a, best])
        device[v], begin[v], end[v] = best, choices[best]["start"], choices[best]["finish"]
        horizon[best] = max(horizon[best], end[v])
        if end[v] > begin[v]:  # what takes no time divides no gap
            spans[best].append((begin[v], end[v]))
        for t in inputs:
            s = device[int(graph.tensor_producer[t])]
            if s != best and (t, best) not in there:
                made = max(end[int(graph.tensor_producer[t])], free.get((s, best), 0.0)) + link(
                    problem, t, s, best
                )
                there[t, best] = free[s, best] = made
        for j in children:
            for e in devices:
                lands = end[v]
                if e != best:
                    way = problem.latency[best, e] + child_size[j] * problem.rate[best, e]
                    lands = max(end[v], free.get((best, e), 0.0)) + way
                known[int(child[j]), e] = max(known[int(child[j]), e], lands)
    return device, begin


def link(problem: Problem, t: int, a: int, b: int) -> float:
    return 0.0 if a == b else float(problem.latency[a, b] + problem.size[t] * problem.rate[a, b])


@given(problems(Concurrent(), max_ops=9, constrained=False), st.integers(0, 1000))
@QUICK
def test_the_list_scheduler_decides_as_a_slow_one_does(problem: Problem, seed: int) -> None:
    vector = some_weights(seed)
    decoder, prior = TimeDecoder(problem), None
    for _ in range(2):
        found = decoder.run(vector, prior)
        device, begin = slow_decode(problem, vector, prior)
        assert found.device.tolist() == device
        assert np.allclose(found.begin, begin)
        prior = found


@given(
    problems(st.sampled_from([Pipeline(), Pipeline(comm="overlap"), Serial()]), max_ops=8), st.integers(0, 99)
)
@QUICK
def test_a_sweep_reports_the_cost_of_what_it_returns_and_keeps_all_constraints(
    problem: Problem, seed: int
) -> None:
    assume(possible(problem))
    check = SimulatedEvaluator(problem)
    rng = np.random.default_rng(seed)
    at = np.array([rng.choice(np.flatnonzero(row)) for row in atoms_of(problem).allowed])
    start = at.astype(np.int32)[atoms_of(problem).of_op]
    before = check.evaluate(Placement(start))
    for vector in (untrained().vector, some_weights(seed)):
        decoder = LoadDecoder(problem)
        device, cost = decoder.decode(*decoder.hidden(vector), start)
        after = check.evaluate(Placement(device))
        assert cost == pytest.approx(after.cost, rel=1e-9, abs=1e-12)
        assert after.cost <= before.cost * (1 + 1e-9)
        assert after.feasible or not before.feasible


def test_an_untrained_sweep_moves_an_atom_only_where_the_energy_falls() -> None:
    problem = random_problem(30, 2, model=Serial())
    decoder = LoadDecoder(problem)
    check = SimulatedEvaluator(problem)
    start = np.zeros(30, np.int32)
    device, cost = decoder.decode(*decoder.hidden(untrained().vector), start)
    # Under serial the energy is the cost, so that a second sweep and every single move bring nothing much.
    for _ in range(20):
        device, cost = decoder.decode(*decoder.hidden(untrained().vector), device)
    for v in range(30):
        for d in range(problem.devices):
            if problem.allowed[v, d]:
                moved = device.copy()
                moved[v] = d
                assert check.evaluate(Placement(moved)).cost >= cost * (1 - 1e-9)


# -- invariances ---------------------------------------------------------------------------------------------


def permuted(problem: Problem, order: np.ndarray) -> Problem:
    """The same problem with its devices in another order."""
    cluster = Cluster("permuted", tuple(problem.cluster.devices[d] for d in order))
    return replace(
        problem, cluster=cluster, time=problem.time[:, order], latency=problem.latency[np.ix_(order, order)],
        rate=problem.rate[np.ix_(order, order)], send_latency=problem.send_latency[order],
        send_rate=problem.send_rate[order], recv_latency=problem.recv_latency[order],
        recv_rate=problem.recv_rate[order], capacity=problem.capacity[order], forbidden=problem.forbidden[:, order],
    )  # fmt: skip


def uneven(n: int, model, seed: int) -> Problem:  # type: ignore[no-untyped-def]
    """Times without ties, so that the order of the devices settles nothing."""
    problem = random_problem(n, 3, seed, model)
    rng = np.random.default_rng(seed)
    links = 0.5 + rng.random((problem.devices, problem.devices))
    return replace(
        problem,
        time=problem.time * (0.5 + rng.random(problem.time.shape)),
        latency=problem.latency * links,
        rate=problem.rate * links,
    )


@pytest.mark.parametrize("seed", range(5))
def test_devices_in_another_order_get_the_same_ops(seed: int) -> None:
    problem = uneven(50, Concurrent(), seed)
    order = np.random.default_rng(seed + 50).permutation(problem.devices)
    vector = some_weights(seed)
    one, other = TimeDecoder(problem).run(vector), TimeDecoder(permuted(problem, order)).run(vector)
    assert (order[other.device] == one.device).all()


@pytest.mark.parametrize("model", [Concurrent(), Pipeline(), Serial()], ids=lambda m: m.name)
def test_other_units_change_nothing(model) -> None:  # type: ignore[no-untyped-def]
    problem = uneven(40, model, 2)
    factor = 1024.0  # exact in binary
    names = ("latency", "rate", "send_latency", "send_rate", "recv_latency", "recv_rate")
    slower = replace(
        problem, time=problem.time * factor, memory=problem.memory * 8, capacity=problem.capacity * 8,
        resident=problem.resident * 8, **{name: getattr(problem, name) * factor for name in names},
    )  # fmt: skip
    smaller = replace(
        problem,
        size=problem.size / 8,
        **{name: getattr(problem, name) * 8 for name in names if "rate" in name},
    )
    placer = Gdp(samples=4)
    first = placer.place(problem, budget=Budget())
    for other, times in ((slower, factor), (smaller, 1.0)):
        again = placer.place(other, budget=Budget())
        assert again.cost == pytest.approx(first.cost * times)
        assert (again.placement.device == first.placement.device).all()


def test_unknown_op_types_and_kinds_of_devices_work() -> None:
    b = GraphBuilder("strange")
    ops = [b.op(f"op{i}", "NeverHeardOf" + str(i), flops=1e9) for i in range(12)]
    for i in range(11):
        b.tensor(ops[i], bytes=1e5, consumers=[ops[i + 1]])
    graph = b.build()
    cluster = Cluster("odd", (Device("q", "quantum"), Device("a", "abacus"), Device("c", "cpu")))
    time = np.random.default_rng(0).random((12, 3))
    for model in (Concurrent(), Pipeline()):
        problem = Problem.make(graph, cluster, model, time=time)
        assert evaluate(problem, Gdp().place(problem, budget=Budget()).placement).feasible


# -- the placer ----------------------------------------------------------------------------------------------


@given(problems(Concurrent(), max_ops=8))
@settings(QUICK, max_examples=20)
def test_with_its_guard_it_is_never_worse_than_heft_or_one_device(problem: Problem) -> None:
    try:
        single = PLACERS["single"].place(problem, budget=Budget())
    except InfeasibleError:
        return
    placer = Gdp(samples=2)
    found = placer.place(problem, budget=Budget())
    others = [PLACERS[m] for m in ("heft", "metis") if PLACERS[m].supports(problem) is None]
    costs = [single.cost, *(other.place(problem, budget=Budget()).cost for other in others)]
    assert found.cost <= min(costs) * (1 + 1e-12)


@pytest.mark.parametrize("model", ["concurrent", "pipeline"])
def test_zero_shot_beats_one_device_and_metis_on_a_model_of_the_zoo(model: str) -> None:
    problem = api.problem("zoo:inception-v3", "hsdag", model)
    found = Gdp(samples=0, guard=False).place(problem, budget=Budget())
    for other in ("single", "metis"):
        assert found.cost < PLACERS[other].place(problem, budget=Budget()).cost


def test_local_search_after_the_policy_only_improves() -> None:
    problem = random_problem(80, 3, 5)
    policy = Gdp(samples=2).place(problem, budget=Budget(evaluations=500))
    search = GdpSearch(samples=2).place(problem, budget=Budget(evaluations=2000))
    assert search.cost <= policy.cost
    assert search.evaluations <= 2000


@pytest.mark.parametrize(
    ("graph", "model", "gains"),
    [("inception-v3?training=1&batch=32", "concurrent", True), ("layered-60", "pipeline", False)],
)
def test_tuning_uses_up_the_budget_repeats_and_is_never_worse(graph: str, model: str, gains: bool) -> None:
    problem = api.problem(f"zoo:{graph}", "p100-2", model)
    few = {"samples": 4}
    plain = api.place(problem, "gdp", evaluations=300, parameters=few)
    first, second = (
        api.place(problem, "gdp", evaluations=300, parameters={**few, "tune": True}) for _ in range(2)
    )
    assert plain.evaluations < 300
    assert first.evaluations == 300
    assert first.cost < plain.cost if gains else first.cost <= plain.cost
    assert first.placement == second.placement


@pytest.mark.parametrize(("name", "value"), [("passes", 0), ("samples", -1), ("noise", -0.1)])
def test_settings_without_a_meaning_are_refused(name: str, value: float) -> None:
    with pytest.raises(InputError, match=name):
        api.configured("gdp", {name: value})


def test_without_a_budget_there_is_no_tuning() -> None:
    problem = api.problem("zoo:layered-60", "p100-2", "concurrent")
    made = [Gdp(samples=4, tune=tune).place(problem, budget=Budget()).evaluations for tune in (False, True)]
    assert made[0] == made[1]


def test_the_same_seed_gives_the_same_samples() -> None:
    problem = random_problem(60, 3, 4)
    first, again, other = (Gdp(samples=6).place(problem, budget=Budget(), seed=s) for s in (1, 1, 2))
    assert first.placement == again.placement
    assert first.evaluations == again.evaluations
    assert other.cost > 0


# -- weights -------------------------------------------------------------------------------------------------


def test_the_weights_of_the_package_are_small_trained_and_whole() -> None:
    assert SHIPPED.stat().st_size < 5e6
    weights = shipped()
    assert weights.recipe["trained"]
    assert weights.recipe["sha256"] == weights.digest
    assert set(weights.recipe["families"]) == set(FAMILIES)


def test_weights_are_written_and_read_without_pickle(tmp_path: Path) -> None:
    path = tmp_path / "w.npz"
    save_weights(path, Weights(some_weights(), {"trained": True}))
    with np.load(path, allow_pickle=False) as file:
        assert all(file[name].dtype != object for name in file.files)
    assert (load_weights(path).vector == some_weights()).all()


def test_weights_are_an_option() -> None:
    assert not Gdp().read().recipe["trained"]
    assert Gdp(weights="shipped").read().digest == shipped().digest


def test_damaged_weights_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.npz"
    save_weights(path, untrained())
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    arrays["time/out"] = arrays["time/out"] + 1
    np.savez(path, **arrays)
    with pytest.raises(InputError, match="checksum"):
        load_weights(path)
    path.write_text("nothing of the kind")
    with pytest.raises(InputError, match="not a file of weights"):
        load_weights(path)
    with pytest.raises(InputError, match="no weights"):
        load_weights(tmp_path / "absent.npz")


# -- training ------------------------------------------------------------------------------------------------

TINY = Evolution(pairs=2, problems=2, pool=4, passes=1)


def tiny_trainer(seed: int = 0, workers: int = 1) -> Trainer:
    return Trainer(pretrain_tasks(seed, TINY, ("random",)), TINY, seed, workers=workers)


def test_a_killed_run_goes_on_as_if_nothing_had_been(tmp_path: Path) -> None:
    whole = tiny_trainer()
    for _ in range(4):
        whole.step()
    first = tiny_trainer(workers=2)
    for _ in range(2):
        first.step()
    first.save(tmp_path / "state", ("random",))
    second = tiny_trainer()
    second.resume(tmp_path / "state", ("random",))
    for _ in range(2):
        second.step()
    assert (second.vector == whole.vector).all()
    assert (second.average == whole.average).all()
    assert second.generation == 4
    with pytest.raises(InputError, match="a different seed"):
        tiny_trainer(seed=1).resume(tmp_path / "state", ("random",))


def test_training_learns_what_a_problem_rewards() -> None:
    """Costs that fall with one weight of the output: the steps must find that out."""

    class Toy(_evolution.Task):
        kind = "time"

        def __init__(self) -> None:
            pass

        def cost(self, vector: np.ndarray, turn: int) -> float:
            return float((parts_of(vector, "time")["out"][0, 0] - 0.1) ** 2)

    trainer = Trainer(lambda g, k: [Toy()], Evolution(pairs=8, rate=0.01), 0, kinds=("time",), workers=1)
    for _ in range(60):
        report = trainer.step()
    assert parts_of(trainer.average, "time")["out"][0, 0] == pytest.approx(0.1, abs=0.05)
    assert report.gain["time"] < 0


def test_ranks_do_not_depend_on_scale() -> None:
    cost = np.array([3.0, 9.0, 1.0, 3.0])
    assert centred_ranks(cost).tolist() == centred_ranks(100 + cost * 7).tolist()
    assert centred_ranks(np.ones(3)).tolist() == [0, 0, 0]


@pytest.mark.parametrize("kind", ["time", "load"])
def test_training_problems_repeat_and_are_of_their_kind(kind: str) -> None:
    for i in range(4):
        problem = training_problem([0, i], kind, ("random", "resnet", "unet"))
        assert problem == training_problem([0, i], kind, ("random", "resnet", "unet"))
        assert isinstance(problem.model, Concurrent) == (kind == "time")
        assert tracks_of(problem).names


def test_every_family_makes_problems() -> None:
    for family in FAMILIES:
        assert training_problem([1], "time", (family,)).n > 10


def test_fine_tuning_keeps_the_best_weights_it_met() -> None:
    problem = random_problem(40, 3, 8)
    settings = Evolution(pairs=2, problems=1, passes=3)
    weights, cost = pretraining.finetune(problem, untrained(), steps=3, settings=settings, workers=1)
    again, same = pretraining.finetune(problem, untrained(), steps=3, settings=settings, workers=2)
    assert (weights.vector == again.vector).all()
    assert cost == same
    found = min(
        SimulatedEvaluator(problem).evaluate(placement).value
        for placement in tracks_of(problem).all(weights.vector)
    )
    assert found <= cost * (1 + 1e-12)


def test_the_commands_train_and_the_placer_takes_their_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pretraining, "CHECKED", 1)
    run = CliRunner()
    out = str(tmp_path / "w.npz")
    left = [word for family in FAMILIES if family != "random" for word in ("--leave-out", family)]
    done = run.invoke(
        cli.app,
        ["pretrain", "--generations", "1", "-o", out, "--json", "--log-dir", str(tmp_path / "log"), *left],
    )
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["families"] == ["random"]
    assert load_weights(out).digest == document["sha256"]
    assert list((tmp_path / "log").iterdir())
    tuned = str(tmp_path / "t.npz")
    done = run.invoke(
        cli.app, ["finetune", "zoo:layered-30", "--weights", out, "--steps", "1", "-o", tuned, "--json"]
    )
    assert done.exit_code == 0, done.output
    promised = json.loads(done.stdout)["cost"]
    done = run.invoke(
        cli.app, ["place", "zoo:layered-30", "--method", "gdp", "--set", f"weights={tuned}", "--json"]
    )
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["cost"] <= promised * (1 + 1e-12)
    done = run.invoke(cli.app, ["pretrain", "--leave-out", "nonsense", "-o", out])
    assert done.exit_code == 2
    assert run.invoke(cli.app, ["pretrain", "gdp", "--problems", "3", "-o", out]).exit_code == 2
