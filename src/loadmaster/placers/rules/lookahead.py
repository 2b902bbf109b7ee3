"""HEFT with a look at the children of every op."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numba import njit

from loadmaster.arrays import FloatArray, IntArray
from loadmaster.placers.frame.constructed import ListScheduler, scheduled
from loadmaster.placers.frame.feasible import atoms_of
from loadmaster.placers.rules._insertion import (
    bring,
    empty_schedule,
    find_gap,
    may_take,
    ready_on,
    take_gap,
    within_memory,
)
from loadmaster.problem import Placement, Problem

__all__ = ["Lookahead", "children_done", "children_of", "lookahead_schedule", "tell_children"]


@dataclass(frozen=True)
class Lookahead(ListScheduler):
    """HEFT, but each op goes where the last of its children would finish earliest.

    For every device of an op its children are tried, by decreasing upward rank, each where it finishes earliest
    after the inputs that are scheduled already; children on one device queue. An op without children goes
    where it finishes earliest itself, which also settles ties.

    Complexity: O(edges * devices²) and the search for gaps.

    References
    ----------
    L. F. Bittencourt, R. Sakellariou, E. R. M. Madeira, "DAG scheduling using a lookahead variant of the
    heterogeneous earliest finish time algorithm", PDP 2010.
    """

    name: ClassVar[str] = "lookahead"
    summary: ClassVar[str] = "HEFT with lookahead to the children of every op"

    def candidates(self, problem: Problem) -> Iterator[Placement]:
        """One pass; two evaluations."""
        return _candidates(problem)


def _candidates(problem: Problem) -> Iterator[Placement]:
    if problem.n:
        yield from scheduled(problem, *lookahead_schedule(problem))


def lookahead_schedule(problem: Problem) -> tuple[IntArray, FloatArray]:
    """(n,) devices and (n,) start times; if memory runs out the devices are those of an unlimited schedule,
    repaired."""
    graph, atoms, children = problem.graph, atoms_of(problem), children_of(problem)

    def fill(capacity: FloatArray, device: IntArray, begin: FloatArray) -> bool:
        done: bool = _schedule(
            problem.priority_order, *graph.inputs, graph.tensor_producer, *children, problem.time, problem.size,
            problem.latency, problem.rate, atoms.of_op, atoms.allowed, atoms.memory, capacity, device, begin,
        )  # fmt: skip
        return done

    return within_memory(problem, fill)


def children_of(problem: Problem) -> tuple[IntArray, IntArray, FloatArray]:
    """CSR op -> successors by decreasing upward rank, and the largest tensor for each: (ptr, op, size)."""
    graph = problem.graph
    rank = np.empty(problem.n, np.int64)
    rank[problem.priority_order] = np.arange(problem.n)
    parent, child = graph.tensor_producer[graph.edge_tensor].astype(np.int64), graph.consumer_op
    key = parent * max(problem.n, 1) + rank[child]
    order = np.lexsort((-problem.size[graph.edge_tensor], key))
    order = order[np.unique(key[order], return_index=True)[1]]
    ptr = np.zeros(problem.n + 1, np.int32)
    np.cumsum(np.bincount(parent[order], minlength=problem.n), out=ptr[1:])
    return ptr, child[order], problem.size[graph.edge_tensor][order]


@njit(cache=True, nogil=True)
def _schedule(  # type: ignore[no-untyped-def]
    order, in_ptr, in_tensor, producer, child_ptr, child, child_size, time, size, latency, rate, atom, allowed,
    memory, capacity, device, begin,
):  # fmt: skip
    """Fill ``device`` and ``begin``; False if some op has no device with room left.

    The state is that of ``_insertion.empty_schedule``; besides, ``known[u, d]`` is when the inputs of u from scheduled
    ops can be on d, and ``queue[d]`` when the children tried so far leave device d.
    """
    n, devices = time.shape
    gap_start, gap_end, gaps, there, free, end, left, home = empty_schedule(
        n, len(producer), len(memory), capacity
    )
    known, queue = np.zeros((n, devices)), np.empty(devices)
    for v in order:
        a = atom[v]
        best, best_score, best_end, best_start, best_gap = np.int64(-1), np.inf, np.inf, 0.0, np.int64(0)
        for d in range(devices):
            if not may_take(d, home[a], allowed[a, d], memory[a], left[d]):
                continue
            ready = ready_on(v, d, in_ptr, in_tensor, producer, device, end, size, latency, rate, there, free)
            g = find_gap(gap_start[d], gap_end[d], gaps[d], ready, time[v, d])
            start = max(gap_start[d, g], ready)
            finish = start + time[v, d]
            score = finish
            if home[a] < 0:
                score = children_done(
                    v, d, finish, child_ptr, child, child_size, time, latency, rate, atom, allowed, home, known, free,
                    gap_start, gap_end, gaps, queue,
                )  # fmt: skip
            if best < 0 or score < best_score or (score == best_score and finish < best_end):
                best, best_score, best_end, best_start, best_gap = d, score, finish, start, g  # type: ignore[assignment]
        if best < 0:
            return False
        if home[a] < 0:
            home[a] = best
            left[best] -= memory[a]
        device[v] = best
        begin[v] = best_start
        end[v] = best_end
        bring(v, best, in_ptr, in_tensor, producer, device, end, size, latency, rate, there, free)
        gap_start, gap_end = take_gap(gap_start, gap_end, gaps, best, best_gap, best_start, best_end)
        tell_children(v, best, best_end, child_ptr, child, child_size, latency, rate, free, known)
    return True


@njit(cache=True, nogil=True)
def children_done(  # type: ignore[no-untyped-def]
    v, d, finish, child_ptr, child, child_size, time, latency, rate, atom, allowed, home, known, free, gap_start,
    gap_end, gaps, queue,
):  # fmt: skip
    """When the last child of op v would be done, each where it is done soonest, were v to end on d at ``finish``.

    ``queue`` is scratch: when the children tried so far leave each device.
    """
    devices, a = len(queue), atom[v]
    last = finish
    queue[:] = 0.0
    for j in range(child_ptr[v], child_ptr[v + 1]):
        u = child[j]
        b = atom[u]
        where, soonest = -1, np.inf
        for e in range(devices):
            if b == a or home[b] >= 0:
                if e != (d if b == a else home[b]):
                    continue
            elif not allowed[b, e]:
                continue
            lands = finish
            if e != d:
                lands = max(finish, free[d, e]) + (latency[d, e] + child_size[j] * rate[d, e])
            lands = max(lands, max(known[u, e], queue[e]))
            h = find_gap(gap_start[e], gap_end[e], gaps[e], lands, time[u, e])
            done = max(gap_start[e, h], lands) + time[u, e]
            if done < soonest:
                where, soonest = e, done
        if where >= 0:
            queue[where] = soonest
            last = max(last, soonest)
    return last


@njit(cache=True, nogil=True)
def tell_children(v, d, end, child_ptr, child, child_size, latency, rate, free, known):  # type: ignore[no-untyped-def]
    """Op v ends on device d: note when its children can have what it writes."""
    for j in range(child_ptr[v], child_ptr[v + 1]):
        u = child[j]
        for e in range(known.shape[1]):
            lands = end
            if e != d:
                lands = max(end, free[d, e]) + (latency[d, e] + child_size[j] * rate[d, e])
            known[u, e] = max(known[u, e], lands)
