"""Layers: whole modules of the repeated structure of a model, as the units that people think of.

*Blocks* are modules with children that have a sibling of the same class: transformer blocks, residual blocks, the mixed
modules of Inception; lists themselves are none. From the model down, a module is opened, which means that its children
are looked at instead, if it is a list (``ModuleList``, ``Sequential``) with blocks in it, or if it holds more than an
eighth of all ops; a block only if, in addition, there are blocks in it. What is not opened is a layer. An op that
belongs to an opened module itself, glue between layers, joins the one layer that all it reads comes from, or that all
that read it are in; otherwise it is a layer of its own. Joining that way makes no cycle between layers.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from loadmaster.graph.torch._nodes import read_nodes

if TYPE_CHECKING:
    from loadmaster.graph.torch._capture import Capture

__all__ = ["layers_of"]

LARGE = 1 / 8
"""Share of all ops above which a module is too large to be one layer."""
CONTAINERS = re.compile(r"\.(ModuleList|Sequential|ModuleDict)$")
AGAIN = re.compile(r"@\d+")
"""Behind the name of a module that is called once more."""


def layers_of(capture: Capture) -> tuple[str, ...]:
    """(ops,) the name of the layer of each op. Complexity: O(ops · depth)."""
    tree = _Tree(capture)
    named = [tree.layer(v) for v in range(len(capture.nodes))]
    return _with_glue(capture, named)


class _Tree:
    """The modules that ops are called in, with their classes as the program knows them."""

    def __init__(self, capture: Capture) -> None:
        self.stacks: list[list[str]] = []
        self.kind: dict[str, str] = {}
        self.ops: Counter[str] = Counter()
        for node in capture.nodes:
            stack: list[str] = []
            for path, kind in (node.meta.get("nn_module_stack") or {}).values():
                text = str(path)
                stack += [parent for parent in _parents(text) if parent not in stack]
                if text not in stack:
                    stack.append(text)
                self.kind[text] = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__qualname__}"
            self.stacks.append([path for path in stack if path])
            self.ops.update(set(self.stacks[-1]))
        self.total = len(capture.nodes)
        self.children: dict[str, set[str]] = {}
        for stack in self.stacks:
            for parent, child in zip(["", *stack], stack, strict=False):
                self.children.setdefault(parent, set()).add(child)
        self.blocks = self._blocks()
        self.above = {parent for block in self.blocks for parent in _parents(block)}

    def _blocks(self) -> set[str]:
        """Modules with children that have a sibling of the same class."""
        alike: dict[tuple[str, str], list[str]] = {}
        for path, kind in self.kind.items():
            if path and self.children.get(path) and not CONTAINERS.search(kind):
                parent = AGAIN.sub("", path).rpartition(".")[0]
                alike.setdefault((parent, kind), []).append(path)
        return {path for group in alike.values() if len(group) > 1 for path in group}

    def opened(self, path: str) -> bool:
        """Whether a module is looked into."""
        if not self.children.get(path):
            return False
        if path not in self.kind:  # a list that is never called: its members are
            return True
        large = self.ops[path] > LARGE * self.total
        if path in self.blocks:
            return large and path in self.above
        return large or (path in self.above and CONTAINERS.search(self.kind[path]) is not None)

    def layer(self, v: int) -> str:
        """The outermost module of an op that is not opened; empty for glue."""
        for path in self.stacks[v]:
            if not self.opened(path):
                return path
        return ""


def _parents(path: str) -> list[str]:
    """``a.b.c`` -> ``a``, ``a.b``."""
    parts = path.split(".")
    return [".".join(parts[:i]) for i in range(1, len(parts))]


def _with_glue(capture: Capture, named: list[str]) -> tuple[str, ...]:
    """Glue put into the layer before or behind it, where there is only one."""
    index, own = capture.index, {v for v, name in enumerate(named) if not name}
    layer = [name or f"/{capture.nodes[v].name}" for v, name in enumerate(named)]
    for v, node in enumerate(capture.nodes):
        sources = {layer[index[u.name]] for u in read_nodes(node) if u.name in index}
        inputs = any(u.op == "placeholder" for u in read_nodes(node))
        if v in own and len(sources) == 1 and not inputs:
            layer[v] = sources.pop()
    for v in reversed(range(len(layer))):
        targets = {layer[index[u.name]] for u in capture.nodes[v].users if u.name in index}
        final = any(u.op == "output" for u in capture.nodes[v].users)
        if layer[v] == f"/{capture.nodes[v].name}" and len(targets) == 1 and not final:
            members = [u for u in range(len(layer)) if layer[u] == layer[v]]
            if len(members) == 1:
                layer[v] = targets.pop()
    return tuple(name.lstrip("/") for name in layer)
