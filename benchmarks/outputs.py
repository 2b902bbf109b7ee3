"""Outputs of plans against ONNX Runtime run by itself: the same file, the same inputs, no Loadmaster in between.

    python -m benchmarks.outputs model.xml --reference model.onnx openvino:plan.json onnxruntime:plan.json

Prints one line of JSON: for every plan the largest difference of an output, relative to the largest value of that
output, on three inputs; the same for OpenVINO without a plan (``engine``); and how far another input moves the outputs.
Outputs that are nearly zero differ more between two engines: what is allowed is :data:`TOLERANCE`, or twice what the
engine by itself differs, if that is more, but never over :data:`MOST`. :mod:`benchmarks.real_models` runs it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from loadmaster import api
from loadmaster.errors import LoadmasterError
from loadmaster.graph import Given
from loadmaster.runtime.onnxruntime import FlatModel

__all__ = ["TOLERANCE", "allowed", "apart", "compared"]

TOLERANCE = 1e-3
"""Relative to the largest value of an output: two engines add up in different orders, nothing more."""
MOST = 1e-2
"""What is allowed at most: an engine that is off by more than that by itself computes something else."""
INPUTS = 3

Arrays = Sequence[npt.NDArray[Any]]


def apart(found: Arrays, expected: Arrays) -> float:
    """The largest difference over all outputs, each relative to the largest value that is expected of it."""
    worst = 0.0
    for one, two in zip(found, expected, strict=True):
        if one.shape != two.shape or not np.array_equal(np.isfinite(one), np.isfinite(two)):
            return float("inf")
        a, b = (np.where(np.isfinite(array), array, 0).astype(np.float64) for array in (one, two))
        scale = float(np.abs(b).max(initial=0.0))
        difference = float(np.abs(a - b).max(initial=0.0))
        worst = max(worst, difference / scale if scale else float("inf") if difference else 0.0)
    return worst


def allowed(found: dict[str, Any]) -> float:
    """How far a plan may be off."""
    return max(TOLERANCE, min(2 * found["engine"], MOST))


def openvino_by_itself(
    model: Any, runs: Sequence[Arrays], given: Given, example: Any = None
) -> list[list[npt.NDArray[Any]]]:
    """What OpenVINO gives without a plan, in f32."""
    import openvino

    from loadmaster.graph.openvino import openvino_model

    read = openvino_model(model, given, example=example)
    compiled = openvino.Core().compile_model(read, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return [[np.array(array) for array in compiled(list(run)).values()] for run in runs]


def by_itself(file: Path, runs: Sequence[Arrays], given: Given) -> list[list[npt.NDArray[Any]]]:
    """What ONNX Runtime gives for the file as it is."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    kinds = {port.name: port.type for port in session.get_inputs()}
    numbers = {"tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(bool)": np.bool_}
    fixed = {
        name: np.asarray(value, numbers.get(kinds[name], np.float32))
        for name, value in given.constants.items()
    }
    names = [name for name in kinds if name not in fixed]
    return [session.run(None, {**dict(zip(names, run, strict=True)), **fixed}) for run in runs]


def compared(
    model: Any, reference: Path, plans: Sequence[str], given: Given, devices: Sequence[str], **how: Any
) -> dict[str, Any]:
    """Plan (``RUNTIME:FILE``) -> its error, or what it says."""
    # Another form of the same weights has shapes of its own, and other names.
    shaped = given if isinstance(model, str | Path) and Path(model) == reference else Given()
    flat = FlatModel(reference, shaped)
    runs = [flat.draw(seed) for seed in range(INPUTS + 1)]
    expected = by_itself(reference, runs, shaped)
    found: dict[str, Any] = {"moved": apart(expected[-1], expected[0]), "engine": 0.0}
    if any(entry.startswith("openvino:") for entry in plans):
        try:
            alone = openvino_by_itself(model, runs[:INPUTS], given, **how)
            found["engine"] = max(map(apart, alone, expected))
        except (LoadmasterError, RuntimeError):  # the plans will say so
            pass
    for entry in plans:
        runtime, _, plan = entry.partition(":")
        own = "optimized" in Path(plan).name
        specs = None if own else api.parse_devices(devices)
        try:
            with api.open_plan(model, plan, specs, runtime=runtime, **how) as net:
                errors = []
                for run, right in zip(runs[:INPUTS], expected, strict=False):
                    outputs = net(*run)
                    errors.append(apart([outputs] if isinstance(outputs, np.ndarray) else outputs, right))
            found[entry] = max(errors)
        except LoadmasterError as error:
            found[entry] = str(error)
    return found


def main() -> None:
    """Print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("plans", nargs="+", metavar="RUNTIME:PLAN")
    parser.add_argument("--reference", type=Path, required=True)
    parser.add_argument("--shape", action="append", default=[])
    parser.add_argument("--value", action="append", default=[])
    parser.add_argument("--device", action="append", default=[])
    words = parser.parse_args()
    given = Given(words.shape, words.value)
    print(json.dumps(compared(words.model, words.reference, words.plans, given, words.device)))


if __name__ == "__main__":
    main()
