"""What a placement method gives, as a row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from loadmaster import api
from loadmaster.errors import NoPlacementError, UnsupportedError

if TYPE_CHECKING:
    from loadmaster.placers import Placer
    from loadmaster.problem import Problem

__all__ = ["placed"]


def placed(
    problem: Problem,
    method: str | Placer,
    *,
    budget: float | None = None,
    evaluations: int | None = None,
    seed: int = 0,
    parameters: Mapping[str, Any] | None = None,
    coarsen: str | None = None,
) -> dict[str, Any]:
    """Cost, bound and effort of a method; ``cost`` is None, and ``why`` says it, where it finds no placement.

    An interrupt that the method survives with its best so far ends the reproduction all the same: what was cut
    short must not be kept as if it had run.
    """
    try:
        solution = api.place(
            problem,
            method,
            budget=budget,
            evaluations=evaluations,
            seed=seed,
            parameters=parameters,
            coarsen=coarsen,
        )
    except (NoPlacementError, UnsupportedError) as error:
        return {"cost": None, "why": str(error)}
    if solution.stopped == "interrupted":
        raise KeyboardInterrupt
    return {
        "cost": solution.cost,
        "bound": solution.bound,
        "gap": solution.gap,
        "optimal": solution.optimal,
        "evaluations": solution.evaluations,
        "seconds": solution.seconds,
        "found_by": solution.found_by or solution.method,
        "bound_by": solution.bound_by,
    }
