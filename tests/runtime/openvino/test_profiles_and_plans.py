"""From counters to a problem, from a problem to a plan, from a plan to a run; and what is said about bad plans."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_networks import CLOCK, DEVICES, write_network
from typer.testing import CliRunner

from loadmaster import api
from loadmaster.cli import app
from loadmaster.errors import InputError, RunError
from loadmaster.graph import GraphBuilder, load_openvino
from loadmaster.hardware import Cluster, Device
from loadmaster.plan import Plan, is_profile, parse_profile, problem_document
from loadmaster.problem import Placement, Problem, Serial
from loadmaster.runtime import Cache, MeasuredEvaluator, lint, parse_devices, profile_model, run_plan
from loadmaster.runtime.openvino._calibration import fit_link, split_features, splits
from loadmaster.runtime.openvino._op_times import map_counters


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return Cache(tmp_path_factory.mktemp("cache") / "cache.sqlite")


@pytest.fixture(scope="module")
def profile(network, cache):
    return profile_model(network, parse_devices(DEVICES[:2]), cache=cache, clock=CLOCK)


@pytest.fixture(scope="module")
def problem(profile):
    return profile.problem()


def plan_of(problem, placement) -> Plan:
    solution = api.place(problem, "single", evaluations=10)
    document = Plan.from_solution(problem, solution).document
    cost = api.evaluate(problem, placement).cost
    return Plan({**document, "cost": cost, "placement": placement.to_names(problem)}, "a plan")


# -- profiles ------------------------------------------------------------------------------------------------


def test_all_time_is_mapped_and_fused_ops_are_one_group(profile, graph):
    found = profile.profiles["A"]
    assert found.unmapped < 0.02
    assert sum(found.seconds.values()) == pytest.approx(found.wall)
    together = [set(group) for group in found.fused]
    assert any({"block0/conv0", "block0/add0", "block0/relu0"} <= group for group in together)


def test_the_problem_is_measured_serial_and_keeps_groups_together(problem, profile):
    assert isinstance(problem.model, Serial)
    assert (problem.origin == 2).all()
    index = problem.graph.index
    assert problem.class_of[index["block0/conv0"]] == problem.class_of[index["block0/relu0"]]
    assert profile.problem(cut_fused=True).classes > problem.classes


def test_inputs_and_results_cost_nothing_wherever_they_are(problem):
    index = problem.graph.index
    assert problem.class_of[index["features"]] == problem.class_of[index["block2/sum"]]
    assert problem.class_of[index["image"]] == problem.class_of[index["block0/conv0"]]
    placement = halves(problem)
    tensors, size = split_features(problem.graph, placement.device)
    moved = tensors * problem.latency[0, 1] + size * problem.rate[0, 1]
    ops = problem.time[np.arange(problem.n), placement.device].sum()
    assert api.evaluate(problem, placement).cost == pytest.approx(ops + moved)


def test_a_profile_comes_from_the_cache_until_the_weights_change(network, cache, profile, tmp_path):
    again = profile_model(network, parse_devices(DEVICES[:2]), cache=cache, clock=CLOCK)
    assert again.cached
    assert not profile.cached
    assert again.problem() == profile.problem()
    other = write_network(tmp_path / "net.xml", seed=9)
    assert not profile_model(other, parse_devices(DEVICES[:1]), cache=cache, clock=CLOCK).cached


def test_a_profile_file_is_the_problem_bit_for_bit(problem, tmp_path):
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(problem_document(problem)))
    assert api.load(path) == problem
    data = json.loads(path.read_text())
    assert is_profile(data)
    data["problem"]["hash"] = "0" * 64
    with pytest.raises(InputError, match="the profile is damaged"):
        parse_profile(data, "it")


def counters(nodes):
    keys = ("name", "kind", "seconds", "originals", "readers")
    return {"nodes": [dict(zip(keys, node, strict=True)) for node in nodes], "wall": [1.0, 2.0, 9.0]}


def chain(*names):
    builder = GraphBuilder("chain")
    for i, name in enumerate(names):
        builder.op(
            name, "MatMul" if name.startswith("mm") else "Add", flops=100.0 if name.startswith("mm") else 1.0
        )
        if i:
            builder.tensor(i - 1, bytes=8, consumers=[i])
    return builder.build()


def test_nodes_of_the_devices_own_making_belong_to_who_reads_them():
    graph = chain("a", "mm", "b", "c")
    found = map_counters(
        counters(
            [
                ("in", "Reorder", 1.0, [], ["x"]),
                ("x", "FullyConnected", 5.0, ["a", "mm", "b"], ["c"]),
                ("c", "Eltwise", 2.0, ["c"], ["out"]),
                ("out", "Reorder", 2.0, [], []),
            ]
        ),
        graph,
        "cpu",
    )
    assert found.seconds == pytest.approx({"mm": 1.2, "c": 0.8})
    assert list(found.fused) == [["a", "mm", "b"]]
    assert (found.by_position, found.unmapped) == pytest.approx((0.3, 0.0))


def test_an_op_that_left_no_trace_joins_its_reader():
    """A MatMul that a device runs under the name of the bias behind it."""
    found = map_counters(
        counters([("a", "E", 1.0, ["a"], ["b"]), ("b", "FullyConnected", 4.0, ["b"], [])]),
        chain("a", "mm", "b"),
        "cpu",
    )
    assert list(found.fused) == [["mm", "b"]]


def test_time_that_belongs_to_nobody_is_said():
    found = map_counters(
        counters([("a", "E", 3.0, ["a"], []), ("z", "E", 1.0, ["gone"], [])]), chain("a"), "cpu"
    )
    assert found.unmapped == pytest.approx(0.25)


@given(st.floats(0, 1e-3), st.floats(0, 1e-8), st.integers(0, 2**31))
def test_a_link_is_found_again(latency, rate, seed):
    generator = np.random.default_rng(seed)
    cuts, size = generator.integers(1, 50, 9).astype(float), generator.uniform(1e3, 1e7, 9)
    computed = generator.uniform(0.05, 0.1, 9)
    measured = computed + cuts * latency + size * rate
    found = fit_link(computed, measured, cuts, size)
    np.testing.assert_allclose(computed + cuts * found[0] + size * found[1], measured, rtol=1e-6)


def test_splits_keep_groups_whole_and_go_from_one_cut_to_many(graph, profile):
    found = splits(graph, profile.groups)
    for split in found:
        assert all(len(set(split[group].tolist())) == 1 for group in profile.groups)
    counts = [split_features(graph, split)[0] for split in found]
    assert min(counts) >= 1
    assert max(counts) > min(counts)


# -- runs ----------------------------------------------------------------------------------------------------


def halves(problem):
    position = problem.graph.position[problem.members[1][problem.members[0][:-1]]][problem.class_of]
    return Placement((position > problem.n // 2).astype(np.int32))


def test_a_plan_runs_beside_its_baselines(network, problem):
    found = run_plan(network, plan_of(problem, halves(problem)), samples=3, clock=CLOCK)
    assert [line.name for line in found.lines] == ["plan", "A alone", "B alone", "HETERO's choice"]
    assert all(line.verification is not None and line.measurement is not None for line in found.lines)
    assert found.plan.submodels >= 2
    assert {span["device"] for span in found.spans} == {"A", "B"}


def test_a_plan_for_another_model_is_refused(problem, tmp_path):
    other = write_network(tmp_path / "other.xml", blocks=2)
    with pytest.raises(InputError, match="is a plan for another model"):
        run_plan(other, plan_of(problem, halves(problem)))


def test_a_plan_on_devices_of_paper_needs_real_ones(network):
    given = api.problem(str(network), "2acc+1cpu", "serial")
    with pytest.raises(InputError, match="say what to run it on"):
        run_plan(network, Plan.from_solution(given, api.place(given, "single", evaluations=10)))


def test_a_plan_with_an_unsupported_op_is_not_run(network, problem, tmp_path):
    from dataclasses import replace

    time = problem.time.copy()
    time[problem.graph.index["block1/conv0"], 1] = np.inf
    lacking = replace(problem, time=time)
    plan = plan_of(lacking, Placement(np.ones(problem.n, np.int32)))
    plan = Plan({**plan.document, "cost": 1.0}, "a plan")
    with pytest.raises(RunError, match="device 'B' does not support op 'block1/conv0'"):
        run_plan(network, plan)
    plan.save(tmp_path / "plan.json")
    outcome = CliRunner().invoke(app, ["run", str(network), "--plan", str(tmp_path / "plan.json")])
    assert outcome.exit_code == 4
    assert "does not support op 'block1/conv0'" in outcome.stderr
    assert outcome.stdout == ""
    assert CliRunner().invoke(app, ["lint", str(tmp_path / "plan.json")]).exit_code == 1


def test_the_commands_lead_from_a_model_to_a_run(network, cache, tmp_path):
    def call(*arguments):
        outcome = CliRunner().invoke(app, [str(argument) for argument in arguments])
        assert outcome.exit_code == 0, outcome.output
        return outcome.stdout

    problem, plan, measured = (tmp_path / name for name in ("problem.json", "plan.json", "measured.json"))
    devices = [argument for device in DEVICES[:2] for argument in ("--device", device)]
    shown = json.loads(
        call("profile", network, *devices, "--cache", cache.path, "--clock", CLOCK, "-o", problem, "--json")
    )
    assert shown["cached"]
    assert "whole model" in call("profile", network, *devices, "--cache", cache.path, "--clock", CLOCK)
    call("place", problem, "--method", "min-cut", "-o", plan)
    assert "nothing to complain of" in call("lint", plan, "--model", network)
    document = json.loads(
        call("run", network, "--plan", plan, "--samples", 3, "--clock", CLOCK, "-o", measured, "--json")
    )
    assert Plan.load(measured).document["measured"] == document["measured"]
    assert "what it is" in call("devices", *devices)


# -- the measured evaluator ----------------------------------------------------------------------------------


def test_any_placer_can_search_on_real_runs(network, problem, cache):
    specs = parse_devices(DEVICES[:2])
    with MeasuredEvaluator(problem, network, specs, samples=3, cache=cache, clock=CLOCK) as evaluator:
        solution = api.place(problem, "random", evaluations=3, evaluator=evaluator)
        assert evaluator.results[solution.placement].status == "measured"
        assert solution.cost == evaluator.results[solution.placement].seconds
        assert solution.bound == 0.0
    with MeasuredEvaluator(problem, network, specs, samples=3, cache=cache, clock=CLOCK) as again:
        assert again.evaluate(solution.placement).cost == solution.cost
        assert again.results[solution.placement].cached


def test_failures_are_results_and_the_next_placement_runs(network, problem):
    with MeasuredEvaluator(problem, network, parse_devices(DEVICES[:2]), samples=3, clock=CLOCK) as evaluator:
        broken = np.zeros(problem.n, np.int32)
        broken[problem.graph.index["block0/relu0"]] = 1
        assert evaluator.result(Placement(broken)).status == "infeasible"
        first = Placement(np.zeros(problem.n, np.int32))
        assert evaluator.result(first).status == "measured"
        evaluator._session.worker.close()
        second = Placement(np.ones(problem.n, np.int32))
        assert evaluator.result(second).status == "died"
        assert evaluator.evaluate(second) == (math.inf, False)
        assert evaluator.result(halves(problem)).status == "measured"
        evaluator._limit = 0.0
        assert evaluator.result(Placement(1 - halves(problem).device)).status == "timeout"


# -- the linter ----------------------------------------------------------------------------------------------


def small_problem(kinds, arcs, times, link=1.0):
    builder = GraphBuilder("small")
    for i, kind in enumerate(kinds):
        builder.op(f"op{i}", kind)
    for tail in range(len(kinds)):
        heads = [b for a, b in arcs if a == tail]
        if heads:
            builder.tensor(tail, bytes=1, consumers=heads)
    latency = link * (1 - np.eye(2))
    cluster = Cluster("two", (Device("A"), Device("B")))
    return Problem.make(
        builder.build(), cluster, Serial(), time=times, latency=latency, rate=np.zeros((2, 2))
    )


def rules(problem, device, **more):
    return [finding.rule for finding in lint(problem, Placement(np.array(device, np.int32)), **more)]


def test_a_good_plan_is_not_blamed():
    chain = small_problem(["Relu"] * 3, [(0, 1), (1, 2)], [[1, 9], [9, 1], [9, 1]])
    assert rules(chain, [0, 1, 1]) == []


def test_pieces_that_wait_for_each_other_are_found():
    # Two pieces: {0, 1, 3} on A, joined by 0 -> 3, and 2 on B between 1 and 3: A's piece waits for itself.
    diamond = small_problem(["Relu"] * 4, [(0, 1), (1, 2), (2, 3), (0, 3)], [[1, 9], [1, 9], [9, 1], [1, 9]])
    assert rules(diamond, [0, 0, 1, 0]) == ["cycle"]


def test_what_comes_behind_a_cycle_is_not_blamed_for_it():
    arcs = [(0, 1), (1, 2), (2, 3), (0, 3), (3, 4)]
    problem = small_problem(["Relu"] * 5, arcs, [[1, 9], [1, 9], [9, 1], [1, 9], [9, 1]])
    (finding,) = lint(problem, Placement(np.array([0, 0, 1, 0, 1], np.int32)))
    assert set(finding.ops) == {"op0", "op1", "op2", "op3"}


def test_an_excursion_that_does_not_pay_is_ping_pong():
    chain = small_problem(["Relu"] * 3, [(0, 1), (1, 2)], [[1, 1], [1, 1], [1, 1]])
    assert rules(chain, [0, 1, 0]) == ["ping-pong"]
    worth = small_problem(["Relu"] * 3, [(0, 1), (1, 2)], [[1, 1], [9, 1], [1, 1]])
    assert rules(worth, [0, 1, 0]) == []


def test_constants_away_from_their_reader_are_found():
    problem = small_problem(["Constant", "Relu", "Relu"], [(0, 1), (1, 2)], [[0, 0], [9, 1], [9, 1]])
    assert rules(problem, [0, 1, 1]) == ["constant"]


def test_cutting_a_fused_group_is_found():
    chain = small_problem(["Relu"] * 2, [(0, 1)], [[1, 9], [9, 1]])
    assert rules(chain, [0, 1], fused=[[0, 1]]) == ["fused"]


def test_unsupported_ops_and_stale_plans_are_errors(network):
    chain = small_problem(["Relu"] * 2, [(0, 1)], [[1, math.inf], [1, 1]])
    assert rules(chain, [1, 1]) == ["unsupported"]
    found = lint(chain, Placement(np.zeros(2, np.int32)), load_openvino(network))
    assert [(f.rule, f.level) for f in found] == [("stale-hash", "error")]
