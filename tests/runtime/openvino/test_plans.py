"""A plan is run beside its baselines, or refused in one sentence."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from small_networks import CLOCK, DEVICES, halves, overlapping_plan, write_network
from typer.testing import CliRunner

import loadmaster
from loadmaster import api
from loadmaster.cli import app
from loadmaster.errors import InputError, RunError
from loadmaster.plan import Plan
from loadmaster.problem import Concurrent, Pipeline, Placement
from loadmaster.runtime import cut
from loadmaster.runtime.openvino import overlapping_cores, parse_devices, run_plan


def plan_of(problem, placement) -> Plan:
    solution = api.place(problem, "single", evaluations=10)
    document = Plan.from_solution(problem, solution).document
    cost = api.evaluate(problem, placement).cost
    return Plan({**document, "cost": cost, "placement": placement.to_names(problem)}, "a plan")


def test_a_plan_runs_beside_its_baselines(network, problem):
    found = run_plan(network, plan_of(problem, halves(problem)), samples=3, clock=CLOCK)
    assert [line.name for line in found.lines] == ["plan", "A alone", "B alone", "HETERO's choice"]
    assert all(line.verification is not None and line.measurement is not None for line in found.lines)
    assert found.plan.submodels >= 2
    assert {span["device"] for span in found.spans} == {"A", "B"}


def test_a_concurrent_plan_names_its_cores_and_is_not_warned_about_hetero(model_file, tmp_path):
    plan = overlapping_plan(model_file, Concurrent())
    plan.save(tmp_path / "plan.json")
    command = [
        "run",
        str(model_file),
        "--plan",
        str(tmp_path / "plan.json"),
        "--samples",
        "3",
        "--clock",
        CLOCK,
    ]
    outcome = CliRunner().invoke(app, [*command, "--no-baselines"])
    assert outcome.exit_code == 0, outcome.output
    cores = overlapping_cores(parse_devices(["A=cpu", "B=cpu"]))
    shown = " ".join(outcome.output.split())
    assert f"core{'s' * (len(cores) > 1)} {', '.join(map(str, cores))}, OpenVINO" in shown
    assert "HETERO" not in shown


def test_a_tolerance_that_a_plan_cannot_have_is_refused_by_file(network, problem):
    plan = plan_of(problem, halves(problem))
    with pytest.raises(InputError, match=r"a plan: --tolerance 'much' must be"):
        run_plan(network, Plan({**plan.document, "tolerance": "much"}, "a plan"))


def test_a_plan_for_another_model_is_refused(problem, tmp_path):
    other = write_network(tmp_path / "other.xml", blocks=2)
    with pytest.raises(InputError, match="is a plan for a different model"):
        run_plan(other, plan_of(problem, halves(problem)))


def test_a_plan_on_devices_of_paper_needs_real_ones(network):
    given = api.problem(str(network), "2acc+1cpu", "serial")
    with pytest.raises(InputError, match="say what to run it on"):
        run_plan(network, Plan.from_solution(given, api.place(given, "single", evaluations=10)))


def test_a_plan_with_an_unsupported_op_is_not_run(network, problem, tmp_path):

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
    assert "no problems found" in call("lint", plan, "--model", network)
    document = json.loads(
        call("run", network, "--plan", plan, "--samples", 3, "--clock", CLOCK, "-o", measured, "--json")
    )
    assert Plan.load(measured).document["measured"] == document["measured"]
    assert "description" in call("devices", *devices)


def test_a_plan_runs_in_the_pieces_that_it_was_measured_with(model_file):
    plan = overlapping_plan(model_file, Concurrent())
    many = cut(plan.problem(), plan.placement(), piece=0.0, wait=0.0, joins=False)
    kept = Plan({**plan.document, "pieces": [[piece.device, list(piece.ops)] for piece in many]})
    with loadmaster.open(model_file, kept) as net:
        assert net.submodels == len(many)
    swapped = [["B" if piece.device == "A" else "A", list(piece.ops)] for piece in many]
    with pytest.raises(InputError, match="must be in pieces on device"):
        loadmaster.open(model_file, Plan({**plan.document, "pieces": swapped}))


@pytest.mark.parametrize("model", [Concurrent(), Pipeline()])
def test_run_takes_the_runtime_of_the_plan(model_file, model):
    found = run_plan(model_file, overlapping_plan(model_file, model), samples=3, clock=CLOCK)
    assert found.lines[0].verification is not None
    assert {span["device"] for span in found.spans} == {"A", "B"}
    assert any(line.name == "OpenVINO on 2 cores" for line in found.lines)
