"""Models whose ops have no names are optimised and run as any other."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from small_networks import CLOCK
from unnamed_networks import write_unnamed

from loadmaster.errors import RunError
from loadmaster.optimize import optimize
from loadmaster.plan import Plan
from loadmaster.report import optimized_tables
from loadmaster.runtime.openvino import OpenVinoSession, parse_devices, run_plan


@pytest.mark.parametrize("model", ["concurrent", "pipeline"])
def test_a_model_without_names_is_optimised_and_its_plan_runs(tmp_path, monkeypatch, model):
    from loadmaster.runtime import Measurement

    monkeypatch.setattr(Measurement, "faster_than", lambda self, other: True)
    path = write_unnamed(tmp_path / "unnamed.onnx")
    found = optimize(
        path,
        parse_devices(["A=cpu", "B=cpu"]),
        model=model,
        budget=10.0,
        samples=3,
        clock=CLOCK,
    )
    # A busy machine may have no time for a placement; none fails to run.
    assert all("no room" in text for text in found.left_out), found.left_out
    found.plan.save(tmp_path / "plan.json")
    run = run_plan(path, Plan.load(tmp_path / "plan.json"), samples=3, baselines=False, clock=CLOCK)
    assert run.lines[0].verification is not None


def test_optimize_does_not_judge_placements_that_did_not_run(tmp_path, monkeypatch):
    path = write_unnamed(tmp_path / "unnamed.onnx")
    load = OpenVinoSession.load

    def failing(self, how, **options):
        if "pieces" in options:
            raise RunError("the submodel is broken")
        return load(self, how, **options)

    monkeypatch.setattr(OpenVinoSession, "load", failing)
    with pytest.raises(RunError, match=r"could be run.*the submodel is broken"):
        optimize(
            path,
            parse_devices(["A=cpu", "B=cpu"]),
            model="pipeline",
            method="metis",  # it splits the model whatever its ops were measured to take
            budget=30.0,
            samples=3,
            clock=CLOCK,
        )


def test_the_result_says_that_nothing_else_was_run(tmp_path):
    found = optimize(
        write_unnamed(tmp_path / "unnamed.onnx", rows=2, width=4),
        parse_devices(["A=cpu", "B=cpu"]),
        method="single",
        budget=30.0,
        samples=3,
        clock=CLOCK,
    )
    console = Console(width=200, file=io.StringIO())
    with console.capture() as captured:
        console.print(optimized_tables({**found.document(), "plan": "plan.json"}))
    text = captured.get()
    assert "no other placement was run" in text
    assert "beats device" not in text
