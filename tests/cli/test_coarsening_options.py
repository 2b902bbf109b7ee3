"""Placing groups of ops from the command line."""

from __future__ import annotations

import json

import pytest
from commands import error, result, run


@pytest.mark.parametrize("model", ["serial", "concurrent", "pipeline", "offload"])
def test_placing_groups_gives_a_solution_of_the_full_problem(model, tmp_path):
    plan = tmp_path / "plan.json"
    common = ("zoo:layered-60", "--model", model, "--method", "local-search", "--evaluations", 300)
    found = result("place", *common, "--coarsen", "chain,matching:15", "-o", plan)
    assert len(found["placement"]) == 60
    assert found["feasible"]
    assert found["evaluations"] <= 300
    assert found["parameters"]["coarsen"] == "chain,matching:15"
    full = result("place", *common)
    assert found["bound"] == full["bound"]
    again = result("evaluate", "zoo:layered-60", "--placement", plan, "--model", model)
    assert again["cost"] == found["cost"]


def test_compare_places_groups_too():
    found = result("compare", "zoo:layered-60", "--methods", "single,heft", "--coarsen", "matching:10")
    assert [entry["parameters"]["coarsen"] for entry in found] == ["matching:10", "matching:10"]


def test_inspect_says_how_many_groups_there_are():
    found = result("inspect", "zoo:layered-60", "--coarsen", "matching:10")
    assert found["coarse"]["groups"] == 10
    assert found["ops"] == 60
    assert "10 groups" in run("inspect", "zoo:layered-60", "--coarsen", "matching:10").stdout


def test_an_unknown_rule_is_refused():
    assert "'chian'" in error("place", "zoo:layered-20", "--coarsen", "chian")


def test_groups_from_a_file(tmp_path):
    groups = tmp_path / "groups.json"
    groups.write_text(json.dumps([[f"op{v}" for v in range(20)]]))
    assert result("inspect", "zoo:layered-20", "--coarsen", f"fused:{groups}")["coarse"]["groups"] == 1
