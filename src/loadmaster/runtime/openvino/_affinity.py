"""A placement set into an OpenVINO model, so that HETERO cuts it there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["place_nodes", "set_affinity"]


def place_nodes(model: Any, device_of: Mapping[str, str]) -> dict[str, str]:
    """The device of every node of a model, from those of its ops.

    A constant goes where it is read; one that is read on several devices is copied, so that no weight crosses
    between devices in every run. Inputs go to their first reader and results to what they come from: the
    runtime holds both in host memory whatever the placement says.
    """
    where = dict(device_of)
    _copy_shared_constants(model, where)
    nodes = model.get_ordered_ops()
    default = next(iter(device_of.values()))
    for node in reversed(nodes):  # readers first
        name, kind = node.get_friendly_name(), node.get_type_name()
        if kind == "Result":
            continue
        if name not in where or kind == "Parameter":
            readers = [
                where[port.get_node().get_friendly_name()]
                for output in node.outputs()
                for port in output.get_target_inputs()
                if port.get_node().get_friendly_name() in where
                and port.get_node().get_type_name() != "Result"
            ]
            where[name] = readers[0] if readers else where.get(name, default)
    for node in nodes:
        if node.get_type_name() == "Result":
            where[node.get_friendly_name()] = where[
                node.input(0).get_source_output().get_node().get_friendly_name()
            ]
    return where


def _copy_shared_constants(model: Any, where: Mapping[str, str]) -> None:
    from openvino.op import Constant

    for node in model.get_ordered_ops():
        if node.get_type_name() != "Constant" or node.get_friendly_name() in where:
            continue
        by_device: dict[str, list[Any]] = {}
        for port in node.output(0).get_target_inputs():
            device = where.get(port.get_node().get_friendly_name())
            if device is not None:
                by_device.setdefault(device, []).append(port)
        for device in sorted(by_device)[1:]:
            copy = Constant(node.get_tensor_view() if hasattr(node, "get_tensor_view") else node.data)
            copy.set_friendly_name(f"{node.get_friendly_name()}/on/{device}")
            for port in by_device[device]:
                port.replace_source_output(copy.output(0))


def set_affinity(model: Any, where: Mapping[str, str], registered: Mapping[str, str]) -> None:
    """Write the devices into the nodes, under the names by which OpenVINO knows them."""
    for node in model.get_ordered_ops():
        node.get_rt_info()["affinity"] = registered[where[node.get_friendly_name()]]
