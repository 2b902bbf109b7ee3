"""Standard output holds the result and nothing else, at the level of file descriptors; and what ends a run early."""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from loadmaster import api
from loadmaster.cli import app
from loadmaster.errors import UndecidedError
from loadmaster.graph import GraphBuilder, layered
from loadmaster.hardware import Cluster, Device
from loadmaster.placers import PLACERS, Budget
from loadmaster.problem import Concurrent, Offload, Pipeline, Problem, Serial


@pytest.mark.parametrize("name", list(PLACERS))
def test_no_method_prints(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Nor does a library in C that it calls: what is captured is the file descriptor."""
    for n, devices in ((0, 2), (1, 3), (2, 14), (6, 14), (24, 14)):
        for model in (Serial(), Concurrent(), Pipeline("chain"), Offload()):
            graph = layered(n, width=3) if n else GraphBuilder("empty").build()
            rng = np.random.default_rng(n)
            problem = Problem.make(
                graph,
                Cluster("many", tuple(Device(f"d{d}", "acc" if d < 6 else "cpu") for d in range(devices))),
                model,
                # One op outweighs all others: halves of the graph may be left without an op.
                time=(10.0 ** rng.integers(-6, 3, (n, 1))) * (0.5 + rng.random((n, devices))),
                memory=np.zeros(n),
            )
            if PLACERS[name].supports(problem) is None:
                PLACERS[name].place(problem, budget=Budget(evaluations=6))
    ctypes.CDLL(None).fflush(None)
    assert capfd.readouterr().out == ""


def test_what_a_library_in_c_prints_goes_to_standard_error() -> None:
    script = """
import ctypes, os, sys
from loadmaster.cli import _app
def noisy():
    os.write(1, b"at once")
    ctypes.CDLL(None).puts(b"at the end")
    print("{}")
_app.app = noisy
_app.main()
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert run.stdout == b"{}\n"
    assert b"at once" in run.stderr
    assert b"at the end" in run.stderr


def test_the_document_reaches_standard_output() -> None:
    command = [
        sys.executable,
        "-m",
        "loadmaster.cli",
        "place",
        "zoo:layered-4",
        "--method",
        "single",
        "--json",
    ]
    run = subprocess.run(command, capture_output=True, check=True)
    assert json.loads(run.stdout)["method"] == "single"


def hard(path: Path) -> Path:
    """Numbers without pattern that would have to fill two devices exactly."""
    memory = np.random.default_rng(0).random(60)
    document = {
        "nodes": [
            {
                "id": v,
                "supportedOnFpga": 1,
                "cpuLatency": 1.0,
                "fpgaLatency": 1.0,
                "isBackwardNode": 0,
                "size": float(size),
            }
            for v, size in enumerate(memory)
        ],
        "edges": [],
        "maxSizePerFPGA": float(memory.sum() / 2 * (1 + 1e-14)),
        "maxFPGAs": 2,
        "maxCPUs": 0,
    }
    path.write_text(json.dumps(document))
    return path


def test_time_that_runs_out_has_an_exit_code_of_its_own(tmp_path: Path) -> None:
    file = str(hard(tmp_path / "hard.json"))
    run = CliRunner().invoke(app, ["place", file, "--method", "greedy", "--budget", "100ms", "--json"])
    assert run.exit_code == 5, run.output
    assert "no feasible placement was found in the time given" in run.stderr
    assert run.stdout == ""
    with pytest.raises(UndecidedError):
        api.compare(api.problem(file), ["greedy", "single"], budget=0.1)


def test_an_interrupt_while_kernels_compile_gives_the_best_single_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def compiling(placer: object, problem: Problem) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("loadmaster.api._placing._warm_up", compiling)
    problem = api.problem("zoo:layered-12", model="pipeline")
    solution = api.place(problem, "local-search", budget=5.0)
    assert solution.stopped == "interrupted"
    assert solution.method == "local-search"
    assert solution.found_by == "single"
    assert api.evaluate(problem, solution.placement).cost == solution.cost


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is always full")
@pytest.mark.parametrize(
    "words", [["clusters", "--json"], ["--help"], ["inspect", "nowhere.json"]], ids=" ".join
)
def test_a_full_disk_is_a_sentence_or_at_least_an_exit_code(words: list[str]) -> None:
    command = [sys.executable, "-m", "loadmaster.cli", *words]
    with open("/dev/full", "w") as full:
        run = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
        silent = subprocess.run(command, stdout=full, stderr=full)
    assert (run.returncode, silent.returncode) == (2, 2)
    assert run.stderr.startswith("loadmaster: error: ")
    assert len(run.stderr.splitlines()) == 1, run.stderr
