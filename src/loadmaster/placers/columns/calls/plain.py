"""``calls`` on one page: the best chain of calls, and the bound along a line, by looking at every call.

Nothing here is used to place anything. A *call* is a set of classes that an accelerator runs as one subgraph: it
fetches, computes and writes back in a time that depends on nothing but the set. Each accelerator makes one call.

**Value.** Calls and CPU ops one after another: with I over the ideals (:mod:`…stages.ideal_dp.plain`) and U over the
sets of accelerators used, the least time in which I can be done is

    best[{}][{}] = 0,    best[I][U] = min over ideals J < I of   best[J][U] + CPU seconds of I - J   and of
                                       best[J][U - d] + seconds of the call I - J on accelerator d.

Nothing overlaps in such a chain, so that the placement takes no longer than that.

**Bound.** Let P be a path of the graph. A call that meets P does so in an interval, as calls are convex, and the calls
that meet P and the CPU ops on P wait for each other. So no placement takes less than the cheapest way to cover the
classes of P by such calls, at most one per accelerator, what is left staying on the CPU; nor less than that with
fractions of calls, which is the program of :mod:`loadmaster.placers.columns.plain`. Classes off P cost nothing on
the CPU there.

References
----------
J. Tarnawski et al., "Efficient algorithms for device placement of DNN graph operators", NeurIPS 2020 (the problem,
and ideals). P. Gilmore, R. Gomory, Operations Research 1961 (the program over calls).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from loadmaster.placers.columns.plain import Column, least_cover, subsets
from loadmaster.placers.stages.ideal_dp.plain import ideals_of
from loadmaster.problem import Offload, Problem
from loadmaster.problem.reference import subgraph_seconds

__all__ = ["best_chain", "call_seconds", "line_bound"]


def best_chain(problem: Problem) -> float:
    """The least seconds of a chain of calls and CPU ops; infinite if there is none."""
    of = problem.class_of
    ideals = ideals_of(
        problem.classes, {(int(of[u]), int(of[v])) for u, v in zip(*problem.graph.arcs, strict=True)}
    )
    best: dict[tuple[frozenset[int], frozenset[int]], float] = defaultdict(lambda: math.inf)
    best[ideals[0], frozenset()] = 0.0
    accelerators = np.flatnonzero(~problem.pool).tolist()
    used_sets = [
        frozenset(),
        *(frozenset(accelerators[i] for i in some) for some in subsets(len(accelerators))),
    ]
    for ideal in ideals:
        for smaller in (other for other in ideals if other < ideal):
            for d in range(problem.devices):
                seconds = call_seconds(problem, ideal - smaller, d)
                for used in used_sets:
                    if d not in used:
                        after = (ideal, used if problem.pool[d] else used | {d})
                        best[after] = min(best[after], best[smaller, used] + seconds)
    return min(best[ideals[-1], used] for used in used_sets)


def call_seconds(problem: Problem, classes: frozenset[int], device: int) -> float:
    """Seconds of a call of these classes, or of a CPU that computes them; infinite if that is not possible."""
    ops = {v for v in range(problem.n) if int(problem.class_of[v]) in classes}
    if not all(problem.allowed[v, device] for v in ops):
        return math.inf
    computing, communicating = subgraph_seconds(problem, ops, device)
    if problem.pool[device]:
        return computing
    fits = sum(float(problem.memory[v]) for v in ops) <= problem.capacity[device]
    return computing + communicating if fits else math.inf


def line_bound(problem: Problem, path: Sequence[int], limit: float) -> float:
    """Seconds that no placement takes less than, along a path (its ops in order).

    ``limit`` is the time of a known placement: no call takes longer, and what may not stay on a CPU counts so much.
    """
    assert isinstance(problem.model, Offload)
    assert problem.model.max_calls == 1
    line = list(dict.fromkeys(problem.class_of[list(path)].tolist()))
    stay = np.zeros(problem.classes)
    usable = problem.class_allowed & problem.pool & (problem.class_memory[:, None] <= problem.capacity)
    for c in line:
        ops = [v for v in path if problem.class_of[v] == c]
        cpus = [d for d in range(problem.devices) if usable[c, d]]
        stay[c] = min([limit, *(float(problem.time[ops, d].sum()) for d in cpus)])
    calls = []
    for classes in subsets(problem.classes):
        met = [i for i, c in enumerate(line) if c in classes]
        if met and met[-1] - met[0] + 1 == len(met):
            calls += [
                Column(d, classes, call_seconds(problem, classes, d))
                for d in np.flatnonzero(~problem.pool).tolist()
            ]
    return least_cover([call for call in calls if call.cost <= limit], stay, problem.devices)
