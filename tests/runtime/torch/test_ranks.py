"""Real ranks under torchrun: equality, controls, checkpoints, and a rank that dies."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from small_modules import TiedModel, tied_case

import loadmaster.torch as pipelines
from loadmaster import api
from loadmaster.errors import InputError, WorkerError
from loadmaster.graph.torch import capture
from loadmaster.runtime.torch import launch
from loadmaster.runtime.torch._launch import _how_it_ended

HERE = Path(__file__).parent


def test_split_models_equal_unsplit_ones_on_two_ranks(tmp_path: Path, monkeypatch) -> None:
    """One start does it all: see ``ranks_program.py``."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]))
    launch("ranks_program", [str(tmp_path)], 2, timeout=400)
    found = json.loads((tmp_path / "answer.json").read_text())
    assert len(found["splits"]) == 7
    for row in found["splits"]:
        assert row["equal"], row
        assert row["tensors"] >= (11 if "gradients" in row["errors"] else 1)
        assert row["changed weight"] > 1e-3
        assert row["swapped microbatches"] > 1e-3
    assert {row["reference"] for row in found["splits"]} == {True, False}
    # Both ranks together hold a checkpoint of the whole model, under its own names.
    state: dict[str, torch.Tensor] = {}
    for rank in range(2):
        state |= torch.load(tmp_path / f"rank{rank}.pt")
    model = tied_case()[0]
    assert model.load_state_dict(state).missing_keys == []
    assert not torch.equal(model.blocks[0].up.weight, tied_case()[0].blocks[0].up.weight)  # it was trained
    assert found["tied apart"] == 0.0
    assert found["loaded back"]
    assert "microbatches like the example are 4x5 of int64" in found["wrong shape"]
    assert "1f1b needs as many microbatches as stages, which are 2, not 1" in found["few microbatches"]
    assert found["freed"]
    assert "3 stages and there are 2 ranks, which is too few" in found["too few ranks"]


@pytest.fixture
def dying(tmp_path: Path) -> tuple[str, Path]:
    """A model whose last rank ends in the middle of the measured steps, and a plan for it."""
    text = (HERE.parents[1] / "graph" / "torch" / "small_modules.py").read_text()
    text += f"""

def dies():
    import os, signal
    model, example, loss, target = tied_case()
    with open({str(tmp_path)!r} + "/pid" + os.environ.get("RANK", "none"), "w") as file:
        file.write(str(os.getpid()))
    calls = [0]

    def deadly(result, target):
        calls[0] += 1
        if calls[0] > 9 and os.environ["RANK"] == "1" and torch.distributed.get_world_size() == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return loss(result, target)

    return model, example, deadly, target
"""
    path = tmp_path / "model.py"
    path.write_text(text)
    model, example, _, _ = tied_case()
    captured = capture(model, example, training=True, name="model:dies")
    problem = pipelines.problem(captured, pipelines.ranks(2), time=np.ones(captured.network().graph.n))
    solution = api.place(problem, "balanced", evaluations=20)
    plan = tmp_path / "plan.json"
    pipelines.plan(captured, problem, solution, microbatches=2).save(plan)
    return f"{path}:dies", plan


def test_when_a_rank_dies_the_others_end_and_it_is_said_which(
    dying: tuple[str, Path], tmp_path: Path
) -> None:
    model, plan = dying
    with pytest.raises(InputError, match="uses 2 ranks, and 1 are too few"):
        pipelines.run(model, plan, nproc=1)
    with pytest.raises(WorkerError, match="rank 1 of 2 was ended by SIGKILL, and the others were stopped"):
        pipelines.run(model, plan, timeout=400)
    time.sleep(0.5)
    for rank in range(2):
        pid = int((tmp_path / f"pid{rank}").read_text())
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_ranks_end_with_the_process_that_started_them_however_it_went(tmp_path: Path) -> None:
    """Nobody is there to end them when that is killed."""
    (tmp_path / "waiting_rank.py").write_text(
        "import os, sys, time\n"
        "path = sys.argv[1] + '/pid' + os.environ['RANK']\n"
        "with open(path + '.new', 'w') as file: file.write(str(os.getpid()))\n"
        "os.rename(path + '.new', path)\n"
        "time.sleep(600)\n"
    )
    program = f"from loadmaster.runtime.torch import launch; launch('waiting_rank', [{str(tmp_path)!r}], 2)"
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    parent = subprocess.Popen([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": path})
    try:
        files = [tmp_path / f"pid{rank}" for rank in range(2)]
        assert waited(lambda: all(file.exists() for file in files))
        ranks = [int(file.read_text()) for file in files]
    finally:
        parent.kill()
        parent.wait()
    assert waited(lambda: not any(Path(f"/proc/{rank}").exists() for rank in ranks))


def waited(until: Callable[[], bool]) -> bool:
    """Whether something happens in a few minutes: machines are busy."""
    for _ in range(3000):
        if until():
            return True
        time.sleep(0.1)
    return False


def test_what_torchrun_says_becomes_one_sentence() -> None:
    text = """
Traceback (most recent call last):
ValueError: not this
Root Cause (first observed failure):
[0]:
  time      : 2026-11-17_05:00:00
  rank      : 2 (local_rank: 2)
  exitcode  : 1 (pid: 11)
"""
    assert _how_it_ended(text, 4) == (
        "rank 2 of 4 ended with exit code 1, and the others were stopped: ValueError: not this"
    )
    assert "could not run 4 ranks" in _how_it_ended("", 4)


def test_models_with_other_weights_have_other_digests() -> None:
    model, example, _, _ = tied_case()
    a = capture(model, example, training=True).network().graph.digest
    b = capture(TiedModel(width=16), example, training=True).network().graph.digest
    assert a != b
