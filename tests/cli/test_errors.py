"""What is wrong is said in one sentence, with an exit code."""

from __future__ import annotations

import json
import os

import pytest
from commands import error, result, run, strict_json, write


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
    assert "schedule='event' of the pipeline model is invalid" in error(
        "place", workload, "--schedule", "event"
    )
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
    assert "is a plan for a different model" in error("evaluate", workload, "--placement", plan)
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
