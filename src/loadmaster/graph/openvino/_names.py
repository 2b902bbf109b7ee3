"""Names of OpenVINO's nodes that are the same whenever, and wherever, a model is read.

OpenVINO numbers every node that has no name of its own by a counter of the process (``MVN_24``), so that such a name
is another one at each reading. Here a node without a name is called after what reads it, ``<name>/<type>``, by the
order in which the outputs are reached: that depends on the model alone. Names that the file gives stay.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

__all__ = ["canonical_order", "name_canonically", "numbered"]


def canonical_order(model: Any) -> list[Any]:
    """The nodes of a model in topological order: each output, in order, after all that it needs, port by port.

    Complexity: O(nodes + edges).
    """
    found: list[Any] = []
    seen: set[str] = set()
    ends = [*model.get_results(), *sorted(model.get_sinks(), key=lambda sink: sink.get_friendly_name())]
    for end in (*ends, *model.get_parameters(), *model.get_ordered_ops()):
        stack = [(end, False)]
        while stack:
            node, ready = stack.pop()
            name = node.get_name()  # unique in the process, unlike the friendly name
            if ready:
                found.append(node)
            elif name not in seen:
                seen.add(name)
                stack.append((node, True))
                sources = [port.get_source_output().get_node() for port in node.inputs()]
                stack.extend((source, False) for source in reversed(sources))
    return found


def numbered(model: Any) -> set[int]:
    """Which nodes, by their place in :func:`canonical_order`, have no name but OpenVINO's number.

    A name of the file's may happen to be the very one that OpenVINO would give.
    """
    return {
        at for at, node in enumerate(canonical_order(model)) if node.get_friendly_name() == node.get_name()
    }


def name_canonically(model: Any, generated: Collection[int] = ()) -> None:
    """Give every node a name that is unique and that depends on the model alone, in place.

    ``generated`` are the nodes, by their place in :func:`canonical_order`, whose names are not of the model.
    """
    nodes = canonical_order(model)
    place = {node.get_name(): at for at, node in enumerate(nodes)}
    unnamed = set(generated)
    name_of: list[str] = [""] * len(nodes)
    anchor: list[str] = [""] * len(nodes)
    for at in range(len(nodes) - 1, -1, -1):  # readers first
        node = nodes[at]
        if at not in unnamed:
            name_of[at] = anchor[at] = node.get_friendly_name()
            continue
        readers = {
            place[port.get_node().get_name()]
            for output in node.outputs()
            for port in output.get_target_inputs()
            if port.get_node().get_name() in place
        }
        tensors = sorted(name for output in node.outputs() for name in output.get_names())
        anchor[at] = tensors[0] if tensors else anchor[min(readers)] if readers else ""
        kind = node.get_type_name()
        name_of[at] = f"{anchor[at]}:{kind}" if anchor[at] else kind
    taken: set[str] = set()
    own = set(name_of)
    for node, name in zip(nodes, name_of, strict=True):
        if name in taken:
            count = 1
            while f"{name}_{count}" in own or f"{name}_{count}" in taken:
                count += 1
            name = f"{name}_{count}"
        taken.add(name)
        if name != node.get_friendly_name():
            node.set_friendly_name(name)
