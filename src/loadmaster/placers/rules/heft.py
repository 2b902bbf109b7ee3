"""Heterogeneous earliest finish time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from loadmaster.arrays import FloatArray, IntArray
from loadmaster.placers.frame.constructed import scheduled
from loadmaster.placers.frame.feasible import atoms_of
from loadmaster.placers.frame.search import Search
from loadmaster.placers.frame.searcher import Searcher
from loadmaster.placers.rules._insertion import NOBODY, insert_ops
from loadmaster.problem import Concurrent, Placement, Problem

__all__ = ["Heft", "heft_placements", "list_schedule"]


@dataclass(frozen=True)
class Heft(Searcher):
    """Ops by decreasing upward rank, each to the device where it finishes earliest, gaps in the schedule used.

    A tensor that was brought to a device once is there for later readers, and a link carries one tensor at a
    time. The sequence on each device is returned as ``order``; if the event schedule without it is faster,
    that one is. Colocated ops follow the first of them; a device without room for an op (with its colocated
    ops) is not considered.

    Complexity: O(edges * devices) and the search for gaps, which is short in practice.

    References
    ----------
    H. Topcuoglu, S. Hariri, M.-Y. Wu, "Performance-effective and low-complexity task scheduling for
    heterogeneous computing", IEEE TPDS 13(3), 2002.
    """

    insertion: bool = True
    """Use gaps between ops that are scheduled already."""

    name: ClassVar[str] = "heft"
    summary: ClassVar[str] = "earliest finish time by upward rank, with insertion"

    def supports(self, problem: Problem) -> str | None:
        """Only ``concurrent``: the other models have no schedule to insert into."""
        if isinstance(problem.model, Concurrent):
            return None
        return f"heft builds a schedule, but the {problem.model.name} model has none: use --model concurrent"

    def explore(self, search: Search, start: Placement | None, seed: int) -> None:
        """One pass; two evaluations."""
        problem = search.problem
        for placement in heft_placements(problem, insertion=self.insertion):
            search.try_placement(placement)
            search.check()


def heft_placements(problem: Problem, *, insertion: bool = True) -> Iterator[Placement]:
    """The HEFT schedule with its order, and the same devices without; nothing for models without a
    schedule."""
    schedule = list_schedule(problem, insertion=insertion) if isinstance(problem.model, Concurrent) else None
    if schedule is not None:
        yield from scheduled(problem, *schedule)


def list_schedule(problem: Problem, *, insertion: bool = True) -> tuple[IntArray, FloatArray] | None:
    """(n,) devices and (n,) start times of the HEFT schedule; None if memory runs out on the way."""
    atoms, graph = atoms_of(problem), problem.graph
    device, begin = np.full(problem.n, -1, np.int32), np.zeros(problem.n)
    free_choice = np.full(problem.n, -1, np.int32)
    done = insert_ops(
        problem.priority_order, *graph.inputs, graph.tensor_producer, problem.time, problem.size, problem.latency,
        problem.rate, atoms.of_op, atoms.allowed, atoms.memory, problem.capacity, NOBODY, free_choice, insertion,
        device, begin,
    )  # fmt: skip
    return (device, begin) if done else None
