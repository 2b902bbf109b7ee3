"""Who takes part: placers of ours and of installed packages, peers through adapters, programs in any language."""

from __future__ import annotations

import json
import math
import shlex
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from loadmaster import api
from loadmaster.bench._instances import Instance, exported
from loadmaster.bench._peers import PEERS, published_split
from loadmaster.bench._placements import unpack_placement
from loadmaster.errors import InputError, UndecidedError, UnsupportedError
from loadmaster.files import read_json, scratch_folder
from loadmaster.placers import PLACERS, get_placer
from loadmaster.problem import Point, Problem, Solution, evaluate
from loadmaster.problem.bounds import lower_bound
from loadmaster.studies import solved

__all__ = ["Method", "find_method", "run_program"]

FIXED = frozenset({
    "single", "greedy", "expert", "heft", "lookahead", "peft", "cpop", "beam", "m-topo", "m-etf", "m-sct", "openvino",
    "accelerate", "segments", "min-cut", "exhaustive", "ideal-dp", "linear-dp", "stages", "frontier", "calls",
    "convex", "pipedream", "balanced", "published-dp",
})  # fmt: skip
"""Methods that do not look at a seed: they run once."""
GRACE = 5.0
"""Seconds after its deadline when a program is ended."""

Run = Callable[[Instance, Problem, float | None, int | None, int], Solution]


@dataclass(frozen=True)
class Method:
    """A name, what it is in one line, whether seeds matter, and how it is run."""

    name: str
    what: str
    random: bool
    run: Run


def find_method(name: str, programs: Mapping[str, str] | None = None) -> Method:
    """The method called ``name``: one of ``programs`` (name -> command line), a peer, or a placer.

    Raises
    ------
    InputError : there is none; the message lists them.
    """
    if programs and name in programs:
        command = programs[name]

        def outside(
            instance: Instance, problem: Problem, seconds: float | None, evaluations: int | None, seed: int
        ) -> Solution:
            if seconds is None:
                raise InputError(f"the program {name} needs a budget in seconds")
            return run_program(command, instance, problem, seconds, seed, name=name)

        return Method(name, f"program {shlex.split(command)[0]}", True, outside)
    if name == "published-dp":
        return Method(
            name, "the published dynamic program (C++), compiled from its own source", False, _published
        )
    placer = PEERS[name]() if name in PEERS else get_placer(name)
    what = (
        placer.summary if name in PEERS or name in PLACERS else f"of an installed package: {placer.summary}"
    )

    def inside(
        instance: Instance, problem: Problem, seconds: float | None, evaluations: int | None, seed: int
    ) -> Solution:
        return solved(problem, placer, budget=seconds, evaluations=evaluations, seed=seed)

    return Method(name, what, name not in FIXED, inside)


def run_program(
    command: str, instance: Instance, problem: Problem, seconds: float, seed: int, *, name: str = "program"
) -> Solution:
    """Run ``COMMAND PROBLEM PLACEMENT SECONDS SEED`` and read the placement that it wrote.

    The program reads the problem file, writes ``{"device": [...]}`` (with ``order`` or ``call`` where wanted) and ends
    within its seconds; five seconds later it is ended, and what it has written by then counts.

    Raises
    ------
    UndecidedError : it wrote no placement, or one that is not feasible.
    """
    with scratch_folder() as folder:
        given, answer = Path(folder) / "problem.json", Path(folder) / "placement.json"
        given.write_text(json.dumps(exported(instance, problem)))
        words = [*shlex.split(command), str(given), str(answer), f"{seconds:g}", str(seed)]
        began = time.perf_counter()
        said = ""
        try:
            ended = subprocess.run(words, capture_output=True, text=True, timeout=seconds + GRACE)
            said = (ended.stderr.strip().splitlines() or [""])[-1] if ended.returncode else ""
        except subprocess.TimeoutExpired:
            said = f"it was ended {GRACE:g} s after its deadline"
        except OSError as error:
            raise InputError(f"{command}: cannot be run ({error.strerror})") from None
        took = time.perf_counter() - began
        if not answer.is_file():
            raise UndecidedError(f"{name} wrote no placement" + (f": {said}" if said else ""))
        placement = unpack_placement(read_json(answer, "a placement"), problem, f"{name}: placement")
    found = evaluate(problem, placement)
    if not found.feasible:
        raise UndecidedError(f"{name} wrote a placement that is not feasible: {'; '.join(found.why)}")
    bound = lower_bound(problem)
    return Solution(
        placement, found.cost, min(bound.value, found.cost), bound.name, name, evaluations=1, seconds=took, seed=seed,
        history=(Point(took, 1, found.cost),),
    )  # fmt: skip


def _published(
    instance: Instance, problem: Problem, seconds: float | None, evaluations: int | None, seed: int
) -> Solution:
    if not instance.source.startswith("workload:") or instance.model != "pipeline:chain":
        raise UnsupportedError("published-dp splits published workloads into contiguous stages, nothing else")
    began = time.perf_counter()
    placement = published_split(instance, problem, math.inf if seconds is None else seconds)
    took = time.perf_counter() - began
    found = api.evaluate(problem, placement)
    if not found.feasible:
        raise UndecidedError(f"published-dp gave a split that is not feasible: {'; '.join(found.why)}")
    bound = lower_bound(problem)
    return Solution(
        placement, found.cost, min(bound.value, found.cost), bound.name, "published-dp", evaluations=1, seconds=took,
        history=(Point(took, 1, found.cost),),
    )  # fmt: skip
