"""The dynamic program over ideals, compiled; ``ideal_dp.py`` says what it computes.

For an ideal I, every smaller ideal J is one that a last stage I - J of a chain could start from. A walk
reaches them depth first by taking away maximal atoms in decreasing order, so that it meets each once. The
loads of I - J on every kind of device are kept on a stack; a counter of pins per net says when a transfer
appears or disappears, so that a step costs O(nets of an atom). Compute and memory grow downwards: where they
exceed the limits on every kind, the walk turns back. No pair of ideals is stored. At a gate the walk ends,
and ``_front.py`` takes over.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from loadmaster.placers.stages.ideal_dp._front import extend
from loadmaster.placers.stages.ideal_dp._starts import build_front, new_starts, no_starts, note, note_station

__all__ = ["next_front", "solve_ideals", "solve_levels", "weights_left"]

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
def _walk_down(  # type: ignore[no-untyped-def]
    tables, lattice, rules, entries, front, walk, starts, target, bottom
):
    """Offer the target every stage that begins at a smaller ideal, down to the gate ``bottom``, and those of
    the front there.

    If ``starts`` has room the ideals are noted as well. Returns how many ideals were met.
    """
    # The arrays are taken out of their tuples once: inside the loop that would cost more than the work.
    top_ptr, top, below = lattice.top_ptr, lattice.top, lattice.below
    time, bytes_, capacity, channel = tables.time, tables.memory, tables.capacity, tables.channel
    net_ptr, net, role, pins = tables.net_ptr, tables.net, tables.role, tables.pins
    booked, change, following = tables.load, tables.change, tables.following
    first, stop, states, values = entries.first, entries.stop, entries.state, entries.value
    have, inside, atom, at, end = walk.have, walk.inside, walk.atom, walk.at, walk.end
    compute, comm, memory, row, load = walk.compute, walk.comm, walk.memory, walk.row, walk.load
    origin, kind = walk.origin, walk.kind
    limit, ceiling, crowded, overlap, loads = (
        rules.limit,
        rules.ceiling,
        tables.crowded,
        tables.overlap,
        tables.loads,
    )
    kinds, channels = len(capacity), change.shape[1]
    noting = len(starts.source) > 0
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
                have[net[i]] -= 1
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
        met += 1
        ideal = below[edge]
        begin, beyond, pool = first[ideal], stop[ideal], ideal & 1
        q = top_ptr[ideal]
        deeper = (q < top_ptr[ideal + 1] and top[q] < v) or noting or ideal == bottom
        if not deeper and begin == beyond:
            continue
        depth += 1
        for j in range(channels * loads):
            comm[depth, j] = comm[depth - 1, j]
        for i in range(net_ptr[v], net_ptr[v + 1]):
            e = net[i]
            case = role[i] + 2 * (have[e] == 0) + (have[e] + 1 == pins[e])
            for c in range(channels):
                comm[depth, c * loads + booked[e]] += change[e, c, case]
        if deeper:
            for i in range(net_ptr[v], net_ptr[v + 1]):
                have[net[i]] += 1
            memory[depth] = filled
            atom[depth] = v
            inside[v] = True
            at[depth] = q
            if ideal != bottom:
                while q < top_ptr[ideal + 1] and top[q] < v:
                    q += 1
            end[depth] = q
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
                        row[to] = max(value, load[k])
                        origin[to] = ideal
                        kind[to] = k
        if ideal == bottom and len(front.value) > 0:
            station = bottom - lattice.level[front.size]
            extend(tables, rules, front, walk, depth, station)
            if noting:
                note_station(tables, starts, front, walk, depth, station)
        if not deeper:
            depth -= 1


@njit(cache=True, nogil=True)
def _open(rules, walk, target):  # type: ignore[no-untyped-def]
    """Prepare the row of a target: a state is open if its devices can have done what is in the ideal, and the
    others the rest.

    Returns the number of open states, which are listed.
    """
    opened = 0
    for state in range(len(walk.row)):
        walk.row[state] = rules.limit
        for j in range(rules.room.shape[0]):
            left = rules.left[target, j]
            if left > rules.room[j, state] or rules.left[0, j] - left > rules.held[j, state]:
                walk.row[state] = -1.0
                break
        if walk.row[state] >= 0.0:
            walk.open[opened] = state
            opened += 1
    return opened


@njit(cache=True, nogil=True)
def _write(rules, entries, walk, target, opened):  # type: ignore[no-untyped-def]
    """Make entries of the open states that have a value, but for those that another equals with fewer
    devices.
    """
    pool = target & 1
    fill = entries.fill[pool]
    entries.first[target] = fill
    for a in range(opened):
        state = walk.open[a]
        value = walk.row[state]
        keep = value < rules.limit
        if keep and opened <= FEW:
            for b in range(opened):
                other = walk.open[b]
                if other == state or walk.row[other] > value:
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


@njit(cache=True, nogil=True)
def solve_ideals(  # type: ignore[no-untyped-def]
    tables, lattice, rules, entries, front, walk, begin, end, step
):
    """Solve every ``step``-th ideal from ``begin`` on, all of one size; returns the pairs of ideals looked
    at.
    """
    nothing = no_starts(tables, front)
    pairs = 0
    for target in range(begin, end, step):
        opened = _open(rules, walk, target)
        if opened:
            bottom = lattice.station[target]
            pairs += _walk_down(tables, lattice, rules, entries, front, walk, nothing, target, bottom)
        _write(rules, entries, walk, target, opened)
    return pairs


@njit(cache=True, nogil=True)
def next_front(tables, lattice, rules, entries, front, walk, size):  # type: ignore[no-untyped-def]
    """The front at the stations of a size, which are solved already."""
    begin, end = lattice.level[size], lattice.level[size + 1]
    nothing = no_starts(tables, front)
    rows = 0
    for target in range(begin, end):
        walk.row[:] = -1.0
        rows += _walk_down(
            tables, lattice, rules, entries, front, walk, nothing, target, lattice.station[target]
        )
        rows += len(front.station)
    starts = new_starts(tables, lattice, front, walk, size, rows)
    for target in range(begin, end):
        starts.fill[1] = target - begin
        _walk_down(tables, lattice, rules, entries, front, walk, starts, target, lattice.station[target])
    return build_front(tables, rules, entries, front, starts, size)


@njit(cache=True, nogil=True)
def solve_levels(tables, lattice, rules, entries, front, walk, size, last):  # type: ignore[no-untyped-def]
    """Solve all ideals of more than ``size`` and at most ``last`` atoms; returns the last front and the pairs
    looked at.
    """
    pairs, one = np.int64(0), np.int64(1)  # a literal would be one more type to compile for
    for s in range(size + 1, last + 1):
        pairs += solve_ideals(
            tables, lattice, rules, entries, front, walk, lattice.level[s], lattice.level[s + 1], one
        )
        if lattice.narrow[s]:
            front = next_front(tables, lattice, rules, entries, front, walk, s)
    return front, pairs
