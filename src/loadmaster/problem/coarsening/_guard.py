"""What must not come together when ops are merged, and the book-keeping of what has."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from loadmaster.arrays import BoolArray, FloatArray, IntArray

__all__ = ["Guard", "find", "join", "may_join"]


class Guard(NamedTuple):
    """What must not be merged. The kernels change the arrays over classes as they merge.

    side : (ops,) 0 forward, 1 backward, 2 more for boundary ops where contiguity matters: groups have one side.
    class_of : (ops,) colocation class.
    parent : (classes,) union-find: merged ops make their classes one.
    allowed : (classes, devices) where all members of the class may go.
    memory : (classes,) bytes.
    load : (classes,) share of the time of all ops.
    groups : (classes,) how many groups the class consists of.
    forward : (classes,) has forward ops.
    room, capacity : (devices,) bytes that a class made by merging, and that any class, may take up.
    most : two classes which both have more groups than the two to be merged may together have this load.
    keep : a merge must not take a device away from a class that takes time.
    strict : a class without forward ops stays apart from those with.
    """

    side: npt.NDArray[np.uint8]
    class_of: IntArray
    parent: IntArray
    allowed: BoolArray
    memory: FloatArray
    load: FloatArray
    groups: IntArray
    forward: BoolArray
    room: FloatArray
    capacity: FloatArray
    most: float
    keep: bool
    strict: bool


@njit(cache=True, nogil=True)
def find(parent, v):  # type: ignore[no-untyped-def]
    """The representative of v; paths are halved on the way."""
    while parent[v] != v:
        parent[v] = parent[parent[v]]
        v = parent[v]
    return v


@njit(cache=True, nogil=True)
def may_join(guard, a, b):  # type: ignore[no-untyped-def]
    """Whether the groups that ops a and b belong to may be one, as far as the guard knows."""
    if guard.side[a] != guard.side[b]:
        return False
    p, q = find(guard.parent, guard.class_of[a]), find(guard.parent, guard.class_of[b])
    if p == q:
        return True
    if guard.strict and guard.forward[p] != guard.forward[q]:
        return False
    if min(guard.groups[p], guard.groups[q]) > 1 and guard.load[p] + guard.load[q] > guard.most:
        return False
    total = guard.memory[p] + guard.memory[q]
    adds = min(guard.memory[p], guard.memory[q]) > 0.0
    fits = False
    for d in range(guard.allowed.shape[1]):
        here, there = guard.allowed[p, d], guard.allowed[q, d]
        if here and there:
            fits |= total <= guard.room[d] or (not adds and total <= guard.capacity[d])
        elif guard.keep and ((here and guard.load[p] > 0.0) or (there and guard.load[q] > 0.0)):
            return False
    return fits


@njit(cache=True, nogil=True)
def join(guard, a, b):  # type: ignore[no-untyped-def]
    """Unite the classes of ops a and b, whose groups become one."""
    p, q = find(guard.parent, guard.class_of[a]), find(guard.parent, guard.class_of[b])
    if p == q:
        guard.groups[p] -= 1
        return
    guard.groups[p] += guard.groups[q] - 1
    guard.load[p] += guard.load[q]
    guard.parent[q] = p
    guard.memory[p] += guard.memory[q]
    guard.forward[p] |= guard.forward[q]
    for d in range(guard.allowed.shape[1]):
        guard.allowed[p, d] &= guard.allowed[q, d]
