"""Which values cross which boundary: a captured model cut into stages.

A value that is needed several stages later is relayed hop by hop, because the engine sends from a stage to the next one
only. Inputs of the model arrive at the first stage, and results leave from the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from loadmaster.errors import InputError
from loadmaster.graph.torch import Capture
from loadmaster.plan import Plan

__all__ = ["Cut", "Stages", "Value", "cut_stages", "stages_of_plan"]


@dataclass(frozen=True)
class Value:
    """A tensor between stages."""

    node: fx.Node
    shape: tuple[int, ...]
    dtype: Any
    has_gradient: bool

    def empty(self, device: Any) -> Any:
        """A tensor like it, for the engine to learn shape and type from."""
        return torch.empty(self.shape, dtype=self.dtype, device=device, requires_grad=self.has_gradient)


@dataclass(frozen=True)
class Cut:
    """A model cut into stages.

    Attributes
    ----------
    stage_of : (ops,) the stage of each op of the capture.
    boundaries : for each stage what it is given, and one more: what the last one returns.
    """

    stage_of: tuple[int, ...]
    boundaries: tuple[tuple[Value, ...], ...]

    @property
    def count(self) -> int:
        """Number of stages."""
        return len(self.boundaries) - 1


@dataclass(frozen=True)
class Stages:
    """Where a plan puts the ops of a captured model.

    Attributes
    ----------
    of : (ops,) the stage of each op of the capture.
    devices : the device of each stage, in the order of the pipeline.
    ranks : the rank of each stage. Ranks are the devices that the plan uses, in the order of its cluster.
    """

    of: tuple[int, ...]
    devices: tuple[str, ...]
    ranks: tuple[int, ...]


def stages_of_plan(capture: Capture, plan: Plan) -> Stages:
    """The stages of a plan: what its ``call`` says where it has stages interleaved, and otherwise its devices.

    Devices without ops are no stages. Their order is that of the data; where that leaves a choice, that of the cluster.

    Raises
    ------
    InputError : the plan is for another model, or data would have to flow back.
    """
    placement, known = plan.document["placement"], [entry["name"] for entry in plan.document["devices"]]
    missing = [name for name in capture.names if name not in placement]
    if missing:
        raise InputError(
            f"{plan.source}: is a plan for a different model ({plan.graph_name}): it does not place op "
            f"{missing[0]!r} of {capture.name}"
        )
    device = [str(placement[name]) for name in capture.names]
    used = [name for name in known if name in set(device)]
    call = plan.document.get("call")
    if call is not None:
        of = [int(call[name]) for name in capture.names]
        devices = [device[of.index(stage)] if stage in of else "" for stage in range(max(of) + 1)]
        if "" in devices or any(devices[stage] != name for stage, name in zip(of, device, strict=True)):
            raise InputError(f"{plan.source}: call: a stage is empty, or is on two devices")
        if len(devices) > len(used):  # interleaved: the engine wants stage s on rank s modulo the ranks
            return Stages(
                tuple(of), tuple(devices), tuple(stage % len(used) for stage in range(len(devices)))
            )
    else:
        devices = _device_order(capture, device, used, plan.source)
        of = [devices.index(name) for name in device]
    return Stages(tuple(of), tuple(devices), tuple(used.index(name) for name in devices))


def _device_order(capture: Capture, device: Sequence[str], used: Sequence[str], source: str) -> list[str]:
    before: dict[str, set[str]] = {name: set() for name in used}
    for v, node in enumerate(capture.nodes):
        for user in node.users:
            if user.name in capture.index:
                reader = device[capture.index[user.name]]
                if reader != device[v]:
                    before[reader].add(device[v])
    order: list[str] = []
    while len(order) < len(used):
        ready = [name for name in used if name not in order and before[name] <= set(order)]
        if not ready:
            stuck = sorted(set(used) - set(order))
            raise InputError(
                f"{source}: data flows in a circle between {' and '.join(stuck)}, which is no pipeline: place with "
                "--model pipeline:chain"
            )
        order.append(ready[0])
    return order


def cut_stages(capture: Capture, stage_of: Sequence[int], count: int) -> Cut:
    """Cut a capture where ``stage_of`` says. Complexity: O(ops + edges + values · stages).

    Raises
    ------
    InputError : data flows back, ops that belong together are apart, a stage is empty, or nothing crosses a boundary.
    """
    for stage in range(count):
        if stage not in stage_of:
            raise InputError(f"stage {stage} has no op: leave it out")
    for group in capture.together:
        if len({stage_of[v] for v in group}) > 1:
            names = " and ".join(repr(capture.names[v]) for v in group[:2])
            raise InputError(f"the ops {names} share memory, so they must be in one stage")
    home: dict[fx.Node, int] = dict.fromkeys(capture.inputs, 0)
    home |= {node: stage_of[v] for v, node in enumerate(capture.nodes)}
    boundaries: list[list[Value]] = [[] for _ in range(count + 1)]
    for node, start in home.items():
        end = start
        for user in node.users:
            stage = count - 1 if user.op == "output" else home.get(user, start)
            if stage < start:
                raise InputError(
                    f"op {user.name!r} in stage {stage} reads {node.name!r} of stage {start}: data would flow back"
                )
            end = max(end, stage)
        if end > start:
            value = value_of(capture, node)
            for at in range(start + 1, end + 1):
                boundaries[at].append(value)
    for at in range(1, count):
        if not boundaries[at]:
            raise InputError(f"stage {at} reads nothing from the stages before it: give it to one of them")
    boundaries[0] = [value_of(capture, node) for node in capture.inputs]
    boundaries[count] = [value_of(capture, node) for node in _results(capture)]
    return Cut(tuple(stage_of), tuple(tuple(values) for values in boundaries))


def _results(capture: Capture) -> list[fx.Node]:
    """The tensors among the model's results, in order."""
    return [
        leaf
        for leaf in capture.output.args[0]
        if isinstance(leaf, fx.Node)
        and isinstance(leaf.meta.get("val", _tensor(capture, leaf)), torch.Tensor)
    ]


def _tensor(capture: Capture, node: fx.Node) -> Any:
    if node.op != "get_attr":
        return None
    found = capture.module
    for part in str(node.target).split("."):
        found = getattr(found, part)
    return found


def value_of(capture: Capture, node: fx.Node) -> Value:
    """Shape, type and gradient of a value.

    Raises
    ------
    InputError : it is no tensor, so it cannot be sent.
    """
    tensor = node.meta.get("val", _tensor(capture, node))
    if not isinstance(tensor, torch.Tensor):
        raise InputError(
            f"{node.name!r} is no tensor ({type(tensor).__name__}), so it cannot be sent to another stage"
        )
    has = (
        capture.training
        and node.name in capture.index
        and capture.work.has_gradient[capture.index[node.name]]
    )
    return Value(node, tuple(tensor.shape), tensor.dtype, bool(has))
