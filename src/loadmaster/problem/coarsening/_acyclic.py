"""Merging ops into groups such that the graph of the groups stays acyclic.

Two ways, for two kinds of wishes:

- :func:`merge_pairs` takes pairs of ops one after another and merges what it can. It keeps a topological
  order of the groups and repairs it locally, as D. Pearce and P. Kelly do when an arc is added ("A dynamic
  topological sort algorithm for directed acyclic graphs", ACM JEA 2006): merging u and a later v is possible
  if and only if no path of two or more arcs leads from u to v, and only groups between the two can be on one.
- :func:`merge_labels` takes a label per op and merges all at once ops of one label between which no other
  label lies, without any search: it counts label changes along paths, and every arc between two of its groups
  raises that count.

Both ask a *guard* before they merge. The guard knows what must not come together: ops of the forward and of
the backward pass, colocation classes that have no device in common or would fill too much of any.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from loadmaster.arrays import BoolArray, FloatArray, IntArray
from loadmaster.graph.order import csr_from_pairs
from loadmaster.problem.coarsening._guard import Guard, find, join, may_join

__all__ = ["earliest_starts", "merge_into_readers", "merge_labels", "merge_pairs", "quotient_arcs"]


def quotient_arcs(group: IntArray, groups: int, tail: IntArray, head: IntArray) -> tuple[IntArray, IntArray]:
    """The distinct arcs between different groups, sorted."""
    a, b = group[tail].astype(np.int64), group[head].astype(np.int64)
    key = np.unique((a * groups + b)[a != b])
    return (key // max(groups, 1)).astype(np.int32), (key % max(groups, 1)).astype(np.int32)


def demand_order(n: int, tail: IntArray, head: IntArray) -> IntArray:
    """(n,) position of each op in a topological order in which an op comes just before it is first needed.

    Neighbours are near each other in it, and sources (constants) beside their readers: searches stay short.
    """
    pred_ptr, pred = csr_from_pairs(head, tail, n)
    sinks = np.flatnonzero(np.bincount(tail, minlength=n) == 0).astype(np.int32)
    return _demand_order(n, pred_ptr, pred, sinks)


@njit(cache=True, nogil=True)
def _demand_order(n, pred_ptr, pred, sinks):  # type: ignore[no-untyped-def]
    position = np.full(n, -1, np.int32)
    entered = np.zeros(n, np.bool_)
    upto = pred_ptr[:-1].copy()
    stack = np.empty(n, np.int32)
    made = 0
    for sink in sinks:
        if entered[sink]:
            continue
        stack[0] = sink
        entered[sink] = True
        top = 1
        while top:
            v = stack[top - 1]
            if upto[v] < pred_ptr[v + 1]:
                u = pred[upto[v]]
                upto[v] += 1
                if not entered[u]:
                    entered[u] = True
                    stack[top] = u
                    top += 1
            else:
                position[v] = made
                made += 1
                top -= 1
    return position


def earliest_starts(tail: IntArray, head: IntArray, time: FloatArray) -> FloatArray:
    """(n,) seconds at which an op can start if each takes its ``time`` and nothing else stands in its way."""
    n = len(time)
    order = np.argsort(demand_order(n, tail, head))
    return _earliest_starts(order, *csr_from_pairs(tail, head, n), time)


@njit(cache=True, nogil=True)
def _earliest_starts(order, ptr, succ, time):  # type: ignore[no-untyped-def]
    start = np.zeros(len(order))
    for v in order:
        end = start[v] + time[v]
        for j in range(ptr[v], ptr[v + 1]):
            start[succ[j]] = max(start[succ[j]], end)
    return start


def merge_pairs(
    n: int,
    arcs: tuple[IntArray, IntArray],
    pairs: tuple[IntArray, IntArray],
    guard: Guard,
    *,
    mass: FloatArray | None = None,
    most: float = np.inf,
    once: bool = False,
    goal: int = 0,
    limit: int = 2**31 - 1,
) -> IntArray:
    """(n,) a representative per op, after the pairs have been merged in their order where possible.

    Parameters
    ----------
    arcs : (tail, head) of the acyclic graph.
    mass, most : groups heavier than ``most`` are not made.
    once : of two ops, at least one must not have been merged before in this call.
    goal : stop when so few groups are left.
    limit : a merge is given up when the search for paths has visited more groups than this.

    Complexity: a pair costs O(arcs of the groups between the two in the current order that are reachable from
    the first or reach the second).
    """
    tail, head = arcs
    succ_ptr, succ = csr_from_pairs(tail, head, n)
    pred_ptr, pred = csr_from_pairs(head, tail, n)
    slot = demand_order(n, tail, head)
    weights = np.zeros(n) if mass is None else mass.astype(np.float64).copy()
    parent = _merge_pairs(
        succ_ptr, succ, pred_ptr, pred, slot, pairs[0], pairs[1], guard, weights, most, once, goal, limit
    )
    return parent


@njit(cache=True, nogil=True)
def _merge_pairs(  # type: ignore[no-untyped-def]
    succ_ptr, succ, pred_ptr, pred, slot, first, second, guard, mass, most, once, goal, limit
):
    """The members of a group are a linked list (``after``) that begins with its representative.

    ``slot`` is the group's place in the topological order. When u and v are merged, the groups that reach v
    (in the window between the two) take the smallest of all the slots involved, then comes the merged group,
    then the groups that u reaches; everything else stays where it is.
    """
    n = len(slot)
    parent = np.arange(n).astype(np.int32)
    after = np.full(n, -1, np.int32)
    last = np.arange(n).astype(np.int32)
    touched = np.zeros(n, np.bool_)
    mark = np.zeros(n, np.int64)
    below, above, stack = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n, np.int32)
    groups = n
    for i in range(len(first)):
        if groups <= goal:
            break
        a, b = find(parent, first[i]), find(parent, second[i])
        if a == b or (once and touched[a] and touched[b]) or mass[a] + mass[b] > most:
            continue
        if not may_join(guard, a, b):
            continue
        u, v = (a, b) if slot[a] < slot[b] else (b, a)
        reached = _search(succ_ptr, succ, parent, after, slot, mark, stack, below, u, v, 1, 2 * i + 1, limit)
        if reached < 0:
            continue
        reaching = _search(
            pred_ptr, pred, parent, after, slot, mark, stack, above, v, u, -1, 2 * i + 2, limit
        )
        if reaching < 0:
            continue
        _reorder(slot, above[:reaching], below[:reached], u, v)
        parent[v] = u
        after[last[u]] = v
        last[u] = last[v]
        mass[u] += mass[v]
        touched[u] = True
        join(guard, u, v)
        groups -= 1
    for v in range(n):
        parent[v] = find(parent, v)
    return parent


@njit(cache=True, nogil=True)
def _search(ptr, next_, parent, after, slot, mark, stack, found, start, stop, way, stamp, limit):  # type: ignore[no-untyped-def]
    """Groups that a path leads to from ``start``, before ``stop`` in the order; -1 if one goes on to
    ``stop``.

    ``way`` is 1 along the arcs, -1 against them. The arc from ``start`` to ``stop`` itself does not count.
    """
    count = 0
    stack[0] = start
    top = 1
    while top:
        top -= 1
        x = stack[top]
        member = x
        while member >= 0:
            for j in range(ptr[member], ptr[member + 1]):
                y = find(parent, next_[j])
                if y in (x, start):
                    continue
                if y == stop:
                    if x != start:
                        return -1
                    continue
                if mark[y] != stamp and way * slot[y] < way * slot[stop]:
                    mark[y] = stamp
                    if count >= limit:
                        return -1
                    found[count] = y
                    count += 1
                    stack[top] = y
                    top += 1
            member = after[member]
    return count


@njit(cache=True, nogil=True)
def _reorder(slot, above, below, u, v):  # type: ignore[no-untyped-def]
    """Give out the slots of u, v and of the groups between them anew; u stands for the merged group."""
    before, behind = len(above), len(below)
    slots = np.empty(before + behind + 2, np.int64)
    slots[0], slots[1] = slot[u], slot[v]
    for i in range(before):
        slots[2 + i] = slot[above[i]]
    for i in range(behind):
        slots[2 + before + i] = slot[below[i]]
    above_order, below_order = np.argsort(slot[above]), np.argsort(slot[below])
    slots.sort()
    for i in range(before):
        slot[above[above_order[i]]] = slots[i]
    slot[u] = slots[before]
    for i in range(behind):
        slot[below[below_order[i]]] = slots[before + 2 + i]


def merge_labels(
    n: int, arcs: tuple[IntArray, IntArray], order: IntArray, label: IntArray, guard: Guard
) -> IntArray:
    """(n,) a representative per op: ops of one label (>= 0) come together unless other labels lie between
    them.

    The *depth* of an op is the largest number of label changes on a path to it. Ops of one label and one
    depth are merged: an arc to another label, or to another depth of the same label, always goes deeper, so
    no cycle can arise. An op that could as well wait (a constant that is read later) takes the depth of its
    first reader. Where the guard objects, a new group is begun, and later ops (in topological order) join
    that one.

    Complexity: O(n + arcs), times devices for the guard.
    """
    tail, head = arcs
    succ_ptr, succ = csr_from_pairs(tail, head, n)
    pred_ptr, pred = csr_from_pairs(head, tail, n)
    # An op without a label is a label of its own.
    own = np.where(label >= 0, label, int(label.max(initial=-1)) + 1 + np.arange(n)).astype(np.int64)
    depth = _depths(order, succ_ptr, succ, pred_ptr, pred, own)
    _, cell = np.unique(own * (n + 1) + depth, return_inverse=True)
    return _merge_cells(order, cell.astype(np.int32).reshape(-1), guard)


@njit(cache=True, nogil=True)
def _depths(order, succ_ptr, succ, pred_ptr, pred, label):  # type: ignore[no-untyped-def]
    depth = np.zeros(len(order), np.int64)
    for v in order:
        for j in range(pred_ptr[v], pred_ptr[v + 1]):
            u = pred[j]
            depth[v] = max(depth[v], depth[u] + (label[u] != label[v]))
    for v in order[::-1]:
        if succ_ptr[v] == succ_ptr[v + 1]:
            continue
        latest = np.int64(2**62)
        for j in range(succ_ptr[v], succ_ptr[v + 1]):
            w = succ[j]
            latest = min(latest, depth[w] - (label[w] != label[v]))
        for j in range(succ_ptr[v], succ_ptr[v + 1]):
            w = succ[j]
            if label[w] == label[v] and depth[w] == latest:
                depth[v] = latest
                break
    return depth


@njit(cache=True, nogil=True)
def _merge_cells(order, cell, guard):  # type: ignore[no-untyped-def]
    n = len(order)
    group = np.empty(n, np.int32)
    open_ = np.full(n, -1, np.int32)
    for v in order:
        g = open_[cell[v]]
        if g >= 0 and may_join(guard, g, v):
            join(guard, g, v)
            group[v] = g
        else:
            open_[cell[v]] = v
            group[v] = v
    return group


def merge_into_readers(
    arcs: tuple[IntArray, IntArray], order: IntArray, chosen: BoolArray, guard: Guard
) -> IntArray:
    """(n,) a representative per op: each chosen op comes together with the first op that reads it.

    ``chosen`` must be closed under predecessors: what a chosen op reads is chosen, too. Then nothing else is
    needed to stay acyclic: let a group stand where its last op stands in the topological order; every arc
    between two groups leads forward, because a chosen op goes to the group of its readers that stands first.

    Complexity: O(n + arcs), times devices for the guard.
    """
    n = len(order)
    succ_ptr, succ = csr_from_pairs(arcs[0], arcs[1], n)
    return _merge_into_readers(order, succ_ptr, succ, chosen, guard)


@njit(cache=True, nogil=True)
def _merge_into_readers(order, succ_ptr, succ, chosen, guard):  # type: ignore[no-untyped-def]
    n = len(order)
    group = np.arange(n).astype(np.int32)
    place = np.empty(n, np.int32)
    for i in range(n - 1, -1, -1):
        v = order[i]
        place[v] = i
        if not chosen[v] or succ_ptr[v] == succ_ptr[v + 1]:
            continue
        nearest = succ[succ_ptr[v]]
        for j in range(succ_ptr[v], succ_ptr[v + 1]):
            if place[succ[j]] < place[nearest]:
                nearest = succ[j]
        if may_join(guard, group[nearest], v):
            join(guard, group[nearest], v)
            group[v] = group[nearest]
            place[v] = place[nearest]
    return group
