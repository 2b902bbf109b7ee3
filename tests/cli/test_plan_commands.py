"""Commands that write what is in a plan: ``export``, ``report``, ``trace``."""

from __future__ import annotations

from commands import error, result, run, strict_json, write


def test_plans_are_exported(tmp_path):
    plan = tmp_path / "plan.json"
    found = result("place", "zoo:layered-10", "--method", "single", "-o", plan)
    exported = strict_json(run("export", plan).stdout)
    names = {"acc0": "GPU.0", "acc1": "GPU.1", "cpu0": "CPU"}
    assert exported == {op: names[device] for op, device in found["placement"].items()}
    out = tmp_path / "plan.dot"
    outcome = run("export", plan, "--format", "dot", "-o", out)
    assert (outcome.exit_code, outcome.stdout) == (0, "")
    assert out.read_text().startswith('digraph "layered-10" {')
    assert "the format 'png' is unknown" in error("export", plan, "-f", "png")
    assert "is not a plan" in error("export", write(tmp_path / "other.json", {}))


def test_what_writes_a_file_can_say_so_in_json(tmp_path):
    plan, out = tmp_path / "plan.json", tmp_path / "out"
    run("place", "zoo:layered-10", "--method", "heft", "-o", plan)
    printed = result("export", plan, "-f", "dot")
    assert printed == {"format": "dot", "text": run("export", plan, "-f", "dot").stdout}
    assert result("export", plan, "-f", "dot", "-o", out) == {"format": "dot", "output": str(out)}
    assert out.read_text() == printed["text"]
    assert result("report", plan, "-o", out) == {"output": str(out), "plan": str(plan)}
    traced = result("trace", plan, "-o", out)
    assert traced == {"output": str(out), "events": len(strict_json(out.read_text())["traceEvents"])}
