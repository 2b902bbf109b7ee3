"""Two nodes: models run in pieces on both, equal to the unplaced model, in order, whoever dies."""

from __future__ import annotations

import io
import json
import os
import signal
import threading
import time
import urllib.request
from dataclasses import replace

import numpy as np
import openvino as ov
import pytest
from openvino import opset13 as ops
from rich.console import Console

import loadmaster
from loadmaster import api
from loadmaster.errors import InputError, RunError, WorkerError
from loadmaster.optimize import optimize
from loadmaster.plan import Plan
from loadmaster.problem import Concurrent, Pipeline, Placement, Solution, evaluate
from loadmaster.report import optimized_tables
from loadmaster.runtime import cut
from loadmaster.runtime.ray import RaySession, Spread, add_local_node, needs_of, profile_model
from loadmaster.runtime.ray._host import RayHost

ON, NAMES = "local:2", ["node1/cpu", "node2/cpu"]


@pytest.fixture(scope="module")
def profile(session, network, devices, cache):
    return profile_model(network, devices, clock="core", session=session, cache=cache)


def halves(problem):
    return Placement((problem.graph.position >= problem.n // 2).astype(np.int32))


def plan_of(problem, placement):
    cost = evaluate(problem, placement).cost
    return Plan.from_solution(problem, Solution(placement, cost, 0.0, "nothing", "test"))


def reference(network):
    compiled = ov.Core().compile_model(str(network), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return lambda x: [np.array(value) for value in compiled([x]).values()]


def test_every_node_says_what_it_has(machines):
    found = api.devices(on=ON)
    assert [entry["name"] for entry in found["available"] if entry["kind"] == "cpu"] == NAMES
    assert all(node["memory"] > 1e8 and node["cores"] >= 1 for node in found["nodes"])


def test_devices_are_profiled_where_they_are_and_links_are_measured(
    profile, session, network, devices, cache
):
    problem = profile.problem(model=Concurrent())
    assert (problem.time.sum(axis=0) > 0).all()
    assert (problem.latency[~np.eye(2, dtype=bool)] > 0).all()
    assert np.isfinite(problem.capacity).all()
    assert "Ray" in problem.provenance
    again = profile_model(network, devices, clock="core", session=session, cache=cache)
    assert again.cached
    assert again.links == profile.links


def test_a_model_that_fits_on_no_node_is_profiled_in_parts_and_placed(
    session, network, devices, profile, monkeypatch
):
    """Nodes that say they have little room: no part that is sent is the whole, and every op is known in the end."""
    host = session.worker.host
    needs = needs_of(host.model)
    before = dict(host.actors.sent)
    whole = sum(needs.weights)
    monkeypatch.setattr(host, "_room", lambda device: needs.profiling() / 2)
    found = profile_model(network, devices, clock="core", session=session)
    for name in NAMES:
        parts, one = found.profiles[name], profile.profiles[name]
        assert parts.parts > 1 == one.parts
        assert parts.memory >= 0
        assert parts.wall > 0
        heavy = {op for op in host_ops(host.model) if "conv" in op}
        assert heavy <= set(parts.seconds) | {op for group in parts.fused for op in group}
        assert host.actors.sent[name] - before[name] >= whole / 2  # f16 in the file: all weights went there
    problem = found.problem(model=Pipeline())
    assert np.isfinite(problem.time).all()
    assert np.isfinite(problem.capacity).all()
    solution = api.place(problem, evaluations=200)
    plan = Plan.from_solution(problem, solution)
    monkeypatch.setattr(host, "_room", lambda device: 1.0)
    with pytest.raises(RunError, match=r"node 'node1' has no room for the whole model"):
        session.alone(NAMES[0])
    monkeypatch.undo()
    assert api.run(network, plan, samples=3, clock="core", on=ON, baselines=False).document()["lines"][0][
        "verified"
    ]


def host_ops(model):
    return [node.get_friendly_name() for node in model.get_ordered_ops()]


@pytest.mark.parametrize("how", ["concurrent", "pipeline"])
def test_random_placements_are_equal_to_the_unplaced_model(session: RaySession, profile, network, how):
    problem = profile.problem(model=Concurrent(), cut_fused=True)
    expected = reference(network)
    generator = np.random.default_rng(5)
    actors = session.worker.host.actors
    for share in (0.5, 0.2):
        classes = generator.random(problem.n) < share
        pieces = cut(problem, Placement(classes[problem.class_of].astype(np.int32)))
        running = Spread(session.worker.host.model, actors, pieces, slots=1 if how == "concurrent" else 3)
        inputs = [generator.normal(size=(1, 8, 12, 12)).astype(np.float32) for _ in range(6)]
        for x, found in zip(inputs, running.stream([x] for x in inputs), strict=True):  # in their order
            for a, b in zip(found, expected(x), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
        running.close()


def test_only_the_weights_of_a_device_travel_to_it_and_each_once(session, machines, devices, tmp_path):
    from loadmaster.runtime.ray import Actors

    generator = np.random.default_rng(0)
    x = ops.parameter([1, 64], np.float32, name="x")
    y = x
    for i in range(4):
        weight = ops.constant(generator.normal(size=(64, 64)).astype(np.float32))
        y = ops.relu(ops.matmul(y, weight, False, False, name=f"matmul{i}"), name=f"relu{i}")
    model = ov.Model([ops.result(y)], [x], "layers")
    layer = 64 * 64 * 4
    from loadmaster.runtime import Piece

    pieces = [
        Piece(NAMES[0], ("matmul0", "relu0")),
        Piece(NAMES[1], tuple(f"{op}{i}" for i in (1, 2, 3) for op in ("matmul", "relu"))),
    ]
    with Actors(machines, devices) as actors:
        Spread(model, actors, pieces)
        received = {n: found["received"] for n, found in actors.all(lambda h: h.hello.remote()).items()}
    assert received == actors.sent
    assert layer <= received[NAMES[0]] < 2 * layer
    assert 3 * layer <= received[NAMES[1]] < 4 * layer


def test_a_model_that_no_node_holds_is_optimized_without_a_device_to_compare_with(
    machines, network, devices, cache, monkeypatch
):
    """The one plan that there is room for is run and measured; pins make sure that it uses both nodes."""

    def no_room(self, device):
        raise RunError(f"device {device!r} has no room for the whole model")

    monkeypatch.setattr(RayHost, "_check_room", no_room)
    pins = ["block0/.*=node1/cpu", "block2/.*=node2/cpu"]
    found = optimize(network, devices, on=ON, budget=15.0, model="pipeline", pins=pins, samples=3, clock="core",
                     cache=cache)  # fmt: skip
    assert (found.alone, found.pays) == ("", True)
    assert found.line("best plan").measurement is not None
    assert [line.name for line in found.lines if line.measurement is None] == [
        f"{name} alone" for name in NAMES
    ]
    assert any("no room for another placement" in text for text in found.left_out)
    console = Console(file=io.StringIO(), width=200)
    console.print(optimized_tables({**found.document(), "plan": "plan.json"}))
    assert "compared with nothing" in console.file.getvalue()


def test_optimize_and_run_and_open_over_two_nodes(machines, network, devices, tmp_path, cache):
    """Pins make sure that both nodes are used, however slow the link is."""
    pins = ["block0/.*=node1/cpu", "block2/.*=node2/cpu"]
    found = optimize(
        network,
        devices,
        on=ON,
        budget=20.0,
        model="pipeline",
        pins=pins,
        samples=3,
        clock="core",
        cache=cache,
    )
    path = tmp_path / "plan.json"
    found.plan.save(path)
    assert set(found.plan.document["placement"].values()) == set(NAMES)
    shown = api.run(network, Plan.load(path), samples=3, clock="core", on=ON).document()
    assert [line["name"] for line in shown["lines"]] == ["plan", *(f"{name} alone" for name in NAMES)]
    assert all(line["verified"] for line in shown["lines"])
    expected = reference(network)
    x = [np.random.default_rng(i).normal(size=(1, 8, 12, 12)).astype(np.float32) for i in range(7)]
    taken = []

    def given():
        for value in x:
            taken.append(len(taken))
            yield value

    with loadmaster.open(network, path, on=ON) as net:
        for number, outputs in enumerate(net.stream(given())):
            assert len(taken) - number <= 4  # back-pressure: no more than the slots and one are taken
            np.testing.assert_allclose(outputs[0], expected(x[number])[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("replan", [False, True])
def test_a_device_that_dies_is_named_or_replaced(profile, network, machines, replan):
    problem = profile.problem(model=Pipeline())
    expected = reference(network)
    x = [np.random.default_rng(i).normal(size=(1, 8, 12, 12)).astype(np.float32) for i in range(12)]
    with loadmaster.open(network, plan_of(problem, halves(problem)), on=ON, replan=replan) as net:
        pid = net.running._actors.all(lambda handle: handle.hello.remote())[NAMES[1]]["pid"]
        answers = []

        def go():
            for number, outputs in enumerate(net.stream(x)):
                answers.append(outputs)
                if number == 3:
                    os.kill(pid, signal.SIGKILL)

        if not replan:
            with pytest.raises(WorkerError, match=r"node 'node2' \(device 'node2/cpu'\) died"):
                go()
        else:
            go()
            assert len(answers) == len(x)  # none is lost, none is answered twice
            assert net.running.lost == [NAMES[1]]
            assert {piece.device for piece in net.running.pieces} == {NAMES[0]}
        for value, outputs in zip(x, answers, strict=False):
            np.testing.assert_allclose(outputs[0], expected(value)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("replan", [False, True])
def test_run_names_the_node_that_died_or_goes_on_without_it(profile, network, machines, monkeypatch, replan):
    """It dies between verifying and measuring."""
    from loadmaster.report import run_tables
    from loadmaster.runtime.ray import _plans

    problem = profile.problem(model=Pipeline())
    plan = plan_of(problem, halves(problem))
    kills = [NAMES[1]]
    measured = _plans._measured

    def dying(session, placed, *more):
        placed.verify()
        while kills:
            actors = session.worker.host.actors
            os.kill(actors.all(lambda handle: handle.hello.remote())[kills.pop()]["pid"], signal.SIGKILL)
        return measured(session, placed, *more)

    monkeypatch.setattr(_plans, "_measured", dying)
    if not replan:
        with pytest.raises(WorkerError, match=r"node 'node2' \(device 'node2/cpu'\) died"):
            api.run(network, plan, samples=3, clock="core", on=ON)
        return
    found = api.run(network, plan, samples=3, clock="core", on=ON, replan=True)
    document = found.document()
    (change,) = document["replanned"]
    assert (change["nodes"], change["lost"], change["devices"]) == (("node2",), (NAMES[1],), (NAMES[0],))
    assert change["seconds"] > 0
    assert [line["name"] for line in document["lines"]] == ["plan", f"{NAMES[0]} alone"]
    assert document["lines"][0]["verified"]
    assert set(found.now.document["placement"].values()) == {NAMES[0]}
    assert document["predicted"] == found.now.document["cost"] == change["cost"]
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(run_tables(document))
    assert "node 'node2' died: placed anew on node1/cpu in" in console.export_text()


def test_a_plan_over_two_nodes_is_watched_and_told_of_a_node_that_dies(
    profile, network, machines, monkeypatch
):
    """The page's state, from the first request to after the change."""
    from loadmaster.api import _watching

    problem = profile.problem(model=Pipeline())
    stop, states, nets = threading.Event(), [], []
    opened = _watching.open_plan
    monkeypatch.setattr(_watching, "open_plan", lambda *a, **k: nets.append(opened(*a, **k)) or nets[0])

    def killing(url):
        def go():
            end = time.monotonic() + 100
            while time.monotonic() < end:
                with urllib.request.urlopen(url + "state.json", timeout=30) as answer:
                    states.append(json.load(answer))
                now = states[-1]
                if len(states) > 1 and now["events"] and now["requests"] > kill_at + 20:
                    break
                if not kills and now["requests"] > 20 and all(d["measured"] for d in now["devices"]):
                    kills.append(nets[0].running._actors.handles[NAMES[1]].hello.remote())
                    import ray

                    os.kill(ray.get(kills[0])["pid"], signal.SIGKILL)
                time.sleep(0.1)
            stop.set()

        threading.Thread(target=go, daemon=True).start()

    kills, kill_at = [], 20
    last = api.watch(
        network, plan_of(problem, halves(problem)), on=ON, replan=True, started=killing, stop=stop
    )
    before = next(
        state for state in states if all(d["measured"] for d in state["devices"]) and state["devices"]
    )
    assert [(d["name"], d["node"]) for d in before["devices"]] == [(NAMES[0], "node1"), (NAMES[1], "node2")]
    assert all(0 <= d["busy"] <= 1 and d["queue"] >= 0 for d in before["devices"])
    (event,) = last["events"]
    assert "node 'node2' died: placed anew on node1/cpu" in event["text"]
    assert [d["name"] for d in last["devices"]] == [NAMES[0]]
    assert last["ended"]


def test_a_device_that_joins_is_used_on_request(profile, network, machines, tmp_path, monkeypatch):
    """A stream is under way; its requests in flight begin again, and all are answered in order."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    problem = profile.problem(model=Pipeline())
    only = Placement(np.zeros(problem.n, np.int32))
    expected = reference(network)
    x = [np.random.default_rng(i).normal(size=(1, 8, 12, 12)).astype(np.float32) for i in range(9)]
    first = replace(problem, forbidden=np.eye(2, dtype=bool)[[1]].repeat(problem.n, axis=0))
    with loadmaster.open(network, plan_of(first, only), on=ON, replan=True) as net:
        for number, outputs in enumerate(net.stream(x)):
            np.testing.assert_allclose(outputs[0], expected(x[number])[0], rtol=1e-4, atol=1e-5)
            if number == 3:
                change = net.replan(["third=cpu:node=node2"])
                assert change.joined == ("third",)
                assert not change.nodes
            if number == 5:
                pid = net.running._actors.all(lambda handle: handle.hello.remote())["third"]["pid"]
                os.kill(pid, signal.SIGKILL)
        grown = net.running.problem
        assert grown.cluster.names == (*problem.cluster.names, "third")
        assert grown.time.shape == (problem.n, 3)
        assert grown.time[:, 2].sum() > 0
        assert np.isfinite(grown.capacity).all()
        assert (grown.latency[2, :2] > 0).any()
        again = net.replan()  # its node is there, so that it may be used again
        assert again.joined == ("third",)
        np.testing.assert_allclose(net(x[0])[0], expected(x[0])[0], rtol=1e-4, atol=1e-5)
    with (
        loadmaster.open(network, plan_of(problem, halves(problem)), on=ON) as net,
        pytest.raises(InputError, match="replan=True"),
    ):
        net.replan()


def test_compare_gives_the_same_rows_on_a_cluster(machines):
    problem = api.problem("zoo:layered-40", "2acc+1cpu", model="concurrent")
    names = ["heft", "single", "local-search"]
    here = api.compare(problem, names, evaluations=300, seed=3)
    ended = []
    there = api.compare(problem, names, evaluations=300, seed=3, on=ON, on_done=ended.append)
    assert [(s.method, s.cost, s.bound, s.evaluations) for s in there] == [
        (s.method, s.cost, s.bound, s.evaluations) for s in here
    ]
    assert all((a.placement.device == b.placement.device).all() for a, b in zip(here, there, strict=True))
    assert ended[-1] == len(names)


def test_a_node_that_dies_is_left_out_and_one_that_joins_is_there(profile, network, machines):
    problem = profile.problem(model=Pipeline())
    expected = reference(network)
    x = [np.random.default_rng(i).normal(size=(1, 8, 12, 12)).astype(np.float32) for i in range(12)]
    try:
        with loadmaster.open(network, plan_of(problem, halves(problem)), on=ON, replan=True) as net:

            def requests():
                """Until the node is missed (its processes answer for a while without it), and some more."""
                end = time.monotonic() + 120
                while not net.running.lost and time.monotonic() < end:
                    yield from x
                yield from x

            answers = 0
            for number, outputs in enumerate(net.stream(requests())):
                np.testing.assert_allclose(outputs[0], expected(x[number % len(x)])[0], rtol=1e-4, atol=1e-5)
                answers += 1
                if number == 2:
                    (node,) = machines.own.worker_nodes
                    machines.own.remove_node(node, allow_graceful=False)
        assert net.running.lost == [NAMES[1]]
        assert answers % len(x) == 0
        with pytest.raises(InputError, match="there is no node 'node2'"):
            api.devices(["node2/cpu"], on=ON)
    finally:
        add_local_node(machines.own, "node2", sorted(os.sched_getaffinity(0)))
    found = api.devices(["node2/cpu"], on=ON)
    assert "node2" in {entry["name"] for entry in found["nodes"]}
