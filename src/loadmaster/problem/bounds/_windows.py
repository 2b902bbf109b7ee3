"""Paths and loads together, over windows of a schedule."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from loadmaster.arrays import FloatArray
from loadmaster.problem.bounds._load_dual import load_dual

__all__ = ["best_window", "best_windows"]


def best_windows(
    time: FloatArray, head: FloatArray, tail: FloatArray, number: FloatArray, weight: FloatArray
) -> tuple[float, FloatArray]:
    """max over a, b of a + b + the load dual of the ops with head >= a and tail >= b; and the weights for it.

    These ops start after a and leave b to be done after each of them, and some device is busy with them for
    at least their load dual in between. For given weights the best window is found exactly; then the best
    weights for that window, and so on.
    """
    best, found = 0.0, weight
    for _ in range(3 if len(time) else 0):
        finite = np.isfinite(time)
        amount = np.where(finite, np.where(finite, time, 0.0) * weight, math.inf).min(axis=1)
        value, a, b = _best_window(head, tail, amount, np.argsort(-head), np.argsort(tail))
        inside = (head >= a) & (tail >= b)
        dual, weight = load_dual(time[inside], number, weight)
        value = max(value, a + b + dual)
        if value <= best * (1.0 + 1e-4):
            break
        best, found = value, weight
    return best, found


def best_window(head: FloatArray, tail: FloatArray, amount: FloatArray) -> tuple[float, float, float]:
    """max over a, b of a + b + Σ amount of the ops with head >= a and tail >= b: (value, a, b)."""
    value, a, b = _best_window(head, tail, amount, np.argsort(-head), np.argsort(tail))
    return float(value), float(a), float(b)


@njit(cache=True, nogil=True)
def _best_window(head, tail, amount, by_head, by_tail):  # type: ignore[no-untyped-def]
    """max over a, b of a + b + Σ amount of the ops with head >= a and tail >= b: (value, a, b).

    Ops enter a tree over the tails as a falls. A node has the sum of its leaves and the best b + Σ from b on
    of its leaves, so that an entry takes O(log n).
    """
    n = len(head)
    width = 1
    while width < n:
        width *= 2
    total = np.zeros(2 * width)
    best = np.full(2 * width, -math.inf)
    leaf = np.empty(n, np.int64)
    for i in range(n):
        leaf[by_tail[i]] = width + i
    value, a = -math.inf, 0.0
    for v in by_head:
        i = leaf[v]
        total[i] = amount[v]
        best[i] = tail[v] + amount[v]
        while i > 1:
            i //= 2
            total[i] = total[2 * i] + total[2 * i + 1]
            best[i] = max(best[2 * i + 1], best[2 * i] + total[2 * i + 1])
        if head[v] + best[1] > value:
            value, a = head[v] + best[1], head[v]
    most, b, behind = -math.inf, 0.0, 0.0
    for i in range(n - 1, -1, -1):
        v = by_tail[i]
        if head[v] >= a:
            behind += amount[v]
            if tail[v] + behind > most:
                most, b = tail[v] + behind, tail[v]
    return value, a, b
