"""Stages of a plan as lists of whole modules, for engines of pipelines that cut a model themselves."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from loadmaster.errors import InputError
from loadmaster.export._modules import modules_of
from loadmaster.plan import Plan

__all__ = ["StageModules", "deepspeed_parts", "stage_modules", "torchtitan_parts"]


@dataclass(frozen=True)
class StageModules:
    """One stage: its device, and its modules in the order of execution."""

    device: int
    modules: tuple[str, ...]


def stage_modules(plan: Plan, model: Any = None) -> list[StageModules]:
    """The stages of a plan in the order of the pipeline, each as whole modules.

    A module is a child of the model, and where that is a numbered list, a child of the list; where such a module
    is divided, its own children, as deep as needed. Ops of a module outside its children go with them.

    Raises
    ------
    InputError : no op belongs to a module, the devices form no chain, or a module without children is divided.
    """
    problem = plan.problem()
    graph, stage = problem.graph, _stage_of_ops(plan)
    paths = modules_of(plan, model).of
    ops = [v for v in range(graph.n) if paths[v]]
    home: dict[str, set[int]] = defaultdict(set)
    for v in ops:
        parts = paths[v].split(".")
        for i in range(1, len(parts) + 1):
            home[".".join(parts[:i])].add(stage[v])
    device: dict[int, int] = {}
    for v, d in enumerate(plan.placement().device.tolist()):
        device.setdefault(stage[v], int(d))
    inside: dict[int, list[str]] = {s: [] for s in range(max(stage) + 1)}
    for v in ops:
        unit = _unit(plan, paths[v], home)
        if unit and unit not in inside[stage[v]]:
            inside[stage[v]].append(unit)
    empty = [s for s, modules in inside.items() if not modules]
    if empty:
        raise InputError(
            f"{plan.source}: no module lies in stage {empty[0] + 1} of {len(inside)} as a whole: "
            "place layers as a whole (--granularity layer)"
        )
    return [StageModules(device[s], tuple(inside[s])) for s in sorted(inside)]


def _unit(plan: Plan, path: str, home: dict[str, set[int]]) -> str:
    """The module that a stage is given for an op; empty for ops between the children of a divided module."""
    parts = path.split(".")
    for i in range(1, len(parts) + 1):
        name = ".".join(parts[:i])
        if i < len(parts) and parts[i].isdecimal():
            continue  # a numbered list: its children
        if len(home[name]) == 1:
            return name
    if any(other.startswith(f"{path}.") for other in home):
        return ""
    raise InputError(
        f"{plan.source}: module {path!r} has ops in stages {' and '.join(str(s + 1) for s in sorted(home[path]))}, "
        "which other engines cannot do: place layers as a whole (--granularity layer)"
    )


def _stage_of_ops(plan: Plan) -> list[int]:
    """(ops,) the number of each op's stage: as placed, or the place of its device in the chain of devices."""
    problem, placement = plan.problem(), plan.placement()
    graph = problem.graph
    if placement.call is not None and problem.model.name == "pipeline":
        return [int(s) for s in placement.call]
    device = [int(d) for d in placement.device]
    before: dict[int, set[int]] = {d: set() for d in dict.fromkeys(device)}
    for tensor in range(graph.tensors):
        u = int(graph.tensor_producer[tensor])
        for v in graph.consumers(tensor).tolist():
            if device[u] != device[v] and not graph.backward[u] and not graph.backward[v]:
                before[device[v]].add(device[u])
    order: list[int] = []
    while len(order) < len(before):
        ready = [d for d in before if d not in order and before[d] <= set(order)]
        if not ready:
            names = [problem.cluster.names[d] for d in before if d not in order]
            raise InputError(
                f"{plan.source}: data flows from {' to '.join(names)} and back, which is no pipeline: "
                "place with --model pipeline:chain"
            )
        order.append(ready[0])
    return [order.index(d) for d in device]


def torchtitan_parts(plan: Plan, model: Any = None) -> str:
    """``module_fqns_per_model_part`` of torchtitan's parallelism settings.

    torchtitan keeps in a stage the children of the model, and of its lists, that are named. With the model (a module),
    children without ops of their own are named too, in the stage of the child before them.

    Raises
    ------
    InputError : a stage boundary is deeper inside the model than torchtitan can cut.
    """
    stages = [list(stage.modules) for stage in stage_modules(plan, model)]
    for modules in stages:
        for name in modules:
            parts = name.split(".")
            if len(parts) > 2 or (len(parts) == 2 and not parts[1].isdecimal()):
                raise InputError(
                    f"{plan.source}: {name!r} is neither a child of the model nor of one of its lists, and torchtitan "
                    "cuts between these alone: use --format deepspeed or split-points, or run the plan itself"
                )
    if hasattr(model, "named_children"):
        _add_silent(stages, _children(model))
    return json.dumps({"module_fqns_per_model_part": stages}, indent=1) + "\n"


def _children(model: Any) -> Iterable[str]:
    for name, child in model.named_children():
        inner = [key for key, _ in child.named_children()]
        numbered = bool(inner) and all(key.isdecimal() for key in inner)
        yield from [f"{name}.{key}" for key in inner] if numbered else [name]


def _add_silent(stages: list[list[str]], children: Iterable[str]) -> None:
    """Children that no op belongs to, behind the child that comes before them."""
    where = {name: modules for modules in stages for name in modules}
    last = stages[0]
    for name in children:
        opened = any(known.startswith(f"{name}.") or name.startswith(f"{known}.") for known in where)
        if name not in where and not opened:
            last.append(name)
        last = where.get(name, last)


def deepspeed_parts(plan: Plan, model: Any = None) -> str:
    """Layers in order, and ``parts``, the boundaries that DeepSpeed's ``PipelineModule`` keeps under that name.

    Stage s has the layers from ``parts[s]`` up to ``parts[s + 1]``. ``PipelineModule`` has no option for them:
    the guide of this format shows the method to override.

    Raises
    ------
    InputError : a device has several stages, which DeepSpeed cannot run.
    """
    stages = stage_modules(plan, model)
    if len({stage.device for stage in stages}) < len(stages):
        raise InputError(
            f"{plan.source}: has {len(stages)} stages on fewer devices, and DeepSpeed runs one stage on each: "
            "split without interleaved stages"
        )
    parts = [0]
    for stage in stages:
        parts.append(parts[-1] + len(stage.modules))
    layers: Sequence[str] = [name for stage in stages for name in stage.modules]
    return json.dumps({"num_stages": len(stages), "parts": parts, "layers": layers}, indent=1) + "\n"
