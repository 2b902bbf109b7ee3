"""Groups of ops that a large graph is first shown as: by the scopes in their names."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["scope_groups"]

MOST_GROUPS = 150
LARGEST = 600
"""A group of more ops than this is divided further if it can be."""


def scope_groups(
    names: Sequence[str], position: npt.NDArray[np.int32]
) -> tuple[npt.NDArray[np.int32], list[str]]:
    """(ops,) the group of each op, and the groups' names.

    Scopes are separated by slashes, or by dots where no name has a slash. The largest scope is divided into
    its own scopes until none has over ``LARGEST`` ops; a large scope without scopes inside, or with so many that
    there would be over ``MOST_GROUPS``, and ops outside any, are divided along the topological order.

    >>> import numpy as np
    >>> scope_groups(["a/x", "a/y", "b/z"], np.arange(3, dtype=np.int32))[1]
    ['a/', 'b/']
    """
    mark = "/" if any("/" in name for name in names) else "."
    paths = [name.strip(mark).split(mark)[:-1] for name in names]
    done: list[tuple[str, list[int]]] = []
    waiting = [(-len(names), 0, 0, "", list(range(len(names))))]
    ticket = 1
    while waiting:
        _, _, depth, name, members = heapq.heappop(waiting)
        if len(members) <= LARGEST and depth > 0:
            done.append((name, members))
            continue
        inside: dict[str, list[int]] = {}
        for v in members:
            inside.setdefault(mark.join(paths[v][: depth + 1]) if len(paths[v]) > depth else "", []).append(v)
        if len(inside) + len(waiting) + len(done) > MOST_GROUPS:
            done += _chunks(name, sorted(members, key=lambda v: int(position[v])))
            continue
        for label, ops in inside.items():
            if label:
                heapq.heappush(waiting, (-len(ops), ticket, depth + 1, label + mark, ops))
                ticket += 1
            else:
                done += _chunks(name, sorted(ops, key=lambda v: int(position[v])))
    group_of = np.empty(len(names), np.int32)
    for g, (_, members) in enumerate(done):
        group_of[members] = g
    return group_of, [name for name, _ in done]


def _chunks(name: str, ops: list[int]) -> list[tuple[str, list[int]]]:
    count = -(-len(ops) // LARGEST)
    if count == 1:
        return [(name or "outside any scope", ops)]
    return [
        (f"{name or 'group'} {i + 1} of {count}", [ops[j] for j in part])
        for i, part in enumerate(np.array_split(np.arange(len(ops)), count))
    ]
