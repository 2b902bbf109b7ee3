"""explain and diff: what they say agrees with the evaluation, and every number is there as JSON."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import placements, problems
from typer.testing import CliRunner

from loadmaster import api
from loadmaster.cli import app
from loadmaster.plan import Plan
from loadmaster.problem import MODELS, Placement, Point
from loadmaster.problem._evaluator import evaluate
from loadmaster.problem.bounds import all_bounds, ignored_by
from loadmaster.report._gap import gap_document, gap_sentences
from loadmaster.report._whatif import more_memory, noise_document, one_more_device


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def plans(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plans")
    problem = api.problem("zoo:layered-60", "2acc+1cpu", pins=["op3=cpu0"])
    for method in ("heft", "greedy"):
        Plan.from_solution(problem, api.place(problem, method, evaluations=50)).save(
            folder / f"{method}.json"
        )
    return folder


def test_explain_accounts_for_the_whole_makespan(plans):
    result = run("explain", plans / "heft.json", "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert sum(document["critical_path"]["seconds"].values()) == pytest.approx(document["cost"])
    assert document["cuts"] == sorted(document["cuts"], key=lambda cut: -cut["seconds"])
    assert [entry["what_if"] for entry in document["what_if"]] == [
        "twice the bandwidth of every link",
        "1 GiB more memory on every device",
        "one more of the fastest device",
    ]
    for entry in document["what_if"]:
        assert entry["bound"] <= entry["cost"]
    noise = document["noise"]
    assert noise["low"] <= noise["mean"] <= noise["high"]


def test_explain_searches_again_when_asked(plans):
    result = run("explain", plans / "heft.json", "--re-place", "50ms", "--json")
    for entry in json.loads(result.stdout)["what_if"]:
        assert entry["bound"] <= entry["placed_again"] * (1 + 1e-9)


def test_explain_says_what_every_device_would_mean_for_an_op(plans):
    plan = Plan.load(plans / "heft.json")
    problem, device = plan.problem(), plan.placement().device
    document = json.loads(run("explain", plans / "heft.json", "op7", "--json").stdout)
    for d, entry in enumerate(document["devices"]):
        moved = device.copy()
        moved[7] = d
        assert entry["plan_cost"] == evaluate(problem, Placement(moved)).cost
        assert entry["seconds"] == problem.time[7, d]
    assert json.loads(run("explain", plans / "heft.json", "op3", "--json").stdout)["pinned"]


def test_explain_tells_people_too(plans):
    text = run("explain", plans / "heft.json").stdout
    for part in ("critical path", "waits for", "most expensive transfers", "what if"):
        assert part in text
    assert "current" in run("explain", plans / "heft.json", "op7").stdout


def test_explain_suggests_the_op_that_was_meant(plans):
    result = run("explain", plans / "heft.json", "opp7")
    assert result.exit_code == 2
    assert "did you mean" in result.output


@pytest.mark.parametrize("model", MODELS)
def test_plans_of_every_model_can_be_explained(model, tmp_path):
    problem = api.problem("zoo:layered-24", "2acc+1cpu", model=model)
    Plan.from_solution(problem, api.place(problem, "greedy", evaluations=20)).save(tmp_path / "plan.json")
    assert run("explain", tmp_path / "plan.json").exit_code == 0
    assert run("explain", tmp_path / "plan.json", "op1").exit_code == 0


def test_diff_lists_exactly_the_ops_that_moved(plans):
    result = run("diff", plans / "heft.json", plans / "greedy.json", "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    one, two = (Plan.load(plans / f"{name}.json") for name in ("heft", "greedy"))
    moved = np.flatnonzero(one.placement().device != two.placement().device)
    assert {entry["op"] for entry in document["moved"]} == {one.problem().graph.names[v] for v in moved}
    assert sum(entry["ops"] for entry in document["moves"]) == len(moved)
    assert [plan["cost"] for plan in document["plans"]] == [one.solution().cost, two.solution().cost]
    assert document["same_problem"]
    assert "moved" in run("diff", plans / "heft.json", plans / "greedy.json").stdout


def test_diff_of_different_graphs_says_so(plans, tmp_path):
    problem = api.problem("zoo:layered-24", "2acc+1cpu")
    Plan.from_solution(problem, api.place(problem, "heft", evaluations=20)).save(tmp_path / "other.json")
    result = run("diff", plans / "heft.json", tmp_path / "other.json")
    assert result.exit_code == 0
    assert "different graphs" in result.stdout


@given(st.data())
def test_a_further_device_or_memory_leaves_a_placement_its_cost(data):
    problem = data.draw(problems())
    placement = data.draw(placements(problem))
    cost = evaluate(problem, placement).cost
    assert evaluate(more_memory(problem), placement).cost == cost
    wide = one_more_device(problem)
    assert wide.devices == problem.devices + 1
    # Priorities under `concurrent` are means over the devices, so a schedule may change there.
    if problem.model.name != "concurrent":
        assert evaluate(wide, placement).cost == cost


def test_noise_is_the_same_every_time():
    problem = api.problem("zoo:layered-24", "2acc+1cpu", model="serial")
    placement = api.place(problem, "greedy", evaluations=20).placement
    assert noise_document(problem, placement) == noise_document(problem, placement)


def test_explain_says_where_a_gap_comes_from(tmp_path):
    problem = api.problem("zoo:layered-60", "2acc+1cpu", model="pipeline")
    solution = api.place(problem, "greedy", evaluations=50)
    assert not solution.optimal
    points = (Point(0.5, 1, 2 * solution.cost), Point(1.0, 2, solution.cost))
    for seconds, said in ((1.05, "still improving"), (1.5, "in the last 500"), (4.0, "unlikely to help")):
        searched = replace(solution, seconds=seconds, history=points)
        Plan.from_solution(problem, searched).save(tmp_path / "plan.json")
        found = json.loads(run("explain", tmp_path / "plan.json", "--json").stdout)["open"]
        assert found["seconds"] == pytest.approx(solution.cost - solution.bound)
        assert found["ignored"]
        assert found["idle"] == pytest.approx(seconds - 1.0)
        assert said in " ".join(gap_sentences(found))
        assert "ignores" in gap_sentences(found)[0]
    assert "why a gap" in run("explain", tmp_path / "plan.json").stdout


def test_what_is_proved_optimal_has_no_gap_to_explain():
    problem = api.problem("zoo:layered-20", "1acc+1cpu", model="serial")
    solution = api.place(problem, "min-cut", evaluations=50)
    assert solution.optimal
    assert gap_document(problem, solution, evaluate(problem, solution.placement)) is None


@pytest.mark.parametrize("model", MODELS)
def test_every_bound_says_what_it_leaves_out(model):
    problem = api.problem("zoo:layered-60", "2acc+1cpu", model=model)
    for bound in all_bounds(problem):
        ignored = ignored_by(problem, bound.name)
        assert ignored, bound.name
