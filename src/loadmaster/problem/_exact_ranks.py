"""Upward ranks in exact arithmetic, so that ops whose ranks are equal do tie.

Sums of doubles depend on the order of summation: two paths of equal length can differ in the last bit, and then a tie
would be broken by rounding instead of by the rule. Here every number is an integer multiple of one unit, and nothing is
rounded.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from loadmaster.arrays import FloatArray, LongArray

if TYPE_CHECKING:
    from loadmaster.problem._problem import Problem

__all__ = ["exact_ranks"]

MANTISSA = 53


def exact_ranks(problem: Problem) -> list[int]:
    """(n,) upward ranks in a unit that all of them share; see :attr:`Problem.priority_order`.

    The mean time of op v is the sum of its times over the number of devices that support it; the mean transfer of
    tensor t is (Σ latency + size[t] · Σ rate) over the number of ordered pairs of unlike devices. With the least
    common multiple of those numbers, and the power of two that makes all doubles integers, every term is an integer.
    """
    graph, devices = problem.graph, problem.devices
    supported = np.isfinite(problem.time)
    counts = np.maximum(supported.sum(axis=1), 1)
    pairs = max(devices * (devices - 1), 1)
    common = math.lcm(pairs, *np.unique(counts).tolist())
    off = ~np.eye(devices, dtype=np.bool_)
    times, time_unit = _integers(np.where(supported, problem.time, 0.0).ravel())
    latency, latency_unit = _integers(problem.latency[off])
    rate, rate_unit = _integers(problem.rate[off])
    size, size_unit = _integers(problem.size)
    unit = min(time_unit, latency_unit, rate_unit + size_unit)
    share = (common // counts).tolist()
    up = time_unit - unit
    rows = (times[v * devices : (v + 1) * devices] for v in range(graph.n))
    time = [(sum(row) * k) << up for row, k in zip(rows, share, strict=True)]
    each = common // pairs
    start = (sum(latency) * each) << (latency_unit - unit)
    slope = (sum(rate) * each) << (rate_unit + size_unit - unit)
    link = [start + s * slope for s in size] if devices > 1 else [0] * graph.tensors
    out_ptr, out_tensor = (a.tolist() for a in graph.outputs)
    ptr, consumer = graph.consumer_ptr.tolist(), graph.consumer_op.tolist()
    rank = [0] * graph.n
    for v in graph.topological_order[::-1].tolist():
        below = 0
        for t in out_tensor[out_ptr[v] : out_ptr[v + 1]]:
            first, last = ptr[t], ptr[t + 1]
            if first < last:
                below = max(below, link[t] + max(rank[u] for u in consumer[first:last]))
        rank[v] = time[v] + below
    return rank


def _integers(values: FloatArray) -> tuple[list[int], int]:
    """Integers and the exponent of two that they are multiples of: values[i] = integers[i] · 2**exponent, exactly."""
    fraction, exponent = np.frexp(values)
    mantissa: LongArray = np.ldexp(fraction, MANTISSA).astype(np.int64)
    used = mantissa != 0
    if not used.any():
        return [0] * len(values), 0
    least = int(exponent[used].min())
    shift = np.where(used, exponent - least, 0)
    return [m << k for m, k in zip(mantissa.tolist(), shift.tolist(), strict=True)], least - MANTISSA
