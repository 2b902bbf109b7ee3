"""``ideal-dp`` on one page: the recurrence over ideals, for small problems. Nothing here is used to place anything.

An *ideal* is a set of colocation classes that contains everything its members depend on. A chain of stages is a
chain of ideals {} = I_0 < I_1 < … < I_m = everything, with stage i the difference I_i - I_(i-1) on a device of its
own. With dp[I][s] the least possible largest load of a chain that covers I and has used s_k devices of kind k,

    dp[{}][0] = 0,    dp[I][s] = min over ideals J < I and kinds k of max(dp[J][s - e_k], load_k(I - J)),

where load_k is infinite if the stage may not be there. The answer is the least dp[everything][s]. Complexity:
O(ideals² · states · kinds), as in the paper; the fast version looks at few of the pairs (``_kernel.py``).

References
----------
J. Tarnawski et al., "Efficient algorithms for device placement of DNN graph operators", NeurIPS 2020, section 5.1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import product

from loadmaster.problem import Pipeline, Problem
from loadmaster.problem.reference import subgraph_seconds

__all__ = ["Ideal", "best_chain", "ideals_of", "stage_load"]

Ideal = frozenset[int]


def best_chain(problem: Problem) -> float:
    """The least largest load of any chain of stages, in seconds; infinite if there is no chain."""
    assert isinstance(problem.model, Pipeline)
    assert problem.model.objective == "sum", (
        "the flush objective is a sequence of such programs (_objective.py)"
    )
    ideals = ideals_of(problem.classes, _dependencies(problem))
    kinds = _alike(problem)
    states = list(product(*(range(len(kind) + 1) for kind in kinds)))
    dp = {(ideal, used): math.inf for ideal in ideals for used in states}
    dp[ideals[0], states[0]] = 0.0
    for ideal in ideals:
        for smaller in ideals:
            if not smaller < ideal:
                continue
            for k, devices in enumerate(kinds):
                load = stage_load(problem, ideal - smaller, devices[0])
                for used in states:
                    if used[k] < len(devices):
                        more = (*used[:k], used[k] + 1, *used[k + 1 :])
                        dp[ideal, more] = min(dp[ideal, more], max(dp[smaller, used], load))
    return min(dp[ideals[-1], used] for used in states)


def stage_load(problem: Problem, classes: Ideal, device: int) -> float:
    """Seconds per sample of a device that runs these classes; infinite if it cannot."""
    assert isinstance(problem.model, Pipeline)
    ops = {v for v in range(problem.n) if int(problem.class_of[v]) in classes}
    fits = sum(float(problem.memory[v]) for v in ops) <= problem.capacity[device]
    if not fits or not all(problem.allowed[v, device] for v in ops):
        return math.inf
    computing, communicating = subgraph_seconds(problem, ops, device)
    return computing + communicating if problem.model.comm == "sum" else max(computing, communicating)


def ideals_of(classes: int, arcs: Iterable[tuple[int, int]]) -> list[Ideal]:
    """All ideals, by size: the unions of classes, each with all that it depends on (itself too, in a circle)."""
    needs = [{c} for c in range(classes)]
    for _ in range(classes):  # after so many rounds every dependency has been passed on
        for before, after in arcs:
            needs[after] |= needs[before]
    found: set[Ideal] = {frozenset()}
    for c in range(classes):
        found |= {ideal | needs[c] for ideal in found}
    return sorted(found, key=len)


def _dependencies(problem: Problem) -> set[tuple[int, int]]:
    """Arcs between classes by forward ops; by backward ops, mirrored, where a class has no forward op.

    Boundary ops are no work, so that nothing need be in order with them.
    """
    back, of = problem.graph.backward, problem.class_of.tolist()
    outside = problem.graph.boundary
    with_forward = {of[v] for v in range(problem.n) if not back[v] and not outside[v]}
    arcs = set()
    for u, v in zip(*(end.tolist() for end in problem.graph.arcs), strict=True):
        if outside[u] or outside[v]:
            continue
        if not back[u] and not back[v]:
            arcs.add((of[u], of[v]))
        elif back[u] and back[v] and not {of[u], of[v]} <= with_forward:
            arcs.add((of[v], of[u]))
    return arcs


def _alike(problem: Problem) -> list[list[int]]:
    """The devices by kind: those that the problem does not tell apart."""
    kinds: dict[tuple[object, ...], list[int]] = {}
    for d in range(problem.devices):
        costs = (problem.send_latency[d], problem.send_rate[d], problem.recv_latency[d], problem.recv_rate[d])
        key = (*costs, problem.capacity[d], *problem.time[:, d].tolist(), *problem.allowed[:, d].tolist())
        kinds.setdefault(key, []).append(d)
    return list(kinds.values())
