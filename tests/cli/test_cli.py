"""The command line as scripts and people use it: exit codes, one-sentence errors, JSON that is a contract."""

import json
import math
import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from typer.testing import CliRunner

from loadmaster import __version__, api
from loadmaster.cli import app
from loadmaster.graph import layered
from loadmaster.graph._file import dump_graph
from loadmaster.placers import PLACERS, Progress
from loadmaster.plan import Plan
from loadmaster.problem import MODELS
from loadmaster.report._live import describe
from loadmaster.report._units import bytes_text, seconds_text

GOLDEN = json.loads((Path(__file__).parents[1] / "golden.json").read_text())
PLACE_KEYS = {
    "cost",
    "bound",
    "bound_by",
    "gap",
    "optimal",
    "feasible",
    "model",
    "settings",
    "method",
    "found_by",
    "parameters",
    "seed",
    "seconds",
    "evaluations",
    "stopped",
    "devices",
    "placement",
}


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def strict_json(text):
    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def result(*arguments):
    """The JSON that a command prints."""
    outcome = run(*arguments, "--json")
    assert outcome.exit_code == 0, outcome.output
    return strict_json(outcome.stdout)


def error(*arguments, code=2):
    """The one sentence that a command prints when it fails."""
    outcome = run(*arguments)
    assert outcome.exit_code == code, outcome.output
    assert outcome.stdout == ""
    lines = outcome.stderr.splitlines()
    assert len(lines) == 1, outcome.stderr
    assert lines[0].startswith("loadmaster: error: ")
    return lines[0]


def write(path, data):
    path.write_text(json.dumps(data))
    return path


@pytest.fixture
def workload(tmp_path):
    nodes = [
        {"id": i, "cpuLatency": 10, "fpgaLatency": 1, "size": 1, "supportedOnFpga": i != 3} for i in range(6)
    ]
    edges = [{"sourceId": i, "destId": i + 1, "cost": 0.25} for i in range(5)]
    data = {"maxFPGAs": 2, "maxCPUs": 1, "maxSizePerFPGA": 5, "nodes": nodes, "edges": edges}
    return write(tmp_path / "workload.json", data)


# -- place ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["serial", "concurrent", "pipeline", "offload"])
def test_place_prints_the_contract(model):
    found = result("place", "zoo:layered-20?width=3", "--model", model, "--evaluations", 100, "--seed", 4)
    assert found.keys() >= PLACE_KEYS
    assert found["model"] == model
    assert found["feasible"] is True
    assert found["method"] == "auto"
    assert found["seed"] == 4
    assert 0 < found["bound"] <= found["cost"]
    assert found["gap"] == pytest.approx((found["cost"] - found["bound"]) / found["cost"])
    assert found["optimal"] is (found["gap"] <= 1e-6)
    assert found["evaluations"] <= 100
    assert found["devices"] == [
        {"name": "acc0", "kind": "acc"},
        {"name": "acc1", "kind": "acc"},
        {"name": "cpu0", "kind": "cpu"},
    ]
    assert set(found["placement"]) == {f"op{v}" for v in range(20)}
    assert set(found["placement"].values()) <= {"acc0", "acc1", "cpu0"}


def test_settings_reach_the_model():
    found = result(
        *("place", "zoo:layered-10", "--method", "single", "--model", "pipeline", "--contiguity", "chain"),
        *("--comm", "overlap", "--objective", "fw+bw"),
    )
    assert found["settings"] == {"contiguity": "chain", "comm": "overlap", "objective": "fw+bw"}
    found = result(
        "place", "zoo:layered-10", "--method", "single", "--schedule", "static", "--memory", "peak"
    )
    assert found["settings"] == {"schedule": "static", "memory": "peak"}
    found = result("place", "zoo:layered-10", "--method", "single", "--model", "offload", "--max-calls", 3)
    assert found["settings"] == {"max_calls": 3}


def test_a_workload_is_placed_in_seconds_under_the_pipeline_model(workload):
    found = result("place", workload, "--evaluations", 300)
    assert (found["model"], found["settings"]["contiguity"]) == ("pipeline", "none")
    assert found["placement"]["3"] == "cpu0", "the op that accelerators do not support"
    assert found["cost"] == pytest.approx(0.010), "ten milliseconds of that op on the CPU"
    assert found["optimal"] is True
    assert [device["name"] for device in found["devices"]] == ["acc0", "acc1", "cpu0"]


def test_what_place_prints_evaluates_to_its_cost(tmp_path, workload):
    for source, settings in (
        ("zoo:layered-30", ["--method", "heft"]),
        ("zoo:layered-20?width=2", ["--model", "offload", "--max-calls", "2"]),
        (workload, ["--contiguity", "chain"]),
    ):
        plan = tmp_path / "plan.json"
        found = result("place", source, *settings, "--evaluations", 50, "-o", plan)
        printed = write(tmp_path / "printed.json", found)
        settings = [text for text in settings if text not in ("--method", "heft")]
        for placement in (plan, printed):
            again = result("evaluate", source, "--placement", placement, *settings)
            assert again["cost"] == found["cost"]
            assert again["feasible"] is True
            assert again["placement"] == found["placement"]
        assert result("evaluate", source, "--placement", plan)["cost"] == found["cost"], (
            "a plan brings its model"
        )
        assert Plan.load(plan).document["cost"] == found["cost"]


def test_a_run_repeats_for_a_seed():
    first, second = (result("place", "zoo:layered-40", "--evaluations", 200, "--seed", 9) for _ in range(2))
    del first["seconds"], second["seconds"]
    assert first == second


def test_pins_and_forbids_are_kept(workload):
    found = result(
        "place", workload, "--pin", "0=acc1", "--pin", "1=acc1", "--forbid", "[245]=acc0", "--evaluations", 50
    )
    assert found["placement"]["0"] == found["placement"]["1"] == "acc1"
    assert all(found["placement"][op] != "acc0" for op in "245")


def test_parameters_of_a_method_can_be_set():
    """On whichever methods have a number among their parameters."""
    numbers = [
        (name, field.name, getattr(placer, field.name))
        for name, placer in PLACERS.items()
        for field in fields(placer)
        if type(getattr(placer, field.name)) in (int, float)
    ]
    assert numbers
    refused = set()
    for name, field, default in numbers:
        model = next(
            m for m in MODELS if PLACERS[name].supports(api.problem("zoo:layered-10", model=m)) is None
        )
        place = ("place", "zoo:layered-10", "--model", model, "--method", name, "--evaluations", 20)
        assert "is invalid" in error(*place, "--set", f"{field}=much")
        if name not in refused:
            refused.add(name)
            assert result(*place, "--set", f"{field}={default}")["parameters"][field] == default
            assert "has no parameter 'bogus'" in error(*place, "--set", "bogus=1")
    assert "must be written NAME=VALUE" in error("place", "zoo:layered-10", "--set", "bogus")


@pytest.mark.parametrize("budget", ["200ms", "0.2s", "0.2", ".2s", "0.0034m", "0.00006h"])
def test_budgets_are_times(budget):
    assert result("place", "zoo:layered-10", "--method", "single", "--budget", budget)["feasible"]


def test_tables_are_printed_for_people(workload):
    shown = run("place", workload, "--method", "single")
    assert shown.exit_code == 0
    for text in ("cost", "bound", "single", "acc0", "cpu0", "evaluations"):
        assert text in shown.stdout
    assert shown.stderr == ""
    assert max(map(len, shown.stdout.splitlines())) <= 80


# -- evaluate ------------------------------------------------------------------------------------------------


def golden_cases():
    """One case with a schedule, an order, calls, violations and an undefined cost each, and some more."""
    for entry in GOLDEN:
        for kind in ("serial", "pipeline", "concurrent", "offload"):
            cases = [case for case in entry["cases"] if case["model"] == kind]
            chosen = cases[-1:] + [case for case in cases if case["cost"] is None][:1]
            chosen += [case for case in cases if case.get("order")][:1]
            for case in chosen:
                yield pytest.param(entry["problem"], case, id=f"{entry['title']}, {kind}")


@pytest.mark.parametrize(("problem", "case"), [*golden_cases()])
def test_evaluate_agrees_with_the_golden_cases(tmp_path, problem, case):
    file = write(tmp_path / "problem.json", problem)
    ops = [op["name"] for op in problem["ops"]]
    devices = [device["name"] for device in problem["devices"]]
    placement = {"placement": {op: devices[d] for op, d in zip(ops, case["device"], strict=True)}}
    if case.get("order"):
        placement["order"] = case["order"]
    options = [
        text for key, value in case["settings"].items() for text in (f"--{key.replace('_', '-')}", value)
    ]
    found = result(
        "evaluate",
        file,
        "--placement",
        write(tmp_path / "placement.json", placement),
        "--model",
        case["model"],
        *options,
    )
    assert found["cost"] == (None if case["cost"] is None else pytest.approx(case["cost"], rel=1e-12))
    if case["cost"] is None or case["violations"] or case.get("call_violations"):
        assert found["feasible"] is False
    if case["cost"] is not None and "start" in case:
        schedule = {entry["op"]: entry for entry in found["schedule"]}
        assert [schedule[op]["start"] for op in ops] == pytest.approx(case["start"])
        assert [schedule[op]["end"] for op in ops] == pytest.approx(case["end"])
        transfers = sorted(
            (t["tensor"], t["from"], t["to"], t["start"], t["end"]) for t in found["transfers"]
        )
        assert transfers == sorted((t, devices[a], devices[b], s, e) for t, a, b, s, e in case["transfers"])
    if "calls" in case and case["cost"] is not None:
        calls = [(call["device"], call["ops"]) for call in found["calls"]]
        assert calls == [(devices[d], [ops[v] for v in members]) for d, members in case["calls"]]


def test_evaluate_prints_loads_memory_and_reasons(tmp_path, workload):
    placement = {"placement": {str(i): "acc0" for i in range(6)}}
    found = result("evaluate", workload, "--placement", write(tmp_path / "p.json", placement))
    assert found["cost"] is None, "op 3 cannot run there"
    assert found["feasible"] is False
    assert len(found["why"]) == 2
    assert "op '3' is not supported on device 'acc0'" in found["why"]
    assert found["memory"] == {"acc0": 6.0, "acc1": 0.0, "cpu0": 0.0}
    assert {violation["kind"] for violation in found["violations"]} == {"unsupported", "capacity"}

    placement = {"placement": dict(zip("012345", ["acc0"] * 3 + ["cpu0"] + ["acc1"] * 2, strict=True))}
    file = write(tmp_path / "p.json", placement)
    found = result("evaluate", workload, "--placement", file)
    assert found["load"] == pytest.approx({"acc0": 0.00325, "acc1": 0.00225, "cpu0": 0.010})
    assert found["busy"] == pytest.approx({"acc0": 0.003, "acc1": 0.002, "cpu0": 0.010})
    assert found["comm"] == pytest.approx({"acc0": 0.00025, "acc1": 0.00025, "cpu0": 0.0})
    assert [(t["op"], t["from"], t["to"]) for t in found["transfers"]] == [
        ("2", "acc0", "cpu0"),
        ("3", "cpu0", "acc1"),
    ]
    assert (found["why"], found["feasible"], found["optimal"]) == ([], True, True)
    shown = run("evaluate", workload, "--placement", file)
    assert "10.00 ms" in shown.stdout


def test_surplus_groups_are_a_violation(tmp_path, workload):
    split = {"fpgas": [{"nodes": [i]} for i in (0, 1, 2, 4, 5)], "cpus": [{"nodes": [3]}]}
    found = result("evaluate", workload, "--placement", write(tmp_path / "split.json", split))
    assert found["feasible"] is False
    assert found["cost"] == pytest.approx(0.010)
    assert [device["name"] for device in found["devices"]] == ["acc0", "acc1", "acc2", "acc3", "acc4", "cpu0"]
    assert sum("not one of the problem's devices" in text for text in found["why"]) == 3


# -- compare, methods, inspect, export -----------------------------------------------------------------------


def test_compare_prints_a_list_of_place_objects():
    found = result("compare", "zoo:layered-20", "--methods", "single,random", "--evaluations", 20)
    assert [entry["method"] for entry in found] == ["single", "random"]
    assert all(entry.keys() >= PLACE_KEYS for entry in found)
    shown = run("compare", "zoo:layered-20", "--methods", "single, random", "--evaluations", 20)
    assert "best" in shown.stdout
    assert max(map(len, shown.stdout.splitlines())) <= 80


def test_compare_takes_all_methods_that_can_by_default():
    found = result("compare", "zoo:layered-8", "--model", "serial", "--evaluations", 5)
    methods = [entry["method"] for entry in found]
    assert "heft" not in methods
    assert {"single", "random"} <= set(methods)


def test_methods_are_listed():
    found = {entry["name"]: entry for entry in result("methods")}
    assert list(found) == list(PLACERS)
    assert found["heft"]["models"] == ["concurrent"]
    assert "pipeline" in found["heft"]["unsupported"]
    assert found["single"]["models"] == ["serial", "concurrent", "pipeline", "offload"]
    shown = run("methods").stdout
    assert all(name in shown for name in PLACERS)


def test_inspect_shows_what_is_there(workload):
    found = result("inspect", workload)
    assert (found["ops"], found["tensors"], found["edges"], found["levels"], found["width"]) == (
        6,
        5,
        5,
        6,
        1,
    )
    assert found["memory"] == 6.0
    assert found["devices"][2] == {
        "name": "cpu0",
        "kind": "cpu",
        "capacity": None,
        "supported_ops": 6,
        "cost_alone": pytest.approx(0.060),
        "feasible_alone": True,
    }
    assert found["devices"][0]["feasible_alone"] is False
    assert max(found["bounds"].values()) == pytest.approx(0.010)
    found = result("inspect", "zoo:layered-40", "--cluster", "1acc+1cpu", "--model", "serial")
    assert sum(found["op_types"].values()) == 40
    shown = run("inspect", "zoo:layered-40")
    assert f"Conv {found['op_types']['Conv']}" in shown.stdout
    assert max(map(len, shown.stdout.splitlines())) <= 80


def test_every_command_takes_an_empty_model():
    assert result("inspect", "zoo:layered-0")["ops"] == 0
    found = result("place", "zoo:layered-0", "--method", "single")
    assert (found["cost"], found["gap"], found["optimal"], found["placement"]) == (0.0, 0.0, True, {})
    assert run("place", "zoo:layered-0", "--method", "single").exit_code == 0
    assert run("inspect", "zoo:layered-0").exit_code == 0


def test_plans_are_exported(tmp_path):
    plan = tmp_path / "plan.json"
    found = result("place", "zoo:layered-10", "--method", "single", "-o", plan)
    assert strict_json(run("export", plan).stdout) == found["placement"]
    out = tmp_path / "plan.dot"
    outcome = run("export", plan, "--format", "dot", "-o", out)
    assert (outcome.exit_code, outcome.stdout) == (0, "")
    assert out.read_text().startswith('digraph "layered-10" {')
    assert "the format 'png' is unknown" in error("export", plan, "-f", "png")
    assert "is not a plan" in error("export", write(tmp_path / "other.json", {}))


# -- what goes wrong -----------------------------------------------------------------------------------------


def test_files_that_are_wrong(tmp_path, workload):
    assert "none.json: there is no such file" in error("place", tmp_path / "none.json")
    assert "cannot be read" in error("place", tmp_path)
    half = tmp_path / "half.json"
    half.write_bytes(workload.read_bytes()[:200])
    assert "half.json: is not valid JSON" in error("place", half)
    assert "is not a workload, a graph, a problem or a plan" in error(
        "place", write(tmp_path / "x.json", {"a": 1})
    )
    data = json.loads(workload.read_text())
    data["nodes"][2]["cpuLatency"] = "slow"
    assert "node 2: 'cpuLatency' must be a number" in error("inspect", write(tmp_path / "y.json", data))
    assert "the zoo has no graph 'unicorn'" in error("place", "zoo:unicorn")


def test_options_that_are_wrong(workload):
    assert "no method 'magic'" in error("place", workload, "--method", "magic")
    assert "no method 'magic'" in error("compare", workload, "--methods", "single,magic")
    assert "no method to compare" in error("compare", workload, "--methods", ",")
    assert "'quantum' is unknown" in error("place", workload, "--model", "quantum")
    assert "contiguity='total'" in error("place", workload, "--contiguity", "total")
    assert "the pipeline model has no setting 'schedule'" in error("place", workload, "--schedule", "event")
    assert "max_calls must be a whole number >= 1" in error(
        "place", workload, "--model", "offload", "--max-calls", 0
    )
    assert "there is no device 'moon'" in error("place", workload, "--pin", "0=moon")
    assert "no op is called '77'" in error("place", workload, "--forbid", "77=acc0")
    assert "which brings its own devices" in error("place", workload, "--cluster", "2acc")
    assert "no cluster called 'big'" in error("place", "zoo:layered-3", "--cluster", "big")
    assert ">= 1 evaluations" in error("place", workload, "--evaluations", 0)
    assert "heft cannot place this problem" in error("place", workload, "--method", "heft")
    for budget in ("soon", "-3s", "3 parsecs", "", "nan", "inf"):
        assert "is not a time" in error("place", workload, f"--budget={budget}")


@pytest.mark.parametrize(
    "arguments",
    [
        ["place"],
        ["place", "x", "--bogus"],
        ["fly"],
        ["place", "x", "--seed", "y"],
        ["evaluate", "zoo:layered-3"],
    ],
)
def test_wrong_usage_exits_with_2(arguments):
    outcome = run(*arguments)
    assert outcome.exit_code == 2
    assert outcome.stdout == ""
    assert "Traceback" not in outcome.output


def test_an_infeasible_problem_exits_with_3(workload):
    assert "pinned to device 'acc0'" in error("place", workload, "--pin", "3=acc0", code=3)
    assert "pinned to device 'acc0'" in error(
        "compare", workload, "--methods", "single,random", "--pin", "3=acc0", code=3
    )


def test_placements_that_are_wrong(tmp_path, workload):
    plan = tmp_path / "plan.json"
    result("place", "zoo:layered-6", "--method", "single", "-o", plan)
    assert "is a plan for another model" in error("evaluate", workload, "--placement", plan)
    content = plan.read_bytes()
    plan.write_bytes(content[: len(content) // 2])
    assert "plan.json: is not valid JSON" in error("evaluate", "zoo:layered-6", "--placement", plan)
    assert "there is no such file" in error("evaluate", workload, "--placement", tmp_path / "none.json")
    bare = write(tmp_path / "bare.json", {"placement": {"0": "acc0"}})
    assert "leaves out op '1', '2', '3' and 2 more" in error("evaluate", workload, "--placement", bare)


def test_where_to_write_is_checked_before_the_search(tmp_path):
    for target, message in (
        (tmp_path, "is a folder"),
        (tmp_path / "none" / "plan.json", "there is no folder"),
    ):
        assert message in error(
            "place", "zoo:layered-300", "--method", "random", "--budget", "1h", "-o", target
        )


def test_the_result_is_printed_even_if_the_plan_cannot_be_written(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    outcome = run("place", "zoo:layered-5", "--method", "single", "-o", tmp_path / "plan.json", "--json")
    assert outcome.exit_code == 2
    assert strict_json(outcome.stdout)["feasible"] is True
    assert "No space left on device" in outcome.stderr


# -- as a process --------------------------------------------------------------------------------------------

COMMAND = [sys.executable, "-m", "loadmaster.cli"]


def test_version_and_help():
    assert run("--version").stdout == f"loadmaster {__version__}\n"
    for command in ("inspect", "place", "evaluate", "compare", "methods", "export"):
        assert command in run("--help").stdout
        assert run(command, "--help").exit_code == 0
    assert (
        __version__
        in subprocess.run([*COMMAND, "--version"], capture_output=True, text=True, check=True).stdout
    )


def test_standard_output_is_json_and_nothing_else(tmp_path):
    file = write(tmp_path / "graph.json", dump_graph(layered(12)))
    arguments = ["place", str(file), "--evaluations", "30", "--json"]
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=True)
    assert strict_json(done.stdout)["feasible"] is True
    assert done.stderr == ""


INTERRUPTED = """
import signal
from loadmaster.cli import main
from loadmaster.report._live import LiveProgress

signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what a script runs in the background
told = []

def interrupt(progress, state):
    told.append(state)
    if sum(state.cost < float("inf") for state in told) == 1:
        signal.raise_signal(signal.SIGINT)

LiveProgress.__call__ = interrupt
main()
"""


def test_ctrl_c_keeps_the_best(tmp_path):
    plan = tmp_path / "plan.json"
    arguments = ["place", "zoo:layered-60", "--method", "random", "--budget", "1h", "-o", str(plan), "--json"]
    done = subprocess.run([sys.executable, "-c", INTERRUPTED, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert strict_json(done.stdout)["stopped"] == "interrupted"
    assert done.stderr == "loadmaster: interrupted: this is the best so far\n"
    assert Plan.load(plan).document["stopped"] == "interrupted"


def test_ctrl_c_ends_a_comparison_with_what_is_there():
    arguments = [
        "compare",
        "zoo:layered-60",
        "--methods",
        "single,random,annealing",
        "--budget",
        "1h",
        "--json",
    ]
    done = subprocess.run([sys.executable, "-c", INTERRUPTED, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [entry["stopped"] for entry in strict_json(done.stdout)][-1] == "interrupted"
    assert done.stderr == "loadmaster: interrupted: this is what was found so far\n"


def test_progress_shows_incumbent_bound_and_gap():
    assert describe(None) == "compiling kernels (first run only) …"
    assert describe(Progress("heft", 2.0, 0, math.inf, 1.0)) == "compiling kernels (first run only) …"
    assert "no feasible placement yet" in describe(Progress("heft", 2.0, 5, math.inf, 1.0))
    line = describe(Progress("heft", 3.14, 1234, 0.004, 0.003))
    assert line == "heft  3.10 s  1,234 evaluations  cost 4.00 ms  bound 3.00 ms  gap 25.00 %"


def test_numbers_are_shown_as_people_read_them():
    times = {
        0.0: "0 s",
        3e-9: "3.00 ns",
        4.56e-5: "45.60 µs",
        0.01779: "17.79 ms",
        1.5: "1.50 s",
        7200: "7,200 s",
    }
    assert {seconds: seconds_text(seconds) for seconds in times} == times
    sizes = {0: "0 B", 1023: "1,023 B", 1536: "1.5 KiB", 2**34: "16.0 GiB"}
    assert {size: bytes_text(size) for size in sizes} == sizes


def test_a_closed_pipe_is_no_error():
    script = f"{' '.join(COMMAND)} methods --json | true"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert "Traceback" not in done.stderr
    assert "Error" not in done.stderr
