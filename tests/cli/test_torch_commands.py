"""PyTorch on the command line: exported ops, and what is refused before any rank is started."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from loadmaster.cli import app


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program, a module's file, and a plan of two ranks for it."""
    import torch
    from torch import nn

    import loadmaster.torch as pipelines
    from loadmaster import api

    folder = tmp_path_factory.mktemp("torch")
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)).eval()
    torch.export.save(torch.export.export(model, (torch.zeros(3, 4),), strict=False), folder / "model.pt2")
    (folder / "model.py").write_text(
        "import torch\nfrom torch import nn\ndef build():\n"
        "    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)), torch.zeros(3, 4)\n"
    )
    captured = pipelines.load_source(f"{folder / 'model.py'}:build").capture()
    problem = pipelines.problem(captured, pipelines.ranks(2), time=np.ones(captured.network().graph.n))
    solution = api.place(problem, "balanced", evaluations=10)
    pipelines.plan(captured, problem, solution).save(folder / "plan.json")
    return folder


def run(*words: object) -> tuple[int, str, str]:
    found = CliRunner().invoke(app, [str(word) for word in words])
    return found.exit_code, found.stdout, found.stderr


def test_inspect_shows_the_exported_ops_of_a_program(files: Path) -> None:
    code, out, err = run("inspect", files / "model.pt2", "--json")
    assert code == 0, err
    assert "as PyTorch exported them" in err
    assert json.loads(out)["ops"] == 5  # an input, three ops, the result
    code, out, _ = run("inspect", f"torch:{files / 'model.pt2'}", "--json")
    assert (code, json.loads(out)["ops"]) == (0, 5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["model.py:build", "--nproc", "3"], "uses 2 ranks, and 3 are more than it needs"),
        (["model.py:build", "--nproc", "1"], "uses 2 ranks, and 1 are too few"),
        (["model.py:build", "--device", "A=cpu"], "not for --runtime torch"),
        (
            ["model.py:build", "--schedule", "zigzag"],
            "'zigzag' is unknown: choose one of gpipe, 1f1b, interleaved",
        ),
        (["none.py:build"], "none.py: there is no such file"),
        (["model.py:other"], "has no function 'other'"),
    ],
)
def test_what_is_wrong_is_said_before_ranks_are_started(
    files: Path, options: list[str], message: str
) -> None:
    model, *rest = options
    code, out, err = run("run", "--runtime", "torch", files / model, "--plan", files / "plan.json", *rest)
    assert (code, out) == (2, "")
    assert message in err
    assert "starting" not in err


def test_options_of_torch_are_refused_elsewhere(files: Path) -> None:
    code, _, err = run("run", files / "model.pt2", "--plan", files / "plan.json", "--nproc", "2")
    assert code == 2
    assert "are for --runtime torch, not openvino" in err
