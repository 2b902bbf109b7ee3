"""The load of all that follows an op, or precedes it: what its start leaves room for.

All descendants of op m run after its end. If each of some descendants leaves at least b to be done after it, then the
makespan is at least the end of m, the time for which some device is busy with them, and b. Windows (``_windows.py``)
know only the earliest end of m; where the end is a variable, whatever delays m pays for it in full.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from loadmaster.arrays import BoolArray, FloatArray, IntArray
from loadmaster.problem.bounds._view import Arcs

__all__ = ["Following", "Stretch"]

VISITS = 3e7
"""Ops and arcs that are looked at to find the heaviest stretches; fewer ops are tried where there are many."""


class Stretch(NamedTuple):
    """The ops that follow ``op`` and leave at least ``rest`` seconds to be done after them."""

    op: int
    rest: float
    ops: IntArray


class Following:
    """Which descendants of an op keep a device busy longest; of the reversed graph: which ancestors.

    arcs : of the graph, or reversed.
    tail : (n,) seconds that remain after an op, at least; of the reversed graph, its head.
    urgency : (n,) where not all ops can be tried, those for which this is largest.
    """

    def __init__(self, n: int, arcs: Arcs, tail: FloatArray, urgency: FloatArray) -> None:
        self._ptr, self._next, _, _ = arcs.reversed().into(n)
        self._tail, self._falling = tail, np.argsort(-tail, kind="stable")
        tried = max(1, int(VISITS / (2 * n + len(arcs.tail))))
        self.ops = np.sort(np.argsort(-urgency, kind="stable")[:tried]).astype(np.int32)

    def longest(self, amount: FloatArray) -> tuple[FloatArray, FloatArray]:
        """For each of ``ops`` the max over b of b + Σ amount of its descendants with tail >= b; and that b.

        -inf for an op that nothing follows. Complexity: O(n + arcs) per op.
        """
        value, rest = _longest(self.ops, self._ptr, self._next, self._tail, self._falling, amount)
        return value, rest

    def stretch(self, op: int, rest: float) -> Stretch:
        """The descendants of an op whose tail is at least ``rest``."""
        reached = _reached(op, self._ptr, self._next) & (self._tail >= rest)
        return Stretch(op, rest, np.flatnonzero(reached).astype(np.int32))


@njit(cache=True, nogil=True)
def _longest(ops, ptr, onward, tail, falling, amount):  # type: ignore[no-untyped-def]
    """See :meth:`Following.longest`; ``falling`` has all ops by falling tail."""
    n = len(tail)
    value, rest = np.full(len(ops), -np.inf), np.zeros(len(ops))
    seen = np.full(n, -1, np.int64)
    stack = np.empty(n, np.int64)
    for i in range(len(ops)):
        _mark(ops[i], i, ptr, onward, seen, stack)
        total = 0.0
        for v in falling:
            if seen[v] == i:
                total += amount[v]
                if total + tail[v] > value[i]:
                    value[i], rest[i] = total + tail[v], tail[v]
    return value, rest


@njit(cache=True, nogil=True)
def _mark(op, mark, ptr, onward, seen, stack):  # type: ignore[no-untyped-def]
    """``seen[v] = mark`` for all descendants v of an op; ``stack`` is scratch for n ops."""
    stack[0] = op
    waiting = 1
    while waiting > 0:
        waiting -= 1
        u = stack[waiting]
        for a in range(ptr[u], ptr[u + 1]):
            v = onward[a]
            if seen[v] != mark:
                seen[v] = mark
                stack[waiting] = v
                waiting += 1


@njit(cache=True, nogil=True)
def _marked(op, ptr, onward):  # type: ignore[no-untyped-def]
    seen = np.full(len(ptr) - 1, -1, np.int64)
    _mark(op, 0, ptr, onward, seen, np.empty(len(ptr) - 1, np.int64))
    return seen == 0


def _reached(op: int, ptr: IntArray, onward: IntArray) -> BoolArray:
    """(n,) True for the descendants of an op."""
    reached: BoolArray = _marked(op, ptr, onward)
    return reached
