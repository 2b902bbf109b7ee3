"""Placements run on real devices and give the outputs of the unplaced model."""

from __future__ import annotations

import itertools
import os
import time

import numpy as np
import pytest
from small_networks import CLOCK, DEVICES

from loadmaster.errors import (
    BusyError,
    InputError,
    RunError,
    WrongOutputError,
)
from loadmaster.graph.openvino import openvino_model
from loadmaster.runtime._verifying import F32_TOLERANCE, difference
from loadmaster.runtime.openvino import Devices, OpenVinoSession, parse_devices
from loadmaster.runtime.openvino._chain import submodels_of
from loadmaster.runtime.openvino._executors import _culprit


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
    last = [name for name in names if any(name in piece.ops for piece in submodels_of(model, where))][-1]
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


def test_a_model_that_cannot_be_read_is_refused_by_the_parent(tmp_path):
    path = tmp_path / "bad.xml"
    path.write_text("<net>")
    with pytest.raises(InputError, match="is not an OpenVINO IR"):
        OpenVinoSession(path, parse_devices(DEVICES[:1]))


def test_a_machine_that_is_too_busy_is_reported(session, monkeypatch):
    candidate = session.load("single", device="A")
    candidate.verify()
    monkeypatch.setattr(session, "clock", "wall")
    monkeypatch.setattr(session.worker, "ask", lambda *_, **__: [(candidate.key, 1.0, 0.5)] * 10)
    with pytest.raises(BusyError, match="too busy to measure: only 0 of 20 samples"):
        session.measure([candidate], samples=4)


def test_after_its_time_a_measurement_takes_the_few_clean_samples_there_are(session, monkeypatch):
    candidate = session.load("single", device="A")
    candidate.verify()
    monkeypatch.setattr(session, "clock", "wall")
    answers = [(candidate.key, 1.0, 0.0)] * 3 + [(candidate.key, 1.0, 0.5)] * 3
    monkeypatch.setattr(session.worker, "ask", lambda *_, **__: answers)
    (found,) = session.measure([candidate], samples=1000, until=time.monotonic())
    assert found.median == 1.0


def test_after_its_time_a_machine_without_clean_samples_is_too_busy(session, monkeypatch):
    candidate = session.load("single", device="A")
    candidate.verify()
    monkeypatch.setattr(session, "clock", "wall")
    monkeypatch.setattr(session.worker, "ask", lambda *_, **__: [(candidate.key, 1.0, 0.5)] * 10)
    with pytest.raises(BusyError, match=r"outputs are right, but .* only 0 of 10 .*--clock core"):
        session.measure([candidate], samples=1000, until=time.monotonic())


@pytest.mark.parametrize(("threshold", "clear"), [(8.0, True), (1e9, False)])
def test_a_model_that_says_the_same_of_small_inputs_is_compared_on_larger_ones(tmp_path, threshold, clear):
    import openvino as ov
    from openvino import opset13 as ops

    x = ops.parameter([1, 64], np.float32, name="x")
    beyond = ops.relu(ops.subtract(ops.abs(x), ops.constant(np.float32(threshold))))
    model = ov.Model([ops.result(ops.add(beyond, ops.constant(np.float32(1.0))))], [x], "quiet")
    path = tmp_path / "quiet.xml"
    ov.save_model(model, path)
    with OpenVinoSession(path, parse_devices(DEVICES[:1])) as session:
        candidate = session.load("single", device="A")
        if clear:
            assert candidate.verify().control > 10 * F32_TOLERANCE
        else:
            with pytest.raises(WrongOutputError, match="cannot be verified"):
                candidate.verify()
