"""``place``, ``evaluate``, ``compare`` and ``inspect``: JSON that is a contract, tables for people."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import pytest
from commands import error, result, run, write

from loadmaster import api
from loadmaster.placers import PLACERS
from loadmaster.plan import Plan
from loadmaster.problem import MODELS

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


GOLDEN = json.loads((Path(__file__).parents[1] / "golden.json").read_text())


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


KINDS = [
    *((("--model", model), {"model": model}) for model in MODELS),
    (("--model", "pipeline", "--microbatches", 4), {"model": "pipeline", "microbatches": 4}),
    (("--model", "pipeline", "--contiguity", "device"), {"model": "pipeline:device"}),
]


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
        options = next(
            given for given, m in KINDS if PLACERS[name].supports(api.problem("zoo:layered-10", **m)) is None
        )
        place = ("place", "zoo:layered-10", *options, "--method", name, "--evaluations", 20)
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
