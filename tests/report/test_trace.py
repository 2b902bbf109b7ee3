"""Traces: every event obeys the Trace Event Format, and says what the evaluation says."""

import itertools
import json
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import placements, problems
from typer.testing import CliRunner

from loadmaster import api
from loadmaster.cli import app
from loadmaster.errors import InputError
from loadmaster.plan import Plan
from loadmaster.problem import Concurrent, Offload, Pipeline, Serial
from loadmaster.problem._evaluator import evaluate
from loadmaster.report import trace_document
from loadmaster.report._trace import memory_over_time

KEYS = {
    "M": {"ph", "pid", "tid", "name", "args"},
    "X": {"ph", "pid", "tid", "ts", "dur", "name", "cat", "args"},
    "C": {"ph", "pid", "tid", "ts", "name", "args"},
    "s": {"ph", "pid", "tid", "ts", "name", "cat", "id"},
    "t": {"ph", "pid", "tid", "ts", "name", "cat", "id"},
    "f": {"ph", "pid", "tid", "ts", "name", "cat", "id", "bp"},
}


def check_schema(document):
    """Strict: keys and types of every event, tracks named, no overlap on a track, arrows complete and inside."""
    document = json.loads(json.dumps(document, allow_nan=False))
    assert set(document) == {"traceEvents", "displayTimeUnit", "otherData"}
    slices, flows, named = defaultdict(list), defaultdict(list), set()
    for event in document["traceEvents"]:
        assert set(event) == KEYS[event["ph"]], event
        assert isinstance(event["name"], str)
        assert type(event["pid"]) is int
        assert type(event["tid"]) is int
        if "ts" in event:
            assert event["ts"] >= 0
        track = event["pid"], event["tid"]
        match event["ph"]:
            case "M":
                assert event["name"] in {"process_name", "thread_name", "thread_sort_index"}
                named.add((track, event["name"]))
            case "X":
                assert event["dur"] >= 0
                slices[track].append((event["ts"], event["ts"] + event["dur"]))
            case "C":
                assert all(isinstance(value, float | int) for value in event["args"].values())
            case _:
                flows[event["pid"], event["id"]].append((event["ph"], track, event["ts"]))
    for track, spans in slices.items():
        assert (track, "thread_name") in named
        assert ((track[0], 0), "process_name") in named
        for before, after in itertools.pairwise(sorted(spans)):
            assert before[1] <= after[0] * (1 + 1e-9) + 1e-6
    for steps in flows.values():
        assert [ph for ph, _, _ in steps] == ["s", "t", "f"]
        for _, track, ts in steps:
            assert any(start - 1e-6 <= ts <= end + 1e-6 for start, end in slices[track])
        times = [ts for _, _, ts in steps]
        assert all(a <= b * (1 + 1e-9) + 1e-6 for a, b in itertools.pairwise(times))
    return document


@given(st.data())
def test_every_schedule_gives_a_valid_trace(data):
    problem = data.draw(problems(st.sampled_from([Serial(), Concurrent(), Concurrent("static"), Offload(2)])))
    placement = data.draw(placements(problem))
    evaluation = evaluate(problem, placement)
    if evaluation.start is None:
        with pytest.raises(InputError, match="no schedule"):
            trace_document(problem, placement)
        return
    document = check_schema(trace_document(problem, placement))
    events = document["traceEvents"]
    ends = [event["ts"] + event["dur"] for event in events if event["ph"] == "X"]
    assert max(ends) == pytest.approx(evaluation.cost * 1e6)
    assert sum(event["ph"] == "s" for event in events) == len(evaluation.transfers)


@given(st.data())
def test_memory_counters_reach_the_peak(data):
    problem = data.draw(problems(Concurrent()))
    placement = data.draw(placements(problem))
    evaluation = evaluate(problem, placement)
    if evaluation.peak is not None:
        series = memory_over_time(problem, placement, evaluation)
        assert [amount.max() for _, amount in series] == pytest.approx(evaluation.peak.tolist())


def test_pipelines_have_no_schedule_to_trace():
    problem = api.problem("zoo:layered-24", model=Pipeline())
    with pytest.raises(InputError, match="not when"):
        trace_document(problem, api.place(problem, "greedy", evaluations=10).placement)


def test_a_measured_schedule_is_a_process_of_its_own(tmp_path):
    problem = api.problem("zoo:layered-24", "2acc+1cpu")
    solution = api.place(problem, "greedy", evaluations=10)
    schedule = [
        {"op": name, "device": "cpu0", "start": i * 1e-3, "end": i * 1e-3 + 5e-4}
        for i, name in enumerate(problem.graph.names)
    ]
    path = tmp_path / "plan.json"
    Plan.from_solution(problem, solution, measured={"cost": 1.0, "schedule": schedule}).save(path)
    result = CliRunner().invoke(app, ["trace", str(path), "-o", str(tmp_path / "trace.json")])
    assert result.exit_code == 0, result.output
    document = check_schema(json.loads((tmp_path / "trace.json").read_text()))
    measured = [event for event in document["traceEvents"] if event["pid"] == 2 and event["ph"] == "X"]
    assert len(measured) == problem.n
    assert np.isclose(measured[0]["dur"], 500)
