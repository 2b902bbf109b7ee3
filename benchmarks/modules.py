"""A Hugging Face architecture as a ``torch.nn.Module``, through the Python API alone.

    python -m benchmarks.modules bert bert.old.onnx

Loads the module, places it under four execution models, optimizes it, opens the plans and compares their outputs with
those that ONNX Runtime gives for the ONNX file of the same weights. Prints what came of each as a line of JSON.
:mod:`benchmarks.real_models` runs it.
"""

from __future__ import annotations

import json
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import loadmaster
from benchmarks.architectures import build
from benchmarks.outputs import allowed, compared
from loadmaster import api
from loadmaster.errors import InfeasibleError, LoadmasterError
from loadmaster.graph import Given
from loadmaster.optimize import optimize

__all__ = ["through"]

GIVEN = ("acc0=cpu", "acc1=cpu", "cpu0=cpu")


def attempt(found: dict[str, list[str]], name: str, job: Callable[[], str | None]) -> None:
    """Note what came of a job."""
    try:
        found[name] = ["ok", job() or ""]
    except InfeasibleError as error:
        found[name] = ["none", str(error)]
    except LoadmasterError as error:
        found[name] = ["refused", str(error)]
    except Exception as error:
        traceback.print_exc()
        found[name] = ["broken", f"{type(error).__name__}: {error}"[:200]]


def through(architecture: str, reference: Path, budget: float, folder: Path) -> dict[str, list[str]]:
    """Everything on one module."""
    module, inputs = build(architecture)
    found: dict[str, list[str]] = {}
    known: dict[str, Any] = {}

    def load() -> None:
        known["network"] = loadmaster.load(module, example=inputs)

    attempt(found, "inspect", load)
    if "network" not in known:
        return found

    def place(model: str) -> None:
        problem = api.problem(known["network"], model=model)
        solution = api.place(problem, evaluations=300)
        plan = loadmaster.Plan.from_solution(problem, solution)
        plan.save(folder / f"{model}.json")
        loadmaster.Plan.load(folder / f"{model}.json")

    for model in ("concurrent", "serial", "pipeline", "offload"):
        attempt(found, f"place {model}", lambda model=model: place(model))

    def optimized() -> None:
        devices = api.parse_devices(["A=cpu:core=0", "B=cpu:core=1"])
        best = optimize(module, devices, example=inputs, budget=budget, clock="core", samples=3)
        best.plan.save(folder / "openvino.optimized.json")

    def run() -> None:
        plan = loadmaster.Plan.load(folder / "openvino.optimized.json")
        api.run(module, plan, example=inputs, samples=3, baselines=False, clock="core")

    def equal() -> str:
        plans = [
            f"openvino:{folder / name}.json" for name in ("concurrent", "pipeline", "openvino.optimized")
        ]
        there = [plan for plan in plans if Path(plan.removeprefix("openvino:")).exists()]
        errors = compared(module, reference, there, Given(), GIVEN, example=inputs)
        for entry in there:
            if isinstance(errors[entry], str) or errors[entry] > allowed(errors):
                raise LoadmasterError(f"{Path(entry).name}: {errors[entry]}")
        return f"{max(errors[entry] for entry in there):.1e}"

    attempt(found, "optimize openvino", optimized)
    if (folder / "openvino.optimized.json").exists():
        attempt(found, "run openvino", run)
    if reference.exists():
        attempt(found, "outputs openvino", equal)
    return found


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as name:
        print(json.dumps(through(sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]), Path(name))))
