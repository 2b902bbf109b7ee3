"""The bound of ``frontier`` on one page, by looking at every bundle. Nothing here is used to place anything.

A *bundle* is a set of classes on one device; its load depends on nothing but the set. If there is a placement with a
largest load of at most T, then its bundles, one per device, cover every class once, and all have loads of at most T.
So T is out of reach if not even fractions of such bundles, at most one per device in total, can cover all classes:

    min Σ_c y_c   subject to   Σ_{bundles with c} x_S + y_c = 1,   Σ_{bundles of device d} x_S <= 1,   x, y >= 0

is then above 0, and its duals are prices that prove it: the classes together are worth more than the devices can
fetch, with a bundle within T each. The bound is the least T at which the minimum is 0. Only loads of bundles need be
tried, and what is possible for T is possible for more, so that bisection finds it.

Memory and contiguity are not looked at, except that a class must fit the device alone. The program is solved by
column generation (:mod:`loadmaster.placers.columns.plain`). Complexity: 2^classes bundles per device.

References
----------
J. Tarnawski et al., "Efficient algorithms for device placement of DNN graph operators", NeurIPS 2020 (the problem).
P. Gilmore, R. Gomory, "A linear programming approach to the cutting-stock problem", Operations Research 1961 (the
program over bundles).
"""

from __future__ import annotations

import math
from bisect import bisect_left

import numpy as np

from loadmaster.placers.columns.plain import Column, least_cover, subsets
from loadmaster.problem import Pipeline, Problem
from loadmaster.problem.reference import subgraph_seconds

__all__ = ["bundle_bound", "bundles_of"]

COVERED = 1e-9
"""Parts of a class that may be left by rounding."""


def bundle_bound(problem: Problem) -> float:
    """Seconds that no placement's largest load is below; infinite if the classes cannot be covered at all."""
    assert isinstance(problem.model, Pipeline)
    assert (problem.model.comm, problem.model.objective) == ("sum", "sum")
    if problem.n == 0:
        return 0.0
    bundles = bundles_of(problem)
    loads = sorted({bundle.cost for bundle in bundles})

    def possible(target: float) -> bool:
        free = [bundle._replace(cost=0.0) for bundle in bundles if bundle.cost <= target]
        return least_cover(free, np.ones(problem.classes), problem.devices) <= COVERED

    first = bisect_left(loads, True, key=possible)
    return loads[first] if first < len(loads) else math.inf


def bundles_of(problem: Problem) -> list[Column]:
    """Every set of classes on every device that may run them, with its load as cost."""
    usable = problem.class_allowed & (problem.class_memory[:, None] <= problem.capacity)
    found = []
    for classes in subsets(problem.classes):
        ops = {v for v in range(problem.n) if int(problem.class_of[v]) in classes}
        for d in range(problem.devices):
            if all(usable[c, d] for c in classes):
                found.append(Column(d, classes, sum(subgraph_seconds(problem, ops, d))))
    return found
