"""The longest paths over pairs of an op and a kind of devices, with queueing."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from loadmaster.arrays import BoolArray, FloatArray, IntArray
from loadmaster.problem._problem import Problem
from loadmaster.problem.bounds._apart import NOWHERE, Apart
from loadmaster.problem.bounds._view import Arcs, View

__all__ = ["Links", "Ways", "linked", "op_arcs", "path_along", "starts", "ways_of"]


Links = tuple[IntArray, FloatArray, FloatArray, BoolArray]


class Ways(NamedTuple):
    """The arcs of a problem as longest paths walk them: onward, and back.

    order : (n,) ops so that what comes before an op stands before it.
    arcs : for each op the arcs into it, (ptr, op, number, size).
    apart : likewise the pairs of ops that are known to be apart (:class:`Apart`), (ptr, op, seconds).
    """

    order: IntArray
    arcs: tuple[IntArray, IntArray, FloatArray, FloatArray]
    apart: tuple[IntArray, IntArray, FloatArray]


def ways_of(problem: Problem, apart: Apart = NOWHERE) -> tuple[Ways, Ways]:
    """The ways onward and back."""
    arcs, order, n = op_arcs(problem), problem.graph.topological_order, problem.n
    return (
        Ways(order.copy(), arcs.into(n), apart.into(n)),
        Ways(order[::-1].copy(), arcs.reversed().into(n), apart.reversed().into(n)),
    )


def op_arcs(problem: Problem) -> Arcs:
    """Tensors of one op for another leave together and queue on the same way: their times add up."""
    graph = problem.graph
    tensor = graph.edge_tensor
    tail, ones = graph.tensor_producer[tensor], np.ones(len(tensor))
    return Arcs.merge(problem.n, tail, graph.consumer_op, ones, problem.size[tensor])


def path_along(
    view: View, ways: Ways, links: Links, queue: tuple[BoolArray, int, float], latest: FloatArray
) -> FloatArray:
    """(n, K) seconds before which op v cannot start on kind k; of the reversed graph: that remain after it.

    An op that cannot end by ``latest`` on a kind is not there: infinite. Effort depends on size: queueing is looked at
    where it is cheap, and beyond 10⁸ combinations of arcs and kinds every transfer counts as the fastest one.
    """
    busy, cone, effort = queue
    n, kinds = view.time.shape
    many, near, slope = len(ways.arcs[1]), links[1], links[2]
    if len(near) > 1 and many * kinds**2 > 1e8:
        between = np.isfinite(near)
        near, slope = near[between].min(), np.where(between, slope[between].min(), 0.0)
        links = links[0], np.where(between, near, math.inf), slope, links[3]
    degree = many / n + 1.0
    work = degree * kinds * (kinds + 1.0) * len(links[1])
    cone = min(cone, int(min(effort, 3e7 / n) / work))
    latest = np.ascontiguousarray(latest)  # one layout: kernels are compiled for one
    start: FloatArray = starts(
        ways.order, ways.arcs, ways.apart, view.time, links, busy, view.of, cone, latest
    )
    return start


def linked(latency: FloatArray, rate: FloatArray) -> Links:
    """Kinds that are linked alike, as groups.

    (K,) group of each kind, (G, G) latency and rate between two kinds of these groups, (K,) whether a kind has a second
    device.
    """
    found: Links = _linked(np.ascontiguousarray(latency), np.ascontiguousarray(rate))
    return found


@njit(cache=True, nogil=True)
def _linked(latency, rate):  # type: ignore[no-untyped-def]
    kinds = len(latency)
    group, member = np.full(kinds, -1, np.int32), np.empty(kinds, np.int32)
    groups = 0
    for k in range(kinds):
        for g in range(groups):
            alike = True
            for j in range(kinds):
                if group[j] != g:
                    continue
                alike = alike and latency[j, k] == latency[k, j] and rate[j, k] == rate[k, j]
                for m in (j, k):
                    if latency[m, m] < math.inf:
                        alike = alike and latency[m, m] == latency[j, k] and rate[m, m] == rate[j, k]
                for m in range(kinds):
                    if m != j and m != k:
                        alike = alike and latency[j, m] == latency[k, m] and rate[j, m] == rate[k, m]
                        alike = alike and latency[m, j] == latency[m, k] and rate[m, j] == rate[m, k]
                for m in range(kinds):  # all pairs within a group have one link
                    if group[m] == g and m != j:
                        alike = alike and latency[j, m] == latency[j, k] and rate[j, m] == rate[j, k]
            if alike:
                group[k] = g
                break
        if group[k] < 0:
            group[k] = groups
            member[groups] = k
            groups += 1
    near, slope = np.full((groups, groups), math.inf), np.zeros((groups, groups))
    for j in range(kinds):
        for k in range(kinds):
            if latency[j, k] < math.inf:
                near[group[j], group[k]], slope[group[j], group[k]] = latency[j, k], rate[j, k]
    second = np.empty(kinds, np.bool_)
    for k in range(kinds):
        second[k] = latency[k, k] < math.inf
    return group, near, slope, second


@njit(cache=True, nogil=True)
def starts(order, arcs, apart, time, links, busy, class_of, cone, latest):  # type: ignore[no-untyped-def]
    """(n, K) lower bounds on the start of every op on every kind: a longest path over pairs (op, kind).

    Op v on kind k waits for each of its predecessors u, wherever u is placed best for that: on the same
    device, or elsewhere and then for the transfer. Choosing a place of u for each reader anew is the
    relaxation. With ``cone`` > 0, :func:`_queue` then uses that ancestors which would come too late from
    elsewhere share the device of v.

    ``arcs`` = (ptr, op, number, size): the arcs into v are ptr[v]:ptr[v + 1] and come from op; ``apart`` = (ptr, op,
    seconds) likewise: that long after the earliest end of op v cannot start anywhere; ``links``: see :func:`linked`;
    ``busy`` : (K,) runs one op at a time; ``latest`` : (n, K) what ends later is not on that kind.
    """
    ptr, op, number, size = arcs
    apart_ptr, apart_op, seconds = apart
    group, latency, rate, second = links
    n, kinds = time.shape
    groups = len(latency)
    start = np.full((n, kinds), math.inf)
    end = np.full((n, kinds), math.inf)
    first = np.empty(n)
    soon = np.full((n, groups), math.inf)
    slot = np.full(n, -1, np.int64)
    seen = np.full(n, -1, np.int64)
    front = np.empty(n, np.int64)
    member = np.empty(cone + 1, np.int64)
    after = np.empty((cone + 2, kinds + 1))
    scratch = np.empty((2, cone + 1)), np.empty((2, cone + 1), np.int64)
    least = np.empty(groups)
    for v in order:
        soonest = 0.0
        for i in range(apart_ptr[v], apart_ptr[v + 1]):
            soonest = max(soonest, seconds[i] + (first[apart_op[i]] if apart_op[i] >= 0 else 0.0))
        for k in range(kinds):
            start[v, k] = soonest if time[v, k] < math.inf else math.inf
        for i in range(ptr[v], ptr[v + 1]):
            u = op[i]
            if class_of[u] == class_of[v]:
                for k in range(kinds):
                    start[v, k] = max(start[v, k], end[u, k])
                continue
            for g in range(groups):
                # From the kind itself it takes no transfer, and that is never more.
                least[g] = math.inf
                for h in range(groups):
                    least[g] = min(least[g], soon[u, h] + (number[i] * latency[h, g] + size[i] * rate[h, g]))
            for k in range(kinds):
                start[v, k] = max(start[v, k], min(end[u, k], least[group[k]]))
        if cone > 0 and ptr[v + 1] > ptr[v]:
            made = _latest_ancestors(v, ptr, op, first, cone, member, slot, seen, front)
            for k in range(kinds):
                if busy[k] and start[v, k] + time[v, k] < latest[v, k]:
                    _delays(k, made, member, slot, arcs, time, links, class_of, after, least)
                    start[v, k] = _queue(
                        k, made, member, start, end, time, class_of, second[k], after, scratch
                    )
            for i in range(made):
                slot[member[i]] = -1
        first[v] = math.inf
        for k in range(kinds):
            if start[v, k] + time[v, k] > latest[v, k]:
                start[v, k] = math.inf
            end[v, k] = start[v, k] + time[v, k]
            soon[v, group[k]] = min(soon[v, group[k]], end[v, k])
            first[v] = min(first[v], end[v, k])
    return start


@njit(cache=True, nogil=True)
def _latest_ancestors(v, ptr, op, first, cone, member, slot, seen, front):  # type: ignore[no-untyped-def]
    """Fill ``member`` with v and up to ``cone`` ancestors, those that can end late first; how many there are.

    ``slot`` becomes the inverse of ``member``; ``first[u]`` is the earliest end of u; the rest is scratch.
    """
    member[0] = v
    slot[v] = 0
    made, waiting, c = 1, 0, v
    while True:
        for i in range(ptr[c], ptr[c + 1]):
            if seen[op[i]] != v:
                seen[op[i]] = v
                front[waiting] = op[i]
                waiting += 1
        if waiting == 0 or made > cone:
            return made
        pick = 0
        for i in range(1, waiting):
            if first[front[i]] > first[front[pick]]:
                pick = i
        c = front[pick]
        waiting -= 1
        front[pick] = front[waiting]
        member[made] = c
        slot[c] = made
        made += 1


@njit(cache=True, nogil=True)
def _delays(k, made, member, slot, arcs, time, links, class_of, after, least):  # type: ignore[no-untyped-def]
    """``after[x, a]``: the least time from the end of ancestor x at place a to the start of v on kind k.

    Place K is the very device of v, place a < K a device of kind a other than that. This is the longest path
    of :func:`starts` again, backwards from v over the arcs between members. The last row of ``after`` and ``least``
    (one for each group) are scratch.
    """
    ptr, op, number, size = arcs
    group, latency, rate, second = links
    kinds, groups = time.shape[1], len(latency)
    onward = after[len(after) - 1]
    after[:made] = 0.0
    for c in range(made):
        w = member[c]
        least[:] = math.inf
        for b in range(kinds + 1):
            place = b if b < kinds else k
            onward[b] = time[w, place] + after[c, b] if c > 0 else math.inf
            if b == k and not second[k]:
                onward[b] = math.inf
            elif b == kinds and c == 0:
                onward[b] = 0.0
            least[group[place]] = min(least[group[place]], onward[b])
        for i in range(ptr[w], ptr[w + 1]):
            x = slot[op[i]]
            if x <= c:
                continue
            apart = class_of[op[i]] != class_of[w]
            for g in range(groups if apart else 0):
                away = math.inf
                for h in range(groups):
                    away = min(away, least[h] + (number[i] * latency[g, h] + size[i] * rate[g, h]))
                for a in range(kinds + 1):
                    if group[a if a < kinds else k] == g:
                        after[x, a] = max(after[x, a], min(onward[a], away))
            if not apart:
                for a in range(kinds + 1):
                    after[x, a] = max(after[x, a], onward[a])


@njit(cache=True, nogil=True)
def _queue(k, made, member, start, end, time, class_of, second, after, scratch):  # type: ignore[no-untyped-def]
    """The least start of v = ``member[0]`` on kind k before which the ancestors that share its device fit.

    If v starts at X, every ancestor whose results would come later than X from elsewhere (``away``) is on
    the device of v, where they run one after another: X is at least the earliest start of any of them plus
    their total time. The smaller X, the more of them. This is the argument of C. Papadimitriou and M.
    Yannakakis, "Towards an architecture-independent analysis of parallel algorithms", SIAM J. Comput. 1990,
    for unlike devices and links. ``second``: whether the kind has another device.
    """
    here, away = scratch[0]
    rank, line = scratch[1]
    v, kinds = member[0], time.shape[1]
    least = start[v, k]
    for x in range(1, made):
        u = member[x]
        here[x] = end[u, k] + after[x, kinds]
        away[x] = math.inf
        if class_of[u] != class_of[v]:
            for a in range(kinds):
                if a != k or second:
                    away[x] = min(away[x], end[u, a] + after[x, a])
        least = max(least, min(here[x], away[x]))
    late = 0
    for x in range(1, made):
        if away[x] > least:
            y = late
            while y > 0 and away[rank[y - 1]] < away[x]:
                rank[y] = rank[y - 1]
                y -= 1
            rank[y] = x
            late += 1
    if late == 0:
        return least
    best, begin = away[rank[0]], least
    for i in range(late):
        # The first i + 1 by falling ``away`` are on the device of v; ``line`` has them by earliest start.
        u = member[rank[i]]
        begin = max(begin, here[rank[i]])
        y = i
        while y > 0 and start[line[y - 1], k] > start[u, k]:
            line[y] = line[y - 1]
            y -= 1
        line[y] = u
        total = 0.0
        for y in range(i, -1, -1):
            total += time[line[y], k]
            begin = max(begin, start[line[y], k] + total)
        following = away[rank[i + 1]] if i + 1 < late else least
        best = min(best, max(begin, following))
        if begin >= following:
            break
    return max(least, best)
