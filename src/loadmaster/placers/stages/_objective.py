"""The flush objective, max FW + max BW, as a sequence of problems with one maximum.

A program over chains minimises the largest backward load under a ceiling on the forward loads. Whatever it
finds, B, no chain under that ceiling has a smaller largest backward load. So a chain that beats the best cost
so far must stay below cost - B in its forward loads: the ceiling falls, B rises, and when nothing is left
under the ceiling the best chain so far is optimal.
"""

from __future__ import annotations

import math
from typing import Protocol

from loadmaster.placers.stages._chain import Stages, chain_loads
from loadmaster.placers.stages._contraction import Contracted

__all__ = ["Solve", "cheapest"]

LESS = 1.0 - 1e-12
"""How much better a chain must be to count, so that rounding cannot go on for ever."""


class Solve(Protocol):
    """The best chain with load 0 below ``limit`` and load 1 at most ``ceiling``, with its value; None if
    there is none.
    """

    def __call__(self, *, limit: float, ceiling: float, floor: float) -> tuple[float, Stages] | None: ...


def cheapest(
    contracted: Contracted, solve: Solve, best: float, floors: tuple[float, ...]
) -> tuple[float, Stages] | None:
    """The chain of least cost, if that is below ``best``, else None.

    ``floors`` are lower bounds on the largest load of each kind. With one load per device this is one call of
    ``solve``.
    """
    if contracted.tables.loads == 1:
        return solve(limit=best, ceiling=math.inf, floor=floors[0])
    least, other = floors
    found, ceiling, slip = None, math.inf, 1.0 - LESS
    while True:
        ceiling = min(ceiling, (best - least) * LESS)
        result = solve(limit=best - other, ceiling=ceiling, floor=least)
        if result is None:
            return found
        value, stages = result
        loads = chain_loads(contracted, stages).max(axis=0)
        cost = float(loads.sum())
        if cost < best:
            best, found, slip = cost, (cost, stages), 1.0 - LESS
        elif value <= least:
            # Rounding hides one load beside the other, or makes this chain's load less to ``solve`` than it is: look
            # below, and further below each time that the like comes again.
            ceiling = min(ceiling * (1.0 - slip), math.nextafter(float(loads[1]), -math.inf))
            slip *= 2.0
            if slip >= 1.0:
                return found
        least = max(least, value)
