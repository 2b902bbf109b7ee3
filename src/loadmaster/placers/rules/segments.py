"""Stretches of a topological order, cut by dynamic programming such that they fit into the memories."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numba import njit

from loadmaster.arrays import BoolArray, FloatArray, IntArray
from loadmaster.errors import InputError
from loadmaster.graph.order import sum_by
from loadmaster.placers.frame.constructed import Construction, allowed_and_repaired
from loadmaster.placers.frame.feasible import Atoms, atoms_of
from loadmaster.placers.rules._memory_fill import accelerators_first
from loadmaster.problem import Placement, Problem, Serial

__all__ = ["Segments"]


@dataclass(frozen=True)
class Segments(Construction):
    """A topological order is cut into one stretch per device, each within its memory: the best cuts of all.

    In a training graph the order is that of the forward ops, and backward ops stand beside those that they read from.
    Two aims: the least sum of times and transfers (what ``serial`` costs), and the smallest largest load. The devices
    come accelerators first, in their order and the other way round. Cuts are made between blocks of about equal
    weight. Where memory is short, this is a feasible start with few transfers, which filling and repairing is not.

    Complexity: O(devices · blocks²) per aim and order of the devices, after O(ops + edges) for the sums.

    References
    ----------
    S. H. Bokhari, "Partitioning problems in parallel, pipelined, and distributed computing", IEEE Trans. Computers
    37(1), 1988 (a chain of modules on a chain of processors).
    """

    blocks: int = 400
    """Most blocks between which cuts are made."""

    name: ClassVar[str] = "segments"
    summary: ClassVar[str] = (
        "stretches of a topological order that fit into the memories, by dynamic programming"
    )

    def __post_init__(self) -> None:
        if self.blocks < 1:
            raise InputError(f"blocks must be >= 1, not {self.blocks}")

    def candidates(self, problem: Problem) -> Iterator[Placement]:
        """One placement per aim and order of the devices."""
        atoms = atoms_of(problem)
        if not atoms.count:
            return
        line = _Line(problem, atoms, self.blocks)
        devices = accelerators_first(problem)
        fast = devices[~problem.pool[devices]]
        slow = devices[problem.pool[devices]]
        orders = [np.concatenate([fast, slow]), np.concatenate([fast[::-1], slow])]
        aims = (True, False) if isinstance(problem.model, Serial) else (False, True)
        for total in aims:
            for order in orders:
                at = line.cut(order, total=total)
                if at is not None:
                    yield Placement(allowed_and_repaired(problem, at))


class _Line:
    """The atoms in topological order, in blocks; those without a choice are set aside."""

    def __init__(self, problem: Problem, atoms: Atoms, blocks: int) -> None:
        self._problem, self._atoms = problem, atoms
        self._lone: BoolArray = atoms.allowed.sum(axis=1) == 1
        order = _mirrored_order(problem, atoms)
        self._order = order[~self._lone[order]]
        where = atoms.allowed.argmax(axis=1)
        self._room = problem.capacity - sum_by(
            where[self._lone].astype(np.int32), atoms.memory[self._lone], problem.devices
        )
        best = np.where(atoms.allowed, atoms.time, np.inf).min(axis=1)
        time = np.where(atoms.allowed, atoms.time, best[:, None])[self._order]
        memory = atoms.memory[self._order]
        weight = time.min(axis=1) / max(float(time.min(axis=1).sum()), 1e-300) + memory / max(
            float(memory.sum()), 1e-300
        )
        count = len(self._order)
        self._ends = _ends(weight, min(blocks, count))
        self._time = _sums(time, self._ends)
        self._memory = _sums(memory[:, None], self._ends)[:, 0]
        self._cross = self._crossing()[self._ends]

    def _crossing(self) -> FloatArray:
        """(atoms in the line + 1,) seconds of the transfers between what is before and behind each position."""
        problem, atoms = self._problem, self._atoms
        graph = problem.graph
        place = np.full(atoms.count, -1, np.int64)
        place[self._order] = np.arange(len(self._order))
        source, reader = place[atoms.of_op[graph.tensor_producer]], place[atoms.of_op[graph.consumer_op]]
        last = np.full(graph.tensors, -1, np.int64)
        np.maximum.at(last, graph.edge_tensor, reader)
        first = source.copy()
        within = np.full(graph.tensors, len(self._order), np.int64)
        np.minimum.at(within, graph.edge_tensor, np.where(reader >= 0, reader, len(self._order)))
        first = np.minimum(first, within)
        ok = (source >= 0) & (last > first)
        change = np.zeros(len(self._order) + 2)
        np.add.at(change, first[ok] + 1, problem.mean_link[ok])
        np.add.at(change, last[ok] + 1, -problem.mean_link[ok])
        return np.asarray(np.maximum(np.cumsum(change)[: len(self._order) + 1], 0.0))

    def cut(self, sequence: IntArray, *, total: bool) -> IntArray | None:
        """(atoms,) the best division for these devices in this order; None if nothing fits."""
        points = len(self._ends)
        cost = np.full(points, np.inf)
        cost[0] = 0.0
        came: list[IntArray] = []
        later = np.triu(np.ones((points, points), np.bool_), 1)
        for d in sequence.tolist():
            work = self._time[None, :, d] - self._time[:, None, d]
            fits = later & (self._memory[None, :] - self._memory[:, None] <= self._room[d] * (1 + 1e-12))
            if total:
                choice = cost[:, None] + work + self._cross[:, None]
            else:
                choice = np.maximum(cost[:, None], work + self._cross[:, None] + self._cross[None, :])
            choice = np.where(fits, choice, np.inf)
            np.fill_diagonal(choice, cost)  # the device stays empty
            came.append(choice.argmin(axis=0).astype(np.int32))
            cost = choice.min(axis=0)
        if not np.isfinite(cost[-1]):
            return None
        at = np.where(self._lone, self._atoms.allowed.argmax(axis=1), -1).astype(np.int32)
        end = points - 1
        for d, before in zip(sequence[::-1].tolist(), reversed(came), strict=True):
            begin = int(before[end])
            at[self._order[self._ends[begin] : self._ends[end]]] = d
            end = begin
        return at


def _mirrored_order(problem: Problem, atoms: Atoms) -> IntArray:
    """(atoms,) atoms by the topological position of their first op, where backward ops are beside forward ones."""
    graph = problem.graph
    at = _mirrored(
        graph.topological_order, graph.backward, graph.inputs[0], graph.inputs[1], graph.tensor_producer
    )
    first = np.full(atoms.count, np.inf)
    np.minimum.at(first, atoms.of_op, at)
    position = np.full(atoms.count, problem.n, np.int32)
    np.minimum.at(position, atoms.of_op, graph.position)
    return np.lexsort((position, first)).astype(np.int32)


@njit(cache=True, nogil=True)
def _mirrored(order, backward, in_ptr, in_tensor, producer):  # type: ignore[no-untyped-def]
    """(n,) the position of a forward op; a backward op has that of the last forward op that it reads, or else the
    first of those that it reads."""
    at = np.zeros(len(order))
    for i in range(len(order)):
        v = order[i]
        if not backward[v]:
            at[v] = i
            continue
        ahead, behind = -1.0, float(len(order))
        for j in range(in_ptr[v], in_ptr[v + 1]):
            u = producer[in_tensor[j]]
            if backward[u]:
                behind = min(behind, at[u])
            else:
                ahead = max(ahead, at[u])
        at[v] = ahead if ahead >= 0.0 else behind
    return at


def _ends(weight: FloatArray, blocks: int) -> IntArray:
    """Positions between blocks of about equal weight, 0 and the end among them."""
    if blocks >= len(weight):
        return np.arange(len(weight) + 1, dtype=np.int32)
    upto = np.cumsum(weight)
    goals = upto[-1] * np.arange(1, blocks) / blocks
    cuts = np.searchsorted(upto, goals)
    return np.unique(np.concatenate([[0], cuts, [len(weight)]])).astype(np.int32)


def _sums(amount: FloatArray, ends: IntArray) -> FloatArray:
    """(ends, columns) what comes before each position, added up."""
    upto = np.concatenate([np.zeros((1, amount.shape[1])), np.cumsum(amount, axis=0)])
    return np.asarray(upto[ends])
