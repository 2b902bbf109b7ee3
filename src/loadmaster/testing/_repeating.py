"""Whether a run repeats in another process, for several placers at once: a process is slow to start."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from loadmaster.placers import Budget, Placer
from loadmaster.testing._cases import MODELS, constrained, label

__all__ = ["assert_runs_repeat"]

LIMIT = 300
"""Evaluations at most. A placer whose parts have all had their turn after fewer says so by its ``warm_up``."""

_PROGRAM = """
import pickle, sys
sys.path[:], given = pickle.load(sys.stdin.buffer)
from loadmaster.testing import _repeating
_repeating.print_fingerprints(given)
"""


def assert_runs_repeat(placers: Sequence[Placer]) -> None:
    """Under a budget of evaluations the placers find the same in this process and in another one.

    The other one has another seed of hashes, so that an order of sets or dictionaries shows. The placers must
    be importable there, which those in a file of tests are.
    """
    names = [placer.name for placer in placers]
    other = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONHASHSEED": "17"},
    )
    with other:
        assert other.stdin is not None
        other.stdin.write(pickle.dumps((sys.path, pickle.dumps(list(placers)))))
        other.stdin.close()
        other.stdin = None  # or communicate() would flush it
        # Both run at once. What is asked for first here is asked for last there.
        here = {name: _fingerprints(placer) for name, placer in zip(names, placers, strict=True)}
        printed, errors = other.communicate()
    assert other.returncode == 0, f"the other process failed:\n{errors.decode()}"
    there = json.loads(printed.splitlines()[-1])
    for name in names:
        again = json.loads(json.dumps(here[name]))
        different = [model for model in again if again[model] != there[name].get(model)]
        assert again == there[name], f"{name} finds something else in another process: {', '.join(different)}"


def print_fingerprints(given: bytes) -> None:
    """What the other process does."""
    placers: list[Placer] = pickle.loads(given)
    print(json.dumps({placer.name: _fingerprints(placer) for placer in placers}))


def _fingerprints(placer: Placer) -> dict[str, Any]:
    """What a placer finds under a budget of evaluations, for all models it supports."""
    found = {}
    for model in MODELS:
        problem = constrained(model)
        if placer.supports(problem) is None:
            enough = min(LIMIT, getattr(placer, "warm_up", LIMIT))
            s = placer.place(problem, budget=Budget(evaluations=enough), seed=3)
            history = [(p.evaluations, p.cost) for p in s.history]
            order = None if s.placement.order is None else s.placement.order.tolist()
            found[label(model)] = [s.cost, s.placement.device.tolist(), order, s.evaluations, history]
    return found
