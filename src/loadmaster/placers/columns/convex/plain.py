"""The bound of ``convex`` on one page, by looking at every set. Nothing here is used to place anything.

Each device runs a set of classes whose forward ops are convex: no path leaves them and comes back. Its load depends
on nothing but the set. If there is a placement with a largest load of at most T, its sets, one per device, cover every
class once, and all are convex, fit, and have loads of at most T. So T is out of reach if not even fractions of such
sets, at most one per device in total, can cover all classes. The bound is the least T for which they can; only loads
of sets need be tried.

The fast version asks a little less of sets where classes have several forward ops, or none (``_order.py``), and adds
the forward and the backward load under the objective ``fw+bw``. Complexity: 2^classes sets per device.

References
----------
P. Gilmore, R. Gomory, "A linear programming approach to the cutting-stock problem", Operations Research 1961.
"""

from __future__ import annotations

import math
from bisect import bisect_left

import numpy as np

from loadmaster.placers.columns.plain import Column, least_cover, subsets
from loadmaster.problem import Pipeline, Problem, forward_arcs
from loadmaster.problem.reference import subgraph_seconds

__all__ = ["convex_sets", "set_bound"]

COVERED = 1e-9
"""Parts of a class that may be left by rounding."""


def set_bound(problem: Problem) -> float:
    """Seconds that no placement's largest load is below; infinite if the classes cannot be covered at all."""
    assert isinstance(problem.model, Pipeline)
    if problem.n == 0:
        return 0.0
    sets = convex_sets(problem)
    loads = sorted({some.cost for some in sets})

    def possible(target: float) -> bool:
        free = [some._replace(cost=0.0) for some in sets if some.cost <= target]
        return least_cover(free, np.ones(problem.classes), problem.devices) <= COVERED

    first = bisect_left(loads, True, key=possible)
    return loads[first] if first < len(loads) else math.inf


def convex_sets(problem: Problem) -> list[Column]:
    """Every convex set of classes on every device that may run it, with its load as cost."""
    assert isinstance(problem.model, Pipeline)
    usable = problem.class_allowed
    found = []
    for classes in subsets(problem.classes):
        ops = {v for v in range(problem.n) if int(problem.class_of[v]) in classes}
        if not _convex(problem, ops):
            continue
        memory = sum(float(problem.memory[v]) for v in ops)
        for d in range(problem.devices):
            if all(usable[c, d] for c in classes) and memory <= problem.capacity[d]:
                computing, communicating = subgraph_seconds(problem, ops, d)
                overlap = problem.model.comm == "overlap"
                load = max(computing, communicating) if overlap else computing + communicating
                found.append(Column(d, classes, load))
    return found


def _convex(problem: Problem, ops: set[int]) -> bool:
    """No path of forward ops leaves the set and comes back."""
    tail, head = forward_arcs(problem)
    arcs = sorted(
        zip(tail.tolist(), head.tolist(), strict=True), key=lambda arc: int(problem.graph.position[arc[0]])
    )
    left: set[int] = set()  # ops elsewhere that a path from the set leads to
    for u, v in arcs:
        if u in ops or u in left:
            if v not in ops:
                left.add(v)
            elif u in left:
                return False
    return True
