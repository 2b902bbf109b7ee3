"""Topological orders of atoms, for programs that cut one order into stages."""

from __future__ import annotations

import numpy as np
from numba import njit

from loadmaster.arrays import IntArray
from loadmaster.placers.rules._scopes import scopes
from loadmaster.placers.search._moves import uniform
from loadmaster.placers.stages._contraction import Contracted

__all__ = ["some_order"]


SAMPLE = 16
"""Ready atoms that are compared at each step."""
DEPTHS = (2, 1, None)
"""Lengths of the name scopes that atoms are kept together by."""


def some_order(contracted: Contracted, number: int, seed: int) -> IntArray:
    """The topological order of that number: 0 is the atoms' own, the others are random, of four flavours.

    The next atom is, among those that are ready: of a few taken at random the one that adds least to the
    tensors that are open (produced, but not yet read by all); one of the same name scope as the atom before,
    or else of the scope that appears first in the graph; mostly the one that became ready last; any.
    """
    if number == 0:
        return np.arange(contracted.atoms, dtype=np.int32)
    rng = np.random.SeedSequence([seed, number]).generate_state(1, np.uint64)
    waiting = np.diff(contracted.predecessor_ptr).astype(np.int32)
    arcs = (contracted.successor_ptr, contracted.successor, waiting)
    round_, flavour = divmod(number - 1, 4)
    if flavour == 1:
        scope = _scope_of_atoms(contracted, DEPTHS[round_ % len(DEPTHS)])
        return _together(
            *arcs, scope, int(scope.max(initial=0)) + 1, rng, 0.0 if round_ < len(DEPTHS) else 0.05
        )
    tables = contracted.tables
    weight = (tables.send + tables.recv).max(axis=1, initial=0.0)
    depth_first, sample = (0.0, 0.0, 0.95, 0.0)[flavour], SAMPLE if flavour == 0 else 1
    return _one_by_one(*arcs, tables, weight, rng, depth_first, sample)


def _scope_of_atoms(contracted: Contracted, depth: int | None) -> IntArray:
    """(atoms,) name scope of the op of each atom that comes first in the graph."""
    graph = contracted.problem.graph
    whole = contracted if contracted.full is None else contracted.full
    first = np.full(whole.atoms, graph.n, np.int64)
    np.minimum.at(first, whole.atom_of, graph.position)
    scope = scopes(graph, depth)[graph.topological_order[first]]
    return scope if contracted.kept is None else scope[contracted.kept]


@njit(cache=True, nogil=True)
def _one_by_one(ptr, successor, waiting, tables, weight, rng, depth_first, sample):  # type: ignore[no-untyped-def]
    """O(atoms * sample * degree)."""
    n = len(waiting)
    count = np.zeros(len(tables.pins), np.int32)
    ready, order = np.empty(n, np.int32), np.empty(n, np.int32)
    top = 0
    for a in range(n):
        if waiting[a] == 0:
            ready[top] = a
            top += 1
    for made in range(n):
        chosen = top - 1
        if top > 1 and uniform(rng) >= depth_first:
            least = np.inf
            for _ in range(min(sample, 4 * top)):
                i = int(uniform(rng) * top)
                v, grows = ready[i], 0.0
                if sample > 1:
                    for j in range(tables.net_ptr[v], tables.net_ptr[v + 1]):
                        e = tables.net[j]
                        if count[e] == 0:
                            grows += weight[e]
                        elif count[e] + 1 == tables.pins[e]:
                            grows -= weight[e]
                if grows < least:
                    least, chosen = grows, i
        v = ready[chosen]
        if depth_first > 0.0:
            ready[chosen : top - 1] = ready[chosen + 1 : top]
        else:
            ready[chosen] = ready[top - 1]
        top -= 1
        order[made] = v
        for j in range(tables.net_ptr[v], tables.net_ptr[v + 1]):
            count[tables.net[j]] += 1
        for j in range(ptr[v], ptr[v + 1]):
            waiting[successor[j]] -= 1
            if waiting[successor[j]] == 0:
                ready[top] = successor[j]
                top += 1
    return order


@njit(cache=True, nogil=True)
def _together(ptr, successor, waiting, group, groups, rng, noise):  # type: ignore[no-untyped-def]
    """Stay in a group while it has ready atoms, then go to the first group that has some.

    With probability ``noise`` a group is passed over. O(atoms + arcs + groups * changes of group).
    """
    n = len(waiting)
    order, following = np.empty(n, np.int32), np.empty(n, np.int32)
    head = np.full(groups, -1, np.int32)
    for a in range(n - 1, -1, -1):
        if waiting[a] == 0:
            following[a] = head[group[a]]
            head[group[a]] = a
    here = 0
    for made in range(n):
        if head[here] < 0:
            here = -1
            for g in range(groups):
                if head[g] >= 0:
                    here = g
                    if uniform(rng) >= noise:
                        break
        v = head[here]
        head[here] = following[v]
        order[made] = v
        for j in range(ptr[v], ptr[v + 1]):
            u = successor[j]
            waiting[u] -= 1
            if waiting[u] == 0:
                following[u] = head[group[u]]
                head[group[u]] = u
    return order
