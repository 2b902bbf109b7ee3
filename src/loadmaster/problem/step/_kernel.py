"""Compiled simulation of one step of a pipeline: stages and cuts of a placement, memory, and the walk through the
program.

Data structures
---------------
:class:`StepTables` is the problem, read-only, passed array by array. :func:`stages_of` gives the stage of every op
(``stage``, -1 for boundary ops) and the device of every stage (``at``). :func:`weigh` fills ``sums`` (S, 4): forward
and backward seconds, bytes kept per microbatch, 1 if checkpointed; and ``cut`` (S, 4): size and bytes of what crosses
the boundary after each stage forward, then backward, with a negative size where nothing crosses. :func:`walk` runs the
program; ``now`` (R,) is when each rank is free, ``arrived`` when each message was there.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from loadmaster.problem.step._program import BACKWARD, FORWARD, MOVE, RECV, SEND, WAIT
from loadmaster.problem.step._tables import INPUT, OUTPUT, WORK

__all__ = ["hop", "memory_of", "peaks", "reduce_ties", "stages_of", "step_costs", "walk", "weigh"]

FINE, CIRCLE, BAD_STAGES, NO_SCHEDULE = range(4)
"""What :func:`stages_of` finds."""


@njit(cache=True, nogil=True)
def stages_of(settings, tail, head, first, role, program, device, given, devices, stage, at):  # type: ignore[no-untyped-def]
    """(what is wrong, stages, ranks) of a placement; fills ``stage`` (n,) and ``at`` (devices * per rank,).

    ``given`` (n,) are stages that the placement brings, or has no entry: then every device is one stage, in the
    order in which data flows, the smallest index first where that leaves a choice.
    """
    n = len(device)
    stage[:] = -1
    at[:] = -1
    if len(given) == 0:
        used = np.zeros(devices, np.bool_)
        for v in range(n):
            if role[v, 0] == WORK:
                used[device[v]] = True
        arc = np.zeros((devices, devices), np.bool_)
        for i in range(len(tail)):
            arc[device[tail[i]], device[head[i]]] = True
        place = np.full(devices, -1, np.int32)
        ranks = 0
        count = 0
        for d in range(devices):
            count += used[d]
        if settings[1] > 1 and count > 1:
            return BAD_STAGES, 0, 0
        while ranks < count:
            found = -1
            for e in range(devices):
                if used[e] and place[e] < 0:
                    free = True
                    for d in range(devices):
                        if d != e and arc[d, e] and place[d] < 0:
                            free = False
                    if free:
                        found = e
                        break
            if found < 0:
                return CIRCLE, 0, 0
            place[found] = ranks
            at[ranks] = found
            ranks += 1
        for v in range(n):
            if role[v, 0] == WORK:
                stage[v] = place[device[v]]
        stages = ranks
    else:
        stages = 0
        for v in range(n):
            if role[v, 0] == WORK:
                s = given[v]
                if s < 0 or s >= len(at) or s != given[first[v]]:
                    return BAD_STAGES, 0, 0
                stage[v] = s
                stages = max(stages, s + 1)
                if at[s] < 0:
                    at[s] = device[v]
                elif at[s] != device[v]:
                    return BAD_STAGES, 0, 0
        per_rank = settings[1] if stages > 1 else 1
        if stages % per_rank:
            return BAD_STAGES, 0, 0
        ranks = stages // per_rank
        if per_rank > 1 and ranks == 1:
            return BAD_STAGES, 0, 0
        for s in range(stages):
            if at[s] < 0 or at[s] != at[s % ranks]:
                return BAD_STAGES, 0, 0
        for r in range(ranks):
            for q in range(r):
                if at[r] == at[q]:
                    return BAD_STAGES, 0, 0
        for i in range(len(tail)):
            if stage[tail[i]] > stage[head[i]]:
                return CIRCLE, 0, 0
    if stages > 0 and program[ranks, 3] == 0:
        return NO_SCHEDULE, stages, ranks
    return FINE, stages, ranks


@njit(cache=True, nogil=True)
def weigh(role, time, held, tensor, reader, weight, stage, at, stages, sums, cut):  # type: ignore[no-untyped-def]
    """Fill ``sums`` and ``cut``. O(ops + edges + tensors * stages)."""
    sums[:] = 0.0
    cut[:] = 0.0
    cut[:, 0] = -1.0
    cut[:, 2] = -1.0
    for v in range(len(stage)):
        s = stage[v]
        if s >= 0:
            sums[s, role[v, 1]] += time[v, at[s]]
            sums[s, 2] += held[1, v]
    for t in range(len(tensor)):
        u = tensor[t, 0]
        if role[u, 0] == WORK:
            home = stage[u]
        elif role[u, 0] == INPUT:
            home = 0
        else:
            continue
        low, high = home, home
        for i in range(tensor[t, 1], tensor[t, 2]):
            w = reader[i]
            if role[w, 0] == WORK:
                low, high = min(low, stage[w]), max(high, stage[w])
            elif role[w, 0] == OUTPUT and role[u, 1] == 0:
                high = stages - 1
        for b in range(home, high):
            cut[b, 0] = max(cut[b, 0], 0.0) + weight[0, t]
            cut[b, 1] += weight[1, t]
        for b in range(low, home):
            cut[b, 2] = max(cut[b, 2], 0.0) + weight[0, t]
            cut[b, 3] += weight[1, t]


@njit(cache=True, nogil=True)
def hop(link, size, source, target):  # type: ignore[no-untyped-def]
    """Seconds of a message; nothing where nothing crosses."""
    if size < 0.0:
        return 0.0
    return link[0, source, target] + size * link[1, source, target]


@njit(cache=True, nogil=True)
def peaks(code, ranks, microbatches, sums, peak):  # type: ignore[no-untyped-def]
    """Fill ``peak`` (R,): most bytes of activations that a rank keeps at once, as ``sums`` says."""
    level = np.zeros(ranks)
    peak[:] = 0.0
    for i in range(len(code)):
        what = code[i, 0]
        if what > BACKWARD:
            continue
        r, s = code[i, 1], code[i, 2] // microbatches
        if what == FORWARD:
            if sums[s, 3] == 0.0:
                level[r] += sums[s, 2]
            # While it runs, a stage has all that it would keep.
            peak[r] = max(peak[r], level[r] + (sums[s, 2] if sums[s, 3] else 0.0))
        elif sums[s, 3]:
            peak[r] = max(peak[r], level[r] + sums[s, 2])
        else:
            level[r] -= sums[s, 2]


@njit(cache=True, nogil=True)
def memory_of(  # type: ignore[no-untyped-def]
    settings, role, held, capacity, tie_ptr, tie_op, tie_weight, device, stage, at, stages, ranks, code, sums, cut,
    memory,
):  # fmt: skip
    """Fill ``memory`` (D,) and the fourth column of ``sums``; True if every device has room.

    Where checkpoints are allowed, a rank that has no room otherwise takes them for its first stages, as few as will do.
    """
    memory[:] = 0.0
    for v in range(len(device)):
        memory[device[v]] += held[0, v]
    devices = len(memory)
    there = np.zeros(devices, np.bool_)
    for i in range(len(tie_ptr) - 1):
        there[:] = False
        for j in range(tie_ptr[i], tie_ptr[i + 1]):
            there[device[tie_op[j]]] = True
        for d in range(devices):
            if there[d]:
                memory[d] += tie_weight[1, i]
    for s in range(stages):
        if s > 0:
            memory[at[s]] += settings[0] * cut[s - 1, 1]
        if s < stages - 1:
            memory[at[s]] += settings[0] * cut[s, 3]
    kept = False
    for s in range(stages):
        kept = kept or sums[s, 2] > 0.0
    if kept:
        peak = np.zeros(ranks)
        peaks(code, ranks, settings[0], sums, peak)
        if settings[3]:
            for s in range(stages):
                r = s % ranks
                if sums[s, 2] > 0.0 and memory[at[r]] + peak[r] > capacity[at[r]]:
                    sums[s, 3] = 1.0
                    peaks(code, ranks, settings[0], sums, peak)
        for r in range(ranks):
            memory[at[r]] += peak[r]
    for s in range(stages):
        if sums[s, 3]:
            sums[s, 1] += sums[s, 0]
    return bool((memory <= capacity).all())


@njit(cache=True, nogil=True)
def walk(code, before, link, at, stages, ranks, microbatches, sums, cut, now, arrived, begin, end):  # type: ignore[no-untyped-def]
    """Run the program: when is every rank free, when has every message arrived.

    ``begin`` and ``end`` are filled for every row of the code if they have room for it.
    """
    detailed = len(begin) > 0
    now[:ranks] = 0.0
    seconds = np.zeros((2, max(stages - 1, 0)))
    for b in range(stages - 1):
        seconds[0, b] = hop(link, cut[b, 0], at[b], at[b + 1])
        seconds[1, b] = hop(link, cut[b, 2], at[b + 1], at[b])
    for i in range(len(before)):
        arrived[i] = 0.0
    for i in range(len(code)):
        what, r, number = code[i, 0], code[i, 1], code[i, 2]
        start = now[r]
        if what == FORWARD:
            now[r] += sums[number // microbatches, 0]
        elif what == BACKWARD:
            now[r] += sums[number // microbatches, 1]
        elif what in (SEND, RECV):
            # Until it moves, a message holds when the later of the two was ready for it.
            arrived[number] = max(arrived[number], now[r])
        elif what == WAIT:
            now[r] = max(now[r], arrived[number])
        elif what == MOVE:
            start = arrived[number]
            if before[number] >= 0:
                start = max(start, arrived[before[number]])
            boundary = number // microbatches
            side = 1 if boundary >= stages - 1 else 0
            arrived[number] = start + seconds[side, boundary - side * (stages - 1)]
            if detailed:
                begin[i], end[i] = start, arrived[number]
            continue
        if detailed:
            begin[i], end[i] = start, now[r]


@njit(cache=True, nogil=True)
def reduce_ties(link, tie_ptr, tie_op, tie_weight, stage, at, ranks, now, reduced):  # type: ignore[no-untyped-def]
    """Add up the gradients of tied weights, tie by tie: a ring of all ranks that have one, when the last is free."""
    there = np.zeros(ranks, np.bool_)
    ring = np.zeros(ranks, np.int32)
    for i in range(len(tie_ptr) - 1):
        there[:] = False
        for j in range(tie_ptr[i], tie_ptr[i + 1]):
            if stage[tie_op[j]] >= 0:
                there[stage[tie_op[j]] % ranks] = True
        size = 0
        for r in range(ranks):
            if there[r]:
                ring[size] = r
                size += 1
        reduced[i] = np.nan
        if size < 2:
            continue
        start = 0.0
        slowest = 0.0
        for j in range(size):
            start = max(start, now[ring[j]])
            source, target = at[ring[j]], at[ring[(j + 1) % size]]
            slowest = max(
                slowest, link[0, source, target] + tie_weight[0, i] / size * link[1, source, target]
            )
        reduced[i] = start + 2 * (size - 1) * slowest
        for j in range(size):
            now[ring[j]] = reduced[i]


@njit(cache=True, nogil=True)
def step_costs(  # type: ignore[no-untyped-def]
    settings, tail, head, first, role, time, held, tensor, reader, weight, link, capacity, tie_ptr, tie_op,
    tie_weight, program, code, before, placements, given, cost, fine,
):  # fmt: skip
    """Costs of the (k, n) devices with the (k, n) or (k, 0) given stages, and whether the model allows them."""
    n, devices = time.shape
    microbatches, width = settings[0], max(devices * settings[1], 1)
    stage, at = np.empty(n, np.int32), np.empty(width, np.int32)
    sums, cut = np.empty((width, 4)), np.empty((width, 4))
    now, memory = np.empty(max(devices, 1)), np.empty(devices)
    most = 2 * width * microbatches
    arrived, reduced = np.empty(most), np.empty(max(len(tie_ptr) - 1, 0))
    nothing = np.empty(0)
    for row in range(len(placements)):
        device = placements[row]
        cost[row], fine[row] = np.inf, False
        wrong, stages, ranks = stages_of(
            settings, tail, head, first, role, program, device, given[row], devices, stage, at
        )
        if wrong != FINE:
            continue
        if stages == 0:
            cost[row], fine[row] = 0.0, True
            continue
        weigh(role, time, held, tensor, reader, weight, stage, at, stages, sums, cut)
        mine = code[program[ranks, 0] : program[ranks, 1]]
        fine[row] = memory_of(
            settings, role, held, capacity, tie_ptr, tie_op, tie_weight, device, stage, at, stages, ranks, mine,
            sums, cut, memory,
        )  # fmt: skip
        message = program[ranks, 2]
        theirs = before[message : message + 2 * (stages - 1) * microbatches]
        walk(mine, theirs, link, at, stages, ranks, microbatches, sums, cut, now, arrived, nothing, nothing)
        reduce_ties(link, tie_ptr, tie_op, tie_weight, stage, at, ranks, now, reduced)
        cost[row] = now[:ranks].max()
