"""The same methods on two real devices of this machine: a profile, placements of it, and runs of them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from loadmaster.errors import BusyError, InputError, LoadmasterError, UnsupportedError
from loadmaster.files import scratch_folder
from loadmaster.problem import Problem, Solution
from loadmaster.studies.harness.placing import solved

__all__ = ["agreement", "measured"]

METHODS = ("min-cut", "hsdag", "rnn", "placeto", "local-search", "random")
EVALUATIONS = 2000
"""For every method but ``min-cut``, on the profile."""

Arrays = Sequence[npt.NDArray[Any]]


def measured(source: str, *, samples: int) -> dict[str, Any]:
    """Profile a model of the zoo on two CPU devices, place it by every method, run what they found.

    The devices are equal (one in lower precision, where the processor has it), so the first op is pinned to the one and
    the last to the other: otherwise one device is best, and nothing is to be learnt. Outputs of every run are compared
    with the unplaced model's before it is timed. A machine that is never calm is measured by the time on the core.
    """
    try:
        import openvino  # noqa: F401
    except ImportError:
        return {"why": "it needs OpenVINO: pip install 'loadmaster[openvino]'"}
    from loadmaster.zoo import export_model

    with scratch_folder() as folder:
        file = Path(folder) / "model.xml"
        export_model(source, file)
        try:
            return _on(file, samples, "wall")
        except BusyError:
            return _on(file, samples, "core")
        except LoadmasterError as error:
            return {"why": str(error)}


def _on(file: Path, samples: int, clock: str) -> dict[str, Any]:
    from loadmaster.graph.openvino import openvino_model
    from loadmaster.runtime import Cache
    from loadmaster.runtime.openvino import OpenVinoSession, draw_inputs, parse_devices, profile_model

    store = Cache(file.parent / "measured.sqlite")
    try:
        devices = parse_devices(["A=cpu", "B=cpu:precision=bf16"])
        profile = profile_model(file, devices, cache=store, clock=clock)
    except InputError:  # this processor has f32 only
        devices = parse_devices(["A=cpu", "B=cpu"])
        profile = profile_model(file, devices, cache=store, clock=clock)
    problem = _split(profile.problem())
    found = _solutions(problem)
    inputs = draw_inputs(openvino_model(file), 1)
    with OpenVinoSession(file, devices, clock=clock) as session:
        runs = {name: session.load("single", device=name) for name in ("A", "B")}
        runs["HETERO's own choice"] = session.load("auto", order=["A", "B"])
        for method, solution in found.items():
            placement = solution.placement.to_names(problem)
            runs[method] = session.load("hetero", placement=placement)
        times = session.measure(list(runs.values()), samples=samples)
        outputs = {name: run.run(inputs) for name, run in runs.items() if name in ("A", "B", "hsdag")}
    return {
        "ops": problem.n,
        "clock": clock,
        "precision": [spec.precision for spec in devices],
        "samples": samples,
        "bound": found["min-cut"].bound,
        "runs": {
            name: {
                "median": time.median,
                "low": time.low,
                "high": time.high,
                "submodels": time.submodels,
                "predicted": found[name].cost if name in found else None,
            }
            for name, time in zip(runs, times, strict=True)
        },
        "agreement": {
            f"{a} vs {b}": agreement(outputs[a], outputs[b]) for a, b in itertools.combinations(outputs, 2)
        },
    }


def _split(problem: Problem) -> Problem:
    """The first op with a choice on the first device, the last one on the second."""
    order = problem.graph.topological_order
    busy = [int(v) for v in order if problem.time[v].max() > 0]
    first, last = busy[0], next(v for v in reversed(busy) if problem.class_of[v] != problem.class_of[busy[0]])
    names = problem.graph.names
    return problem.constrained(pins=[f"{names[first]}=A", f"{names[last]}=B"])


def _solutions(problem: Problem) -> dict[str, Solution]:
    found = {}
    for method in METHODS:
        try:
            budget = {"budget": 20.0} if method == "min-cut" else {"evaluations": EVALUATIONS}
            found[method] = solved(problem, method, **budget)
        except UnsupportedError:
            continue
    return found


def agreement(found: Arrays, expected: Arrays) -> dict[str, float]:
    """Mean squared error, cosine and Euclidean distance of all outputs taken as one vector."""
    a, b = (
        np.concatenate([np.asarray(x, np.float64).ravel() for x in arrays]) for arrays in (found, expected)
    )
    cosine = float(a @ b / max(float(np.linalg.norm(a) * np.linalg.norm(b)), 1e-300))
    return {"mse": float(((a - b) ** 2).mean()), "cosine": cosine, "l2": float(np.linalg.norm(a - b))}
