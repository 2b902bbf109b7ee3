"""Boundary ops, the inputs and outputs of a model, are outside contiguity; everything else about them stays."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from boundary_flags import boundary_problems, flagged, without_boundary
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import graphs, models, placements, problems

from loadmaster.errors import InputError
from loadmaster.graph import dump_graph, parse_graph
from loadmaster.plan import Plan
from loadmaster.problem import (
    Pipeline,
    Placement,
    Problem,
    SimulatedEvaluator,
    Solution,
    dump_problem,
    evaluate,
    parse_problem,
    reference,
)
from loadmaster.problem.coarsening import coarsen
from loadmaster.problem.contiguity import contiguity_violations

CASES = json.loads((Path(__file__).parent / "boundary_cases.json").read_text())["cases"]
PIPELINES = st.builds(
    Pipeline,
    st.sampled_from(["device", "chain"]),
    st.sampled_from(["sum", "overlap"]),
    st.sampled_from(["sum", "fw+bw"]),
)


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
@pytest.mark.parametrize("judge", [evaluate, reference.evaluate])
def test_cases(case, judge):
    for model in case["models"]:
        problem = parse_problem(case["problem"], case["name"], Pipeline(contiguity=model["contiguity"]))
        for entry in model["placements"]:
            found = judge(problem, Placement(np.array(entry["device"], np.int32)))
            assert found.cost == entry["cost"]
            assert found.feasible == entry["feasible"]


@given(st.data())
@settings(max_examples=200)
def test_contiguity_is_that_of_the_graph_without_them(data):
    problem = data.draw(boundary_problems(PIPELINES, backward=True, max_ops=9))
    placement = data.draw(placements(problem))
    rest, kept = without_boundary(problem)
    together = placement.device[problem.members[1][problem.members[0][:-1]]][problem.class_of]
    device = together.astype(np.int32)
    wanted = not list(contiguity_violations(rest, device[kept]))
    assert (not list(contiguity_violations(problem, device))) == wanted
    judged = evaluate(problem, Placement(device))
    assert any(v.kind == "contiguity" for v in judged.violations) != wanted
    batch = SimulatedEvaluator(problem).evaluate_batch(device[None])
    assert bool(batch[1][0]) == judged.feasible


@given(st.data())
def test_no_cost_depends_on_them(data):
    problem = data.draw(problems(models(), backward=True))
    if problem.model.name == "offload" and problem.graph.backward.any():
        return
    placement = data.draw(placements(problem))
    flags = data.draw(st.lists(st.booleans(), min_size=problem.n, max_size=problem.n))
    plain, marked = evaluate(problem, placement), evaluate(flagged(problem, flags), placement)
    assert marked.cost == plain.cost
    assert marked.busy.tolist() == plain.busy.tolist()
    assert marked.comm.tolist() == plain.comm.tolist()
    other = [v for v in plain.violations if v.kind != "contiguity"]
    assert [v for v in marked.violations if v.kind != "contiguity"] == other
    assert sum(v.kind == "contiguity" for v in marked.violations) <= sum(
        v.kind == "contiguity" for v in plain.violations
    )


@given(st.data())
def test_files_keep_them(data):
    problem = data.draw(boundary_problems(PIPELINES, max_ops=5))
    again = parse_problem(json.loads(json.dumps(dump_problem(problem))), "file", problem.model)
    assert again.graph.boundary.tolist() == problem.graph.boundary.tolist()
    graph = parse_graph(json.loads(json.dumps(dump_graph(problem.graph))), "file")
    assert graph == problem.graph
    device = np.zeros(problem.n, np.int32)
    cost = evaluate(problem, Placement(device)).cost
    if not np.isfinite(cost):
        return
    solution = Solution(
        placement=Placement(device), cost=cost, bound=0.0, bound_by="", method="test", evaluations=1, seconds=0.0,
        seed=0, parameters={}, history=(), found_by="test", stopped="finished",
    )  # fmt: skip
    plan = Plan.from_solution(problem, solution)
    loaded = Plan.parse(json.loads(plan.to_bytes()), "plan.json")
    assert loaded.problem() == problem
    assert ("boundary" in plan.document["problem"]["graph"]["arrays"]) == problem.graph.boundary.any()


@given(graphs())
def test_graphs_without_them_have_the_hash_and_the_files_that_they_always_had(graph):
    assert all("boundary" not in op for op in dump_graph(graph)["ops"])
    assert not graph.boundary.any()


def test_a_flag_must_be_a_truth_value():
    case = json.loads(json.dumps(CASES[0]["problem"]))
    case["ops"][0]["boundary"] = "yes"
    with pytest.raises(InputError, match="boundary"):
        parse_problem(case, "file.json", Pipeline())


@given(st.data())
@settings(max_examples=50)
def test_groups_of_ops_ask_for_no_more_and_no_less(data):
    problem = data.draw(boundary_problems(PIPELINES, max_ops=8, constrained=False))
    groups = coarsen(problem, data.draw(st.sampled_from(["chain", "zero", "matching:3", "chain,matching:2"])))
    device = np.random.default_rng(0).integers(0, problem.devices, groups.coarse.n).astype(np.int32)
    coarse = not list(contiguity_violations(groups.coarse, device))
    assert (not list(contiguity_violations(problem, device[groups.group_of]))) == coarse


def test_a_problem_without_contiguity_does_not_look_at_them():
    case = CASES[0]["problem"]
    problem = parse_problem(case, "case", Pipeline())
    assert isinstance(problem, Problem)
    device = np.arange(problem.n, dtype=np.int32) % problem.devices
    assert (
        evaluate(problem, Placement(device)).feasible
        == reference.evaluate(problem, Placement(device)).feasible
    )
