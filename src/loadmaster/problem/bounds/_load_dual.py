"""The load dual, and the argument that rules out what alone costs too much."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import intrinsic

from loadmaster.arrays import BoolArray, FloatArray

__all__ = ["load_dual", "tightened"]


def load_dual(
    cost: FloatArray, number: FloatArray, start: FloatArray | None = None
) -> tuple[float, FloatArray]:
    """max over weights w >= 0, Σ_k number_k w_k = 1, of Σ_c min_k w_k cost[c, k]; and the (K,) weights found.

    The largest load is at least any weighted mean of all loads, to which class c adds at least its smallest
    term. The maximum is the LP relaxation of unrelated machines (Lenstra, Shmoys, Tardos 1990).
    Multiplicative weights come close, cutting planes finish where that is cheap; all weights are valid.
    """
    classes, kinds = cost.shape
    rounds = min(100, 20 + int(1e7 / max(cost.size, 1)))
    if start is not None:
        rounds //= 4
    else:
        known = np.isfinite(cost)
        mean = np.where(known, cost, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
        if 0 < mean.max() < 1e-290:
            mean = mean / mean.max()  # the inverse of what is so small would be infinite
        speed = 1.0 / np.maximum(mean, mean.max() * 1e-9) if mean.max() > 0 else np.ones(kinds)
        start = speed / (speed * number).sum()
    if classes == 0 or kinds == 1:
        return float(np.where(np.isfinite(cost), cost, 0.0).sum() / number.sum()), start
    share, weight = np.ascontiguousarray(cost / number), start * number
    if kinds > 4:
        value, weight = _multiplicative(share, weight, rounds)
    if kinds <= 4 or cost.size <= 2000:
        value, weight = _kelley(share, weight, min(20 * kinds, 200))
    return float(value), weight / number


@njit(cache=True, nogil=True)
def _cheapest(cost, weight, load):  # type: ignore[no-untyped-def]
    """Σ_c min_k weight_k cost[c, k]; ``load`` becomes the (K,) sums of cost of the classes that choose k."""
    load[:] = 0.0
    value = 0.0
    for c in range(cost.shape[0]):
        best, where = math.inf, -1
        for k in range(cost.shape[1]):
            if cost[c, k] < math.inf and weight[k] * cost[c, k] < best:
                best, where = weight[k] * cost[c, k], k
        if where >= 0:
            value += best
            load[where] += cost[c, where]
    return value


@njit(cache=True, nogil=True)
def _multiplicative(cost, weight, rounds):  # type: ignore[no-untyped-def]
    """Ascend :func:`_cheapest` over the simplex: kinds above the mean load gain weight; (value, weight)."""
    load = np.empty(len(weight))
    weight = weight / weight.sum()
    best, found = -1.0, weight.copy()
    for i in range(rounds):
        value = _cheapest(cost, weight, load)
        if value > best:
            best = value
            found[:] = weight
        if not value > 0.0:
            break
        for k in range(len(weight)):
            weight[k] *= math.exp(0.3 / math.sqrt(1.0 + i) * min(load[k] / value - 1.0, 3.0))
        weight /= weight.sum()
    return best, found


@intrinsic
def _fused(_: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once."""

    def build(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.fma(*values)

    return types.float64(types.float64, types.float64, types.float64), build


@njit(cache=True, nogil=True)
def _dot(a, b):  # type: ignore[no-untyped-def]
    """a · b as BLAS computes it for a few numbers; np.dot itself would bring in all of scipy.linalg."""
    total = 0.0
    for i in range(len(a)):
        total = _fused(a[i], b[i], total)  # type: ignore[call-arg]
    return total


@njit(cache=True, nogil=True)
def _kelley(cost, weight, rounds):  # type: ignore[no-untyped-def]
    """Maximise the concave, piecewise linear :func:`_cheapest` over the simplex; (value, weight).

    Each evaluation gives a plane, value <= load · weight. The best weights under the planes so far solve a
    matrix game, kept as the LP max Σ y, Σ_i y_i load_i <= 1, y >= 0 in revised simplex form: the ``inverse``
    of the basis, the ``level`` and ``worth`` of its variables and the ``price`` of its rows. A new plane is
    a new column. Every second query lies halfway to the best weights known, which calms the method. (J. E.
    Kelley, J. SIAM 1960.)
    """
    kinds = cost.shape[1]
    load = np.empty(kinds)
    best = _cheapest(cost, weight, load)
    found = weight.copy()
    scale = load.max()
    if not scale > 0.0:
        return best, found
    plane = np.empty((rounds, kinds))
    inverse = np.eye(kinds)
    level = np.ones(kinds)
    worth = np.zeros(kinds)
    price = np.zeros(kinds)
    step = np.empty(kinds)
    for i in range(rounds):
        # One is added to every entry: that shifts the value of the game, and bounds the LP.
        plane[i] = load / scale + 1.0
        for _ in range(20 * kinds):
            enter, gain = -1, 1e-11
            for j in range(i + 1 + kinds):
                reduced = 1.0 - _dot(price, plane[j]) if j <= i else -price[j - i - 1]
                if reduced > gain:
                    enter, gain = j, reduced
            if enter < 0:
                break
            for k in range(kinds):
                step[k] = _dot(inverse[k], plane[enter]) if enter <= i else inverse[k, enter - i - 1]
            leave, ratio = -1, math.inf
            for k in range(kinds):
                if step[k] > 1e-12 and level[k] / step[k] < ratio:
                    leave, ratio = k, level[k] / step[k]
            if leave < 0:
                break
            inverse[leave] /= step[leave]
            level[leave] = ratio
            worth[leave] = 1.0 if enter <= i else 0.0
            price[:] = 0.0
            for k in range(kinds):
                if k != leave:
                    inverse[k] -= step[k] * inverse[leave]
                    level[k] = max(0.0, level[k] - step[k] * ratio)
                price += worth[k] * inverse[k]
        weight = np.maximum(price, 0.0)
        total = weight.sum()
        if not total > 0.0 or (1.0 / total - 1.0) * scale <= best * (1.0 + 1e-8):
            break
        weight /= total
        if i % 2 == 1:
            weight = 0.5 * (weight + found)
        value = _cheapest(cost, weight, load)
        if value > best:
            best = value
            found[:] = weight
    return best, found


def tightened(through: FloatArray, bound: Callable[[BoolArray], float], known: float) -> float:
    """The least T (within one part in 10³) that the following does not refute.

    A placement of cost T uses no pair (class, kind) that alone costs more than T, so it obeys any bound that
    holds without these pairs: a destructive bound (R. Klein, A. Scholl, EJOR 1999). What is left only
    changes where T passes an entry of ``through``; these are searched.

    Parameters
    ----------
    through : (C, K) a lower bound on the cost of every placement that puts class c on kind k.
    bound : a lower bound on the cost of every placement that uses only the given (C, K) pairs.
    known : a lower bound on the cost of every placement.
    """
    start = max(float(through.min(axis=1).max()), known)
    later = np.unique(through[np.isfinite(through) & (through > start)])
    edges = np.concatenate([[start], later, [math.inf]])
    # For T from edges[i] up to edges[i + 1] the same pairs are left. Below ``low`` all such intervals are
    # refuted; ``high`` is not, or is the last.
    low, high, reach, proven = 0, len(later), 1e-3, 0.0
    while low < high and edges[high] > edges[low] * (1.0 + 1e-3):
        probe = (low + high) // 2
        if high == len(later):
            probe = min(probe, max(low, int(np.searchsorted(edges, edges[low] * (1.0 + reach))) - 1))
            reach *= 4.0
        value = bound(through <= edges[probe])
        if value >= edges[probe + 1]:
            low = probe + 1
        else:
            high, proven = probe, value
    return max(float(edges[low]), proven if low == high else 0.0)
