"""More heavy classes than devices: two of them must share one."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from loadmaster.arrays import BoolArray, FloatArray

__all__ = ["crowding", "each_has_its_own"]

IndexArray = npt.NDArray[np.intp]

MOST = 64
"""Classes that are looked at, the heaviest first."""


def crowding(
    cost: FloatArray,
    through: FloatArray,
    number: FloatArray,
    together: Callable[[IndexArray], FloatArray] | None = None,
) -> float:
    """The largest value below which no placement can be, because heavy classes would need a device each.

    Suppose that a placement costs less than v. Then a class c is on a kind of device k with ``through[c, k] < v``, and
    two classes with ``cost[c, k] + cost[b, k] >= v`` are not on one device of kind k. Take classes that pairwise cannot
    share any device which both may be on: each needs a device of its own, and where there are not enough (no matching
    of classes to devices), no placement costs less than v. The values tried are the sums of two classes.

    cost : (C, K) seconds of compute of a class on a kind, infinite where it may not be.
    through : (C, K) a lower bound on the cost of any placement with the class on that kind.
    number : (K,) devices of each kind.
    together : for some M classes, (M, M, K) a lower bound on the cost of any placement with two of them on one device
        of the kind; by default the sum of their costs.

    Complexity: O(classes² kinds) per value, for at most 64 classes and a binary search.

    >>> crowding(np.array([[3.0], [2.0], [2.0]]), np.array([[3.0], [2.0], [2.0]]), np.array([2.0]))
    4.0
    """
    finite = np.where(np.isfinite(cost), cost, math.inf)
    heaviest = np.argsort(-finite.min(axis=1), kind="stable")[:MOST]
    cost, through, pair = cost[heaviest], through[heaviest], None if together is None else together(heaviest)
    pair = cost[:, None] + cost[None, :] if pair is None else pair
    first, second = np.triu_indices(len(cost), 1)
    sums = pair[first, second].ravel()
    values = np.unique(sums[np.isfinite(sums)])
    low, high = -1, len(values) - 1
    while low < high:  # each answer stands by itself, so that it does no harm if they are not monotone
        middle = (low + high + 1) // 2
        if _refuted(float(values[middle]), cost, through, number, pair):
            low = middle
        else:
            high = middle - 1
    return float(values[low]) if low >= 0 else 0.0


def _refuted(
    value: float, cost: FloatArray, through: FloatArray, number: FloatArray, pair: FloatArray
) -> bool:
    """Whether no placement can cost less than ``value``."""
    possible = (through < value) & np.isfinite(cost)
    chosen: list[int] = []
    weight = np.where(possible, cost, math.inf).min(axis=1)
    for c in np.argsort(-np.where(np.isfinite(weight), weight, 0.0), kind="stable").tolist():
        if not possible[c].any():
            return True
        rest = np.array(chosen, np.int64)
        apart = ~(possible[rest] & possible[c]) | (pair[rest, c] >= value)
        if apart.all():
            chosen.append(c)
        if len(chosen) > int(number.sum()):
            return True
    return not each_has_its_own(possible[chosen], number)


def each_has_its_own(possible: BoolArray, number: FloatArray) -> bool:
    """Whether every row can be given a device of a kind that is possible for it (augmenting paths)."""
    held: list[list[int]] = [[] for _ in number]

    def give(row: int, seen: set[int]) -> bool:
        for kind in np.flatnonzero(possible[row]).tolist():
            if kind in seen:
                continue
            seen.add(kind)
            if len(held[kind]) < number[kind]:
                held[kind].append(row)
                return True
            for other in list(held[kind]):
                if give(other, seen):
                    held[kind].remove(other)
                    held[kind].append(row)
                    return True
        return False

    return all(give(row, set()) for row in range(len(possible)))
