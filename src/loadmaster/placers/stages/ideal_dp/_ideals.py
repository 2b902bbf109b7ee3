"""Ideals of a contracted graph: sets of atoms that contain all predecessors of their members.

A chain of stages is a chain of ideals, and each stage the difference of two of them. Adding atoms in
increasing topological number makes every ideal exactly once: its *canonical* predecessor lacks the atom with
the largest number. Nothing has to be looked up in a hash table, neither to make the ideals nor to find the
smaller neighbours of one (see :func:`_lattice`).

A *gate* is an ideal that contains or is contained in every other. It is a prefix of any topological order,
and what happens before it and after it is independent but for the nets that cross it; numbers of ideals add
up between gates.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from loadmaster.arrays import BoolArray, IntArray, LongArray
from loadmaster.placers.stages._contraction import Contracted, contract
from loadmaster.problem import Problem

__all__ = ["Lattice", "count_ideals", "count_of", "gates_of", "lattice_of", "members_of"]


NARROW = 4
"""A size with so few ideals has *stations*, at which walks through the lattice end (``_front.py``)."""


MOST_NOTES = 2_000_000
"""Ideals times crossing nets above which stations would cost more than they save."""


class Lattice(NamedTuple):
    """All ideals, by size and then as they were made; ideal 0 is empty, the last one holds all atoms.

    The maximal atoms of an ideal that lie behind the last gate before it are listed in increasing order, each
    with the ideal that is left without it. The last of them leads to the canonical predecessor.
    """

    level: LongArray
    """(N + 2,) first ideal of each size."""
    narrow: BoolArray
    """(N + 1,) whether all ideals of this size are stations."""
    station: IntArray
    """(ideals,) the station that is met first when the last atom is taken away again and again."""
    top_ptr: LongArray
    top: IntArray
    below: IntArray
    """Ideal -> its maximal atoms, and the ideals without them."""

    @property
    def ideals(self) -> int:
        """How many there are."""
        return len(self.top_ptr) - 1


def count_ideals(problem: Problem, limit: int = 10_000_000) -> int | None:
    """Number of ideals that ``ideal-dp`` has to look at for a pipeline problem, or None if there are more
    than ``limit``.

    The empty ideal and the full one count. Complexity: O(width) per ideal, no memory; some 20 million a
    second.
    """
    return count_of(contract(problem), limit)


def count_of(contracted: Contracted, limit: int) -> int | None:
    """Number of ideals, or None if there are more than ``limit``."""
    total = _count(*_graph(contracted), np.flatnonzero(gates_of(contracted)), limit)
    return int(total) if total <= limit else None


def gates_of(contracted: Contracted) -> BoolArray:
    """(N + 1,) True where the first so many atoms are a gate.

    The prefix of length i is one if each of its maximal atoms is a predecessor of each minimal atom outside:
    then all of it comes before all the rest. So it is enough to count both, and the arcs between them.
    Complexity: O(atoms + arcs).
    """
    n = contracted.atoms
    tail = np.repeat(np.arange(n, dtype=np.int32), np.diff(contracted.successor_ptr))
    head = contracted.successor
    earliest_reader = np.full(n, n, np.int64)
    np.minimum.at(earliest_reader, tail, head)
    latest_source = np.full(n, -1, np.int64)
    np.maximum.at(latest_source, head, tail)

    def during(first: LongArray, last: LongArray) -> LongArray:
        """(N + 1,) how many of the intervals contain each number."""
        change = np.zeros(n + 2, np.int64)
        real = first <= last
        np.add.at(change, first[real], 1)
        np.add.at(change, last[real] + 1, -1)
        return np.cumsum(change)[: n + 1]

    number = np.arange(n)
    maximal = during(number + 1, earliest_reader)
    minimal = during(latest_source + 1, number)
    between = during(latest_source[head] + 1, earliest_reader[tail])
    return between == maximal * minimal


def lattice_of(contracted: Contracted, limit: int) -> Lattice | None:
    """All ideals, or None if there are more than ``limit``. Memory: about 20 bytes and 8 per maximal atom for
    each.
    """
    gate = gates_of(contracted)
    positions = np.flatnonzero(gate)
    if _count(*_graph(contracted), positions, limit) > limit:
        return None
    words = int((np.diff(positions).max(initial=0) + 63) // 64)
    level, top_ptr, top, below = _lattice(*_graph(contracted), gate, max(words, 1))
    narrow = np.diff(level) <= NARROW
    if (len(top_ptr) - 1) * _most_crossing(contracted) > MOST_NOTES:
        narrow[:] = False
    return Lattice(level, narrow, _stations(level, narrow, top_ptr, below), top_ptr, top, below)


def members_of(top_ptr: LongArray, top: IntArray, below: IntArray, ideal: int) -> IntArray:
    """The atoms of an ideal: one maximal atom after another is taken away."""
    found = []
    while ideal:
        last = int(top_ptr[ideal + 1]) - 1
        found.append(int(top[last]))
        ideal = int(below[last])
    return np.array(found, np.int32)


def _most_crossing(contracted: Contracted) -> int:
    """The largest number of nets that cross any prefix of the atoms."""
    tables = contracted.tables
    change = np.zeros(contracted.atoms + 1, np.int64)
    np.add.at(change, tables.pin[tables.pin_ptr[:-1]] + 1, 1)
    np.add.at(change, tables.pin[tables.pin_ptr[1:] - 1] + 1, -1)
    return int(np.cumsum(change).max(initial=0))


def _graph(contracted: Contracted) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    return contracted.predecessor_ptr, contracted.predecessor, contracted.successor_ptr, contracted.successor


@njit(cache=True, nogil=True)
def _stations(level, narrow, top_ptr, below):  # type: ignore[no-untyped-def]
    station = np.zeros(len(top_ptr) - 1, np.int32)
    for size in range(1, len(narrow)):
        for ideal in range(level[size], level[size + 1]):
            canonical = below[top_ptr[ideal + 1] - 1]
            station[ideal] = canonical if narrow[size - 1] else station[canonical]
    return station


@njit(cache=True, nogil=True)
def _count(pred_ptr, pred, succ_ptr, succ, gates, limit):  # type: ignore[no-untyped-def]
    """Number of ideals, or something larger than ``limit`` if there are more.

    Depth first between each two gates. ``ready`` holds one list per depth: the atoms behind the one added
    last that could be added; ``waiting`` counts the predecessors that are missing.
    """
    total = 1
    n = len(pred_ptr) - 1
    waiting = np.zeros(n, np.int32)
    for g in range(len(gates) - 1):
        base, end = gates[g], gates[g + 1]
        size = end - base
        # More than 64 atoms ready at a time are more ideals than anybody can count.
        ready = np.empty(min((size + 1) * (size + 2) // 2, 64 * size), np.int32)
        first, stop, at = (
            np.zeros(size + 2, np.int64),
            np.zeros(size + 2, np.int64),
            np.zeros(size + 2, np.int64),
        )
        added = np.empty(size + 2, np.int32)
        for v in range(base, end):
            waiting[v] = 0
            for i in range(pred_ptr[v], pred_ptr[v + 1]):
                waiting[v] += pred[i] >= base
            if waiting[v] == 0:
                if stop[0] == len(ready):
                    return limit + 1
                ready[stop[0]] = v
                stop[0] += 1
        depth = 0
        while True:
            if at[depth] == stop[depth]:
                if depth == 0:
                    break
                depth -= 1
                for i in range(succ_ptr[added[depth]], succ_ptr[added[depth] + 1]):
                    waiting[succ[i]] += 1
                continue
            v = ready[at[depth]]
            at[depth] += 1
            total += 1
            if total > limit:
                return total
            added[depth] = v
            first[depth + 1] = at[depth + 1] = top = stop[depth]
            for i in range(first[depth], stop[depth]):
                if ready[i] > v:
                    if top == len(ready):
                        return limit + 1
                    ready[top] = ready[i]
                    top += 1
            for i in range(succ_ptr[v], succ_ptr[v + 1]):
                u = succ[i]
                waiting[u] -= 1
                if waiting[u] == 0 and u < end:
                    if top == len(ready):
                        return limit + 1
                    ready[top] = u
                    top += 1
            depth += 1
            stop[depth] = top
    return total


@njit(cache=True, nogil=True)
def _grown(array, size):  # type: ignore[no-untyped-def]
    """The array, or a copy with at least twice the room."""
    if size <= len(array):
        return array
    larger = np.empty(max(size, 2 * len(array)), array.dtype)
    larger[: len(array)] = array
    return larger


@njit(cache=True, nogil=True)
def _lattice(pred_ptr, pred, succ_ptr, succ, gate, words):  # type: ignore[no-untyped-def]
    """Breadth first, by size.

    For the ideals of one size, ``bits`` holds their atoms behind the last gate (of number ``base``), and
    ``ready`` the atoms behind the one added last that could be added, in increasing order. So the canonical
    successors of an ideal J are numbered in a row, from ``child[J]``, by increasing atom.

    Let I = J + e be such a successor. Its maximal atoms are e and those of J that are no predecessors of e.
    Without e it is J. Without another of them, v, it is J - v + e, and that is the canonical successor of J -
    v by e: it has a number already.
    """
    n = len(pred_ptr) - 1
    level = np.zeros(n + 2, np.int64)
    level[1] = 1
    top_ptr = np.zeros(1024, np.int64)
    child = np.zeros(1024, np.int64)
    top, below = np.empty(1024, np.int32), np.empty(1024, np.int32)
    bits = np.zeros((1, words), np.uint64)
    ready, ready_ptr = np.empty(1024, np.int32), np.zeros(2, np.int64)
    is_pred = np.zeros(n + 1, np.bool_)
    one = np.uint64(1)
    ideals = np.int64(1)
    base = 0
    for v in range(n):
        if pred_ptr[v] == pred_ptr[v + 1]:
            ready = _grown(ready, ready_ptr[1] + 1)
            ready[ready_ptr[1]] = v
            ready_ptr[1] += 1
    for size in range(n):
        begin, end = level[size], level[size + 1]
        if gate[size]:
            base = size
            bits[:] = np.uint64(0)
        fresh = ready_ptr[end - begin]
        new_bits = np.zeros((fresh, words), np.uint64)
        new_ready, new_ptr = np.empty(2 * fresh + 16, np.int32), np.zeros(fresh + 1, np.int64)
        made = 0
        child = _grown(child, ideals + 1)
        top_ptr = _grown(top_ptr, ideals + fresh + 1)
        for j in range(begin, end):
            row = j - begin
            child[j] = ideals
            child[j + 1] = ideals
            for r in range(ready_ptr[row], ready_ptr[row + 1]):
                e = ready[r]
                for w in range(words):
                    new_bits[made, w] = bits[row, w]
                new_bits[made, (e - base) >> 6] |= one << np.uint64((e - base) & 63)
                fill = new_ptr[made]
                room = fill + ready_ptr[row + 1] - r + succ_ptr[e + 1] - succ_ptr[e]
                new_ready = _grown(new_ready, room)
                for q in range(r + 1, ready_ptr[row + 1]):
                    new_ready[fill] = ready[q]
                    fill += 1
                for i in range(succ_ptr[e], succ_ptr[e + 1]):
                    u = succ[i]
                    free = True
                    for q in range(pred_ptr[u], pred_ptr[u + 1]):
                        p = pred[q] - base
                        # A predecessor may even lie behind the next gate, where there are no bits.
                        if p >= 0 and (
                            p >> 6 >= words or not (new_bits[made, p >> 6] >> np.uint64(p & 63)) & one
                        ):
                            free = False
                            break
                    if free:
                        q = fill
                        while q > new_ptr[made] and new_ready[q - 1] > u:
                            new_ready[q] = new_ready[q - 1]
                            q -= 1
                        new_ready[q] = u
                        fill += 1
                made += 1
                new_ptr[made] = fill
                # Maximal atoms and what is left without them.
                for i in range(pred_ptr[e], pred_ptr[e + 1]):
                    is_pred[pred[i]] = True
                fill = top_ptr[ideals]
                room = fill + top_ptr[j + 1] - top_ptr[j] + 1
                top, below = _grown(top, room), _grown(below, room)
                for i in range(top_ptr[j], top_ptr[j + 1]):
                    v = top[i]
                    if not is_pred[v]:
                        k = child[below[i]]
                        while top[top_ptr[k + 1] - 1] != e:
                            k += 1
                        top[fill], below[fill] = v, k
                        fill += 1
                top[fill], below[fill] = e, j
                top_ptr[ideals + 1] = fill + 1
                ideals += 1
                for i in range(pred_ptr[e], pred_ptr[e + 1]):
                    is_pred[pred[i]] = False
        level[size + 2] = ideals
        bits, ready, ready_ptr = new_bits, new_ready, new_ptr
    return level, top_ptr[: ideals + 1].copy(), top[: top_ptr[ideals]].copy(), below[: top_ptr[ideals]].copy()
