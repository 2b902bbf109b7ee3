"""Pairs of ops that are known to be apart: a least time from the end of one to the start of the other."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from loadmaster.arrays import FloatArray, IntArray
from loadmaster.problem.bounds._view import row_ptr

__all__ = ["NOWHERE", "Apart"]


class Apart(NamedTuple):
    """In every schedule op ``second`` starts at least ``seconds`` after the end of op ``first``, its ancestor.

    A ``first`` of -1 is the start of the schedule, a ``second`` of -1 its end.
    """

    first: IntArray
    second: IntArray
    seconds: FloatArray

    def reversed(self) -> Apart:
        return Apart(self.second, self.first, self.seconds)

    def joined(self, other: Apart) -> Apart:
        """What either says."""
        return Apart(
            np.concatenate([self.first, other.first]),
            np.concatenate([self.second, other.second]),
            np.concatenate([self.seconds, other.seconds]),
        )

    def into(self, nodes: int) -> tuple[IntArray, IntArray, FloatArray]:
        """CSR op -> pairs that end there: (ptr, first, seconds)."""
        order = np.argsort(self.second, kind="stable")[int((self.second < 0).sum()) :]
        return row_ptr(self.second[order], nodes), self.first[order], self.seconds[order]


NOWHERE = Apart(np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0))
"""Nothing is known to be apart."""
