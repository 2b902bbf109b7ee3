"""Upward ranks in exact arithmetic, compiled: numbers of many digits as rows of small integers.

A number is ``limbs`` integers of :data:`BITS` bits each, the lowest first, in units that all share. Sums, products and
comparisons are those learnt at school. See ``_exact_ranks.py`` for what is added up, and for the same in plain Python.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numba import njit

from loadmaster.arrays import FloatArray, IntArray, LongArray

if TYPE_CHECKING:
    from loadmaster.problem._problem import Problem

__all__ = ["exact_order"]

MANTISSA = 53
BITS = 28
"""Of a limb: products of two, and some of them added up, fit into 63."""
MOST = 48
"""Limbs; where numbers at both ends of the scale need more, the plain way is taken."""
MASK = (1 << BITS) - 1


def exact_order(problem: Problem) -> IntArray | None:
    """(n,) ops by falling exact rank, ties by topological position; None where the numbers are too long for this."""
    graph, devices = problem.graph, problem.devices
    supported = np.isfinite(problem.time)
    counts = np.maximum(supported.sum(axis=1), 1)
    pairs = max(devices * (devices - 1), 1)
    common = math.lcm(pairs, *np.unique(counts).tolist())
    off = ~np.eye(devices, dtype=np.bool_)
    time, time_shift, time_unit = _whole(np.where(supported, problem.time, 0.0))
    size, size_shift, size_unit = _whole(problem.size)
    latency, latency_unit = _total(problem.latency[off])
    rate, rate_unit = _total(problem.rate[off])
    if graph.n == 0 or common > MASK:
        return None
    unit = min(time_unit, latency_unit, rate_unit + size_unit)
    each = common // pairs
    start = (latency * each) << (latency_unit - unit) if devices > 1 else 0
    slope = (rate * each) << (rate_unit + size_unit - unit) if devices > 1 else 0
    time_shift = time_shift + (time_unit - unit)
    bits = [int(time_shift.max(initial=0)) + MANTISSA + devices.bit_length() + common.bit_length()]
    bits += [start.bit_length(), int(size_shift.max(initial=0)) + MANTISSA + slope.bit_length()]
    limbs = (max(bits) + 2 + graph.n.bit_length()) // BITS + 3
    if limbs > MOST:
        return None
    rank = np.zeros((graph.n, limbs), np.int64)
    _ranks(
        graph.topological_order, *graph.outputs, graph.consumer_ptr, graph.consumer_op, time, time_shift,
        common // counts, size, size_shift, _limbs_of(start, limbs), _limbs_of(slope, limbs), rank,
    )  # fmt: skip
    # Two limbs make one key. The last key of a lexsort comes first.
    low, high = rank[:, 0::2], rank[:, 1::2]
    keys = [-(low[:, i] + ((high[:, i] << BITS) if i < high.shape[1] else 0)) for i in range(low.shape[1])]
    return np.lexsort((graph.position, *(key for key in keys if key.any()))).astype(np.int32)


def _whole(values: FloatArray) -> tuple[LongArray, LongArray, int]:
    """(mantissas, shifts, exponent): values = mantissas · 2**(shifts + exponent), exactly, no shift below 0."""
    fraction, exponent = np.frexp(values)
    mantissa: LongArray = np.ldexp(fraction, MANTISSA).astype(np.int64)
    used = mantissa != 0
    if not used.any():
        return mantissa, np.zeros_like(mantissa), 0
    least = int(exponent[used].min())
    return mantissa, np.where(used, exponent - least, 0).astype(np.int64), least - MANTISSA


def _total(values: FloatArray) -> tuple[int, int]:
    """The exact sum as an integer and its exponent of two."""
    mantissa, shift, exponent = _whole(values)
    return sum(m << k for m, k in zip(mantissa.tolist(), shift.tolist(), strict=True)), exponent


def _limbs_of(value: int, limbs: int) -> LongArray:
    return np.array([(value >> (BITS * i)) & MASK for i in range(limbs)], np.int64)


@njit(cache=True, nogil=True)
def _add(number, mantissa, shift):  # type: ignore[no-untyped-def]
    """Add ``mantissa << shift``, without carrying."""
    i, r = shift // BITS, shift % BITS
    low, high = (mantissa & MASK) << r, (mantissa >> BITS) << r
    number[i] += low & MASK
    number[i + 1] += (low >> BITS) + (high & MASK)
    number[i + 2] += high >> BITS


@njit(cache=True, nogil=True)
def _carry(number):  # type: ignore[no-untyped-def]
    over = 0
    for i in range(len(number)):
        total = number[i] + over
        number[i] = total & MASK
        over = total >> BITS


@njit(cache=True, nogil=True)
def _larger(a, b):  # type: ignore[no-untyped-def]
    for i in range(len(a) - 1, -1, -1):
        if a[i] != b[i]:
            return a[i] > b[i]
    return False


@njit(cache=True, nogil=True)
def _ranks(  # type: ignore[no-untyped-def]
    order, out_ptr, out_tensor, ptr, consumer, time, time_shift, share, size, size_shift, start, slope, rank
):
    """Fill ``rank``, from the last op to the first. O((ops + edges + tensors · digits of the slope) · limbs)."""
    limbs = rank.shape[1]
    used = 0  # limbs of the slope
    for j in range(limbs):
        if slope[j] != 0:
            used = j + 1
    below, path, whole = np.zeros(limbs, np.int64), np.zeros(limbs, np.int64), np.zeros(limbs + 3, np.int64)
    for position in range(len(order) - 1, -1, -1):
        v = order[position]
        below[:] = 0
        for o in range(out_ptr[v], out_ptr[v + 1]):
            t = out_tensor[o]
            if ptr[t] == ptr[t + 1]:
                continue
            far = consumer[ptr[t]]
            for c in range(ptr[t] + 1, ptr[t + 1]):
                if _larger(rank[consumer[c]], rank[far]):
                    far = consumer[c]
            for i in range(limbs):
                path[i] = start[i] + rank[far, i]
            if used > 0 and size[t] > 0:
                first = size_shift[t] // BITS
                whole[first : first + 3] = 0
                _add(whole, size[t], size_shift[t])
                for i in range(3):
                    digit = whole[first + i]
                    for j in range(min(used, limbs - first - i)):
                        path[first + i + j] += digit * slope[j]
            _carry(path)
            if _larger(path, below):
                below[:] = path
        mine = rank[v]
        for d in range(time.shape[1]):
            if time[v, d] > 0:
                _add(mine, time[v, d], time_shift[v, d])
        _carry(mine)
        for i in range(limbs):
            mine[i] = mine[i] * share[v] + below[i]
        _carry(mine)
