"""Plans for PyTorch: ``device_map`` and ``max_memory`` of Hugging Face."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import numpy as np
import numpy.typing as npt

from loadmaster.export._modules import modules_of
from loadmaster.plan import Plan
from loadmaster.problem import Problem, evaluate

__all__ = ["device_map", "huggingface", "torch_devices"]


def torch_devices(problem: Problem) -> list[str | int]:
    """What torch calls the devices: ``"cpu"`` for CPUs, numbers for GPUs in their order, else the name."""
    gpus = 0
    found: list[str | int] = []
    for device in problem.cluster.devices:
        if device.kind == "cpu":
            found.append("cpu")
        elif device.kind in ("gpu", "acc"):
            found.append(gpus)
            gpus += 1
        else:
            found.append(device.name)
    return found


def device_map(plan: Plan, model: Any = None) -> str:
    """``{module: device}`` as ``accelerate.dispatch_model`` and ``from_pretrained(device_map=...)`` take it.

    A module is named with the largest parent whose ops all go to one device. A module that itself is divided goes
    where most of its weights are, or most of its time where it has none. With the model (an ONNX file, a module, an
    ``ExportedProgram``) parameters outside these modules are named, too.

    Raises
    ------
    InputError : no op belongs to a module.
    """
    return json.dumps(_device_of_modules(plan, model), indent=1) + "\n"


def huggingface(plan: Plan, model: Any = None) -> str:
    """``device_map`` as above, ``max_memory`` with the bytes that each device has, and what the plan needs there.

    As arguments of ``from_pretrained`` and of accelerate's functions; JSON writes the numbers of GPUs as text, which
    these functions want as numbers. Devices without a limit are not in ``max_memory``; what several devices of one
    name (``"cpu"``) have and need is added up.

    Raises
    ------
    InputError : no op belongs to a module.
    """
    problem = plan.problem()
    needed = evaluate(problem, plan.placement()).memory
    limits: dict[str, int] = defaultdict(int)
    needs: dict[str, int] = defaultdict(int)
    for name, limit, bytes_ in zip(torch_devices(problem), problem.capacity, needed, strict=True):
        needs[str(name)] += int(bytes_)
        if np.isfinite(limit):
            limits[str(name)] += int(limit)
    document = {"device_map": _device_of_modules(plan, model), "max_memory": limits, "memory": needs}
    return json.dumps(document, indent=1) + "\n"


def _device_of_modules(plan: Plan, model: Any) -> dict[str, str | int]:
    problem, device = plan.problem(), plan.placement().device
    modules = modules_of(plan, model)
    weight: dict[str, npt.NDArray[np.float64]] = {}
    for v, module in enumerate(modules.of):
        if module:
            share = weight.setdefault(module, np.zeros((2, problem.devices)))
            share[0, device[v]] += problem.graph.param_bytes[v]
            share[1, device[v]] += problem.mean_time[v] + 1e-12
    home = {module: int(np.lexsort((share[1], share[0]))[-1]) for module, share in weight.items()}
    found = _merged(home)
    for parameter, v in modules.parameters.items():
        if not any(parameter == module or parameter.startswith(f"{module}.") for module in found):
            found[parameter] = int(device[v])
    names = torch_devices(problem)
    return {module: names[d] for module, d in found.items()}


def _merged(home: dict[str, int]) -> dict[str, int]:
    """Parents in place of their children, where all children go to one device."""
    below: dict[str, set[int]] = defaultdict(set)
    for module, d in home.items():
        parts = module.split(".")
        for i in range(1, len(parts) + 1):
            below[".".join(parts[:i])].add(d)
    merged: dict[str, int] = {}
    for module, d in home.items():
        parts = module.split(".")
        whole = (".".join(parts[:i]) for i in range(1, len(parts) + 1))
        merged[next((name for name in whole if len(below[name]) == 1), module)] = d
    return merged
