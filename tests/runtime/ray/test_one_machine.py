"""What can be said about several machines without having them: names, costs of links, errors."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import openvino as ov
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_networks import branched, overlapping_plan, problem_of, write_network
from typer.testing import CliRunner

from loadmaster import api
from loadmaster.cli import app
from loadmaster.cores import allowed_cores
from loadmaster.errors import InfeasibleError, InputError, RunError
from loadmaster.graph.openvino import openvino_model
from loadmaster.problem import Pipeline, Placement, evaluate
from loadmaster.runtime import OverlapFit, cut, predict
from loadmaster.runtime.openvino import DeviceSpec, cut_model, draw_inputs, parse_devices
from loadmaster.runtime.ray import (
    Calls,
    Needs,
    Spread,
    _connection,
    _reaper,
    as_one,
    better_plan,
    connected,
    devices_of_nodes,
    fit_hops,
    joined,
    memory_of_this_node,
    needs_of,
    place_on,
    segments,
    slow_devices,
    slow_factors,
)
from loadmaster.runtime.ray._device import DeviceHost
from loadmaster.runtime.ray._plans import sharing


def test_a_device_of_a_node_is_named_by_both_and_read_back_from_a_plan():
    spec = DeviceSpec.parse("left/GPU.1:precision=f16")
    assert (spec.name, spec.plugin, spec.node, spec.precision) == ("left/gpu.1", "gpu.1", "left", "f16")
    assert DeviceSpec.of(spec.device()) == spec
    given = DeviceSpec.parse("B=cpu:node=10.0.0.7,core=63")  # which cores it has is the node's to say
    assert (given.name, given.node, given.core) == ("B", "10.0.0.7", 63)
    assert DeviceSpec.of(given.device()) == given


def test_devices_of_nodes_can_be_written_in_toml(tmp_path):
    file = tmp_path / "devices.toml"
    file.write_text(
        '[[device]]\nname = "A"\nnode = "left"\n\n[[device]]\nname = "B"\nnode = "right"\nspeed = 0.5\n'
    )
    assert [(spec.name, spec.node, spec.speed) for spec in parse_devices([str(file)])] == [
        ("A", "left", 1.0),
        ("B", "right", 0.5),
    ]


@pytest.mark.parametrize("text", ["left/", "/cpu", "A=cpu:node=", "A=cpu:node=a b", "left/cpu:nod=1"])
def test_a_wrong_device_is_an_error_in_one_sentence(text):
    with pytest.raises(InputError, match="device"):
        DeviceSpec.parse(text)


@pytest.fixture
def alone(monkeypatch):
    """As in a process that is connected to no cluster, as this one may be for other tests."""
    monkeypatch.setattr(_connection, "_open", [])


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("address", ["nowhere", "local:0", "local:1000", "a b:1", "", "127.0.0.1"])
def test_an_address_that_is_none_is_refused(address):
    with pytest.raises(InputError, match="must be local"), connected(address):
        pass


@pytest.mark.usefixtures("alone")
def test_nobody_at_an_address_is_said_at_once():
    with pytest.raises(InputError, match=r"no Ray cluster answers at 127.0.0.1:1 "), connected("127.0.0.1:1"):
        pass


@pytest.mark.usefixtures("alone")
def test_a_cluster_that_was_started_by_hand_sends_arrays_along_with_calls():
    """Ray itself keeps what is larger than 100 KB in its store, unless its processes were told otherwise."""
    code = """
import numpy as np, os
from loadmaster.runtime.ray import _connection
os.environ[_connection.ONE_MACHINE] = "0"
from ray.cluster_utils import Cluster
cluster = Cluster()
cluster.add_node(num_cpus=1, include_dashboard=False, node_ip_address="127.0.0.1", object_store_memory=10**8)
assert not any(name in os.environ for name in _connection.CALLS)
class Maker:
    def make(self):
        return np.zeros(250_000, np.float32)
with _connection.connected(cluster.address) as machines:
    import ray
    for told in ({}, machines.runtime_env):
        made = ray.remote(Maker).options(num_cpus=0, runtime_env=told).remote().make.remote()
        ray.wait([made])
        print(len(ray.experimental.get_object_locations([made])[made]["node_ids"]))
cluster.shutdown()
"""
    bare = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=240, env=bare
    )
    assert ran.stdout.split() == ["1", "0"], ran.stderr[-2000:]


def test_devices_of_other_machines_need_their_cluster(tmp_path):
    with pytest.raises(InputError, match="is on node 'left': give the address"):
        api.profile(branched(tmp_path / "net.xml"), parse_devices(["left/cpu", "right/cpu"]))


def test_placing_anew_needs_a_cluster_and_says_so(tmp_path):
    network = branched(tmp_path / "net.xml")
    overlapping_plan(network, Pipeline()).save(tmp_path / "plan.json")
    result = CliRunner().invoke(app, ["run", str(network), "--plan", str(tmp_path / "plan.json"), "--replan"])
    assert result.exit_code == 2
    assert "name their Ray cluster (--on)" in result.output
    with (
        api.open_plan(network, tmp_path / "plan.json") as net,
        pytest.raises(InputError, match="replan=True"),
    ):
        net.replan()


def test_ray_is_not_imported_by_what_does_not_use_it():
    code = (
        "import sys, loadmaster.cli, loadmaster.api, loadmaster.runtime.openvino, loadmaster.runtime.ray, "
        "loadmaster.optimize; sys.exit('ray' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@given(
    st.floats(1e-5, 1e-1),
    st.floats(1e-11, 1e-6),
    st.lists(st.floats(-0.02, 0.02), min_size=5, max_size=5),
)
def test_a_link_is_found_again_in_the_times_that_it_gives(latency, rate, noise):
    sizes = np.array([1e3, 2e5, 1e6, 4e6, 1e7])
    taken = (latency + rate * sizes) * (1 + np.array(noise))
    found_latency, found_rate, residuals = fit_hops(sizes, taken)
    predicted = found_latency + found_rate * sizes
    assert np.abs(predicted / taken - 1).max() <= 0.09
    assert residuals == pytest.approx((predicted - taken) / taken)
    if not any(noise):
        assert (found_latency, found_rate) == pytest.approx((latency, rate), rel=1e-4)


def test_a_slow_link_is_what_a_stream_over_it_takes(tmp_path):
    """After the first request there is one whenever the link has brought another tensor."""
    problem = problem_of(branched(tmp_path / "net.xml"))
    problem = replace(problem, model=Pipeline())
    half = (problem.graph.position >= problem.n // 2).astype(np.int32)
    pieces = cut(problem, Placement(half))
    free = OverlapFit(piece=0.0, wait=0.0, rate=0.0, links=True)
    apart = ~np.eye(2, dtype=bool)
    quick = predict(replace(problem, latency=0.0 * apart, rate=0.0 * apart), pieces, free, items=10**9)
    slow = replace(problem, latency=np.where(apart, 1.0, 0.0), rate=0.0 * apart)
    crossing = {
        (int(problem.graph.tensor_producer[t]), int(half[v]))
        for t, v in zip(problem.graph.edge_tensor.tolist(), problem.graph.consumer_op.tolist(), strict=True)
        if half[problem.graph.tensor_producer[t]] != half[v] and problem.graph.op_types[v] not in ("Result",)
    }
    assert crossing
    assert quick < 1.0
    assert predict(slow, pieces, free, items=10**9) == pytest.approx(1.0, abs=0.1)


def test_what_calls_cost_is_on_top_of_the_busiest_device(tmp_path):
    """A call and its bytes take the core of a device; who submits shares it with the devices, or has its own."""
    problem = replace(problem_of(branched(tmp_path / "net.xml")), model=Pipeline())
    half = (problem.graph.position >= problem.n // 2).astype(np.int32)
    pieces = cut(problem, Placement(half))
    problem = replace(problem, latency=0.0 * problem.latency, rate=0.0 * problem.rate)
    free = OverlapFit(piece=0.0, wait=0.0, rate=0.0, links=True)
    calls = Calls(call=1.0, byte=0.0, submit=0.25, given=1e-3)
    shared, apart = calls.fit(len(pieces), 1000, 2), calls.fit(len(pieces), 1000, 0)
    assert (shared.request, apart.request) == pytest.approx(((0.25 * len(pieces) + 1.0) / 2, 0.0))
    most = max(sum(piece.device == name for piece in pieces) for name in problem.cluster.names)
    without = predict(problem, pieces, free, items=10**9)
    found = predict(problem, pieces, replace(shared, piece=0.0, wait=0.0, rate=0.0), items=10**9)
    assert found == pytest.approx(most + shared.request, abs=2 * without)
    here, cores = platform.node(), len(allowed_cores())
    assert sharing(["elsewhere"] * 100) == sharing([here] * (cores - 1)) == 0
    assert sharing([here] * cores + ["elsewhere"]) == cores


class _Peer:
    """Stands for the actor of another device."""

    def __init__(self, host: DeviceHost) -> None:
        self.deliver = self
        self.remote = host.deliver


def test_tensors_go_from_device_to_device_and_nobody_keeps_them_longer_than_needed(tmp_path):
    """Two submodels on two devices, of which the second waits for what the first one sends; then it is closed."""
    model = openvino_model(branched(tmp_path / "net.xml"))
    problem = problem_of(tmp_path / "net.xml")
    half = (problem.graph.position >= problem.n // 2).astype(np.int32)
    pieces = cut(replace(problem, model=Pipeline()), Placement(half))
    parts = cut_model(model, pieces)
    hosts = {spec.name: DeviceHost(spec) for spec in parse_devices(["A=cpu", "B=cpu"])}
    wired = object.__new__(Spread)
    wired._parts = parts
    for name, host in hosts.items():
        host.meet({other: _Peer(hosts[other]) for other in hosts if other != name})
    for number, part in enumerate(parts):
        ov.serialize(part.model, str(tmp_path / "part.xml"), str(tmp_path / "part.bin"))
        host = hosts[part.piece.device]
        host.receive("key", number, (tmp_path / "part.bin").read_bytes())
        host.load("key", number, (tmp_path / "part.xml").read_text(), "a part", wired._wires(number))
    (inputs,) = [draw_inputs(model, 3)]
    names = [port.get_node().get_friendly_name() for port in model.inputs]
    f32 = {"INFERENCE_PRECISION_HINT": "f32"}  # as on the devices; some CPUs would take bf16
    expected = [np.array(v) for v in ov.compile_model(model, "CPU", f32)(inputs).values()]

    def run(number: int) -> dict[int, np.ndarray]:
        part = parts[number]
        given = list(dict.fromkeys(port[0] for source, port in part.inputs if source is None))
        arrays = [inputs[names.index(name)] for name in given]
        for array in arrays:
            array.flags.writeable = False  # as Ray brings them
        found = hosts[part.piece.device].run("key", number, 0, *arrays)
        return dict(zip(part.final.values(), found[1:], strict=True)) if part.final else {}

    outputs: dict[int, np.ndarray] = {}
    late = next(n for n, part in enumerate(parts) if any(source is not None for source, _ in part.inputs))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(run, late)
        for number in range(len(parts)):
            if number != late:
                outputs |= run(number)
        outputs |= waiting.result(timeout=60)
    for at, value in outputs.items():
        np.testing.assert_allclose(value, expected[at], rtol=1e-3, atol=1e-4)
    assert len(outputs) == len(expected)
    assert not any(host._letters for host in hosts.values())
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(run, late)
        for host in hosts.values():
            host.drop("key")
        with pytest.raises((RunError, KeyError)):
            waiting.result(timeout=60)
    hosts["A"].deliver("key", 1, 0, [0], [1], np.zeros(3))
    assert not hosts["A"]._letters
    for host in hosts.values():
        host.leave()


def test_nodes_are_listed_by_their_devices():
    cpu = {"name": "cpu", "kind": "cpu", "model": "x", "precisions": ["f32"], "cores": 2}
    seen = {"left": {"devices": [cpu], "cores": [0, 1], "memory": 1e9, "host": "h"}}
    found = devices_of_nodes(seen)
    assert [entry["name"] for entry in found["available"]] == ["left/cpu"]
    assert found["nodes"] == [{"name": "left", "cores": 2, "memory": 1e9, "host": "h"}]


def ran_at(problem, pieces, factors):
    """Three runs in which the ops of device d took ``factors[d]`` times as long as they should."""
    index, device = problem.graph.index, problem.cluster.index
    return [
        {
            "submodel": number,
            "device": piece.device,
            "request": request,
            "start": 5.0,
            "end": 5.0
            + factors[device[piece.device]]
            * float(problem.time[[index[op] for op in piece.ops], device[piece.device]].sum()),
        }
        for request in range(3)
        for number, piece in enumerate(pieces)
    ]


@pytest.mark.parametrize("factors", [(1.0, 1.0), (1.0, 2.0), (3.0, 1.0), (1.8, 1.8), (0.5, 0.9)])
def test_a_node_slower_than_measured_is_named_and_only_that(tmp_path, factors):
    """A run in which all are slow says nothing about one of them."""
    problem = problem_of(branched(tmp_path / "net.xml"))
    pieces = cut(problem, Placement((problem.graph.position >= problem.n // 2).astype(np.int32)))
    spans = ran_at(problem, pieces, factors)
    found = slow_devices(problem, pieces, spans, {"A": "left", "B": "right"})
    slow = (
        {"A": "left"}
        if factors[0] > 1.5 * factors[1]
        else {"B": "right"}
        if factors[1] > 1.5 * factors[0]
        else {}
    )
    if max(factors) < 1.5:
        slow = {}
    assert [finding.rule for finding in found] == ["slow-node"] * len(slow)
    for finding, (device, node) in zip(found, slow.items(), strict=True):
        assert f"device {device!r} on node {node!r}" in finding.text


@pytest.mark.parametrize(("factors", "pace"), [((1.0, 0.8), 0.8), ((1.2, 0.9), 0.75), ((1.0, 1.3), 1.3)])
def test_the_pace_of_a_node_that_was_slow_before_is_corrected_either_way(tmp_path, factors, pace):
    """Under the first plan it had too much to do, and looked slower than it is."""
    problem = problem_of(branched(tmp_path / "net.xml"))
    pieces = cut(problem, Placement((problem.graph.position >= problem.n // 2).astype(np.int32)))
    spans = ran_at(problem, pieces, factors)
    assert slow_factors(problem, pieces, spans) == {}
    assert slow_factors(problem, pieces, spans, {"B"}) == {"B": pytest.approx(pace)}


def test_a_slow_node_comes_with_the_plan_that_is_better_at_its_pace(tmp_path):
    problem = replace(problem_of(branched(tmp_path / "net.xml")), model=Pipeline())
    half = Placement((problem.graph.position >= problem.n // 2).astype(np.int32))
    placed = []

    def place(given):
        placed.append(given)
        return api.place(given, "local-search", evaluations=2000, seed=0)

    plan, text = better_plan(problem, half, {"B": 4.0}, place)
    assert np.allclose(placed[0].time, problem.time * [1.0, 4.0, *[1.0] * (problem.devices - 2)])
    now = evaluate(placed[0], half).cost
    assert plan.document["cost"] < now
    assert evaluate(placed[0], plan.placement()).cost == plan.document["cost"]
    assert f"(predicted, {now / plan.document['cost']:.2f}x)" in text
    same, text = better_plan(placed[0], plan.placement(), {}, lambda given: plan.solution())
    assert same is None
    assert "no plan is better" in text


def test_what_is_left_keeps_its_pins_and_what_was_pinned_to_the_dead_is_free(tmp_path):
    problem = problem_of(branched(tmp_path / "net.xml"), 3)
    pin = problem.pin.copy()
    pin[:2] = (0, 2)
    pinned = replace(problem, pin=pin)
    names = list(problem.cluster.names)

    def place(given):
        return api.place(given, "single", evaluations=10)

    rest, _ = place_on(pinned, names[:2], place)
    assert rest.pin[:2].tolist() == [0, -1]
    assert rest.forbidden.tolist() == [[False, False, True]] * problem.n
    _, solution = place_on(pinned, names[2:], place)
    assert (solution.placement.device == 2).all()
    tight = replace(problem, capacity=np.full(problem.devices, problem.memory.sum() / 2))
    with pytest.raises(InfeasibleError, match="the model cannot go on"):
        place_on(tight, names[:1], place)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=30), st.floats(0, 4e6), st.floats(0, 1e4))
def test_parts_of_a_model_are_all_of_it_in_order_and_fit_where_one_op_does(weights, room, largest):
    needs = Needs(tuple(f"op{i}" for i in range(len(weights))), tuple(weights), largest)
    parts = segments(needs, "A", room)
    assert [op for part in parts for op in part.ops] == list(needs.names)
    assert all(part.ops for part in parts)
    at = dict(zip(needs.names, weights, strict=True))
    for part in parts:
        held = Needs(part.ops, tuple(at[op] for op in part.ops), largest)
        heavy = [op for op in part.ops if at[op] > 0]
        assert held.profiling() <= room * (1 + 1e-9) + 1e-6 or len(heavy) <= 1
    if needs.profiling() <= room:
        assert len(parts) == 1


def test_the_counters_of_parts_are_those_of_the_whole():
    def node(name, seconds, readers):
        return {"name": name, "kind": "x", "seconds": seconds, "originals": [name], "readers": readers}

    first = {
        "nodes": [node("a", 1.0, ["b"]), node("b", 2.0, [])],
        "wall": [3.0, 4.0, 9.0],
        "dropped": 1,
        "memory": 10,
    }
    second = {"nodes": [node("a", 5.0, [])], "wall": [1.0, 1.5], "dropped": 0, "memory": 5}
    found = joined([first, second], [4.0, 0.0])  # 5 that each has besides its weights
    assert [n["name"] for n in found["nodes"]] == ["0:a", "0:b", "1:a"]
    assert found["nodes"][0]["readers"] == ["0:b"]
    assert (found["wall"], found["dropped"], found["memory"]) == ([4.0, 5.5], 1, 10)
    assert as_one([7.0, 7.0], [2.0, 2.0]) == 9.0
    assert as_one([7.0, 1.0, 8.0], [5.0, 9.0, 5.0]) == 12.0  # the second leaves its weights in the file


def test_weights_are_counted_once_and_as_f32(tmp_path):
    model = ov.Core().read_model(str(write_network(tmp_path / "net.xml", blocks=2)))  # f16 in the file
    needs = needs_of(model)
    assert sum(needs.weights) == pytest.approx(2 * 2 * 4 * (8 * 8 * 9 + 8))
    assert needs.largest == 4 * 8 * 16 * 16
    assert not any("weight" in name for name in needs.names)


def test_a_node_has_no_more_free_than_it_may_use():
    limit, free = memory_of_this_node()
    assert 0 < free <= limit


def test_what_a_killed_command_leaves_of_its_cluster_is_ended(tmp_path):
    """Ray's agents outlive it by a minute: who has a file of its session open is one of them."""
    owner = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    logs = tmp_path / f"session_2026-11-17_23-08-42_863541_{owner.pid}" / "logs"
    logs.mkdir(parents=True)
    with (logs / "agent.out").open("w") as log:
        agent = subprocess.Popen(["sleep", "600"], stdout=log)
    other = subprocess.Popen(["sleep", "600"])
    reaper = subprocess.Popen([sys.executable, _reaper.__file__, str(owner.pid)], stdin=subprocess.PIPE)
    try:
        owner.communicate(b"\n")
        assert agent.poll() is None
        reaper.communicate()
        assert agent.wait(30) == -signal.SIGKILL
        assert other.poll() is None
    finally:
        for process in (agent, other):
            process.kill()
            process.wait()


def test_a_cluster_that_ends_in_order_is_left_to_ray(tmp_path):
    logs = tmp_path / f"session_2026-11-17_23-08-42_863541_{os.getpid()}" / "logs"
    logs.mkdir(parents=True)
    with (logs / "agent.out").open("w") as log:
        agent = subprocess.Popen(["sleep", "600"], stdout=log)
    reaper = subprocess.Popen([sys.executable, _reaper.__file__, str(os.getpid())], stdin=subprocess.PIPE)
    reaper.communicate(b"done")
    assert agent.poll() is None
    agent.kill()
    agent.wait()
