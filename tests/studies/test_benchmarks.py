"""Every program of ``benchmarks/`` takes its arguments and runs its smallest case."""

from __future__ import annotations

import importlib
import json
import shutil
import sys
from pathlib import Path

import pytest

from loadmaster import bench

ROOT = Path(__file__).parents[2]
DATA = ROOT / "benchmarks" / "results" / "gdp"
PROGRAMS = sorted(
    {path.stem for path in (ROOT / "benchmarks").glob("*.py") if not path.stem.startswith("torch_")}
    - {"__init__", "architectures", "comparisons", "demo_models", "machines", "modules", "networks", "outputs"}
    - {"auto", "busy", "screenshots"}
    | {"gdp", "kernels"}
)  # fmt: skip
WHAT = {
    "hsdag_transfer": "train",
    "metal_runs": "contest",
    "methods": "zoo",
    "gdp": "train",
    "openvino_runs": "equality",
    "overlapping": "speed",
}
"""The first argument of those that need one."""


@pytest.fixture(autouse=True)
def repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))


def study(program: str):  # type: ignore[no-untyped-def]
    return importlib.import_module(f"benchmarks.{program}").STUDY


def test_the_list_of_programs_is_complete() -> None:
    table = (ROOT / "benchmarks" / "README.md").read_text()
    assert len(PROGRAMS) == 20
    for program in PROGRAMS:
        assert study(program).name == program
        assert f"`{program}" in table, program


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_lists_its_cases(program: str, tmp_path: Path, capsys, request) -> None:  # type: ignore[no-untyped-def]
    words = [WHAT[program]] if program in WHAT else []
    if program in ("openvino_runs", "overlapping", "unlike"):
        words += ["--folder", str(tmp_path)]
    if program == "exact":
        words += ["--workloads", str(request.getfixturevalue("workloads"))]
    assert study(program).main([*words, "--list"]) == 0
    assert capsys.readouterr().out


def test_every_comparison_lists_its_cases(capsys, request) -> None:  # type: ignore[no-untyped-def]
    comparisons = importlib.import_module("benchmarks.comparisons").COMPARISONS
    for what in comparisons:
        folder = ["--workloads", str(request.getfixturevalue("workloads"))] if what == "unseen" else []
        assert study("methods").main([what, "--list", *folder]) == 0
        titles = capsys.readouterr().out.splitlines()
        assert len(set(titles)) == len(titles) > 5


SMALL = {
    "methods zoo --only resnet-50 --methods heft --evaluations 9": "| resnet-50 on hsdag, concurrent | 176 |",
    "methods concurrent --only layered-20? --methods single,heft --budget 0.1": "| heft | 1.000 | 1.000 (1.000) |",
    "methods ablations --only resnet --methods min-cut": "| min-cut | 0.00 |",
    "zoo --only unet": "| `unet` | parameters | 31,030,658 | 31,030,658 | 0 |",
    "kernels --quick --ops 40 --seconds 0.002": "| 40 | 2 |",
    "speed --quick --parts min-cut": "| 1,000 | 1,714 |",
    "coarsening --quick --only resnet-50": "| zoo:resnet-50 | chain | 176 | 38 |",
    "coarsening --quick --placing --evaluations 20": "| zoo:inception-v3 | serial | chain | 20 | 67 |",
    "scaling --quick --parts tasks,bulletin": "tasks without a result: 0.",
    "scaling --quick --parts generations --only 64": "| 64 | 72 |",
    "overlapping faults": "failed: injected",
    "unlike --models resnet-50?size=32 --setting half --execution serial --budget 6 --samples 3 --clock core": "A: ",
}


@pytest.mark.parametrize("command", SMALL)
def test_the_smallest_case_runs(command: str, tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    program, *words = command.split()
    words += (
        ["--folder", str(tmp_path)]
        if program in ("overlapping", "unlike")
        else ["--rows", str(tmp_path / "rows.jsonl")]
    )
    assert study(program).main(words) == 0
    page = capsys.readouterr().out
    assert SMALL[command] in page
    assert "Versions: loadmaster" in page


def test_a_workload_by_a_chosen_method(workloads: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    words = ["--workloads", str(workloads), "--only", "layers/bert24_inference", "--parts", "chain"]
    assert study("exact").main([*words, "--method", "linear-dp", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["method"] == "linear-dp"
    assert row["cost"] == pytest.approx(row["published"], rel=1e-9)
    assert study("exact").main(["--workloads", str(workloads), "--parts", "chains"]) == 2
    assert "--parts chains" in capsys.readouterr().err


def test_a_report_is_measured_without_a_browser(monkeypatch: pytest.MonkeyPatch, capsys) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(importlib.import_module("benchmarks.report"), "_drawn", lambda text: None)
    assert study("report").main(["--quick"]) == 0
    assert "| 60 |" in capsys.readouterr().out


def test_the_kept_rows_of_gdp_make_the_documented_table(tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    rows = shutil.copy(DATA / "held-out.jsonl", tmp_path / "rows.jsonl")
    words = [
        "--folder",
        str(DATA),
        "--rows",
        str(rows),
        "--auto",
        "5",
        "--draws",
        "3",
        "--trained",
        "0,1,2,3,4",
    ]
    assert study("gdp").main(["held-out", *words]) == 0
    documented = (ROOT / "docs" / "gdp.md").read_text()
    for line in capsys.readouterr().out.splitlines():
        if line.startswith(("| zero-shot", "| gdp+ls", "| images", "| bound")):
            assert line in documented


def test_the_page_of_the_portfolio_is_made_of_rows_of_the_benchmark(tmp_path: Path, capsys) -> None:  # type: ignore[no-untyped-def]
    auto = importlib.import_module("benchmarks.auto")
    rows, picture = tmp_path / "rows.jsonl", tmp_path / "time.svg"
    plan = bench.Plan("tiny", ("tiny-layered-serial",), ("auto", "random", "heft"), seconds=0.2, seeds=2)
    bench.run_bench(plan, rows)
    assert auto.main([str(rows), "--plot", str(picture)]) == 0
    page = capsys.readouterr().out
    assert "| tiny-layered-serial | 7 |" in page
    assert "| at most 0.5 % worse than the best other | 1 of 1 |" in page
    assert "</svg>" in picture.read_text()
    assert auto.main([str(rows), "--json"]) == 0
    (line,) = json.loads(capsys.readouterr().out)["instances"]
    assert line["gap"] == "0.00 %"
    assert auto.main([str(tmp_path / "missing.jsonl")]) == 2


def test_quality_over_time_counts_what_a_run_had_by_then() -> None:
    auto = importlib.import_module("benchmarks.auto")
    run = {"instance": "a", "method": "m", "cost": 2.0, "seconds_taken": 3.0}
    rows = [
        {**run, "history": [[1.0, 1, 2.6], [2.0, 5, 2.2]]},
        {**run, "method": "slow", "history": []},
        {**run, "method": "other", "unsupported": True},
    ]
    found = auto.quality(rows, {"a": 2.0}, [0.5, 1.0, 2.5, 3.0])
    assert found["m"] == pytest.approx([1.5, 1.3, 1.1, 1.0])
    assert found["slow"] == pytest.approx([1.5, 1.5, 1.5, 1.0])
    assert "other" not in found


def test_a_command_runs_beside_busy_processes_which_end_with_it(capsys) -> None:  # type: ignore[no-untyped-def]
    busy = importlib.import_module("benchmarks.busy")
    assert busy.main(["2", sys.executable, "-c", "raise SystemExit(3)"]) == 3
    assert busy.main(["2", "no-such-command"]) == 2
    assert busy.main(["loadmaster"]) == 2
    assert "give a number of processes" in capsys.readouterr().err
