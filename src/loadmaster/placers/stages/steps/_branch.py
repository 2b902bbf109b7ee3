"""Branch and bound over chains of cuts, stage after stage, with the number of stages fixed.

Data structures
---------------
``path`` describes the chain so far, one row a stage: the ideal where it begins, its kind of device, the state of
:func:`lower_bounds` before it; ``seconds`` its F' and B' (receiving included; the message back from a stage that is not
chosen yet at its least) and its own F and B. ``child`` holds the choices at each depth that may still be better, by
rising bound; ``at`` how many there are, and how many of them have been tried. Everything is kept between calls, so that
a search goes on where it stopped.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from loadmaster.placers.stages.steps._lower import alone, stage_seconds
from loadmaster.problem.step import walk

__all__ = ["DONE", "FOUND", "PAUSED", "branch"]

DONE, PAUSED, FOUND = range(3)
"""What :func:`branch` returns with: there is nothing better; not finished; a chain that seems to be better."""


@njit(cache=True, nogil=True)
def _between(cut, hop, i, c, source, target):  # type: ignore[no-untyped-def]
    if cut[i, c] < 0.0:
        return 0.0
    return hop[0, source, target] + cut[i, c] * hop[1, source, target]


@njit(cache=True, nogil=True)
def _expand(  # type: ignore[no-untyped-def]
    settings, flush, stages, ranks, number, stride, ptr, after, forward, backward, banned, held, cut, ties, tie_memory,
    base, capacity, hop, back, least, path_sum, top, path, seconds, child, choice, at, s, limit,
):  # fmt: skip
    """List the choices for stage s that may cost less than ``limit``."""
    n, kinds = forward.shape
    m, per_rank = settings[0], settings[1]
    a, state = path[s, 0], path[s, 2]
    last = s == stages - 1
    flying = m if flush else min(m, stages - s)
    exact = stride[0] > 0
    count = 0
    for i in range(ptr[a], ptr[a + 1]):
        b = after[i]
        if (b == n - 1) != last:
            continue
        for k in range(kinds):
            if s >= ranks:
                if k != path[s - ranks, 1]:
                    continue
            else:
                taken = 0
                for j in range(s):
                    taken += path[j, 1] == k
                if taken == number[k]:
                    continue
            then = state + (stride[k] if exact else 1)
            if np.isinf(path_sum[then, b]):
                continue
            if per_rank > 1:
                if banned[b, k] - banned[a, k] > 0.5:
                    continue
                f, g = forward[b, k] - forward[a, k], backward[b, k] - backward[a, k]
            else:
                f, g = stage_seconds(
                    settings, forward, backward, banned, held, cut, ties, tie_memory, base, capacity, a, b, k,
                    flying, last,
                )  # fmt: skip
                if f < 0.0:
                    continue
            reach, send = 0.0, 0.0
            if s > 0:
                reach = _between(cut, hop, a, 0, path[s - 1, 1], k)
                send = _between(cut, hop, a, 2, k, path[s - 1, 1])
            fp, bp = f + reach, g + (0.0 if last else back[b, k])
            # The way of one microbatch through all stages, and what each of them takes.
            before = 0.0
            for j in range(s):
                before += seconds[j, 0] + (seconds[j, 1] if j < s - 1 else seconds[j, 3] + send)
            bound = before + fp + bp + path_sum[then, b]
            if per_rank > 1:
                bound = max(bound, _rank_loads(settings, stages, ranks, seconds, s, f, g, before))
            else:
                bound = max(bound, before + fp + bp + least[then, b])
                bound = max(bound, before + alone(flush, m, flying, fp, bp, path_sum[then, b]))
                behind = fp + bp + path_sum[then, b]
                highest, lowest = max(fp, top[then, b, 0]), max(bp, top[then, b, 1])
                for j in range(s - 1, -1, -1):
                    bj = seconds[j, 1] if j < s - 1 else seconds[j, 3] + send
                    load = seconds[j, 0] + bj
                    before -= load
                    many = m if flush else min(m, stages - j)
                    bound = max(bound, before + alone(flush, m, many, seconds[j, 0], bj, behind))
                    behind += load
                    highest, lowest = max(highest, seconds[j, 0]), max(lowest, bj)
                if flush:
                    bound = max(bound, behind + (m - 1) * (highest + lowest))
            if bound < limit:
                child[s, count, 0], child[s, count, 1] = b, k
                choice[s, count, 0] = bound
                choice[s, count, 1], choice[s, count, 2] = fp, bp
                choice[s, count, 3], choice[s, count, 4], choice[s, count, 5] = f, g, send
                count += 1
    order = np.argsort(choice[s, :count, 0])
    child[s, :count] = child[s, :count][order]
    choice[s, :count] = choice[s, :count][order]
    at[s, 0], at[s, 1] = count, 0


@njit(cache=True, nogil=True)
def _rank_loads(settings, stages, ranks, seconds, s, f, g, before):  # type: ignore[no-untyped-def]
    """What the busiest rank takes at least, with the stages before its first."""
    m = settings[0]
    most, way = 0.0, 0.0
    for r in range(min(ranks, s + 1)):
        load = 0.0
        for j in range(r, s, ranks):
            load += seconds[j, 2] + seconds[j, 3]
        if (s - r) % ranks == 0:
            load += f + g
        most = max(most, way + m * load)
        if r < s:
            way += seconds[r, 2] + seconds[r, 3]
    return most


@njit(cache=True, nogil=True)
def _step(  # type: ignore[no-untyped-def]
    settings, stages, ranks, cut, ties, tie_size, devices, link, code, before, path, seconds, sums, crossing, where,
    now, arrived,
):  # fmt: skip
    """The cost of the chain in ``path``."""
    nothing = np.empty(0)
    kinds = devices.shape[0]
    taken = np.zeros(kinds, np.int64)
    for s in range(stages):
        k = path[s, 1]
        if s < ranks:
            where[s] = devices[k, taken[k]]
            taken[k] += 1
        else:
            where[s] = where[s - ranks]
        sums[s, 0], sums[s, 1], sums[s, 2], sums[s, 3] = seconds[s, 2], seconds[s, 3], 0.0, 0.0
        if s < stages - 1:
            crossing[s] = cut[path[s + 1, 0]]
    walk(
        code, before, link, where, stages, ranks, settings[0], sums, crossing, now, arrived, nothing, nothing
    )
    ring = np.zeros(ranks, np.int64)
    there = np.zeros(ranks, np.bool_)
    for t in range(len(tie_size)):
        there[:] = False
        for s in range(stages):
            if ties[path[s + 1, 0], t] - ties[path[s, 0], t] > 0.5:
                there[s % ranks] = True
        size = 0
        for r in range(ranks):
            if there[r]:
                ring[size] = r
                size += 1
        if size < 2:
            continue
        start, slowest = 0.0, 0.0
        for j in range(size):
            start = max(start, now[ring[j]])
            source, target = where[ring[j]], where[ring[(j + 1) % size]]
            slowest = max(slowest, link[0, source, target] + tie_size[t] / size * link[1, source, target])
        for j in range(size):
            now[ring[j]] = start + 2 * (size - 1) * slowest
    return now[:ranks].max()


@njit(cache=True, nogil=True)
def branch(  # type: ignore[no-untyped-def]
    settings, flush, stages, ranks, number, stride, ptr, after, forward, backward, banned, held, cut, ties, tie_memory,
    tie_size, base, capacity, hop, back, devices, link, code, before, least, path_sum, top, path, seconds, child,
    choice, at, sums, crossing, where, now, arrived, depth, limit, nodes,
):  # fmt: skip
    """Go on for so many nodes, in search of a chain that costs less than ``limit``: (what happened, its cost, nodes).

    ``depth`` (1,) is the stage that is being chosen, -1 before the first call.
    """
    if depth[0] < 0:
        depth[0] = 0
        path[0, 0] = path[0, 2] = 0
        at[0, 0] = -1
    done = 0
    while True:
        s = depth[0]
        if at[s, 0] < 0:
            _expand(
                settings, flush, stages, ranks, number, stride, ptr, after, forward, backward, banned, held, cut, ties,
                tie_memory, base, capacity, hop, back, least, path_sum, top, path, seconds, child, choice, at, s, limit,
            )  # fmt: skip
            done += 1
        if at[s, 1] == at[s, 0] or choice[s, at[s, 1], 0] >= limit:
            if s == 0:
                at[0, 1] = at[0, 0]
                return DONE, np.inf, done
            depth[0] = s - 1
            continue
        i = at[s, 1]
        if done >= nodes:
            return PAUSED, np.inf, done
        at[s, 1] += 1
        b, k = child[s, i, 0], child[s, i, 1]
        path[s, 1] = k
        path[s + 1, 0] = b
        path[s + 1, 2] = path[s, 2] + (stride[k] if stride[0] > 0 else 1)
        seconds[s, 0], seconds[s, 1], seconds[s, 2], seconds[s, 3] = (
            choice[s, i, 1], choice[s, i, 2], choice[s, i, 3], choice[s, i, 4],
        )  # fmt: skip
        if s > 0:
            seconds[s - 1, 1] = seconds[s - 1, 3] + choice[s, i, 5]
        if s < stages - 1:
            depth[0] = s + 1
            at[s + 1, 0] = -1
            continue
        cost = _step(
            settings, stages, ranks, cut, ties, tie_size, devices, link, code, before, path, seconds, sums, crossing,
            where, now, arrived,
        )  # fmt: skip
        done += 1
        if cost < limit:
            return FOUND, cost, done
