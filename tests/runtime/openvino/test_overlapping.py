"""Devices that work at once give the outputs of the unplaced model, in order, and stop when something fails."""

from __future__ import annotations

import itertools
import json
import threading
import time
from dataclasses import replace

import numpy as np
import openvino as ov
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openvino import opset13 as ops
from small_networks import CLOCK, DEVICES
from strategies import problems
from typer.testing import CliRunner

import loadmaster
from loadmaster.cli import app
from loadmaster.errors import InputError, RunError, UnsupportedError
from loadmaster.graph import load_openvino
from loadmaster.graph.openvino import openvino_model
from loadmaster.hardware import Cluster, Device, Link
from loadmaster.optimize._refine import chains, refine
from loadmaster.plan import Plan
from loadmaster.problem import Concurrent, Pipeline, Placement, Problem, Serial, Solution
from loadmaster.runtime import Measurement, Session, cut, optimize, parse_devices, run_plan
from loadmaster.runtime._overlap_costs import OverlapFit, corrected, fit_overlap, piece_features, predict
from loadmaster.runtime.openvino._devices import Devices
from loadmaster.runtime.openvino._flow import Flow, Job
from loadmaster.runtime.openvino._overlap import Overlapped, cores_of
from loadmaster.runtime.openvino._submodels import cut_model


def branched(path):
    """Blocks of two branches that end in a Concat, as Inception has them; two outputs."""
    generator = np.random.default_rng(0)

    def conv(x, name, channels_in, channels):
        weight = generator.normal(size=(channels, channels_in, 3, 3)).astype(np.float32) * 0.15
        y = ops.convolution(x, ops.constant(weight), [1, 1], [1, 1], [1, 1], [1, 1], name=f"{name}/conv")
        return ops.relu(y, name=f"{name}/relu")

    x = ops.parameter([1, 8, 12, 12], np.float32, name="image")
    y, early = x, None
    for i in range(3):
        left, right = conv(y, f"block{i}/left", 8, 4), conv(y, f"block{i}/right", 8, 4)
        right = conv(right, f"block{i}/right2", 4, 4)
        y = ops.concat([left, right], 1, name=f"block{i}/concat")
        early = early or ops.result(left, name="early")
    flat = ops.reduce_mean(y, ops.constant(np.array([2, 3])), False, name="mean")
    ov.save_model(ov.Model([ops.result(flat, name="late"), early], [x], "branched"), str(path))
    return path


@pytest.fixture(scope="module")
def model_file(tmp_path_factory):
    return branched(tmp_path_factory.mktemp("branched") / "net.xml")


def problem_of(path, devices=2):
    network = load_openvino(path)
    cluster = Cluster(
        "test",
        tuple(Device(name, "cpu") for name in "ABC"[:devices]),
        tuple(tuple(None if i == j else Link(1e-6, 1e9) for j in range(devices)) for i in range(devices)),
    )
    seconds = np.full((network.graph.n, devices), 1e-3)
    return Problem.make(network.graph, cluster, Concurrent(), time=seconds)


def random_pieces(problem, seed, **options):
    generator = np.random.default_rng(seed)
    return cut(problem, Placement(generator.integers(problem.devices, size=problem.n)), **options)


# -- cutting -------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(problem=problems(), data=st.data())
def test_pieces_hold_every_op_once_and_never_wait_for_a_later_one(problem, data):
    device = data.draw(st.lists(st.integers(0, problem.devices - 1), min_size=problem.n, max_size=problem.n))
    pieces = cut(problem, Placement(np.array(device, np.int32)))
    home = {op: number for number, piece in enumerate(pieces) for op in piece.ops}
    assert sorted(op for piece in pieces for op in piece.ops) == sorted(problem.graph.names)
    for u, v in zip(*problem.graph.arcs, strict=True):
        assert home[problem.graph.names[u]] <= home[problem.graph.names[v]]
    for op, d in zip(problem.graph.names, device, strict=True):
        assert pieces[home[op]].device == problem.cluster.names[d]


def test_one_device_is_one_piece(model_file):
    problem = problem_of(model_file)
    assert len(cut(problem, Placement(np.zeros(problem.n, np.int32)))) == 1


def test_a_device_that_waits_is_not_held_up_by_what_it_does_not_need(model_file):
    problem = problem_of(model_file)
    device = [int("right" in name) for name in problem.graph.names]
    pieces = cut(problem, Placement(np.array(device, np.int32)))
    # Per block one piece of each device; every device joins for itself, so that no Concat is a piece of its own.
    assert [piece.device for piece in pieces].count("A") <= 4
    assert [piece.device for piece in pieces].count("B") == 3
    assert sum("block0/concat" in piece.ops for piece in pieces) == 2
    assert (
        sum(
            op == "block0/concat"
            for piece in cut(problem, Placement(np.array(device, np.int32)), joins=False)
            for op in piece.ops
        )
        == 1
    )


def test_a_chain_of_stages_is_one_submodel_per_device(model_file):
    problem = problem_of(model_file).with_model(Pipeline(contiguity="chain"))
    order = problem.graph.topological_order.tolist()
    device = np.zeros(problem.n, np.int32)
    device[order[problem.n // 2 :]] = 1
    assert [piece.device for piece in cut(problem, Placement(device))] == ["A", "B"]


def test_submodels_read_only_what_earlier_ones_give(model_file):
    """Copies of a join included: a device reads its own."""
    model = openvino_model(model_file)
    for seed in range(12):
        problem = problem_of(model_file, 2 + seed % 2)
        for number, part in enumerate(cut_model(model, random_pieces(problem, seed, piece=0.0))):
            for source, (name, _) in part.inputs:
                assert (source is None) == (name == "image")
                assert source is None or source < number


def test_a_slot_is_free_again_only_when_an_abandoned_request_is_done():
    gate = threading.Event()
    running = flow(lambda: None, gate.wait)
    request = running.submit(running.reserve())
    running.release(request)
    waiting = threading.Thread(target=running.reserve)
    waiting.start()
    waiting.join(0.05)
    assert waiting.is_alive()
    gate.set()
    waiting.join()
    running.close()


# -- running -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def branched_session(model_file):
    with Session(model_file, parse_devices(DEVICES), cores=cores(), clock=CLOCK) as opened:
        yield opened


def cores():
    import os

    return sorted(os.sched_getaffinity(0))


@pytest.mark.parametrize("how", ["concurrent", "pipeline"])
@pytest.mark.parametrize("devices", [2, 3])
def test_random_placements_give_the_outputs_of_the_unplaced_model(branched_session, model_file, how, devices):
    problem = problem_of(model_file, devices)
    for seed in range(4):
        options = {"items": 5} if how == "pipeline" else {}
        candidate = branched_session.load(how, pieces=random_pieces(problem, seed), **options)
        candidate.verify()
        assert candidate.submodels > 1
        candidate.close()


def test_a_trace_has_the_real_start_and_end_of_every_submodel(branched_session, model_file):
    pieces = random_pieces(problem_of(model_file), 0)
    candidate = branched_session.load("pipeline", pieces=pieces, items=4)
    spans = candidate.trace()
    assert len(spans) == 4 * len(pieces)
    assert all(0 <= span["start"] <= span["end"] for span in spans)
    for device in "AB":
        mine = [span for span in spans if span["device"] == device]
        assert all(a["end"] <= b["start"] for a, b in itertools.pairwise(mine))
    candidate.close()


def test_all_ways_are_measured_in_turns(branched_session, model_file):
    candidates = [
        branched_session.load("single", device="A"),
        branched_session.load("all-cores", threads=2),
        branched_session.load("concurrent", pieces=random_pieces(problem_of(model_file), 1)),
    ]
    for found in branched_session.measure(candidates, samples=3):
        assert found.kept >= 3
        assert 0 < found.low <= found.median <= found.high


def test_a_stream_keeps_its_order(model_file):
    model = openvino_model(model_file)
    devices = Devices(parse_devices(["A=cpu", "B=cpu"]))
    generator = np.random.default_rng(3)
    items = [[generator.standard_normal((1, 8, 12, 12)).astype(np.float32)] for _ in range(12)]
    alone = devices.compile(model, "A")
    before = threading.active_count()
    net = Overlapped(model, devices, random_pieces(problem_of(model_file), 2), slots=3)
    try:
        for found, item in zip(net.stream(items), items, strict=True):
            for at, expected in enumerate(alone(item).values()):
                np.testing.assert_allclose(found[at], expected, rtol=1e-4, atol=1e-4)
    finally:
        net.close()
    assert threading.active_count() == before


# -- failures ------------------------------------------------------------------------------------------------


def flow(first, second, slots=1):
    """Two devices, of which B waits for A."""
    return Flow(
        [[Job("one", "A", first, (1,), 0), Job("two", "B", second, (), 1)]] * slots, {"A": None, "B": None}
    )


def fail():
    raise ValueError("out of luck")


def test_an_error_of_a_submodel_comes_back_and_the_next_request_runs():
    runs = []
    broken = [True]

    def second():
        runs.append(1)
        if broken[0]:
            fail()

    running = flow(lambda: None, second)
    request = running.submit(running.reserve())
    with pytest.raises(RunError, match="two on device 'B' failed: out of luck"):
        running.wait(request)
    running.release(request)
    broken[0] = False
    request = running.submit(running.reserve())
    running.wait(request)
    running.close()
    assert len(runs) == 2


def test_what_waits_for_a_failed_submodel_never_runs():
    ran = []
    running = flow(fail, lambda: ran.append(1))
    with pytest.raises(RunError, match="one on device 'A'"):
        running.wait(running.submit(running.reserve()))
    running.close()
    assert not ran


def test_closing_ends_the_threads_and_fails_what_is_in_flight():
    gate = threading.Event()
    before = threading.active_count()
    running = flow(lambda: None, gate.wait, slots=2)
    requests = [running.submit(running.reserve()) for _ in range(2)]
    while not requests[0].running:
        time.sleep(0.001)
    closing = threading.Thread(target=running.close)
    closing.start()
    gate.set()
    closing.join()
    assert threading.active_count() == before
    with pytest.raises(RunError, match="closed while it ran"):
        running.wait(requests[1])
    with pytest.raises(RunError, match="is closed"):
        running.reserve()


def test_a_slow_device_holds_back_the_stream_not_the_memory():
    """No more requests are in flight than there are slots."""
    gate = threading.Semaphore(0)
    running = flow(lambda: None, gate.acquire, slots=2)
    requests = [running.submit(running.reserve()) for _ in range(2)]
    third = threading.Thread(target=lambda: requests.append(running.submit(running.reserve())))
    third.start()
    third.join(0.05)
    assert third.is_alive()
    gate.release()
    running.wait(requests[0])
    running.release(requests[0])
    third.join()
    gate.release(2)
    for request in requests[1:]:
        running.wait(request)
    running.close()


def test_pieces_that_wait_for_each_other_are_refused():
    jobs = [Job("one", "A", fail, (1,), 1), Job("two", "A", fail, (0,), 1)]
    with pytest.raises(RunError, match="one never begins"):
        Flow([jobs], {"A": None})


def test_devices_get_cores_of_their_own():
    specs = parse_devices(["A=cpu", "B=cpu", "C=cpu"])
    assert cores_of(specs, [4, 7]) == {"A": 4, "B": 7, "C": None}


def test_joins_of_joins_that_are_outputs_too_give_the_same(tmp_path):
    """What enters a submodel is joined in another layout: every reader must see it as it was."""
    generator = np.random.default_rng(1)

    def conv(x, name, channels):
        weight = generator.normal(size=(channels, x.get_output_shape(0)[1], 1, 1)).astype(np.float32) * 0.3
        return ops.convolution(x, ops.constant(weight), [1, 1], [0, 0], [0, 0], [1, 1], name=name)

    x = ops.parameter([1, 4, 6, 5], np.float32, name="image")
    inner = ops.concat([conv(x, "a", 3), conv(x, "b", 2)], 1, name="inner")
    outer = ops.concat([inner, conv(x, "c", 4)], 1, name="outer")
    tall = ops.concat([conv(outer, "d", 2), conv(outer, "e", 2)], 2, name="tall")
    pooled = ops.avg_pool(outer, [1, 1], [1, 1], [1, 1], [3, 3], True, name="pooled")
    ends = [conv(tall, "f", 3), conv(pooled, "g", 2), inner, outer, tall]
    model = ov.Model([ops.result(end) for end in ends], [x], "joins")
    path = tmp_path / "joins.xml"
    ov.save_model(model, str(path), compress_to_fp16=False)
    with Session(path, parse_devices(["A=cpu", "B=cpu"]), cores=cores(), clock=CLOCK) as session:
        problem = problem_of(path)
        for seed in range(6):
            candidate = session.load("concurrent", pieces=random_pieces(problem, seed, piece=0.0))
            assert candidate.verify().error.relative < 1e-5
            candidate.close()


def test_a_stream_says_how_long_single_requests_took(branched_session, model_file):
    pieces = random_pieces(problem_of(model_file), 1)
    streamed = branched_session.load("pipeline", pieces=pieces, items=6)
    alone = branched_session.load("single", device="A")
    branched_session.measure([streamed, alone], samples=3)
    latency = streamed.latency()
    assert latency.requests >= 18
    assert 0 < latency.median <= latency.p95
    assert alone.latency() is None


def test_openvinos_own_streams_are_measured_per_request(branched_session):
    streams = branched_session.load("streams", threads=2, items=6)
    found = branched_session.measure([streams], samples=3)[0]
    assert streams.items == 6
    assert found.median > 0


def test_measuring_ends_in_time_with_the_fewest_samples(branched_session):
    alone = branched_session.load("single", device="A")
    found = branched_session.measure([alone], samples=10_000, until=time.monotonic(), fewest=3)[0]
    assert 3 <= found.kept < 10_000


# -- refining ------------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(problem=problems(), data=st.data())
def test_chains_hold_every_class_once_and_nothing_reads_from_their_middle(problem, data):
    found = chains(problem)
    assert sorted(c for chain in found for c in chain) == list(range(problem.classes))
    place = {c: (number, at) for number, chain in enumerate(found) for at, c in enumerate(chain)}
    for u, v in zip(*problem.graph.arcs, strict=True):
        (one, i), (two, j) = place[int(problem.class_of[u])], place[int(problem.class_of[v])]
        if one != two:
            assert i == len(found[one]) - 1
            assert j == 0


def test_refining_finds_the_overlap_and_never_makes_it_worse(model_file):
    problem = problem_of(model_file)
    fit = OverlapFit()

    def cost(placement):
        return predict(problem, cut(problem, placement), fit)

    alone = Placement(np.zeros(problem.n, np.int32))
    assert cost(refine(problem, alone, fit, seconds=20.0)) < 0.8 * cost(alone)
    for seed in range(3):
        start = Placement(np.random.default_rng(seed).integers(2, size=problem.n))
        assert cost(refine(problem, start, fit, seconds=0.5)) <= cost(start)
        assert refine(problem, start, fit, seconds=0.0) == start


def test_a_long_stream_goes_at_the_pace_of_the_busiest_device(model_file):
    problem = problem_of(model_file).with_model(Pipeline())
    device = (problem.graph.position >= problem.n // 2).astype(np.int32)
    pieces = cut(problem, Placement(device))
    fit = OverlapFit(1.0, 0.0, 0.0, 0.0)
    loads = np.bincount([" AB".index(p.device) - 1 for p in pieces], [1e-3 * len(p.ops) for p in pieces])
    assert predict(problem, pieces, fit) == pytest.approx(loads.sum())
    assert predict(problem, pieces, fit, items=10**9) == pytest.approx(loads.max())


# -- optimizing ----------------------------------------------------------------------------------------------


def test_optimize_keeps_what_is_measured_best_and_writes_a_plan(model_file, tmp_path):
    plan_file = tmp_path / "plan.json"
    done = CliRunner().invoke(
        app,
        [
            *("optimize", str(model_file), "--devices", "A=cpu", "--devices", "B=cpu", "--budget", "2s"),
            *("--samples", "3", "--clock", CLOCK, "--cache", str(tmp_path / "cache.sqlite")),
            *("-o", str(plan_file), "--json"),
        ],
    )
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    names = [line["name"] for line in document["lines"]]
    assert "A alone" in names
    assert any(name.startswith("OpenVINO on") for name in names)
    by_name = {line["name"]: line["measured"] for line in document["lines"]}
    pays = "best plan" in by_name and by_name["best plan"]["high"] < by_name["A alone"]["low"]
    assert document["pays"] == pays
    plan = Plan.load(plan_file)
    assert (len(set(plan.document["placement"].values())) > 1) == pays


def test_optimize_returns_the_single_device_where_a_plan_does_not_pay(model_file, monkeypatch):
    monkeypatch.setattr(Measurement, "faster_than", lambda self, other: False)
    found = optimize(model_file, parse_devices(["A=cpu", "B=cpu"]), budget=2.0, samples=3, clock=CLOCK)
    assert not found.pays
    assert set(found.plan.document["placement"].values()) == {"A"}


def test_optimize_needs_two_devices_and_a_model_with_a_runtime(model_file):
    with pytest.raises(InputError, match="at least two"):
        optimize(model_file, parse_devices(["A=cpu"]))
    with pytest.raises(InputError, match="there is a runtime for concurrent, pipeline"):
        optimize(model_file, parse_devices(["A=cpu", "B=cpu"]), model="offload")
    with pytest.raises(InputError, match="no method 'luck'"):
        optimize(model_file, parse_devices(["A=cpu", "B=cpu"]), method="luck")


def test_costs_of_overlapping_are_found_again_from_traces(model_file):
    problem = problem_of(model_file)
    rng = np.random.default_rng(1)
    problem = replace(problem, time=rng.uniform(1e-4, 1e-3, problem.n)[:, None] * np.ones((1, 2)))
    true = OverlapFit(1.07, 60e-6, 25e-6, 3e-10)
    traced = []
    for seed in range(4):
        pieces = random_pieces(problem, seed)
        seconds, moved, _ = piece_features(problem, pieces)
        taken = seconds * true.slowdown + true.piece + moved * true.rate
        traced.append((pieces, dict(enumerate(taken.tolist()))))
    found = fit_overlap(problem, traced, OverlapFit())
    assert found.slowdown == pytest.approx(true.slowdown)
    assert found.piece == pytest.approx(true.piece)
    assert found.rate == pytest.approx(true.rate)
    assert found.median_residual < 1e-6


def test_times_of_ops_are_corrected_by_what_their_pieces_took(model_file):
    problem = problem_of(model_file)
    pieces = random_pieces(problem, 1, joins=False)
    seconds, moved, _ = piece_features(problem, pieces)
    fit = OverlapFit(slowdown=1.2)
    expected = fit.slowdown * seconds + fit.piece + fit.rate * moved
    factor = np.linspace(0.8, 2.0, len(pieces))
    found = corrected(problem, [(pieces, dict(enumerate(factor * expected)))], fit)
    for number, piece in enumerate(pieces):
        ops = [problem.graph.index[op] for op in piece.ops]
        np.testing.assert_allclose(found.time[ops], problem.time[ops] * min(factor[number], 1.5))


# -- plans ---------------------------------------------------------------------------------------------------


def plan_of(path, model, seed=3):
    """A plan with random devices, as ``place`` writes it."""
    plain = problem_of(path)
    cluster = replace(
        plain.cluster, devices=tuple(spec.device() for spec in parse_devices(["A=cpu", "B=cpu"]))
    )
    problem = replace(plain, cluster=cluster, model=model)
    placement = Placement(np.random.default_rng(seed).integers(2, size=problem.n))
    return Plan.from_solution(problem, Solution(placement, 1.0, 0.0, "nothing", "by hand"))


@pytest.mark.parametrize("model", [Concurrent(), Pipeline()])
def test_an_open_plan_is_called_like_a_function(model_file, model):
    alone = ov.Core().compile_model(str(model_file), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    items = [np.random.default_rng(i).standard_normal((1, 8, 12, 12)).astype(np.float32) for i in range(6)]
    before = threading.active_count()
    with loadmaster.open(model_file, plan_of(model_file, model)) as net:
        found = [net(items[0]), *net.stream(items[1:])]
        with pytest.raises(InputError, match="'image' must have the shape"):
            net(items[0][:, :4])
        with pytest.raises(InputError, match="has 1 inputs"):
            net(items[0], items[1])
        early = net.stream(itertools.cycle(items))
        next(early)
        early.close()
        np.testing.assert_array_equal(net(items[0])[0], found[0][0])
    assert threading.active_count() == before
    for item, outputs in zip(items, found, strict=True):
        for at, expected in enumerate(alone(item).values()):
            np.testing.assert_allclose(outputs[at], expected, rtol=1e-4, atol=1e-4)


def test_a_plan_runs_in_the_pieces_that_it_was_measured_with(model_file):
    plan = plan_of(model_file, Concurrent())
    many = cut(plan.problem(), plan.placement(), piece=0.0, wait=0.0, joins=False)
    kept = Plan({**plan.document, "pieces": [[piece.device, list(piece.ops)] for piece in many]})
    with loadmaster.open(model_file, kept) as net:
        assert net.submodels == len(many)
    swapped = [["B" if piece.device == "A" else "A", list(piece.ops)] for piece in many]
    with pytest.raises(InputError, match="is not on its device"):
        loadmaster.open(model_file, Plan({**plan.document, "pieces": swapped}))


def test_an_open_plan_of_another_kind_is_refused(model_file):
    with pytest.raises(UnsupportedError, match="plan of the serial model"):
        loadmaster.open(model_file, plan_of(model_file, Serial()))


@pytest.mark.parametrize("model", [Concurrent(), Pipeline()])
def test_run_takes_the_runtime_of_the_plan(model_file, model):
    found = run_plan(model_file, plan_of(model_file, model), samples=3, clock=CLOCK)
    assert found.lines[0].verification is not None
    assert {span["device"] for span in found.spans} == {"A", "B"}
    assert any(line.name == "OpenVINO on 2 cores" for line in found.lines)
