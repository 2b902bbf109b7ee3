"""The main job keeps what is measured best."""

from __future__ import annotations

import json

import pytest
from small_networks import CLOCK
from typer.testing import CliRunner

from loadmaster.cli import app
from loadmaster.errors import InputError
from loadmaster.optimize import optimize
from loadmaster.plan import Plan
from loadmaster.runtime import Measurement
from loadmaster.runtime.openvino import parse_devices


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
    with pytest.raises(InputError, match="cannot be run: choose one of concurrent, pipeline"):
        optimize(model_file, parse_devices(["A=cpu", "B=cpu"]), model="offload")
    with pytest.raises(InputError, match="no method 'luck'"):
        optimize(model_file, parse_devices(["A=cpu", "B=cpu"]), method="luck")
