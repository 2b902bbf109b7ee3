"""The placements of a small problem, one after another."""

from __future__ import annotations

import numpy as np
from numba import njit

from loadmaster.arrays import IntArray
from loadmaster.placers.frame.atoms import atoms_of
from loadmaster.problem import Problem

__all__ = ["MOST", "Rows", "placements_of"]

MOST = 1_000_000
"""Placements up to which a problem counts as small."""


def placements_of(problem: Problem) -> float:
    """How many placements respect support, pins, forbids and colocation (memory and contiguity not counted).

    >>> # 12 ops on 3 devices, nothing pinned: 3 ** 12 = 531,441
    """
    with np.errstate(over="ignore"):
        return float(np.prod(atoms_of(problem).allowed.sum(axis=1), dtype=np.float64))


class Rows:
    """All placements of a problem that memory may allow, in batches of (rows, n) devices."""

    def __init__(self, problem: Problem) -> None:
        atoms = atoms_of(problem)
        self._order = np.argsort(-atoms.memory, kind="stable").astype(np.int32)
        self._of_op = atoms.of_op
        self._allowed = atoms.allowed
        self._memory = atoms.memory
        self._room = problem.capacity * (1 + 1e-9)
        self._at = np.full(atoms.count, -1, np.int32)
        self._used = np.zeros(problem.devices)
        self._depth = 0
        self._empty = atoms.count == 0

    def next(self, rows: int) -> IntArray:
        """At most so many more; none when all have been made."""
        if self._empty:
            self._empty = self._depth < 0
            self._depth = -1
            return np.zeros((0 if self._empty else 1, 0), np.int32)
        found = np.empty((rows, len(self._at)), np.int32)
        made, self._depth = _fill(
            self._order, self._allowed, self._memory, self._room, self._at, self._used, self._depth, found
        )
        return np.ascontiguousarray(found[:made][:, self._of_op])


@njit(cache=True, nogil=True)
def _fill(order, allowed, memory, room, at, used, depth, found):  # type: ignore[no-untyped-def]
    """Depth-first over the atoms; goes on from ``at`` and ``depth`` (-1: all done) and fills rows of ``found``."""
    made, devices = 0, allowed.shape[1]
    while depth >= 0 and made < len(found):
        a = order[depth]
        d = at[a]
        if d >= 0:
            used[d] -= memory[a]
        d += 1
        while d < devices and not (allowed[a, d] and used[d] + memory[a] <= room[d]):
            d += 1
        if d == devices:
            at[a] = -1
            depth -= 1
            continue
        at[a] = d
        used[d] += memory[a]
        if depth + 1 == len(order):
            found[made] = at
            made += 1
        else:
            depth += 1
    return made, depth
