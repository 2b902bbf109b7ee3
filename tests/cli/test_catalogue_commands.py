"""``methods`` and ``clusters``; clusters and costs from files."""

from __future__ import annotations

import pytest
from commands import error, result, run

from loadmaster.hardware import preset_names
from loadmaster.placers import PLACERS


def test_methods_are_listed():
    found = {entry["name"]: entry for entry in result("methods")}
    assert list(found) == list(PLACERS)
    assert found["heft"]["models"] == ["concurrent"]
    assert "pipeline" in found["heft"]["unsupported"]
    assert found["single"]["models"] == ["serial", "concurrent", "pipeline", "offload"]
    shown = run("methods").stdout
    assert all(name in shown for name in PLACERS)


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
