"""Graph parsing: from scores of edges to groups of nodes, without a Python loop over nodes.

A node's *dominant* edge is the one with the highest score. The connected components of the dominant edges are
the groups (Graph Parsing Network: Y. Song et al., ICLR 2024; used by HSDAG, equations 9 to 11).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from loadmaster.arrays import BoolArray, FloatArray, IntArray

__all__ = ["choices_of", "dominant_edges", "groups_of_edges", "sample_groups"]


def dominant_edges(first: IntArray, second: IntArray, score: FloatArray) -> BoolArray:
    """(edges,) True for the edges that are the best of one of their ends; ties go to the smaller index.

    O(edges log edges).

    >>> path = np.array([0, 1, 2]), np.array([1, 2, 3])
    >>> dominant_edges(*path, np.array([0.9, 0.1, 0.8]))
    array([ True, False,  True])
    """
    ends = np.concatenate([first, second])
    edge = np.concatenate([np.arange(len(first))] * 2)
    by_score = np.lexsort((edge, -score[edge], ends))
    leads = np.ones(len(ends), np.bool_)
    leads[1:] = ends[by_score][1:] != ends[by_score][:-1]
    chosen = np.zeros(len(first), np.bool_)
    chosen[edge[by_score[leads]]] = True
    return chosen


def groups_of_edges(n: int, first: IntArray, second: IntArray) -> IntArray:
    """(n,) connected component of each node, numbered by their smallest members."""
    return _components(n, first.astype(np.int32), second.astype(np.int32))


def choices_of(n: int, first: IntArray, second: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """What each node may choose as its dominant edge: (ptr, edge, other end).

    The first choice of every node is to stay alone: edge -1, and itself as the other end.
    """
    node = np.concatenate([np.arange(n), first, second])
    edge = np.concatenate([np.full(n, -1), np.arange(len(first)), np.arange(len(first))])
    other = np.concatenate([np.arange(n), second, first])
    order = np.lexsort((edge, node))
    ptr = np.concatenate([[0], np.cumsum(np.bincount(node, minlength=n))])
    return ptr.astype(np.int32), edge[order].astype(np.int32), other[order].astype(np.int32)


@njit(cache=True, nogil=True)
def _root(parent, v):  # type: ignore[no-untyped-def]
    while parent[v] != v:
        parent[v] = parent[parent[v]]
        v = parent[v]
    return v


@njit(cache=True, nogil=True)
def _components(n, first, second):  # type: ignore[no-untyped-def]
    parent = np.arange(n).astype(np.int32)
    for i in range(len(first)):
        a, b = _root(parent, first[i]), _root(parent, second[i])
        parent[max(a, b)] = min(a, b)
    label = np.empty(n, np.int32)
    count = 0
    for v in range(n):  # a root is the smallest of its component, so it is met first
        if parent[v] == v:
            label[v] = count
            count += 1
        else:
            label[v] = label[_root(parent, v)]
    return label


@njit(cache=True, nogil=True)
def sample_groups(probability, ptr, other, uniform):  # type: ignore[no-untyped-def]
    """Draw a dominant edge for every node, and the groups that follow, for each row of ``uniform``.

    ``probability`` is over the choices of :func:`choices_of`. Returns the (rows, n) choices, the (rows, n)
    groups, numbered on from row to row, and the number of groups.
    """
    rows, n = uniform.shape
    chosen = np.empty((rows, n), np.int32)
    group = np.empty((rows, n), np.int32)
    parent = np.empty(n, np.int32)
    count = 0
    for row in range(rows):
        for v in range(n):
            parent[v] = v
        for v in range(n):
            left = uniform[row, v]
            c = ptr[v]
            while c < ptr[v + 1] - 1 and left >= probability[c]:
                left -= probability[c]
                c += 1
            while c > ptr[v] and probability[c] == 0.0:  # rounding must not choose the impossible
                c -= 1
            chosen[row, v] = c
            a, b = _root(parent, v), _root(parent, other[c])
            parent[max(a, b)] = min(a, b)
        for v in range(n):
            if parent[v] == v:
                group[row, v] = count
                count += 1
            else:
                group[row, v] = group[row, _root(parent, v)]
    return chosen, group, count
