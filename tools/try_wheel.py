"""What must work without any extra, and what must say why not: run where nothing but the wheel is installed.

``make wheel`` builds the wheel, makes such an environment and runs this in it.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
from pathlib import Path

EXTRAS = ("torch", "openvino", "onnx", "onnxruntime", "matplotlib", "pytest", "hypothesis", "ray")


def command(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run the installed command; what it ends with must be as expected, and never a traceback."""
    done = subprocess.run(
        [str(Path(sys.executable).with_name("loadmaster")), *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def main() -> None:
    """Place, evaluate, look and list; then ask for what needs an extra."""
    there = [name for name in EXTRAS if importlib.util.find_spec(name)]
    assert not there, f"this environment is not empty: {there}"
    command("--version")
    assert len(json.loads(command("methods", "--json").stdout)) > 30
    with tempfile.TemporaryDirectory() as folder:
        plan, page = str(Path(folder) / "plan.json"), str(Path(folder) / "report.html")
        for model, method in (("concurrent", "heft"), ("serial", "greedy"), ("pipeline", "gdp")):
            words = ["zoo:layered-30", "--model", model, "--method", method, "--evaluations", "200", "--json"]
            found = json.loads(command("place", *words, "-o", plan).stdout)
            assert found["feasible"], found
            again = json.loads(command("evaluate", plan, "--placement", plan, "--json").stdout)
            assert again["cost"] == found["cost"]
        command("report", plan, "-o", page)
        assert Path(page).stat().st_size > 10_000
        command("explain", plan)
        command("inspect", "zoo:resnet-50", "--cluster", "hsdag")
        missing = command("place", "zoo:layered-9", "--method", "hsdag", code=2).stderr
        assert "learn" in missing, missing
        Path(folder, "model.onnx").write_bytes(b"\x08\x01")
        assert "onnx" in command("inspect", str(Path(folder, "model.onnx")), code=2).stderr
        network = Path(folder, "model.xml")
        network.write_text("<net/>")
        for words in (
            ["devices"],
            ["profile", str(network), "--device", "A=cpu"],
            ["optimize", str(network)],
        ):
            assert "openvino" in command(*words, code=2).stderr.lower(), words
    print("the wheel works in an environment of its own, without extras")


if __name__ == "__main__":
    main()
