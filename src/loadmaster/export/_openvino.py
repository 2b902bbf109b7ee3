"""Plans for OpenVINO's HETERO."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from loadmaster.errors import InputError
from loadmaster.files import write_atomically
from loadmaster.graph import load_onnx
from loadmaster.graph.openvino import openvino, openvino_model
from loadmaster.hardware import Device
from loadmaster.plan import Plan

__all__ = ["openvino_affinity", "openvino_devices", "write_openvino"]

KINDS = {"cpu": "CPU", "gpu": "GPU", "acc": "GPU", "npu": "NPU"}
"""Kind of a device -> what OpenVINO calls it."""


def openvino_devices(devices: Sequence[Device]) -> list[str]:
    """What OpenVINO calls the devices of a cluster: ``GPU.0``, ``GPU.1`` where there are several, one ``CPU``.

    >>> openvino_devices([Device("a", "gpu"), Device("b", "gpu"), Device("c", "cpu")])
    ['GPU.0', 'GPU.1', 'CPU']
    """
    names = [KINDS.get(device.kind, device.kind.upper()) for device in devices]
    found, seen = [], dict.fromkeys(names, 0)
    for name in names:
        many = names.count(name) > 1 and name != "CPU"
        found.append(f"{name}.{seen[name]}" if many else name)
        seen[name] += 1
    return found


def openvino_affinity(plan: Plan, model: Any = None) -> str:
    """``{op: device}`` as JSON, the devices as OpenVINO calls them.

    HETERO wants a device for every node, constants too: :func:`write_openvino` has them.
    """
    return json.dumps(_affinity(plan), indent=1, ensure_ascii=False) + "\n"


def _affinity(plan: Plan) -> dict[str, str]:
    problem = plan.problem()
    called = dict(zip(problem.cluster.names, openvino_devices(problem.cluster.devices), strict=True))
    return {op: called[device] for op, device in plan.document["placement"].items()}


def write_openvino(
    plan: Plan,
    model: Any,
    target: str | Path,
    shapes: Mapping[str, Sequence[int]] | Iterable[str] = (),
) -> int:
    """Write the model as IR, and beside it (``.json``) the device of every node by its name there; how many nodes.

    An IR keeps the names of its nodes, while OpenVINO numbers those of an ONNX file afresh whenever it reads it. Nodes
    that are no ops of the plan (constants, arithmetic on shapes) go where they are read. ``shapes`` are by default
    those of the plan, with its values.

    Raises
    ------
    InputError : the plan is for another model, or the target is the model itself.
    """
    target = Path(target)
    if target.suffix != ".xml":
        raise InputError(f"{target}: an OpenVINO model is written to a file that ends in .xml")
    if isinstance(model, str | Path) and Path(model).resolve() == target.resolve():
        raise InputError(f"{target}: is the model itself: give another file as --output")
    given = plan.given(shapes)
    read = openvino_model(model, given)
    placed = _affinity(plan)
    by_tensor: dict[str, str] = {}
    if isinstance(model, str | Path) and Path(model).suffix == ".onnx":
        network = load_onnx(model, given)
        for op, tensors in zip(network.graph.names, network.ports, strict=True):
            by_tensor.update((tensor, placed[op]) for tensor in tensors if op in placed)
    where: dict[str, str] = {}
    nodes = read.get_ordered_ops()
    for node in nodes:
        names = [name for output in node.outputs() for name in sorted(output.get_names())]
        device = next((by_tensor[name] for name in names if name in by_tensor), None)
        device = device or placed.get(node.get_friendly_name())
        if device is not None and node.get_type_name() != "Result":
            where[node.get_friendly_name()] = device
    if not where:
        raise InputError(
            f"{plan.source}: is a plan for another model than {model}: it names none of the nodes"
        )
    _spread(nodes, where)
    openvino("writing a model").serialize(read, str(target), str(target.with_suffix(".bin")))
    content = json.dumps(where, indent=1, ensure_ascii=False) + "\n"
    write_atomically(target.with_suffix(".json"), content.encode())
    return len(where)


def _spread(nodes: Sequence[Any], where: dict[str, str]) -> None:
    """Give every other node the device of its first reader, or else of what it reads."""
    default = next(iter(where.values()))
    for node in reversed(nodes):
        name = node.get_friendly_name()
        if name in where:
            continue
        readers = [
            port.get_node().get_friendly_name()
            for output in node.outputs()
            for port in output.get_target_inputs()
        ]
        known = [where[reader] for reader in sorted(readers) if reader in where]
        if known:
            where[name] = known[0]
    for node in nodes:
        sources = [port.get_source_output().get_node().get_friendly_name() for port in node.inputs()]
        where.setdefault(node.get_friendly_name(), next((where[s] for s in sources if s in where), default))
