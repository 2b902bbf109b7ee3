"""The cuts of a graph between two stages, and what each of them stands for.

A chain of stages is a chain of ideals of the atoms, from nothing to everything. All that a stage takes is a difference
of two ideals (times, memory), and what crosses a boundary depends on its ideal alone: so tables by ideal are all that
a search over chains needs. Along one topological order the ideals are its prefixes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from loadmaster.arrays import BoolArray, FloatArray, IntArray
from loadmaster.graph.order import topological_order
from loadmaster.placers.frame.atoms import atoms_of
from loadmaster.problem import Problem
from loadmaster.problem.step import step_tables

__all__ = ["Chains", "Cuts", "all_ideals", "any_order", "chains_of", "cuts_along", "cuts_of"]

WORK, INPUT, OUTPUT = 0, 1, 2


class Chains(NamedTuple):
    """A problem as chains of stages see it: A atoms with work, K kinds of devices, T ties."""

    atom: IntArray
    """(n,) the atom of each op; -1 for boundary ops that belong to none."""
    atoms: int
    tail: IntArray
    head: IntArray
    """Arcs between atoms."""
    kinds: list[list[int]]
    """The devices of each kind."""
    forward: FloatArray
    backward: FloatArray
    """(A, K) seconds."""
    banned: BoolArray
    """(A, K)."""
    memory: FloatArray
    kept: FloatArray
    """(A,) bytes."""
    base: FloatArray
    """(K,) bytes that boundary ops without a choice take."""
    capacity: FloatArray
    """(K,) bytes."""
    hop: FloatArray
    """(2, K, K) latency and rate between two devices of these kinds; infinite latency where there are not two."""
    tie: BoolArray
    """(A, T)."""
    certain: bool
    """Whether a chain that fits is feasible whatever becomes of boundary ops."""


class Cuts(NamedTuple):
    """Tables by ideal, the smallest first: N ideals."""

    member: BoolArray
    """(N, A)."""
    after_ptr: IntArray
    after: IntArray
    """CSR: the ideals that contain each one, itself not."""
    forward: FloatArray
    backward: FloatArray
    banned: FloatArray
    """(N, K) sums over the members."""
    held: FloatArray
    """(N, 2) bytes held, and kept per microbatch."""
    cut: FloatArray
    """(N, 4) size and bytes forward, size and bytes backward; a size is negative where nothing crosses."""
    ties: FloatArray
    """(N, T) members that have the weights."""


def chains_of(problem: Problem) -> Chains:
    """The problem as chains see it, kept on it."""
    return problem.derived(_chains)


def _chains(problem: Problem) -> Chains:
    tables, atoms, graph = step_tables(problem), atoms_of(problem), problem.graph
    work = tables.role[:, 0] == WORK
    has = np.zeros(atoms.count, np.bool_)
    has[atoms.of_op[work]] = True
    number = np.where(has, np.cumsum(has) - 1, -1).astype(np.int32)
    count = int(has.sum())
    tail = np.repeat(np.arange(atoms.count, dtype=np.int32), np.diff(atoms.successor_ptr))
    tail, head = number[tail], number[atoms.successor]
    keep = (tail >= 0) & (head >= 0)
    atom = number[atoms.of_op]

    def sums(values: FloatArray, ops: BoolArray) -> FloatArray:
        total = np.zeros((count, *values.shape[1:]))
        np.add.at(total, atom[ops & (atom >= 0)], values[ops & (atom >= 0)])
        return total

    base = np.zeros(problem.devices)
    certain = True
    for a in np.flatnonzero(~has).tolist():
        bytes_ = float(atoms.memory[a])
        if atoms.allowed[a].sum() == 1:
            base[int(atoms.allowed[a].argmax())] += bytes_
        elif bytes_ and np.isfinite(problem.capacity).any():
            certain = False
    forward = sums(problem.time, work & ~graph.backward)
    backward = sums(problem.time, work & graph.backward)
    allowed = atoms.allowed[has]
    usable = allowed.any(axis=0) & ~np.isin(np.arange(problem.devices), problem.surplus)
    kinds = _kinds(problem, forward, backward, allowed, base, np.flatnonzero(usable).tolist())
    first = [kind[0] for kind in kinds]
    size = len(kinds)
    hop = np.zeros((2, size, size))
    for k, mine in enumerate(kinds):
        for j, other in enumerate(kinds):
            pairs = [(d, e) for d in mine[:2] for e in other[:2] if d != e]
            hop[0, k, j] = problem.latency[pairs[0]] if pairs else np.inf
            hop[1, k, j] = problem.rate[pairs[0]] if pairs else 0.0
    tie = np.zeros((count, len(problem.ties)), np.bool_)
    for t, its in enumerate(problem.ties):
        members = atom[[v for v in its.ops if work[v]]]
        tie[members[members >= 0], t] = True
    banned = ~allowed[:, first]
    return Chains(
        atom=atom,
        atoms=count,
        tail=tail[keep],
        head=head[keep],
        kinds=kinds,
        forward=np.where(banned, 0.0, forward[:, first]),
        backward=np.where(banned, 0.0, backward[:, first]),
        banned=banned,
        memory=sums(problem.memory, np.ones(problem.n, np.bool_)),
        kept=sums(tables.held[1], work),
        base=base[first],
        capacity=problem.capacity[first],
        hop=hop,
        tie=tie,
        certain=certain,
    )


def _kinds(
    problem: Problem,
    forward: FloatArray,
    backward: FloatArray,
    allowed: BoolArray,
    base: FloatArray,
    devices: list[int],
) -> list[list[int]]:
    """Devices that may be exchanged: equal in all that chains see, links included."""

    def alike(d: int, e: int) -> bool:
        if not (
            np.array_equal(forward[:, d], forward[:, e])
            and np.array_equal(backward[:, d], backward[:, e])
            and np.array_equal(allowed[:, d], allowed[:, e])
            and problem.capacity[d] == problem.capacity[e]
            and base[d] == base[e]
        ):
            return False
        others = [x for x in devices if x not in (d, e)]
        return all(
            np.array_equal(table[d, others], table[e, others])
            and np.array_equal(table[others, d], table[others, e])
            and table[d, e] == table[e, d]
            for table in (problem.latency, problem.rate)
        )

    kinds: list[list[int]] = []
    for d in devices:
        for kind in kinds:
            if all(alike(d, e) for e in kind):
                kind.append(d)
                break
        else:
            kinds.append([d])
    return kinds


def all_ideals(chains: Chains, most: int) -> BoolArray | None:
    """(N, A) every ideal, by size; None if there are more than ``most``."""
    count = chains.atoms
    before = np.zeros((count, count), np.bool_)
    before[chains.head, chains.tail] = True
    known: list[BoolArray] = [np.zeros(count, np.bool_)]
    layer = {known[0].tobytes(): known[0]}
    while layer:
        following: dict[bytes, BoolArray] = {}
        for ideal in layer.values():
            ready = ~ideal & ~(before & ~ideal).any(axis=1)
            for a in np.flatnonzero(ready).tolist():
                larger = ideal.copy()
                larger[a] = True
                following[larger.tobytes()] = larger
            if len(known) + len(following) > most:
                return None
        known += following.values()
        layer = following
    return np.array(known).reshape(-1, count)


def cuts_of(problem: Problem, member: BoolArray) -> Cuts:
    """Tables for these ideals, which come by size."""
    chains = chains_of(problem)
    sizes = member.sum(axis=1)
    pairs = member.astype(np.float32) @ (~member).astype(np.float32).T
    larger = (pairs == 0) & (sizes[:, None] < sizes[None, :])
    _, column = np.nonzero(larger)
    ptr = np.zeros(len(member) + 1, np.int32)
    np.cumsum(larger.sum(axis=1), out=ptr[1:])
    return _tables(problem, chains, member, ptr, column.astype(np.int32))


def cuts_along(problem: Problem, order: IntArray, most: int) -> Cuts:
    """Tables for prefixes of an order of the atoms, at most about so many: from each stretch of equal work the one that
    least crosses."""
    chains, tables = chains_of(problem), step_tables(problem)
    place = np.empty(chains.atoms, np.int32)
    place[order] = np.arange(chains.atoms, dtype=np.int32)
    cut = np.zeros((chains.atoms + 1, 4))
    number = np.zeros((chains.atoms + 1, 2))
    _cross_along(tables.role, tables.tensor, tables.reader, tables.weight, chains.atom, place, cut, number)
    cut, number = np.cumsum(cut, axis=0), np.cumsum(number, axis=0)
    # What is left of a sum after all has been taken away again is rounding.
    cut = np.where(np.repeat(number, 2, axis=1) > 0.5, np.maximum(cut, 0.0), 0.0)
    at = np.arange(chains.atoms + 1)
    if chains.atoms > most:
        work = np.cumsum((chains.forward + chains.backward).min(axis=1)[order])
        window = np.minimum(work * most / max(work[-1], 1e-300), most - 1).astype(np.int64)
        crossing = (cut[1:, 0] + cut[1:, 2])[:-1]
        least = np.lexsort((crossing, window[:-1]))
        first = np.unique(window[:-1][least], return_index=True)[1]
        at = np.unique(np.concatenate([[0], least[first] + 1, [chains.atoms]]))
    cut[:, ::2] = np.where(number > 0.5, cut[:, ::2], -1.0)
    count = len(at)
    ptr = np.concatenate([[0], np.cumsum(np.arange(count - 1, -1, -1))]).astype(np.int32)
    after = np.concatenate([np.arange(i + 1, count) for i in range(count)]).astype(np.int32)

    def summed(values: FloatArray) -> FloatArray:
        return np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(values[order], axis=0)])[at]

    return Cuts(
        member=place[None, :] < at[:, None],
        after_ptr=ptr,
        after=after,
        forward=summed(chains.forward),
        backward=summed(chains.backward),
        banned=summed(chains.banned.astype(np.float64)),
        held=summed(np.stack([chains.memory, chains.kept], axis=1)),
        cut=np.ascontiguousarray(cut[at]),
        ties=summed(chains.tie.astype(np.float64)),
    )


def _tables(problem: Problem, chains: Chains, member: BoolArray, ptr: IntArray, after: IntArray) -> Cuts:
    tables = step_tables(problem)
    weight = member.astype(np.float64)
    cut = np.zeros((len(member), 4))
    cut[:, 0] = cut[:, 2] = -1.0
    _cross(
        tables.role,
        tables.tensor,
        tables.reader,
        tables.weight,
        chains.atom,
        np.ascontiguousarray(member),
        cut,
    )
    return Cuts(
        member=member,
        after_ptr=ptr,
        after=after,
        forward=weight @ chains.forward,
        backward=weight @ chains.backward,
        banned=weight @ chains.banned,
        held=weight @ np.stack([chains.memory, chains.kept], axis=1),
        cut=cut,
        ties=weight @ chains.tie,
    )


@njit(cache=True, nogil=True)
def _cross_along(role, tensor, reader, weight, atom, place, cut, number):  # type: ignore[no-untyped-def]
    """Changes of what crosses the prefixes of an order, from each length to the next."""
    count = len(place)
    for t in range(len(tensor)):
        u = tensor[t, 0]
        if role[u, 0] == WORK:
            home = place[atom[u]]
        elif role[u, 0] == INPUT:
            home = np.int32(-1)
        else:
            continue
        low, high = home, home
        for j in range(tensor[t, 1], tensor[t, 2]):
            w = reader[j]
            if role[w, 0] == WORK:
                low, high = min(low, place[atom[w]]), max(high, place[atom[w]])
            elif role[w, 0] == OUTPUT and role[u, 1] == 0:
                high = np.int32(count - 1)
        # A prefix of length x has what is at places below x.
        for c, begin, end in ((0, home + 1, high + 1), (1, low + 1, home + 1)):
            begin = max(begin, 1)
            if begin < end:
                for x, sign in ((begin, 1.0), (end, -1.0)):
                    cut[x, 2 * c] += sign * weight[0, t]
                    cut[x, 2 * c + 1] += sign * weight[1, t]
                    number[x, c] += sign


@njit(cache=True, nogil=True)
def _cross(role, tensor, reader, weight, atom, member, cut):  # type: ignore[no-untyped-def]
    """What crosses each cut, forward and backward."""
    for i in range(1, len(member) - 1):
        inside = member[i]
        for t in range(len(tensor)):
            u = tensor[t, 0]
            if role[u, 0] == WORK:
                home = inside[atom[u]]
            elif role[u, 0] == INPUT:
                home = True
            else:
                continue
            away = False
            for j in range(tensor[t, 1], tensor[t, 2]):
                w = reader[j]
                if role[w, 0] == WORK:
                    away = away or inside[atom[w]] != home
                elif role[w, 0] == OUTPUT and role[u, 1] == 0:
                    away = away or home
            if away:
                c = 0 if home else 2
                cut[i, c] = max(cut[i, c], 0.0) + weight[0, t]
                cut[i, c + 1] += weight[1, t]


def any_order(chains: Chains) -> IntArray:
    """A topological order of the atoms."""
    return topological_order(chains.atoms, chains.tail, chains.head)
