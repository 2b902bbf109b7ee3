"""The dynamic program over ideals, compiled; ``ideal_dp.py`` says what it computes.

For an ideal I, every smaller ideal J is one that a last stage I - J of a chain could start from. A walk reaches them depth first
by taking away maximal atoms in decreasing order, so that it meets each once. The loads of I - J on every kind of device are
kept on a stack; a counter of pins per net says when a transfer appears or disappears, so that a step costs O(nets of an atom). Compute
and memory grow downwards: where they exceed the limits on every kind, the walk turns back. No pair of ideals is stored. At a gate the
walk ends, and ``_ideal_front.py`` takes over.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from loadmaster.placers._ideal_front import build_front, extend, new_starts, no_starts, note, note_gate
from loadmaster.placers._ideal_walk import offer

__all__ = ["front_at", "solve_ideals", "solve_levels", "weights_left"]

FEW = 64
"""States of one ideal up to which each is compared with all others."""


@njit(cache=True, nogil=True)
def weights_left(lattice, weight):  # type: ignore[no-untyped-def]
    """(ideals, J) weight outside each ideal, for the (J, N) weights of atoms."""
    ideals = len(lattice.top_ptr) - 1
    left = np.empty((ideals, len(weight)))
    for j in range(len(weight)):
        left[0, j] = weight[j].sum()
    for i in range(1, ideals):
        last = lattice.top_ptr[i + 1] - 1
        for j in range(len(weight)):
            left[i, j] = left[lattice.below[last], j] - weight[j, lattice.top[last]]
    return left


@njit(cache=True, nogil=True)
def _walk_down(tables, lattice, rules, entries, front, walk, starts, target, bottom):  # type: ignore[no-untyped-def]
    """Offer the target every stage that begins at a smaller ideal, down to the gate ``bottom``, and those of the front there.

    If ``starts`` has room the ideals are noted as well. Returns how many ideals were met.
    """
    # The arrays are taken out of their tuples once: inside the loop that would cost more than the work itself.
    top_ptr, top, below = lattice.top_ptr, lattice.top, lattice.below
    time, bytes_, capacity, channel = tables.time, tables.memory, tables.capacity, tables.channel
    net_ptr, net, role, pins = tables.net_ptr, tables.net, tables.role, tables.pins
    booked, change, following = tables.load, tables.change, tables.following
    first, stop, states, values = entries.first, entries.stop, entries.state, entries.value
    count, inside, atom, at, end = walk.count, walk.inside, walk.atom, walk.at, walk.end
    compute, comm, memory, row, load = walk.compute, walk.comm, walk.memory, walk.row, walk.load
    origin, kind, touched, left, room = walk.origin, walk.kind, walk.touched, rules.left, rules.room
    last = len(touched) - 1
    limit, ceiling, crowded, overlap, loads = rules.limit, rules.ceiling, tables.crowded, tables.overlap, tables.loads
    kinds, channels = len(capacity), change.shape[1]
    noting = len(starts.ideal) > 0
    met = depth = 0
    at[0], end[0] = top_ptr[target], top_ptr[target + 1]
    compute[0] = 0.0
    comm[0] = 0.0
    memory[0] = 0.0
    while True:
        if at[depth] == end[depth]:
            if depth == 0:
                return met
            v = atom[depth]
            inside[v] = False
            for i in range(net_ptr[v], net_ptr[v + 1]):
                count[net[i]] -= 1
            depth -= 1
            continue
        edge = at[depth]
        at[depth] += 1
        v = top[edge]
        filled = memory[depth] + bytes_[v]
        alive = False
        for k in range(kinds):
            j = k * loads
            work = compute[depth, j] + time[v, j]
            compute[depth + 1, j] = work
            fits = work < limit and (not crowded or filled <= capacity[k])
            if loads == 2:
                work = compute[depth, j + 1] + time[v, j + 1]
                compute[depth + 1, j + 1] = work
                fits = fits and work <= ceiling
            alive = alive or fits
        if not alive:
            continue
        depth += 1
        met += 1
        memory[depth] = filled
        atom[depth] = v
        inside[v] = True
        for j in range(channels * loads):
            comm[depth, j] = comm[depth - 1, j]
        for i in range(net_ptr[v], net_ptr[v + 1]):
            e = net[i]
            case = role[i] + 2 * (count[e] == 0)
            count[e] += 1
            case += count[e] == pins[e]
            for c in range(channels):
                comm[depth, c * loads + booked[e]] += change[e, c, case]
        ideal = below[edge]
        at[depth] = q = top_ptr[ideal]
        if ideal != bottom:
            while q < top_ptr[ideal + 1] and top[q] < v:
                q += 1
        end[depth] = q
        begin, beyond, pool = first[ideal], stop[ideal], ideal & 1
        if begin < beyond:
            if noting:
                note(tables, starts, walk, depth, ideal)
            for k in range(kinds):
                load[k] = np.inf
                if crowded and filled > capacity[k]:
                    continue
                c = channel[k]
                talk = comm[depth, c * loads] if c >= 0 else 0.0
                work = compute[depth, k * loads]
                value = max(work, talk) if overlap else work + talk
                if loads == 2:
                    talk = comm[depth, c * loads + 1] if c >= 0 else 0.0
                    work = compute[depth, k * loads + 1]
                    if (max(work, talk) if overlap else work + talk) > ceiling:
                        continue
                load[k] = value
            for q in range(begin, beyond):
                state, value = states[pool, q], values[pool, q]
                for k in range(kinds):
                    to = following[state, k]
                    if to >= 0 and max(value, load[k]) < row[to]:
                        # As in ``offer``.
                        fits = True
                        if row[to] == limit:
                            touched[touched[last]] = to
                            touched[last] += 1
                            for j in range(room.shape[0]):
                                fits = fits and left[target, j] <= room[j, to]
                        row[to] = max(value, load[k]) if fits else -1.0
                        origin[to] = ideal
                        kind[to] = k
        if ideal == bottom and len(front.value) > 0:
            extend(tables, rules, front, walk, target, depth)
            if noting:
                note_gate(tables, starts, front, walk, depth)


@njit(cache=True, nogil=True)
def _write(rules, entries, walk, target):  # type: ignore[no-untyped-def]
    """Make entries of the touched states, but for those that another equals with fewer devices; clear the row."""
    pool = target & 1
    fill = entries.fill[pool]
    entries.first[target] = fill
    touched = walk.touched[len(walk.touched) - 1]
    for a in range(touched):
        state = walk.touched[a]
        value = walk.row[state]
        keep = value >= 0.0
        if keep and touched <= FEW:
            for b in range(touched):
                other = walk.touched[b]
                if other == state or walk.row[other] < 0.0 or walk.row[other] > value:
                    continue
                fewer = True
                for k in range(rules.used.shape[1]):
                    fewer = fewer and rules.used[other, k] <= rules.used[state, k]
                if fewer:
                    keep = False
                    break
        if keep:
            entries.state[pool, fill] = state
            entries.value[pool, fill] = value
            entries.origin[pool, fill] = walk.origin[state]
            entries.kind[pool, fill] = walk.kind[state]
            fill += 1
    entries.stop[target] = fill
    entries.fill[pool] = fill
    for a in range(touched):
        walk.row[walk.touched[a]] = rules.limit
    walk.touched[len(walk.touched) - 1] = 0


@njit(cache=True, nogil=True)
def solve_ideals(tables, lattice, rules, entries, front, walk, begin, end, step, bottom):  # type: ignore[no-untyped-def]
    """Solve every ``step``-th ideal from ``begin`` on, all of one size; returns the pairs of ideals looked at."""
    nothing = no_starts(tables, walk)
    pairs = 0
    for target in range(begin, end, step):
        pairs += _walk_down(tables, lattice, rules, entries, front, walk, nothing, target, bottom)
        _write(rules, entries, walk, target)
    return pairs


@njit(cache=True, nogil=True)
def front_at(tables, lattice, rules, entries, front, walk, size):  # type: ignore[no-untyped-def]
    """Solve the gate of so many atoms; returns the front there and the pairs looked at."""
    target, bottom = lattice.level[size], lattice.level[front.gate]
    starts = new_starts(tables, walk, front, size, target - bottom)
    pairs = _walk_down(tables, lattice, rules, entries, front, walk, starts, target, bottom)
    _write(rules, entries, walk, target)
    return build_front(tables, rules, entries, front, starts, size), pairs


@njit(cache=True, nogil=True)
def solve_levels(tables, lattice, rules, entries, front, walk, last):  # type: ignore[no-untyped-def]
    """Solve all ideals from the gate of the front to the gate of ``last`` atoms; returns the front there and the pairs."""
    pairs = np.int64(0)
    for size in range(front.gate + 1, last + 1):
        if lattice.gate[size]:
            front, more = front_at(tables, lattice, rules, entries, front, walk, size)
        else:
            begin, end, bottom = lattice.level[size], lattice.level[size + 1], lattice.level[front.gate]
            more = solve_ideals(tables, lattice, rules, entries, front, walk, begin, end, 1, bottom)
        pairs += more
    return front, pairs
