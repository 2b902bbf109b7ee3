"""Placers that construct one placement by a rule and are done."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import numpy as np

from loadmaster.arrays import FloatArray, IntArray
from loadmaster.placers.frame.feasible import atoms_of, repair
from loadmaster.placers.frame.search import Search
from loadmaster.placers.frame.searcher import Searcher
from loadmaster.problem import Concurrent, Placement, Problem, SimulatedEvaluator

__all__ = ["Construction", "ListScheduler", "allowed_and_repaired", "scheduled"]


class Construction(Searcher):
    """Base of the placers that construct a few placements and are done; they say how in :meth:`candidates`."""

    name: ClassVar[str]
    summary: ClassVar[str]

    def candidates(self, problem: Problem) -> Iterable[Placement]:
        """The placements, feasible or not."""
        raise NotImplementedError

    def explore(self, search: Search, start: Placement | None, seed: int) -> None:
        """The best of the candidates that are feasible; any feasible placement where none of them is.

        Whether a candidate is feasible is known beforehand, so that an infeasible one costs no evaluation.
        """
        problem = search.problem
        check = SimulatedEvaluator(problem)
        for placement in self.candidates(problem):
            if check.evaluate(placement).feasible:
                search.try_placement(placement)
                search.check()


class ListScheduler(Construction):
    """Base of the constructions that build a schedule, which only ``concurrent`` has."""

    def supports(self, problem: Problem) -> str | None:
        """Only ``concurrent``: the other models have no schedule."""
        if isinstance(problem.model, Concurrent):
            return None
        return f"it builds a schedule, but the {problem.model.name} model has none: use --model concurrent"


def allowed_and_repaired(problem: Problem, at: IntArray) -> IntArray:
    """(n,) devices from (atoms,) ones; what is not allowed (or is -1) goes to its fastest device, then
    memory is repaired."""
    atoms = atoms_of(problem)
    usual = np.where(atoms.allowed, atoms.time, np.inf).argmin(axis=1)
    ok = (at >= 0) & atoms.allowed[np.arange(atoms.count), np.maximum(at, 0)]
    return repair(problem, np.where(ok, at, usual).astype(np.int32)[atoms.of_op])


def scheduled(problem: Problem, device: IntArray, begin: FloatArray) -> list[Placement]:
    """The devices with the order of the (n,) start times, where the model has orders, and without it.

    Ops that start together are in the order of their priority, which is topological.
    """
    if not isinstance(problem.model, Concurrent):
        return [Placement(device)]
    order, rank = np.empty(problem.n, np.int32), np.empty(problem.n, np.int32)
    rank[problem.priority_order] = np.arange(problem.n, dtype=np.int32)
    order[np.lexsort((rank, begin))] = np.arange(problem.n, dtype=np.int32)
    return [Placement(device, order=order), Placement(device)]
