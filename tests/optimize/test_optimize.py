"""The main job keeps what is measured best."""

from __future__ import annotations

import json
from html import escape

import pytest
from small_networks import CLOCK
from typer.testing import CliRunner

from loadmaster import zoo
from loadmaster.cli import app
from loadmaster.errors import InputError
from loadmaster.optimize import optimize
from loadmaster.plan import Plan
from loadmaster.runtime import Measurement
from loadmaster.runtime.openvino import Devices, available, parse_devices


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


def test_serial_is_hetero_with_its_own_baselines(model_file, tmp_path):
    plan_file, page = tmp_path / "plan.json", tmp_path / "report.html"
    done = CliRunner().invoke(
        app,
        [
            *("optimize", str(model_file), "--devices", "A=cpu", "--devices", "B=cpu", "--budget", "20s"),
            *("--model", "serial", "--samples", "3", "--clock", CLOCK, "-o", str(plan_file), "--json"),
            *("--cache", str(tmp_path / "cache.sqlite"), "--report", str(page)),
        ],
    )
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["model"] == "serial"
    names = [line["name"] for line in document["lines"]]
    assert names[0] == "A alone"
    assert "HETERO's choice" in names
    assert {"profiling", "placing", "measuring"} <= document["spent"].keys()
    assert sum(document["spent"].values()) <= document["seconds"]
    plan = Plan.load(plan_file)
    assert plan.document["model"] == "serial"
    assert [line["name"] for line in plan.document["measured"]["lines"]] == names
    for name in names:  # the page shows what the terminal shows
        assert escape(name) in page.read_text()


def test_pins_hold_and_forbid_single_devices(model_file):
    """The right branches stay on A, the left ones on B: no device alone may be the answer."""
    found = optimize(
        model_file,
        parse_devices(["A=cpu", "B=cpu:speed=0.5"]),
        budget=20.0,
        model="serial",
        pins=["block./right/conv=A", "block./left/conv=B"],
        samples=3,
        clock=CLOCK,
    )
    placement = found.plan.document["placement"]
    assert {placement[f"block{i}/right/conv"] for i in range(3)} == {"A"}
    assert {placement[f"block{i}/left/conv"] for i in range(3)} == {"B"}
    best = found.line("best plan")
    assert best.verification is not None
    assert best.measurement.submodels > 1
    assert "B alone (against the pins)" in [line.name for line in found.lines]


def test_a_mixed_precision_plan_keeps_the_tolerance_it_was_judged_by(tmp_path):
    if "bf16" not in available()[0]["precisions"]:
        with pytest.raises(InputError, match=r"device 'B'.*cannot compute in bf16"):
            Devices(parse_devices(["B=cpu:precision=bf16"]))
        return
    path = tmp_path / "net.xml"
    zoo.export_model("resnet-50?size=48", path)
    found = optimize(
        path,
        parse_devices(["A=cpu", "B=cpu:precision=bf16"]),
        budget=15.0,
        model="serial",
        pins=["head/.*=A"],
        tolerance="3%",
        samples=3,
        clock=CLOCK,
    )
    assert found.plan.document["tolerance"] == found.document()["tolerance"] == "3%"
    placement = found.plan.document["placement"]
    assert {device for op, device in placement.items() if op.startswith("head/")} == {"A"}
    for line in found.lines:
        if line.verification is not None and line.verification.precision == "bf16":
            assert line.verification.stated == "3%"


def test_optimize_needs_two_devices_and_a_model_with_a_runtime(model_file):
    with pytest.raises(InputError, match="at least two"):
        optimize(model_file, parse_devices(["A=cpu"]))
    with pytest.raises(InputError, match="cannot be run: choose one of concurrent, pipeline"):
        optimize(model_file, parse_devices(["A=cpu", "B=cpu"]), model="offload")
    with pytest.raises(InputError, match="no method 'luck'"):
        optimize(model_file, parse_devices(["A=cpu", "B=cpu"]), method="luck")
