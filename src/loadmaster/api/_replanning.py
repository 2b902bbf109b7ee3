"""A plan made anew when one of its machines has failed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from loadmaster.api._placing import place
from loadmaster.errors import InfeasibleError
from loadmaster.plan import Plan
from loadmaster.problem import Placement, evaluate

if TYPE_CHECKING:
    from loadmaster.runtime import Piece

REPLANNING = 2.0
"""Seconds for placing a model anew."""


def replanner(plan: Plan) -> Callable[[Sequence[str]], Sequence[Piece]]:
    """From the devices that are left to the pieces of the best placement on them.

    Ops that were pinned to a device which is gone may go anywhere.
    """
    from loadmaster.runtime import cut

    def again(left: Sequence[str]) -> Sequence[Piece]:
        whole = plan.problem()
        gone = [d for d, name in enumerate(whole.cluster.names) if name not in left]
        forbidden = whole.forbidden.copy()
        forbidden[:, gone] = True
        pin = np.where(np.isin(whole.pin, gone), -1, whole.pin)
        problem = replace(whole, forbidden=forbidden, pin=pin.astype(whole.pin.dtype))
        if len(left) == 1:
            placement = Placement(np.full(problem.n, problem.cluster.index[left[0]], np.int32))
            broken = evaluate(problem, placement).violations
            if broken:
                raise InfeasibleError(f"the model cannot go on: {broken[0]}")
        else:
            placement = place(problem, budget=REPLANNING).placement
        return cut(problem, placement)

    return again
