"""Which ops of an exported graph no split may separate.

- ``getitem`` and whatever else reads a list of tensors goes with the op that made the list; so does a number with its
  readers: only tensors travel between ranks.
- An op that writes into a tensor goes with the op that made it, the views in between, and everybody who reads any view
  of it earlier: on another rank they would read what was sent after the write.
- Ops that read a buffer that is written to (running statistics) share a rank, so that there is one such buffer.
- An op that reads nothing and that nobody reads (a counter of batches) goes with the ops of its module.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

from torch import fx

from loadmaster.graph.torch._nodes import mutated, output_tensors, read_nodes, viewed

if TYPE_CHECKING:
    from loadmaster.graph.torch._capture import Capture

__all__ = ["kept_together"]


def kept_together(capture: Capture) -> list[list[int]]:
    """Lists of ops, as indices into ``capture.nodes``; they may overlap. Complexity: O(ops · writes)."""
    index = capture.index
    found: list[list[int]] = []
    for v, node in enumerate(capture.nodes):
        if node.target is operator.getitem or any(_is_list(u) for u in read_nodes(node)):
            found += [[index[u.name], v] for u in read_nodes(node) if u.name in index and _is_list(u)]
        if not output_tensors(node):
            found += [[v, index[user.name]] for user in node.users if user.name in index]
    found += _written(capture)
    found += _alone(capture)
    return found


def _is_list(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), list | tuple)


def _written(capture: Capture) -> list[list[int]]:
    index = capture.index
    base: dict[fx.Node, fx.Node] = {}
    members: dict[fx.Node, list[fx.Node]] = {}
    for node in capture.module.graph.nodes:
        sources = [*viewed(node), *(mutated(node) if node.op == "call_function" else [])]
        root = base.get(sources[0], sources[0]) if sources else node
        base[node] = root
        members.setdefault(root, []).append(node)
    attribute: dict[str, list[fx.Node]] = {}
    for node in capture.module.graph.nodes:
        if node.op == "get_attr":
            attribute.setdefault(str(node.target), []).append(node)
    found = []
    for v, node in enumerate(capture.nodes):
        for target in mutated(node):
            root = base.get(target, target)
            group = {v}
            roots = attribute[str(root.target)] if root.op == "get_attr" else [root]
            for alias in (alias for one in roots for alias in members.get(one, [one])):
                if alias.name in index and index[alias.name] <= v:
                    group.add(index[alias.name])
                for reader in alias.users:
                    if reader.name in index and (index[reader.name] < v or root.op == "get_attr"):
                        group.add(index[reader.name])
            if len(group) > 1:
                found.append(sorted(group))
    return found


def _alone(capture: Capture) -> list[list[int]]:
    index, found = capture.index, []
    for v, node in enumerate(capture.nodes):
        linked = [u for u in (*read_nodes(node), *node.users) if u.op not in ("get_attr",)]
        if linked:
            continue
        same = [u for u in range(len(capture.nodes)) if u != v and capture.paths[u] == capture.paths[v]]
        near = same or [u for u in (v + 1, v - 1) if 0 <= u < len(capture.nodes)]
        if near:
            found.append([v, min(near, key=lambda u: abs(u - v))])
    assert all(node.name in index for node in capture.nodes)
    return found
