"""What all that train have in common: random numbers, checkpoints, scalars, and PyTorch only where it is there."""

from __future__ import annotations

import itertools
import os
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from learned_problems import layers, place_telling_always

from loadmaster import api
from loadmaster.errors import InputError
from loadmaster.graph import GraphBuilder
from loadmaster.hardware import accelerators
from loadmaster.placers import PLACERS, Budget, Progress
from loadmaster.placers.learned._scalars import event_record
from loadmaster.placers.learned.hsdag import Hsdag
from loadmaster.problem import Problem, Serial

BASELINES = ("placeto", "rnn", "hdp")


def small(n: int = 30, seed: int = 1) -> Problem:
    return layers(n, seed, width=4)


def switches(count: int = 10) -> Problem:
    """A chain in which every op is far faster on one of the devices, in no pattern; cuts cost next to nothing."""
    b = GraphBuilder("switches")
    turn = np.array([0, 1, 1, 0, 1, 0, 0, 0, 1, 1] * (count // 10))
    ops = [b.op(f"op{i}", ("Conv", "MatMul")[turn[i]], flops=1.0 + i) for i in range(count)]
    for one, next_one in itertools.pairwise(ops):
        b.tensor(one, bytes=1.0, consumers=[next_one])
    graph, cluster = b.build(), accelerators(1, 1)
    time = np.where(turn[:, None] == np.arange(2), 1.0, 2.0)
    return Problem.make(
        graph, cluster, Serial(), time=time, latency=np.zeros((2, 2)), rate=0.01 * (1 - np.eye(2))
    )


@pytest.mark.parametrize("name", BASELINES)
def test_the_best_device_of_every_group_is_learnt(name: str) -> None:
    problem = switches()
    placer = replace(PLACERS[name], colocate="", entropy=0.1)  # type: ignore[type-var]
    found = placer.place(problem, budget=Budget(evaluations=1500))
    best = 10 + 0.01 * 5
    assert found.cost == pytest.approx(best)


@pytest.mark.parametrize("name", ["hsdag", "hsdag-paper", *BASELINES])
def test_training_leaves_the_random_numbers_and_threads_of_pytorch_alone(name: str) -> None:
    torch.manual_seed(3)
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    PLACERS[name].place(small(), budget=Budget(evaluations=30))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize(
    ("name", "limit", "change"),
    [("hsdag", 700, {}), ("hsdag", 900, {"runs": 3}), ("hsdag-paper", 90, {}), ("hsdag+polish", 700, {})],
)
def test_a_run_of_hsdag_that_was_killed_goes_on_and_ends_as_if_it_had_not_been(
    name: str, limit: int, change: dict[str, int], tmp_path: Path
) -> None:
    problem = layers(40, 3, width=4)
    placer = api.configured(name, change)
    budget = Budget(evaluations=limit)
    whole = placer.place(problem, budget=budget, seed=2)
    file = tmp_path / "run.pt"
    saving = api.configured(placer, {"checkpoint": str(file), "checkpoint_seconds": 0.0})

    class Killed(BaseException):
        pass

    def kill(progress: Progress) -> None:
        if progress.evaluations > limit // 2:
            raise Killed

    with pytest.raises(Killed):
        place_telling_always(saving, problem, budget, kill)
    assert file.exists()
    resumed = saving.place(problem, budget=budget, seed=2)
    assert resumed.placement == whole.placement
    assert resumed.evaluations == whole.evaluations
    assert [(p.evaluations, p.cost) for p in resumed.history] == [
        (p.evaluations, p.cost) for p in whole.history
    ]


@pytest.mark.parametrize("name", BASELINES)
def test_a_run_of_a_baseline_that_was_killed_goes_on_and_ends_as_if_it_had_not_been(
    name: str, tmp_path: Path
) -> None:
    problem, budget = layers(12, 3, width=3), Budget(evaluations=160)
    whole = PLACERS[name].place(problem, budget=budget, seed=2)
    file = tmp_path / "run.pt"
    saving = replace(PLACERS[name], checkpoint=str(file), checkpoint_seconds=0.0)  # type: ignore[type-var]

    class Killed(BaseException):
        pass

    def kill(progress: Progress) -> None:
        if progress.evaluations > 70 and file.exists():
            raise Killed

    with pytest.raises(Killed):
        place_telling_always(saving, problem, budget, kill)
    resumed = saving.place(problem, budget=budget, seed=2)
    assert resumed.placement == whole.placement
    assert resumed.evaluations == whole.evaluations


def test_a_checkpoint_of_something_else_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "run.pt"
    placer = replace(Hsdag(), checkpoint=str(file))
    placer.place(small(), budget=Budget(evaluations=100))
    with pytest.raises(InputError, match=r"run\.pt.*different problem"):
        placer.place(small(seed=9), budget=Budget(evaluations=100))
    file.write_text("nothing of the kind")
    with pytest.raises(InputError, match=r"run\.pt.*not a checkpoint"):
        placer.place(small(), budget=Budget(evaluations=100))


def test_the_warm_up_before_a_budget_in_seconds_leaves_no_checkpoint_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "run.pt"
    for _ in range(2):  # the second goes on from the first
        api.place(small(), "hsdag", budget=0.2, parameters={"checkpoint": str(file)})
    assert file.exists()


def test_scalars_are_framed_as_tensorboard_reads_them(tmp_path: Path) -> None:
    record = event_record(7, {"gap": 0.25})
    (length,) = struct.unpack("<Q", record[:8])
    assert len(record) == 8 + 4 + length + 4
    assert struct.pack("<f", 0.25) in record
    assert b"gap" in record
    replace(Hsdag(), log_dir=str(tmp_path / "logs")).place(small(), budget=Budget(evaluations=200))
    (table,) = (tmp_path / "logs").glob("hsdag.*.csv")
    lines = table.read_text().splitlines()
    assert lines[0] == "step,name,value"
    assert {"best", "gap", "evaluations", "entropy"} <= {line.split(",")[1].strip('"') for line in lines[1:]}
    (file,) = (tmp_path / "logs").glob("events.*")
    content, names = file.read_bytes(), []
    while content:
        (length,) = struct.unpack("<Q", content[:8])
        names.append(content[12 : 12 + length])
        content = content[16 + length :]
    assert b"brain.Event:2" in names[0]
    assert all(key in names[1] for key in (b"best", b"gap", b"groups", b"entropy"))


def test_without_pytorch_the_table_is_there_and_says_what_to_install() -> None:
    script = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name == "torch" or name.startswith("torch."):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
import importlib.util
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "torch" else real(name, package)
from loadmaster.placers import PLACERS
assert "torch" not in sys.modules
print(PLACERS["hsdag"].supports(None))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert "loadmaster[learn]" in done.stdout


def test_without_pytorch_the_baselines_say_what_to_install() -> None:
    script = """
import importlib.util, sys
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "torch" else real(name, package)
from loadmaster.placers import PLACERS
assert "torch" not in sys.modules
print(*(PLACERS[name].supports(None) for name in ("placeto", "rnn", "hdp")))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert done.stdout.count("loadmaster[learn]") == 3
