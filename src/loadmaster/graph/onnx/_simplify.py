"""An ONNX model without what is decided already: branches that are not taken, and open dimensions."""

from __future__ import annotations

from typing import Any

import onnx

from loadmaster.graph.onnx._walk import Walk

__all__ = ["simplify"]


def simplify(walk: Walk) -> Any:
    """The model that was followed, with fixed shapes of its inputs and taken branches in place of their ``If``."""
    model, graph = walk.model, walk.model.graph
    flat = _Flat(walk, {info.name for info in graph.output})
    flat.names.update(info.name for info in graph.input)
    flat.add(graph, {})
    del graph.node[:]
    graph.node.extend(flat.nodes)
    graph.initializer.extend(flat.initializers)
    del graph.value_info[:]  # may speak of names that are gone
    for value in walk.inputs:
        info = next(info for info in graph.input if info.name == value.name)
        info.CopyFrom(onnx.helper.make_tensor_value_info(value.name, value.elem, value.tensor.shape))
    return model


class _Flat:
    """Nodes of a graph and of its taken branches, as one list with unique names."""

    def __init__(self, walk: Walk, outputs: set[str]) -> None:
        self.walk, self.outputs = walk, outputs
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self.names: set[str] = set()

    def add(self, graph: Any, renamed: dict[str, str], *, inner: bool = False) -> dict[str, str]:
        """Add a graph's nodes; what its names are called now."""
        renamed = dict(renamed)
        for tensor in graph.initializer:
            if inner:
                copy = onnx.TensorProto()
                copy.CopyFrom(tensor)
                copy.name = renamed[tensor.name] = self.unique(tensor.name)
                self.initializers.append(copy)
            else:
                self.names.add(tensor.name)
        for node in graph.node:
            branch = self.walk.taken(node)
            if branch is None:
                self.nodes.append(self.copied(node, renamed, inner=inner))
                continue
            names = self.add(branch, renamed, inner=True)
            for name, info in zip(node.output, branch.output, strict=True):
                source = names.get(info.name, info.name)
                if not inner and name in self.outputs:
                    self.nodes.append(onnx.helper.make_node("Identity", [source], [name]))
                else:
                    renamed[name] = source
        return renamed

    def copied(self, node: Any, renamed: dict[str, str], *, inner: bool) -> Any:
        """A node under the names of the flat graph; its own graphs read by them, too."""
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        _rename_reads(copy, renamed)
        for at, name in enumerate(node.output):
            if name and inner:
                copy.output[at] = renamed[name] = self.unique(name)
            elif name:
                self.names.add(name)
        return copy

    def unique(self, name: str) -> str:
        count, found = 0, name
        while found in self.names or (found in self.outputs):
            count += 1
            found = f"{name}_{count}"
        self.names.add(found)
        return found


def _rename_reads(node: Any, renamed: dict[str, str]) -> None:
    for at, name in enumerate(node.input):
        node.input[at] = renamed.get(name, name)
    for attribute in node.attribute:
        for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            own = {name for inner in graph.node for name in inner.output}
            own |= {info.name for info in graph.input} | {tensor.name for tensor in graph.initializer}
            outer = {key: value for key, value in renamed.items() if key not in own}
            for inner in graph.node:
                _rename_reads(inner, outer)
            for info in graph.output:
                info.name = outer.get(info.name, info.name)
