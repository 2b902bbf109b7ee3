"""Plans run on real devices, give the outputs of the unplaced model, and fail in one sentence without a trace."""

from __future__ import annotations

import itertools
import os
import sqlite3
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from small_networks import CLOCK, DEVICES, write_network

from loadmaster.errors import (
    BusyError,
    InputError,
    RunError,
    RunTimeoutError,
    WorkerError,
    WrongOutputError,
)
from loadmaster.graph.openvino import openvino_model
from loadmaster.runtime import Cache, DeviceSpec, Session, available, parse_devices
from loadmaster.runtime._measuring import Sample, bootstrap, summarise, timed
from loadmaster.runtime._verifying import F32_TOLERANCE, check, difference
from loadmaster.runtime.openvino._devices import Devices
from loadmaster.runtime.openvino._executors import _culprit, _submodels

# -- devices -------------------------------------------------------------------------------------------------


def test_devices_are_read_from_texts_and_files(tmp_path):
    file = tmp_path / "devices.toml"
    file.write_text(
        '[[device]]\nname = "A"\ncore = 0\n[[device]]\nname = "B"\nplugin = "gpu.1"\nprecision = "f16"\n'
    )
    assert parse_devices([str(file)]) == (DeviceSpec("A", core=0), DeviceSpec("B", "gpu.1", precision="f16"))
    assert parse_devices(["A=cpu:threads=2,precision=bf16"]) == (
        DeviceSpec("A", precision="bf16", threads=2),
    )


def test_a_device_of_a_cluster_says_what_it_is():
    spec = DeviceSpec.parse("A=cpu:core=0,precision=bf16")
    assert DeviceSpec.of(spec.device()) == spec


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("A", "must be written NAME=PLUGIN"),
        ("A=cpu:speed=9", "is not one of core, precision, threads"),
        ("A=cpu:core=x", "core must be a whole number"),
        ("A=cpu:core=9999", "core 9999 is not one that this process may use"),
        ("A=cpu:precision=f64", "precision must be one of f32, bf16, f16"),
        ("A=cpu:threads=0", "threads must be at least 1"),
    ],
)
def test_a_wrong_device_is_refused(text, reason):
    with pytest.raises(InputError) as error:
        parse_devices([text])
    assert reason in str(error.value)


def test_a_device_that_is_not_there_is_refused():
    with pytest.raises(InputError, match="no 'npu' that OpenVINO can use"):
        Devices([DeviceSpec("N", "npu")])
    with pytest.raises(InputError, match="'A' is there twice"):
        parse_devices(["A=cpu", "A=cpu"])


def test_a_precision_that_the_hardware_lacks_is_refused_not_replaced():
    (cpu,) = [entry for entry in available() if entry["name"] == "cpu"]
    for precision in ("bf16", "f16"):
        if precision in cpu["precisions"]:
            Devices([DeviceSpec("A", precision=precision)])
        else:
            with pytest.raises(InputError, match=f"cannot compute in {precision}"):
                Devices([DeviceSpec("A", precision=precision)])


# -- running -------------------------------------------------------------------------------------------------


def placements(graph, count, devices, seed=0):
    generator = np.random.default_rng(seed)
    for _ in range(count):
        chosen = generator.integers(len(devices), size=graph.n)
        yield {name: devices[d] for name, d in zip(graph.names, chosen, strict=True)}


@pytest.mark.parametrize("devices", ["AB", "ABC"])
def test_random_placements_give_the_outputs_of_the_unplaced_model(session, graph, devices):
    for placement in placements(graph, 5, devices):
        candidate = session.load("hetero", placement=placement)
        found = candidate.verify()
        assert found.error.relative <= F32_TOLERANCE
        assert found.control > 10 * F32_TOLERANCE
        assert candidate.submodels > 1
        candidate.close()


def test_a_run_gives_what_openvino_gives(session, graph, network):
    import openvino as ov

    x = np.random.default_rng(5).standard_normal((1, 8, 16, 16)).astype(np.float32)
    compiled = ov.Core().compile_model(str(network), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    candidate = session.load("hetero", placement=next(placements(graph, 1, "AB")))
    np.testing.assert_allclose(candidate.run([x])[0], compiled(x)[0], rtol=1e-4, atol=1e-4)


def test_a_trace_has_every_submodel_on_its_device_one_after_another(session, graph):
    order = graph.topological_order.tolist()
    placement = {graph.names[v]: "A" if i < graph.n // 2 else "B" for i, v in enumerate(order)}
    candidate = session.load("hetero", placement=placement)
    spans = candidate.trace()
    assert [span["device"] for span in spans] == ["A", "B"]
    assert len(spans) == candidate.submodels
    assert all(a["end"] <= b["start"] for a, b in itertools.pairwise(spans))


def test_candidates_are_measured_in_turns(session, graph):
    candidates = [session.load("single", device="A"), session.load("auto", order=["A", "B"])]
    found = session.measure(candidates, samples=4)
    assert all(m.kept >= 4 and m.low <= m.median <= m.high and m.clock == CLOCK for m in found)


def test_an_unknown_device_is_an_error(session, graph):
    with pytest.raises(RunError, match="there is no device 'Z': the devices are A, B, C"):
        session.load("hetero", placement=dict.fromkeys(graph.names, "Z"))


def test_a_plan_that_hetero_cannot_run_is_blamed_on_a_submodel(network):
    model = openvino_model(network)
    names = [n.get_friendly_name() for n in model.get_ordered_ops()]
    half = len(names) // 2
    where = {name: "A" if at < half else "B" for at, name in enumerate(names)}
    devices = Devices(parse_devices(DEVICES[:2]))
    last = [name for name in names if any(name in piece.ops for piece in _submodels(model, where))][-1]
    said = _culprit(model, devices, where, RuntimeError(f"something about node '{last}'"))
    assert said.startswith("the submodel on device 'B' from op ")
    assert said.endswith(f"at op {last!r}")
    said = _culprit(model, devices, where, RuntimeError("who knows"))
    assert said == "the placement, though each of its submodels compiles by itself"


def test_nothing_is_timed_when_outputs_are_wrong(session, graph, monkeypatch):
    candidate = session.load("single", device="A")
    monkeypatch.setattr(
        session,
        "_compare",
        lambda *_: (
            difference([np.ones(3)], [np.zeros(3) + 0.5]),
            difference([np.ones(3)], [np.zeros(3) + 0.1]),
        ),
    )
    with pytest.raises(WrongOutputError, match="gives wrong results"):
        session.measure([candidate])


def test_the_worker_runs_on_one_core(session):
    assert len(os.sched_getaffinity(session.worker.pid)) == 1


# -- failures ------------------------------------------------------------------------------------------------


def gone(pid: int) -> bool:
    for _ in range(100):
        if not os.path.exists(f"/proc/{pid}"):
            return True
        time.sleep(0.05)
    return False


def test_a_killed_worker_is_reported_and_leaves_nothing(network):
    with Session(network, parse_devices(DEVICES[:1])) as session:
        pid = session.worker.pid
        with pytest.raises(WorkerError, match="died of signal SIGKILL"):
            session.worker.ask("crash")
        with pytest.raises(WorkerError):
            session.load("single", device="A")
    assert gone(pid)


def test_a_hanging_worker_is_ended(network):
    with Session(network, parse_devices(DEVICES[:1])) as session:
        with pytest.raises(RunTimeoutError, match=r"longer than 0.3 s to sleep"):
            session.worker.ask("sleep", seconds=60.0, limit=0.3)
        assert gone(session.worker.pid)


def test_a_worker_ends_with_its_parent(network):
    code = (
        "import os, sys; from loadmaster.runtime.openvino._worker import Worker\n"
        "worker = Worker([sorted(os.sched_getaffinity(0))[0]]); print(worker.pid, flush=True); os._exit(1)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert gone(int(done.stdout))


def test_a_model_that_cannot_be_read_is_refused_by_the_parent(tmp_path):
    path = tmp_path / "bad.xml"
    path.write_text("<net>")
    with pytest.raises(InputError, match="is not an OpenVINO IR"):
        Session(path, parse_devices(DEVICES[:1]))


# -- comparing and measuring ---------------------------------------------------------------------------------


def test_an_output_that_does_not_follow_the_input_cannot_be_verified():
    same = difference([np.ones(4)], [np.ones(4)])
    with pytest.raises(WrongOutputError, match="cannot be verified"):
        check(same, difference([np.ones(4)], [np.ones(4) + 1e-5]), "f32", rounding=0.0, what="it")


def test_lower_precision_is_given_what_it_costs_itself():
    error = difference([np.ones(4) * 1.01], [np.ones(4)])
    control = difference([np.ones(4) * 3], [np.ones(4)])
    with pytest.raises(WrongOutputError):
        check(error, control, "f32", rounding=0.0, what="it")
    assert check(error, control, "bf16", rounding=0.008, what="it").tolerance == pytest.approx(0.016)


def test_not_finite_on_one_side_is_infinitely_wrong():
    assert difference([np.array([np.nan, 1])], [np.array([1.0, 1])]).relative == np.inf
    assert difference([np.array([np.inf, 1])], [np.array([np.inf, 1])]).relative == 0


def test_disturbed_samples_do_not_count():
    found = summarise([Sample(1.0, 0.0), Sample(9.0, 3.0), Sample(1.2, 0.01), Sample(1.1, 0.0)])
    assert (found.median, found.kept, found.dropped) == (1.1, 3, 1)


def test_the_interval_holds_the_median_and_narrows():
    values = np.random.default_rng(0).normal(1.0, 0.1, 400)
    few, many = bootstrap(values[:20]), bootstrap(values)
    assert few[0] <= np.median(values[:20]) <= few[1]
    assert many[1] - many[0] < few[1] - few[0]


def test_time_taken_by_others_is_seen():
    """Another thread of the machine on our core: what it takes is lost to us."""
    own = os.sched_getaffinity(0)
    core = {sorted(own)[0]}
    other = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"import os; os.sched_setaffinity(0, {core}); print(flush=True)\nwhile True: pass",
        ],
        stdout=subprocess.PIPE,
    )
    lost = []

    def busy():
        os.sched_setaffinity(0, core)
        for _ in range(5):
            lost.append(timed(lambda: sum(range(3_000_000))))

    try:
        assert other.stdout is not None
        other.stdout.readline()
        thread = threading.Thread(target=busy)
        thread.start()
        thread.join()
    finally:
        other.kill()
        other.communicate()
    assert sum(not sample.clean for sample in lost) >= 3


def test_a_machine_that_is_too_busy_is_reported(session, monkeypatch):
    candidate = session.load("single", device="A")
    candidate.verify()
    monkeypatch.setattr(session, "clock", "wall")
    monkeypatch.setattr(session.worker, "ask", lambda *_, **__: [(candidate.key, 1.0, 0.5)] * 10)
    with pytest.raises(BusyError, match="too busy to measure: of 20 samples only 0"):
        session.measure([candidate], samples=4)


# -- the cache -----------------------------------------------------------------------------------------------


def test_what_is_kept_is_found_by_everything_it_depends_on(tmp_path):
    cache = Cache(tmp_path / "sub" / "cache.sqlite")
    cache.put("profile", {"model": "a", "device": "cpu"}, {"x": 1})
    assert Cache(cache.path).get("profile", {"device": "cpu", "model": "a"})[0] == {"x": 1}
    assert cache.get("profile", {"model": "b", "device": "cpu"}) is None
    assert cache.get("link", {"model": "a", "device": "cpu"}) is None
    cache.put("profile", {"model": "a", "device": "cpu"}, {"x": 2})
    assert cache.get("profile", {"model": "a", "device": "cpu"})[0] == {"x": 2}
    assert len(cache) == 1


def test_a_damaged_cache_is_refused_before_anything_is_measured(tmp_path):
    path = tmp_path / "cache.sqlite"
    path.write_bytes(b"this is not a database, but long enough to look like one" * 20)
    with pytest.raises(InputError, match="delete it, or give another file as --cache"):
        Cache(path)


def test_a_cache_that_cannot_be_written_loses_no_measurement(tmp_path, monkeypatch):
    cache = Cache(tmp_path / "cache.sqlite")
    monkeypatch.setattr(cache, "_writable", False)
    cache.put("run", {"a": 1}, 5)
    assert "read-only" in cache.trouble
    assert cache.get("run", {"a": 1}) is None


def test_a_cache_that_breaks_while_measuring_is_a_trouble_not_an_error(tmp_path):
    cache = Cache(tmp_path / "cache.sqlite")
    with sqlite3.connect(cache.path) as connection:
        connection.execute("DROP TABLE measured")
    connection.close()
    cache.put("run", {"a": 1}, 5)
    assert "could not be kept" in cache.trouble
    assert cache.get("run", {"a": 1}) is None


def test_two_processes_use_one_cache(tmp_path):
    path = tmp_path / "cache.sqlite"
    Cache(path)
    code = (
        "import sys; from loadmaster.runtime._cache import Cache\n"
        "cache = Cache(sys.argv[1])\n"
        "for i in range(40): cache.put('run', {'who': sys.argv[2], 'i': i}, i)\n"
        "assert cache.trouble is None, cache.trouble"
    )
    both = [subprocess.Popen([sys.executable, "-c", code, str(path), str(who)]) for who in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    assert len(Cache(path)) == 80


def test_models_differ_by_their_weights(tmp_path):
    from loadmaster.runtime._cache import model_hash

    hashes = {model_hash(write_network(tmp_path / f"{i}.xml", seed=i % 2)) for i in range(3)}
    assert len(hashes) == 2
