"""The published workloads evaluate to the published numbers."""

import json
from functools import cache

import numpy as np
import pytest
from workload_files import WORKLOADS

from loadmaster import api
from loadmaster.problem import Placement

REFERENCE = WORKLOADS / "reference.json"


@cache
def reference():
    return json.loads(REFERENCE.read_text())


def entries(section, *keys):
    """The workloads of a section that have these numbers; without the folder a placeholder, to be skipped."""
    if not REFERENCE.is_file():
        return ["none"]
    return [
        name
        for name, entry in reference()[section].items()
        if all(entry.get(key) is not None for key in keys)
    ]


def milliseconds(evaluation):
    return 1000 * evaluation.cost


@pytest.mark.parametrize("name", entries("throughput", "one_accelerator"))
def test_everything_on_one_accelerator_takes_the_published_time_per_sample(workloads, name):
    problem = api.problem(workloads / name)
    evaluation = api.evaluate(problem, Placement(np.zeros(problem.n, np.int32)))
    assert f"{milliseconds(evaluation):.6g}" == f"{reference()['throughput'][name]['one_accelerator']:.6g}"


@pytest.mark.parametrize("name", entries("throughput", "expert", "expert_split"))
def test_the_experts_splits_have_the_published_time_per_sample(workloads, name):
    entry = reference()["throughput"][name]
    problem, placement = api.read_placement(workloads / entry["expert_split"], workloads / name)
    assert f"{milliseconds(api.evaluate(problem, placement)):.6g}" == f"{entry['expert']:.6g}"


@pytest.mark.parametrize("name", entries("latency", "expert_latency", "expert_split"))
def test_the_experts_splits_have_the_published_latency(workloads, name):
    entry = reference()["latency"][name]
    split = workloads / entry["expert_split"]
    problem, placement = api.read_placement(split, workloads / name, model="offload")
    evaluation = api.evaluate(problem, placement)
    assert f"{milliseconds(evaluation):.3f}" == f"{entry['expert_latency']:.3f}"
    kinds = {violation.kind for violation in evaluation.violations}
    assert ("capacity" in kinds) is entry["expert_out_of_memory"]


@pytest.mark.parametrize("section", ["throughput", "latency"])
def test_the_workloads_have_the_published_sizes(workloads, section):
    for name, entry in reference()[section].items():
        problem = api.problem(workloads / name)
        assert problem.n == entry["nodes"]
        assert problem.graph.edges <= entry["edges"], "double edges of a file are one edge of the graph"
        assert problem.pool.tolist().count(False) == entry.get("accelerators", entry.get("k"))
