"""``export`` writes plans for other programs."""

from __future__ import annotations

from commands import error, result, run, strict_json, write


def test_plans_are_exported(tmp_path):
    plan = tmp_path / "plan.json"
    found = result("place", "zoo:layered-10", "--method", "single", "-o", plan)
    assert strict_json(run("export", plan).stdout) == found["placement"]
    out = tmp_path / "plan.dot"
    outcome = run("export", plan, "--format", "dot", "-o", out)
    assert (outcome.exit_code, outcome.stdout) == (0, "")
    assert out.read_text().startswith('digraph "layered-10" {')
    assert "the format 'png' is unknown" in error("export", plan, "-f", "png")
    assert "is not a plan" in error("export", write(tmp_path / "other.json", {}))
