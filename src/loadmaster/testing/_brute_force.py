"""The best placement of a small problem, found by trying all."""

from __future__ import annotations

import itertools

import numpy as np

from loadmaster.errors import InfeasibleError, InputError
from loadmaster.problem import Placement, Problem
from loadmaster.problem.reference import evaluate

__all__ = ["brute_force"]

MOST = 100_000
"""Placements that are tried; the plain evaluation takes some tenths of a millisecond for each."""


def brute_force(problem: Problem) -> tuple[Placement, float]:
    """The cheapest feasible placement and its cost, by the plain reference.

    All ways to put classes on devices that allow them are tried, without an ``order`` and without ``call``
    numbers: under ``concurrent`` and ``offload`` a placement that has them can be cheaper still.

    >>> from loadmaster.graph import layered
    >>> from loadmaster.hardware import accelerators, roofline
    >>> from loadmaster.problem import Serial
    >>> graph, cluster = layered(3), accelerators(1, cpus=1)
    >>> problem = Problem.make(graph, cluster, Serial(), time=roofline(graph, cluster))
    >>> placement, cost = brute_force(problem)
    >>> bool(np.isclose(cost, evaluate(problem, placement).cost))
    True

    Raises
    ------
    InputError : there are more than 100,000 placements.
    InfeasibleError : none of them is feasible.
    """
    choices = [np.flatnonzero(row).tolist() for row in problem.class_allowed]
    count = float(np.prod([float(len(devices)) for devices in choices]))
    if count > MOST:
        raise InputError(f"the problem has {count:.3g} placements: brute force is for {MOST:,} at most")
    best: tuple[Placement, float] | None = None
    for at in itertools.product(*choices):
        placement = Placement(np.array(at, np.int32)[problem.class_of])
        found = evaluate(problem, placement)
        if found.feasible and (best is None or found.cost < best[1]):
            best = placement, found.cost
    if best is None:
        raise InfeasibleError("none of all placements is feasible")
    return best
