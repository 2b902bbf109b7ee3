"""Beam search over list schedules."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from loadmaster.arrays import FloatArray, IntArray
from loadmaster.placers.frame.feasible import atoms_of, repair
from loadmaster.placers.rules.peft import optimistic_costs
from loadmaster.problem import Problem

__all__ = ["beam_schedules"]


def beam_schedules(
    problem: Problem, width: int, keep: int, order: IntArray, weights: tuple[float, float, float, float]
) -> list[tuple[IntArray, FloatArray]]:
    """(n,) devices and start times of up to ``keep`` schedules, the best first.

    Ops are appended in ``order`` (topological), each to every device that may take it; of all schedules
    so begun the ``width`` survive whose optimistic end is least: the latest of end + optimistic cost of what
    follows (PEFT's table) of the ops placed so far, ties by the op's own and by the work done.

    Complexity: O(ops * width * devices * (open tensors + devices)).
    """
    graph, atoms = problem.graph, atoms_of(problem)
    slot, slots = _slots(problem, order)
    device, begin = np.full((keep, problem.n), -1, np.int32), np.zeros((keep, problem.n))
    made = _search(
        order, slot, slots, *graph.inputs, *graph.outputs, graph.tensor_producer, problem.time, problem.size,
        problem.latency, problem.rate, *_atom_slots(problem, order), atoms.of_op, atoms.allowed, atoms.memory,
        problem.capacity, optimistic_costs(problem), width, np.array(weights), device, begin,
    )  # fmt: skip
    return [(repair(problem, device[i]), begin[i]) for i in range(made)]


def _slots(problem: Problem, order: IntArray) -> tuple[IntArray, int]:
    """(tensors,) a slot for each tensor, shared by tensors that are not open at the same time; and how many."""
    graph = problem.graph
    last = np.full(graph.tensors, -1, np.int64)
    place = np.empty(problem.n, np.int64)
    place[order] = np.arange(problem.n)
    np.maximum.at(last, graph.edge_tensor, place[graph.consumer_op])
    return _share(place[graph.tensor_producer], last)


def _atom_slots(problem: Problem, order: IntArray) -> tuple[IntArray, int]:
    """(atoms,) likewise for atoms of several ops, between their first and last op; -1 for single ones."""
    atoms = atoms_of(problem)
    place = np.empty(problem.n, np.int64)
    place[order] = np.arange(problem.n)
    first, last = np.full(atoms.count, problem.n, np.int64), np.full(atoms.count, -1, np.int64)
    np.minimum.at(first, atoms.of_op, place)
    np.maximum.at(last, atoms.of_op, place)
    return _share(first, np.where(first == last, -1, last))


def _share(first: npt.NDArray[np.int64], last: npt.NDArray[np.int64]) -> tuple[IntArray, int]:
    slot: IntArray
    slot, slots = _color(first, last, np.argsort(first, kind="stable"), np.argsort(last, kind="stable"))
    return slot, max(int(slots), 1)


@njit(cache=True, nogil=True)
def _color(first, last, by_first, by_last):  # type: ignore[no-untyped-def]
    """Slots for intervals: one becomes free when the step after its last has come."""
    slot = np.full(len(first), -1, np.int32)
    free, top, slots, gone = np.empty(len(first), np.int32), 0, 0, 0
    for i in by_first:
        if last[i] < 0:
            continue
        while gone < len(first) and last[by_last[gone]] < first[i]:
            if slot[by_last[gone]] >= 0:
                free[top] = slot[by_last[gone]]
                top += 1
            gone += 1
        if top > 0:
            top -= 1
            slot[i] = free[top]
        else:
            slot[i] = slots
            slots += 1
    return slot, slots


@njit(cache=True, nogil=True)
def _search(  # type: ignore[no-untyped-def]
    order, slot, slots, in_ptr, in_tensor, out_ptr, out_tensor, producer, time, size, latency, rate, atom_slot,
    atom_slots, atom, allowed, memory, capacity, follows, width, weights, device, begin,
):  # fmt: skip
    """Fill rows of ``device`` and ``begin``; how many.

    A state: ``at[slot]``, ``done[slot]`` the device and end of the producer of an open tensor, ``there[slot,
    d]`` when it is on d; ``home`` of open atoms; ``busy[d]``, ``free[d, e]``, ``left[d]``; ``reach`` its
    optimistic end, ``work`` the sum of its ops' times. The choices behind it are read back through ``parent``.
    """
    n, devices = time.shape
    at, done = np.zeros((2, width, slots), np.int32), np.zeros((2, width, slots))
    there = np.zeros((2, width, slots, devices))
    home = np.full((2, width, atom_slots), -1, np.int32)
    busy, free = np.zeros((2, width, devices)), np.zeros((2, width, devices, devices))
    left, reach, work = np.zeros((2, width, devices)), np.zeros((2, width)), np.zeros((2, width))
    spent = np.zeros((2, width))
    left[:, :] = capacity
    parent, choice = np.zeros((n, width), np.int32), np.zeros((n, width), np.int32)
    starts = np.zeros((n, width))
    score = np.empty(width * devices)
    start_of = np.empty(width * devices)
    alive = 1
    limited = True
    members = np.zeros(len(memory), np.int64)
    for v in range(n):
        members[atom[v]] += 1
    for i in range(n):
        v = order[i]
        a = atom[v]
        old, new = i % 2, 1 - i % 2
        members[a] -= 1
        made = 0
        for _ in range(2):
            for b in range(alive):
                for d in range(devices):
                    score[b * devices + d] = np.inf
                    fixed = home[old, b, atom_slot[a]] if atom_slot[a] >= 0 else -1
                    if fixed >= 0:
                        if d != fixed:
                            continue
                    elif not allowed[a, d] or (limited and memory[a] > left[old, b, d]):
                        continue
                    ready = busy[old, b, d]
                    for j in range(in_ptr[v], in_ptr[v + 1]):
                        s = slot[in_tensor[j]]
                        source = at[old, b, s]
                        lands = done[old, b, s]
                        if source != d:
                            lands = there[old, b, s, d]
                            if lands == np.inf:
                                t = in_tensor[j]
                                lands = max(done[old, b, s], free[old, b, source, d]) + (
                                    latency[source, d] + size[t] * rate[source, d]
                                )
                        ready = max(ready, lands)
                    finish = ready + time[v, d]
                    hope = finish + follows[v, d]
                    start_of[b * devices + d] = ready
                    score[b * devices + d] = (
                        weights[0] * max(reach[old, b], hope)
                        + weights[1] * hope
                        + weights[2] * (work[old, b] + time[v, d]) / devices
                        + weights[3] * (spent[old, b] + finish - busy[old, b, d]) / devices
                    )
                    made += 1
            if made > 0 or not limited:
                break
            limited = False
        if made == 0:
            return 0
        many = min(made, width)
        best = np.argsort(score[: alive * devices], kind="mergesort")[:many]
        for k in range(many):
            b, d = best[k] // devices, best[k] % devices
            parent[i, k], choice[i, k] = b, d
            at[new, k], done[new, k], there[new, k] = at[old, b], done[old, b], there[old, b]
            home[new, k], busy[new, k], free[new, k] = home[old, b], busy[old, b], free[old, b]
            left[new, k] = left[old, b]
            begun = start_of[best[k]]
            starts[i, k] = begun
            for j in range(in_ptr[v], in_ptr[v + 1]):
                t = in_tensor[j]
                s = slot[t]
                source = at[new, k, s]
                if source != d and there[new, k, s, d] == np.inf:
                    lands = max(done[new, k, s], free[new, k, source, d]) + (
                        latency[source, d] + size[t] * rate[source, d]
                    )
                    there[new, k, s, d] = lands
                    free[new, k, source, d] = lands
            finish = begun + time[v, d]
            busy[new, k, d] = finish
            if atom_slot[a] < 0 or home[new, k, atom_slot[a]] < 0:
                left[new, k, d] -= memory[a]
            if atom_slot[a] >= 0:
                # The slot goes to another atom after the last op of this one.
                home[new, k, atom_slot[a]] = d if members[a] > 0 else -1
            for j in range(out_ptr[v], out_ptr[v + 1]):
                s = slot[out_tensor[j]]
                if s >= 0:
                    at[new, k, s], done[new, k, s] = d, finish
                    there[new, k, s] = np.inf
            reach[new, k] = max(reach[old, b], finish + follows[v, d])
            work[new, k] = work[old, b] + time[v, d]
            spent[new, k] = spent[old, b] + finish - busy[old, b, d]
        alive = many
    last = n % 2
    by_reach = np.argsort(reach[last, :alive], kind="mergesort")
    made = min(alive, len(device))
    for row in range(made):
        b = by_reach[row]
        for i in range(n - 1, -1, -1):
            device[row, order[i]], begin[row, order[i]] = choice[i, b], starts[i, b]
            b = parent[i, b]
    return made
