"""Orders and reachability of a directed acyclic graph given by arrays."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
import numpy.typing as npt

from loadmaster.arrays import IntArray

__all__ = [
    "csr_from_pairs",
    "distinct_pairs",
    "longest_path_levels",
    "reachability_bitsets",
    "sum_by",
    "topological_order",
]


def csr_from_pairs(row: IntArray, value: IntArray, rows: int) -> tuple[IntArray, IntArray]:
    """Compressed rows of the pairs (row, value); within a row the values keep the order of the pairs."""
    order = np.argsort(row, kind="stable")
    ptr = np.zeros(rows + 1, np.int32)
    np.cumsum(np.bincount(row, minlength=rows), out=ptr[1:])
    return ptr, np.ascontiguousarray(value[order], dtype=np.int32)


def distinct_pairs(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> IntArray:
    """(2, k) the pairs of numbers >= 0 without repetitions, in ascending order.

    The same as ``np.unique(np.stack([first, second]), axis=1)``, which takes many times as long.

    >>> distinct_pairs(np.array([1, 0, 1, 0]), np.array([2, 3, 2, 1])).tolist()
    [[0, 0, 1], [1, 3, 2]]
    """
    width = int(second.max(initial=0)) + 1
    key = np.unique(first.astype(np.int64) * width + second)
    return np.stack([key // width, key % width]).astype(np.int32)


def sum_by(index: npt.NDArray[Any], amount: npt.NDArray[np.float64], length: int) -> npt.NDArray[np.float64]:
    """(length,) the amounts added up by index."""
    return np.bincount(index, amount, length).astype(np.float64)


def topological_order(n: int, tail: IntArray, head: IntArray) -> IntArray:
    """Kahn's algorithm with the smallest index first; shorter than ``n`` if there is a cycle.

    Complexity: O((n + arcs) log n).

    >>> topological_order(3, np.array([2, 0]), np.array([0, 1])).tolist()
    [2, 0, 1]
    """
    ptr, successor = csr_from_pairs(np.asarray(tail, np.int32), np.asarray(head, np.int32), n)
    waiting = np.bincount(head, minlength=n).tolist()
    starts, targets = ptr.tolist(), successor.tolist()
    ready = [v for v in range(n) if waiting[v] == 0]
    order = []
    while ready:
        v = heapq.heappop(ready)
        order.append(v)
        for u in targets[starts[v] : starts[v + 1]]:
            waiting[u] -= 1
            if waiting[u] == 0:
                heapq.heappush(ready, u)
    return np.array(order, np.int32)


def longest_path_levels(order: IntArray, ptr: IntArray, successor: IntArray) -> IntArray:
    """Number of arcs on the longest path from any source to each op."""
    level = [0] * len(order)
    starts, targets = ptr.tolist(), successor.tolist()
    for v in order.tolist():
        below = level[v] + 1
        for u in targets[starts[v] : starts[v + 1]]:
            if level[u] < below:
                level[u] = below
    return np.array(level, np.int32)


def reachability_bitsets(order: IntArray, ptr: IntArray, successor: IntArray) -> npt.NDArray[np.uint64]:
    """Bit u of row v is set if a path leads from v to u. Memory: n² / 8 bytes."""
    n = len(order)
    reach = np.zeros((n, (n + 63) // 64), np.uint64)
    one = np.uint64(1)
    for v in order[::-1].tolist():
        row = reach[v]
        for u in successor[ptr[v] : ptr[v + 1]].tolist():
            row |= reach[u]
            row[u >> 6] |= one << np.uint64(u & 63)
    return reach


def find_cycle(n: int, tail: IntArray, head: IntArray, in_order: IntArray) -> list[int]:
    """Some cycle among the ops that are missing from ``in_order`` (a partial topological order)."""
    left = np.ones(n, bool)
    left[in_order] = False
    keep = left[tail] & left[head]
    before: dict[int, int] = dict(zip(head[keep].tolist(), tail[keep].tolist(), strict=True))
    seen: dict[int, int] = {}
    v = next(iter(before))
    walk: list[int] = []
    # Every op that is left has a predecessor that is left, so walking backwards must close a cycle.
    while v not in seen:
        seen[v] = len(walk)
        walk.append(v)
        v = before[v]
    return walk[seen[v] :][::-1]
