"""Filling devices one after another, by memory."""

from __future__ import annotations

import numpy as np
from numba import njit

from loadmaster.arrays import FloatArray, IntArray
from loadmaster.placers.frame.feasible import atoms_of
from loadmaster.problem import Problem

__all__ = ["accelerators_first", "fill_by_memory", "model_order"]


def accelerators_first(problem: Problem) -> IntArray:
    """The devices that some op may go to, in the order of the cluster, but all CPUs at the end."""
    usable = np.flatnonzero(atoms_of(problem).allowed.any(axis=0))
    return usable[np.argsort(problem.pool[usable], kind="stable")].astype(np.int32)


def model_order(problem: Problem) -> IntArray:
    """(atoms,) atoms by the topological position of their first op."""
    atoms = atoms_of(problem)
    first = np.full(atoms.count, problem.n, np.int32)
    np.minimum.at(first, atoms.of_op, problem.graph.position)
    return np.argsort(first, kind="stable").astype(np.int32)


def fill_by_memory(problem: Problem, order: IntArray, sequence: IntArray, limit: FloatArray) -> IntArray:
    """(atoms,) devices: those of ``sequence`` filled up to ``limit`` (D,) bytes, one after another, never back.

    An atom that the current device may not take goes to the next of the sequence that may and has room (from
    the current one on, then from the beginning), without ending the current one. -1 where nothing has room.
    """
    atoms = atoms_of(problem)
    at = np.full(atoms.count, -1, np.int32)
    _fill(order, sequence, limit, atoms.allowed, atoms.memory, at)
    return at


@njit(cache=True, nogil=True)
def _fill(order, sequence, limit, allowed, memory, at):  # type: ignore[no-untyped-def]
    left = limit.copy()
    current, many = 0, len(sequence)
    for a in order:
        while current < many - 1 and allowed[a, sequence[current]] and memory[a] > left[sequence[current]]:
            current += 1
        for i in range(many):
            d = sequence[(current + i) % many]
            if allowed[a, d] and memory[a] <= left[d]:
                at[a] = d
                left[d] -= memory[a]
                break
