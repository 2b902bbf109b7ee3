"""CPOP: the critical path on one device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numba import njit

from loadmaster.arrays import FloatArray, IntArray
from loadmaster.placers.frame.constructed import ListScheduler, scheduled
from loadmaster.placers.frame.feasible import atoms_of
from loadmaster.placers.rules._insertion import insertion_schedule, ready_order
from loadmaster.problem import Placement, Problem

__all__ = ["Cpop"]


@dataclass(frozen=True)
class Cpop(ListScheduler):
    """Critical path on a processor: the ops of the critical path share the device that runs them fastest, all
    others go where they finish earliest.

    The priority of an op is the length of the longest mean path through it; the critical path is one of the
    longest. Ready ops are taken by priority, gaps are used. An op of the path that its device does not
    support, or has no room for, goes where it finishes earliest.

    Complexity: O(edges * devices) and the search for gaps.

    References
    ----------
    H. Topcuoglu, S. Hariri, M.-Y. Wu, "Performance-effective and low-complexity task scheduling for
    heterogeneous computing", IEEE TPDS 13(3), 2002, section 4.2.
    """

    name: ClassVar[str] = "cpop"
    summary: ClassVar[str] = "the critical path on one device, the rest by earliest finish time"

    def candidates(self, problem: Problem) -> Iterator[Placement]:
        """One pass; two evaluations."""
        return _candidates(problem)


def _candidates(problem: Problem) -> Iterator[Placement]:
    if problem.n:
        graph, atoms = problem.graph, atoms_of(problem)
        up = problem.upward_rank
        down: FloatArray = _downward(
            graph.topological_order,
            *graph.inputs,
            graph.tensor_producer,
            problem.mean_time,
            problem.mean_link,
        )
        priority = up + down
        path: IntArray = _follow(int(up.argmax()), *graph.successors, priority)
        time = np.where(atoms.allowed[atoms.of_op[path]], problem.time[path], np.inf)
        taken = np.isfinite(time)
        total = np.where(taken, time, 0.0).sum(axis=0)
        forced = np.full(problem.n, -1, np.int32)
        forced[path] = np.lexsort((total, -taken.sum(axis=0)))[0]
        yield from scheduled(
            problem, *insertion_schedule(problem, ready_order(problem, priority), forced=forced)
        )


@njit(cache=True, nogil=True)
def _downward(order, in_ptr, in_tensor, producer, time, link):  # type: ignore[no-untyped-def]
    """(n,) the longest mean path from a source to the start of each op."""
    rank = np.zeros(len(order))
    for v in order:
        for i in range(in_ptr[v], in_ptr[v + 1]):
            t = in_tensor[i]
            rank[v] = max(rank[v], rank[producer[t]] + time[producer[t]] + link[t])
    return rank


@njit(cache=True, nogil=True)
def _follow(first, ptr, successor, priority):  # type: ignore[no-untyped-def]
    """The path from ``first`` on which each op is followed by its successor of the highest priority."""
    path = [first]
    v = first
    while ptr[v] < ptr[v + 1]:
        best = successor[ptr[v]]
        for i in range(ptr[v], ptr[v + 1]):
            if priority[successor[i]] > priority[best]:
                best = successor[i]
        path.append(best)
        v = best
    return np.array(path).astype(np.int32)
