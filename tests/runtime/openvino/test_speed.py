"""Devices of unlike speed: the same in every way to run a model, by the clock of the core."""

from __future__ import annotations

import time

import numpy as np
import pytest
from small_networks import CLOCK, branched, problem_of
from typer.testing import CliRunner

from loadmaster.cli import app
from loadmaster.errors import InputError
from loadmaster.graph.openvino import openvino_model
from loadmaster.problem import Placement
from loadmaster.runtime import cut
from loadmaster.runtime.openvino import Devices, DeviceSpec, OpenVinoSession, parse_devices, profile_model
from loadmaster.runtime.openvino._executors import EXECUTORS
from loadmaster.runtime.openvino._inputs import draw_inputs

SLOW = 0.05
"""So slow that no other work on the machine looks like it."""
SPECS = parse_devices(["A=cpu", f"B=cpu:speed={SLOW}"])


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return openvino_model(branched(tmp_path_factory.mktemp("speed") / "net.xml"), {})


def executor(model, how, specs=SPECS, **options):
    made = EXECUTORS[how](model, Devices(specs), **options)
    made.feed(draw_inputs(model, 1))
    return made


def pieces_of(model_file, joins=True):
    problem = problem_of(model_file)
    placement = Placement((np.arange(problem.n) % 2).astype(np.int32))
    return problem, placement, cut(problem, placement, joins=joins)


def on_core(spans, device):
    return min(sum(s["core"] for s in run if s["device"] == device) for run in spans)


@pytest.mark.parametrize("how", ["concurrent", "pipeline", "chain"])
def test_every_submodel_of_a_slow_device_takes_longer(how, model, model_file):
    _, _, pieces = pieces_of(model_file, joins=how == "concurrent")
    taken = {}
    for specs in (SPECS, parse_devices(["A=cpu", "B=cpu"])):
        made = executor(model, how, specs, pieces=pieces)
        made.infer()
        runs = [[s for s in made.spans() if s.get("request", 0) == 0] for _ in range(5)]
        taken[specs[1].speed] = on_core(runs, "B")
        if hasattr(made, "close"):
            made.close()
    assert taken[SLOW] > 5 * taken[1.0]


def test_a_slow_device_alone_takes_longer_and_gives_the_same(model):
    found, outputs = {}, {}
    for name in "AB":
        made = executor(model, "single", device=name)
        made.infer()
        runs = []
        for _ in range(5):
            began = time.thread_time()
            made.infer()
            runs.append(time.thread_time() - began)
        found[name], outputs[name] = min(runs), made.outputs()
    assert found["B"] > 5 * found["A"]
    for a, b in zip(outputs["A"], outputs["B"], strict=True):
        np.testing.assert_array_equal(a, b)


def test_serial_plans_of_unlike_devices_run_as_a_chain_and_are_verified(model_file):
    problem, placement, _ = pieces_of(model_file)
    with OpenVinoSession(model_file, SPECS, clock=CLOCK) as session:
        placed = session.placed(placement.to_names(problem))
        assert placed.submodels > 2
        assert placed.verify().error.relative <= 1e-4
        assert {"core", "start", "end"} <= placed.trace()[0].keys()
        chosen = session.load("auto", order=["A", "B"])
        assert chosen.submodels == 1
        chosen.verify()


def test_a_chain_runs_pieces_in_an_order_that_their_tensors_allow(model, model_file):
    _, _, pieces = pieces_of(model_file, joins=False)
    whole, backwards = executor(model, "single", device="A"), executor(model, "chain", pieces=pieces[::-1])
    for seed in (1, 2):  # the second run would read what the first one left behind
        for made in (whole, backwards):
            made.feed(draw_inputs(model, seed))
            made.infer()
        for a, b in zip(whole.outputs(), backwards.outputs(), strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-5)


def test_a_profile_sees_the_speed(model_file):
    profile = profile_model(model_file, SPECS, clock=CLOCK, links_too=False)
    fast, slow = profile.profiles["A"], profile.profiles["B"]
    assert slow.wall > 5 * fast.wall
    assert sum(slow.seconds.values()) == pytest.approx(slow.wall)
    assert slow.device.endswith(f"speed={SLOW}")


def test_speed_is_read_and_written_back(tmp_path):
    spec = DeviceSpec.parse("B=cpu:core=0,speed=0.5")
    assert spec.speed == 0.5
    assert DeviceSpec.of(spec.device()) == spec
    assert "speed" not in DeviceSpec.parse("B=cpu:speed=1").text
    file = tmp_path / "devices.toml"
    file.write_text('[[device]]\nname = "A"\n\n[[device]]\nname = "B"\nspeed = 0.5\n')
    assert [each.speed for each in parse_devices([str(file)])] == [1.0, 0.5]
    shown = CliRunner().invoke(app, ["devices", "--device", str(file)])
    assert "0.5x speed" in " ".join(shown.output.split())


@pytest.mark.parametrize("text", ["speed=0", "speed=1.5", "speed=fast", "speed=-1", "speed=nan", "speed="])
def test_other_speeds_are_refused(text, tmp_path):
    with pytest.raises(InputError, match="speed must be a number over 0 and at most 1"):
        DeviceSpec.parse(f"B=cpu:{text}")
    file = tmp_path / "devices.toml"
    file.write_text('[[device]]\nname = "B"\nspeed = "half"\n')
    with pytest.raises(InputError, match="speed"):
        parse_devices([str(file)])
