"""PEFT: earliest finish time with an optimistic look at what follows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numba import njit

from loadmaster.arrays import FloatArray
from loadmaster.placers.frame.constructed import ListScheduler, scheduled
from loadmaster.placers.frame.feasible import atoms_of
from loadmaster.placers.rules._insertion import insertion_schedule, ready_order
from loadmaster.problem import Placement, Problem

__all__ = ["Peft"]


@dataclass(frozen=True)
class Peft(ListScheduler):
    """Predict earliest finish time: each op where its finish plus the optimistic cost of the rest is least.

    The optimistic cost table says for every op and device how long the longest way to the end is at least, if
    every later op may choose its device freely and transfers cost their mean (equation 2 of the paper). Ready
    ops are taken by the mean of their row; gaps are used. Transfers are those of this project's ``concurrent``
    model: one per tensor and destination, one at a time on a link.

    Complexity: O(edges * devices) and the search for gaps.

    References
    ----------
    H. Arabnejad, J. G. Barbosa, "List scheduling algorithm for heterogeneous systems by an optimistic cost
    table", IEEE TPDS 25(3), 2014.
    """

    name: ClassVar[str] = "peft"
    summary: ClassVar[str] = "earliest finish time with an optimistic cost table"

    def candidates(self, problem: Problem) -> Iterator[Placement]:
        """One pass; two evaluations."""
        return _candidates(problem)


def _candidates(problem: Problem) -> Iterator[Placement]:
    if problem.n:
        table = optimistic_costs(problem)
        allowed = atoms_of(problem).allowed[atoms_of(problem).of_op]
        rank = np.where(allowed, table, 0.0).sum(axis=1) / np.maximum(allowed.sum(axis=1), 1)
        yield from scheduled(problem, *insertion_schedule(problem, ready_order(problem, rank), extra=table))


def optimistic_costs(problem: Problem) -> FloatArray:
    """(n, D) seconds from the end of an op on a device to the end of the graph, at best."""
    graph, atoms = problem.graph, atoms_of(problem)
    time = np.where(atoms.allowed[atoms.of_op], problem.time, np.inf)
    table: FloatArray = _optimistic(
        graph.topological_order,
        *graph.outputs,
        graph.consumer_ptr,
        graph.consumer_op,
        time,
        problem.mean_link,
    )
    return table


@njit(cache=True, nogil=True)
def _optimistic(order, out_ptr, out_tensor, ptr, consumer, time, link):  # type: ignore[no-untyped-def]
    n, devices = time.shape
    table = np.zeros((n, devices))
    for i in range(n - 1, -1, -1):
        v = order[i]
        for j in range(out_ptr[v], out_ptr[v + 1]):
            t = out_tensor[j]
            for c in range(ptr[t], ptr[t + 1]):
                u = consumer[c]
                least = np.inf
                for d in range(devices):
                    least = min(least, table[u, d] + time[u, d])
                for d in range(devices):
                    table[v, d] = max(table[v, d], min(table[u, d] + time[u, d], least + link[t]))
    return table
