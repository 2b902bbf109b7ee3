"""Clusters, costs and coarsening from the command line."""

import json

import pytest
from test_cli import error, result, run

from loadmaster.hardware import preset_names

TOML = """\
[[device]]
name = "cpu"
kind = "cpu"
flops = "1 TFLOP/s"
bandwidth = "50 GB/s"
"""


@pytest.fixture
def cluster(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(TOML)
    return path


def test_clusters_lists_the_presets():
    assert [entry["name"] for entry in result("clusters")] == list(preset_names())
    shown = run("clusters").stdout
    assert "p100-8" in shown
    assert "hsdag" in shown


def test_clusters_shows_devices_links_and_sources_of_one():
    found = result("clusters", "p100-2")
    assert [device["name"] for device in found["devices"]] == ["cpu", "gpu0", "gpu1"]
    assert found["devices"][1]["flops"]["fp32"] == 9.3e12
    assert len(found["links"]) == 6
    assert all(device["source"] for device in found["devices"])
    shown = run("clusters", "p100-8").stdout
    assert "gpu0 … gpu7" in shown
    assert "12.15 GB/s" in shown


def test_a_cluster_from_a_file(cluster):
    assert result("clusters", cluster)["devices"][0]["capacity"] is None
    assert result("inspect", "zoo:layered-20", "--cluster", cluster)["devices"][0]["name"] == "cpu"


def test_a_mistake_in_a_cluster_is_one_sentence_with_line_and_key(cluster):
    cluster.write_text(TOML.replace('"50 GB/s"', '"-50 GB/s"'))
    found = error("place", "zoo:layered-20", "--cluster", cluster)
    assert f"{cluster}, line 5: device 'cpu': 'bandwidth' must be > 0" in found


def test_costs_from_a_table_are_used_and_shown(cluster, tmp_path):
    costs = tmp_path / "costs.csv"
    costs.write_text("op,cpu,provenance\n*,2 ms,measured\n")
    found = result("inspect", "zoo:layered-20", "--cluster", cluster, "--costs", costs)
    assert found["origins"] == {"cpu": {"measured": 20}}
    assert found["devices"][0]["cost_alone"] == pytest.approx(0.04)
    assert "measured" in run("inspect", "zoo:layered-20", "--cluster", cluster, "--costs", costs).stdout
    costs.write_text("op,cpu\nop0,2 ms\n")
    assert "'op1' is missing" in error("inspect", "zoo:layered-20", "--cluster", cluster, "--costs", costs)


def test_scaling_to_a_total(cluster):
    found = result("inspect", "zoo:layered-20", "--cluster", cluster, "--scale-to", "cpu=16ms")
    assert found["devices"][0]["cost_alone"] == pytest.approx(0.016)
    assert "scaled to cpu=0.016 s" in found["costs_from"]
    assert "--scale-to" in error("inspect", "zoo:layered-20", "--cluster", cluster, "--scale-to", "16ms")


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
