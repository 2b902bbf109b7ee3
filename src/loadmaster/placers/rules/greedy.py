"""Greedy construction: for each execution model the plain rules that a careful person would try first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar

import numpy as np
from numba import njit

from loadmaster.arrays import IntArray
from loadmaster.placers.frame.feasible import (
    Atoms,
    atoms_of,
    repair,
    single_devices,
)
from loadmaster.placers.frame.search import Search
from loadmaster.placers.frame.searcher import Searcher
from loadmaster.placers.rules.heft import list_schedule
from loadmaster.problem import Concurrent, Offload, Pipeline, Placement, Problem, Serial

__all__ = ["Greedy", "greedy_candidates"]


@dataclass(frozen=True)
class Greedy(Searcher):
    """The best of a few constructed placements.

    Single devices; then, by execution model: ``serial``, each op in topological order where its time and the
    transfers of its inputs cost least; ``concurrent``, each op by upward rank where it finishes earliest;
    ``pipeline``, a topological order cut into stretches of equal load, for several loads, and (without
    contiguity) the heaviest op first to the device that stays least loaded; ``offload``, accelerator after
    accelerator filled up in topological order, the rest on the CPUs.
    """

    name: ClassVar[str] = "greedy"
    summary: ClassVar[str] = "the best of a few constructed placements"

    def explore(self, search: Search, start: Placement | None, seed: int) -> None:
        """Construct and evaluate."""
        problem = search.problem
        for device in greedy_candidates(problem):
            search.try_device(device)
            search.check()


def greedy_candidates(problem: Problem) -> Iterator[IntArray]:
    """Devices of constructed placements, each once; some may be infeasible."""
    seen: set[bytes] = set()
    for device in chain(_rules(problem), single_devices(problem)):
        if device.tobytes() not in seen:
            seen.add(device.tobytes())
            yield device


def _rules(problem: Problem) -> Iterator[IntArray]:
    atoms = atoms_of(problem)
    if atoms.count == 0:
        return
    match problem.model:
        case Serial():
            yield repair(problem, _cheapest_inputs(problem))
        case Concurrent():
            schedule = list_schedule(problem, insertion=False)
            if schedule is not None:
                yield schedule[0]
        case Pipeline():
            if problem.model.contiguity == "none":
                yield repair(problem, _heaviest_first(problem, atoms))
            yield from _equal_stretches(problem, atoms)
        case Offload():
            yield from _fill_accelerators(problem, atoms)


def _cheapest_inputs(problem: Problem) -> IntArray:
    """Each op in topological order where its own time plus the transfers of its inputs are least."""
    graph, atoms = problem.graph, atoms_of(problem)
    in_ptr, in_tensor = graph.inputs
    device = np.full(problem.n, -1, np.int32)
    at = np.full(atoms.count, -1, np.int32)
    for v in graph.topological_order.tolist():
        a = atoms.of_op[v]
        if at[a] < 0:
            cost = np.where(atoms.allowed[a], atoms.time[a], np.inf)
            for t in in_tensor[in_ptr[v] : in_ptr[v + 1]].tolist():
                source = device[graph.tensor_producer[t]]
                if source >= 0:
                    link = problem.latency[source] + problem.size[t] * problem.rate[source]
                    link[source] = 0.0
                    cost = cost + link
            at[a] = int(cost.argmin())
        device[v] = at[a]
    return device


def _heaviest_first(problem: Problem, atoms: Atoms) -> IntArray:
    """Longest processing time first: each atom to the device that stays least loaded."""
    time = np.where(atoms.allowed, atoms.time, np.inf)
    at: IntArray = _least_loaded(np.argsort(-time.min(axis=1), kind="stable"), time)
    return at[atoms.of_op]


@njit(cache=True, nogil=True)
def _least_loaded(order, time):  # type: ignore[no-untyped-def]
    """(atoms,) one after another to the device that stays least loaded, the first of equal ones."""
    at = np.zeros(len(time), np.int32)
    load = np.zeros(time.shape[1])
    for a in order:
        best = 0
        for d in range(1, len(load)):
            if load[d] + time[a, d] < load[best] + time[a, best]:
                best = d
        at[a] = best
        load[best] += time[a, best]
    return at


def _equal_stretches(problem: Problem, atoms: Atoms, steps: int = 24) -> Iterator[IntArray]:
    """A topological order cut so that no stretch exceeds a load, for growing loads; fast devices first or
    last.

    Where atoms have no choice (inputs, which are on the host), also with these set aside: they would end
    stretches.
    """
    order = np.ascontiguousarray(atoms.order)
    time = np.where(atoms.allowed, atoms.time, np.inf)
    usable = np.flatnonzero(atoms.allowed.any(axis=0))
    speed = np.where(np.isfinite(time), time, 0.0).sum(axis=0) / np.maximum(np.isfinite(time).sum(axis=0), 1)
    sequences = [usable[np.argsort(speed[usable], kind="stable")].astype(np.int32)]
    sequences.append(sequences[0][::-1].copy())
    total = float(time.min(axis=1).sum())
    lone = atoms.allowed.sum(axis=1) == 1
    fixed = np.where(lone, atoms.allowed.argmax(axis=1), -1).astype(np.int32)
    taken = np.bincount(fixed[lone], atoms.memory[lone], problem.devices)
    tries = [(order, np.full(atoms.count, -1, np.int32), problem.capacity.copy())]
    if lone.any() and not lone.all():
        tries.append((order[~lone[order]], fixed, problem.capacity - taken))
    for step in range(steps):
        limit = total / len(usable) * 2.0 ** (step / 6.0)
        for sequence in sequences:
            for part, start, capacity in tries:
                at = start.copy()
                if _cut(part, sequence, limit, time, atoms.memory, capacity, at):
                    yield at[atoms.of_op]


@njit(cache=True, nogil=True)
def _cut(order, sequence, limit, time, memory, capacity, at):  # type: ignore[no-untyped-def]
    """Fill the devices of ``sequence`` one after another up to the load ``limit``; the last takes the rest.

    Writes into ``at``; False if the last device cannot take it.
    """
    i, load, used = 0, 0.0, 0.0
    for a in order:
        while True:
            d = sequence[i]
            last = i == len(sequence) - 1
            fits = time[a, d] < np.inf and used + memory[a] <= capacity[d]
            if fits and (load == 0.0 or last or load + time[a, d] <= limit):
                break
            if last:
                return False
            i += 1
            load = used = 0.0
        at[a] = d
        load += time[a, d]
        used += memory[a]
    return True


def _fill_accelerators(problem: Problem, atoms: Atoms) -> Iterator[IntArray]:
    """Tarnawski et al.'s greedy baseline: accelerator after accelerator up to its memory, the rest on the
    CPUs.

    Tried with 0, 1, 2, … accelerators.
    """
    pool = np.flatnonzero(problem.pool)
    accelerators = np.flatnonzero(~problem.pool & atoms.allowed.any(axis=0))
    order = atoms.order
    cpu = (
        np.where(atoms.allowed[:, pool].any(axis=1), pool[atoms.allowed[:, pool].argmax(axis=1)], -1)
        if len(pool)
        else None
    )
    for used in range(len(accelerators) + 1):
        at = np.full(atoms.count, -1, np.int64) if cpu is None else cpu.copy()
        i, free = 0, problem.capacity[accelerators[0]] if len(accelerators) else 0.0
        for a in order.tolist():
            while i < used:
                d = accelerators[i]
                if not atoms.allowed[a, d]:
                    break
                if atoms.memory[a] <= free:
                    at[a] = d
                    free -= atoms.memory[a]
                    break
                i += 1
                free = problem.capacity[accelerators[i]] if i < used else 0.0
        if (at >= 0).all():
            yield at.astype(np.int32)[atoms.of_op]
