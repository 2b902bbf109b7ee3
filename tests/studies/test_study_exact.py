import json

import pytest
from typer.testing import CliRunner

from loadmaster.cli import app


def run(*words):
    return CliRunner().invoke(app, ["reproduce", *words])


def test_the_published_optima_are_found_again(workloads, tmp_path):
    words = (
        "exact",
        "--quick",
        "--only",
        "layers/bert24",
        "--workloads",
        str(workloads),
        "--out",
        str(tmp_path),
    )
    result = run(*words, "--json")
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)["rows"]
    chains = [row for row in rows if row["part"] == "chain"]
    assert len(chains) == 2
    for row in chains:
        assert row["optimal"]
        assert row["cost"] == pytest.approx(row["published"], rel=1e-9)
    for row in rows:
        if row["part"] == "baselines":
            assert f"{row['one']:.6g}" == f"{row['published_one']:.6g}"
            assert f"{row['expert']:.6g}" == f"{row['published_expert']:.6g}"
    page = (tmp_path / "exact-quick.md").read_text()
    assert "equal to the published one to 1e-9: 2 of 2" in page


def test_without_workloads_the_option_is_named(monkeypatch, tmp_path):
    monkeypatch.delenv("LOADMASTER_WORKLOADS", raising=False)
    result = run("exact", "--out", str(tmp_path))
    assert result.exit_code == 2
    assert "--workloads" in result.output


def test_a_folder_without_published_values_is_named(tmp_path):
    result = run("exact", "--workloads", str(tmp_path), "--out", str(tmp_path))
    assert result.exit_code == 2
    assert "reference.json" in result.output
