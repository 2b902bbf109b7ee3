"""What a placement method gives, as a row."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from loadmaster import api
from loadmaster.errors import NoPlacementError, UnsupportedError

if TYPE_CHECKING:
    from loadmaster.placers import Placer
    from loadmaster.problem import Problem, Solution

__all__ = ["placed", "solved"]


def solved(problem: Problem, method: str | Placer, **how: Any) -> Solution:
    """:func:`loadmaster.api.place`, but an interrupt that the method survives with its best so far ends the study.

    What was cut short must not be kept as if it had run.
    """
    solution = api.place(problem, method, **how)
    if solution.stopped == "interrupted":
        raise KeyboardInterrupt
    return solution


def placed(problem: Problem, method: str | Placer, **how: Any) -> dict[str, Any]:
    """Cost, bound and effort of a method; ``cost`` is None, and ``why`` says it, where it finds no placement.

    ``how`` goes to :func:`loadmaster.api.place`: budget, evaluations, seed, parameters, coarsen, start.
    """
    began = time.process_time()
    try:
        solution = solved(problem, method, **how)
    except (NoPlacementError, UnsupportedError) as error:
        return {"cost": None, "why": str(error)}
    near = [point.evaluations for point in solution.history if point.cost <= 1.01 * solution.cost]
    return {
        "cost": solution.cost,
        "bound": solution.bound,
        "gap": solution.gap,
        "optimal": solution.optimal,
        "evaluations": solution.evaluations,
        "within_1_percent_after": near[0] if near else solution.evaluations,
        "seconds": solution.seconds,
        "last_improvement": solution.history[-1].seconds if solution.history else None,
        "cpu_seconds": time.process_time() - began,
        "found_by": solution.found_by or solution.method,
        "bound_by": solution.bound_by,
    }
