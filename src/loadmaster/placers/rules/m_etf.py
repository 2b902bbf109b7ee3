"""Baechi's m-ETF: earliest task first within memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from loadmaster.placers.frame.constructed import Construction, scheduled
from loadmaster.placers.rules._earliest_start import earliest_start_schedule
from loadmaster.problem import Placement, Problem

__all__ = ["MEtf"]


@dataclass(frozen=True)
class MEtf(Construction):
    """Of all ready ops and devices with room the pair that can start earliest, again and again.

    The rule looks at starts, not at finishes: it was made for equal devices, and on unequal ones it keeps
    slow devices busy. Ties go to the op of the highest upward rank. The sequence is returned as ``order``
    where the model has one; if it costs less without, without.

    Complexity: O((ops + edges) * devices + ops * devices * log ops).

    References
    ----------
    J.-J. Hwang, Y.-C. Chow, F. D. Anger, C.-Y. Lee, "Scheduling precedence graphs in systems with
    interprocessor communication times", SIAM J. Comput. 18(2), 1989 (ETF). B. Jeon et al., "Baechi: fast
    device placement of machine learning graphs", SoCC 2020, section 3.1.2 (with memory).
    """

    name: ClassVar[str] = "m-etf"
    summary: ClassVar[str] = "Baechi's m-ETF: the op and device that can start earliest"

    def supports(self, problem: Problem) -> str | None:
        """Everything; the schedule counts transfers as ``concurrent`` does, whatever the model."""
        return None

    def candidates(self, problem: Problem) -> Iterator[Placement]:
        """One pass; two evaluations."""
        return _candidates(problem)


def _candidates(problem: Problem) -> Iterator[Placement]:
    if problem.n:
        yield from scheduled(problem, *earliest_start_schedule(problem))
