"""Where torch's pipelining splits a model: the beginnings of modules that are nearest to the stages of a plan."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from loadmaster.arrays import FloatArray, IntArray
from loadmaster.errors import InputError
from loadmaster.export._modules import modules_of
from loadmaster.export._torch import torch_devices
from loadmaster.plan import Plan
from loadmaster.problem import Placement, Problem, evaluate

__all__ = ["split_points"]

NOTHING = 1e-12
"""Seconds that every op counts for at least, so that ops without a time are kept together, too."""

TIE = 1e-9
"""Share of all work that a level of depth counts for where splits are equally near."""


def split_points(plan: Plan, model: Any = None) -> str:
    """Where ``torch.distributed.pipelining.pipeline`` is to split: ``split_spec`` and the stages in order.

    Each entry of ``split_spec`` is a module before which a new stage begins (``SplitPoint.BEGINNING``). torch splits
    the order of execution, and there between modules alone. A plan whose stages end elsewhere is split where the
    fewest seconds of work change their stage: ``moved`` says how many ops do, and the share of their time, and
    ``cost`` what the model of execution says of both, in seconds.

    Raises
    ------
    InputError : data flows back to a device, too few modules begin, or memory or pins forbid the nearest split.
    """
    problem = plan.problem()
    modules = modules_of(plan, model).of
    order, stage, device = _stages_in_order(plan, modules)
    weight = problem.mean_time[order] + NOTHING
    starts = _starts(order, modules)
    cuts = _nearest(stage, weight, starts, len(device))
    if cuts is None:
        raise InputError(
            f"{plan.source}: has {len(device)} stages, and only {len(starts)} modules begin after the first op "
            "and are called once, where torch could split: place on fewer devices"
        )
    split = np.searchsorted(cuts, np.arange(len(order)), side="right").astype(np.int32)
    moved = split != stage
    placed, nearest = plan.placement(), _moved(plan, order, device[split], split)
    found = evaluate(problem, nearest)
    if moved.any() and not found.feasible:
        raise InputError(
            f"{plan.source}: the nearest split between modules, before {' and '.join(starts[cut] for cut in cuts)}, "
            f"cannot be: {found.why[0]}: place modules as a whole (--coarsen scope:N)"
        )
    names = torch_devices(problem)
    inside: list[list[str]] = [[] for _ in device]
    for v, s in zip(order.tolist(), split.tolist(), strict=True):
        if modules[v] and modules[v] not in inside[s]:
            inside[s].append(modules[v])
    document = {
        "split_spec": {starts[cut]: "beginning" for cut in cuts},
        "stages": [{"device": names[d], "modules": m} for d, m in zip(device.tolist(), inside, strict=True)],
        "moved": {"ops": int(moved.sum()), "time": float(weight[moved].sum() / weight.sum())},
        "cost": {"placed": evaluate(problem, placed).cost, "split": found.cost},
    }
    return json.dumps(document, indent=1) + "\n"


def _stages_in_order(plan: Plan, modules: Sequence[str]) -> tuple[IntArray, IntArray, IntArray]:
    """The ops that torch runs in the order of execution, the stage of each, and (stages,) the device of each stage.

    Ops of modules make the stages; others, which go wherever torch splits around them, may have none (-1).
    """
    problem, placement = plan.problem(), plan.placement()
    graph = problem.graph
    there = ~graph.backward & ~graph.boundary
    order = graph.topological_order[there[graph.topological_order]]
    chained = placement.call is not None and problem.model.name == "pipeline"
    label = placement.call if chained and placement.call is not None else placement.device
    inside = there & np.array([bool(module) for module in modules])
    tail, head = graph.arcs
    between = inside[tail] & inside[head] & (label[tail] != label[head])
    before = set(zip(label[tail[between]].tolist(), label[head[between]].tolist(), strict=True))
    left = list(dict.fromkeys(label[order[inside[order]]].tolist()))
    chain: list[int] = []
    while left:
        ready = [s for s in left if not any((other, s) in before for other in left)]
        if not ready:
            divided = placement.device[inside & np.isin(label, left)]
            names = [problem.cluster.names[d] for d in sorted(set(divided.tolist()))]
            raise InputError(
                f"{plan.source}: data flows from {' to '.join(names)} and back, which torch cannot split into stages: "
                "place with --model pipeline --contiguity chain"
            )
        chain.append(min(ready) if chained else ready[0])
        left.remove(chain[-1])
    place = {s: i for i, s in enumerate(chain)}
    stage = np.array([place.get(s, -1) for s in label[order].tolist()], np.int32)
    first = [int(order[np.flatnonzero(stage == i)[0]]) for i in range(len(chain))]
    return order, stage, placement.device[first]


@dataclass
class _Called:
    """A module while the ops are walked through: positions of its first and its last op, and whether it is left and
    called again."""

    first: int
    last: int
    again: bool = False


def _starts(order: IntArray, modules: Sequence[str]) -> dict[int, str]:
    """Position in the order -> the largest module that begins there and is called once."""
    called: dict[str, _Called] = {}
    number = 0  # of ops that belong to a module: others may lie between those of one call
    for position, v in enumerate(order.tolist()):
        if not modules[v]:
            continue
        number += 1
        parts = modules[v].split(".")
        for i in range(1, len(parts) + 1):
            one = called.setdefault(".".join(parts[:i]), _Called(position, number))
            one.again |= number > one.last + 1
            one.last = number
    found: dict[int, str] = {}
    for name, one in called.items():  # larger modules come first
        if one.first > 0 and not one.again:
            found.setdefault(one.first, name)
    return found


def _nearest(stage: IntArray, weight: FloatArray, starts: Mapping[int, str], stages: int) -> list[int] | None:
    """Positions at which to split, so that the weight of the ops which keep their stage is largest (among equals,
    before larger modules); None if there are too few to choose from.

    A dynamic program over stages and positions: ``best[i]`` is the largest weight that is kept before position i of
    ``starts`` by the stages so far, which end there.
    """
    if len(starts) < stages - 1:
        return None
    if stages == 1:
        return []
    kept = np.zeros((stages, len(stage) + 1))
    for s in range(stages):
        np.cumsum(np.where(stage == s, weight, 0.0), out=kept[s, 1:])
    at = np.array(sorted(starts), np.intp)
    depth = TIE * weight.sum() * np.array([starts[i].count(".") for i in at.tolist()])
    best = kept[0, at] - depth
    came: list[list[int]] = []
    for s in range(1, stages - 1):
        gain = best - kept[s, at]
        through = np.full(len(at), -np.inf)
        source = [0] * len(at)
        top = 0
        for i in range(1, len(at)):
            top = top if gain[top] >= gain[i - 1] else i - 1
            through[i], source[i] = gain[top] + kept[s, at[i]] - depth[i], top
        best = through
        came.append(source)
    last = int(np.argmax(best + kept[stages - 1, -1] - kept[stages - 1, at]))
    cuts = [last]
    for source in reversed(came):
        cuts.append(source[cuts[-1]])
    return [int(at[i]) for i in reversed(cuts)]


def _moved(plan: Plan, order: IntArray, device: IntArray, stage: IntArray) -> Placement:
    """The placement with the ops of ``order`` on other devices, and in other stages; ops that share a colocation class
    with one (the backward op) go with it."""
    problem: Problem = plan.problem()
    placement = plan.placement()

    def changed(old: IntArray, new: IntArray) -> IntArray:
        of_class = np.full(problem.classes, -1, np.int32)
        of_class[problem.class_of[order]] = new
        found = np.where(of_class[problem.class_of] >= 0, of_class[problem.class_of], old)
        found[problem.graph.boundary] = old[problem.graph.boundary]
        found[order] = new
        return found.astype(np.int32)

    call = None if placement.call is None else changed(placement.call, stage)
    return Placement(changed(placement.device, device), placement.order, call)
