"""Plans of mixed precision are judged against the f32 model by what the user allows."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from small_networks import CLOCK, overlapping_plan
from typer.testing import CliRunner

from loadmaster import zoo
from loadmaster.cli import app
from loadmaster.errors import InputError, WrongOutputError
from loadmaster.graph import load_openvino
from loadmaster.plan import Plan
from loadmaster.problem import Concurrent, Pipeline, Placement, Serial, Solution
from loadmaster.runtime.openvino import Devices, OpenVinoSession, available, parse_devices, profile_model

DEVICES = ("A=cpu", "B=cpu:precision=bf16")


def has_bf16():
    """Where the CPU has no bf16, the device is refused by name, and there is nothing more to say."""
    if "bf16" in available()[0]["precisions"]:
        return True
    with pytest.raises(InputError, match=r"device 'B'.*cannot compute in bf16"):
        Devices(parse_devices(DEVICES))
    return False


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    path = tmp_path_factory.mktemp("mixed") / "net.xml"
    zoo.export_model("resnet-50?size=64", path)
    return path


def test_a_bf16_device_and_a_mixed_plan_are_verified_against_f32(exported):
    if not has_bf16():
        return
    names = load_openvino(exported).graph.names
    with OpenVinoSession(exported, parse_devices(DEVICES), clock=CLOCK) as session:
        assert session.alone("B").verify().stated == ""  # by what bf16 itself changes
    with OpenVinoSession(
        exported, parse_devices(DEVICES), clock=CLOCK, tolerance="3%,cosine=0.99"
    ) as session:
        mixed = session.placed({name: "AB"[at > len(names) // 2] for at, name in enumerate(names)})
        verified = mixed.verify()
        assert verified.stated == "3%,cosine=0.99"
        assert 0 < verified.error.relative < 0.03
        assert verified.inputs == 3
        assert session.alone("A").verify().stated == ""  # f32 is held to f32
    with (
        OpenVinoSession(exported, parse_devices(DEVICES), clock=CLOCK, tolerance="0.01%") as session,
        pytest.raises(WrongOutputError, match="too far from the f32 model"),
    ):
        session.alone("B").verify()


def test_run_takes_the_tolerance_from_the_plan_or_the_option_and_shows_it(exported, tmp_path):
    if not has_bf16():
        return
    problem = profile_model(exported, parse_devices(DEVICES), clock=CLOCK, links_too=False).problem(
        model=Serial()
    )
    half = (
        problem.graph.position[problem.members[1][problem.members[0][:-1]]][problem.class_of] > problem.n // 2
    )
    plan = Plan.from_solution(
        problem, Solution(Placement(half.astype(np.int32)), 1.0, 0.0, "nothing", "by hand")
    )
    file, again = tmp_path / "plan.json", tmp_path / "again.json"
    plan.save(file)
    command = ["run", str(exported), "--samples", "3", "--clock", CLOCK, "--no-baselines"]
    done = CliRunner().invoke(app, [*command, "--plan", str(file), "--tolerance", "3%", "-o", str(again)])
    assert done.exit_code == 0, done.output
    assert "at f32 within 3%, on 3 inputs" in " ".join(done.output.split())
    assert Plan.load(again).document["tolerance"] == "3%"
    done = CliRunner().invoke(app, [*command, "--plan", str(again), "--json"])
    assert json.loads(done.stdout)["lines"][0]["verified"]["stated"] == "3%"
    done = CliRunner().invoke(app, [*command, "--plan", str(file), "--tolerance", "3"])
    assert done.exit_code == 2
    assert "--tolerance '3'" in done.output


@pytest.mark.parametrize("model", [Serial(), Concurrent(), Pipeline()], ids=lambda model: model.name)
def test_a_bf16_plan_is_refused_by_name_on_a_cpu_without_it(model, model_file, tmp_path):
    """A plan from another machine; OpenVINO is told that this CPU has AVX2 and nothing more."""
    file = tmp_path / "plan.json"
    overlapping_plan(model_file, model, devices=DEVICES).save(file)
    code = (
        "import sys, loadmaster\n"
        "try:\n    loadmaster.open(sys.argv[1], sys.argv[2])\n"
        "except loadmaster.errors.InputError as error:\n    sys.exit(str(error))"
    )
    commands = [["-m", "loadmaster.cli", "run", str(model_file), "--plan", str(file), "--clock", CLOCK]]
    if not isinstance(model, Serial):
        commands.append(["-c", code, str(model_file), str(file)])
    path = os.pathsep.join(part for part in sys.path if part)
    older = {**os.environ, "OV_CPU_MAX_ISA": "AVX2", "PYTHONPATH": path}
    for command in commands:
        done = subprocess.run([sys.executable, *command], env=older, capture_output=True, text=True)
        assert done.returncode == (2 if "run" in command else 1), done.stderr
        assert "device 'B': this cpu cannot compute in bf16" in " ".join(done.stderr.split())
        assert "Traceback" not in done.stderr
