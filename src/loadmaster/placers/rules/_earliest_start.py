"""Earliest task first: of all ready ops and devices the pair that can start earliest, again and again."""

from __future__ import annotations

import numpy as np
from numba import njit

from loadmaster.arrays import FloatArray, IntArray
from loadmaster.placers.frame.feasible import atoms_of, repair
from loadmaster.problem import Problem

__all__ = ["earliest_start_schedule"]


def earliest_start_schedule(
    problem: Problem, favourite: IntArray | None = None
) -> tuple[IntArray, FloatArray]:
    """(n,) devices and (n,) start times; ties go to the op of the highest upward rank, then to the device
    where it ends first.

    With a ``favourite`` child (n,) of each op (-1: none), the device of an op stays reserved for that child
    until its inputs could have been brought to any other device. A transfer takes its time from the end of
    its producer on; links do not queue here, as in the paper. If memory runs out on the way, the schedule is
    made without limits and its devices are repaired.

    Complexity: O((ops + edges) * devices + ops * devices * log ops): each device keeps two heaps of ready ops,
    those whose inputs it waits for (by arrival) and those that wait for it (by rank).
    """
    atoms, graph = atoms_of(problem), problem.graph
    rank = np.empty(problem.n, np.int64)
    rank[problem.priority_order] = np.arange(problem.n)
    favourite = np.full(problem.n, -1, np.int32) if favourite is None else favourite
    for capacity in (problem.capacity, np.full(problem.devices, np.inf)):
        device, begin = np.full(problem.n, -1, np.int32), np.zeros(problem.n)
        done = _run(
            rank, *graph.inputs, graph.tensor_producer, *graph.outputs, graph.consumer_ptr, graph.consumer_op,
            problem.time, problem.size, problem.latency, problem.rate, atoms.of_op, atoms.allowed, atoms.memory,
            capacity, favourite, device, begin,
        )  # fmt: skip
        if done:
            break
    return repair(problem, device), begin


@njit(cache=True, nogil=True)
def _push(key, item, size, k, v):  # type: ignore[no-untyped-def]
    i = size
    while i > 0 and key[(i - 1) // 2] > k:
        key[i], item[i] = key[(i - 1) // 2], item[(i - 1) // 2]
        i = (i - 1) // 2
    key[i], item[i] = k, v


@njit(cache=True, nogil=True)
def _drop_first(key, item, size):  # type: ignore[no-untyped-def]
    """Remove the root of a heap of ``size``; the heap then has ``size - 1``."""
    size -= 1
    k, v = key[size], item[size]
    i = 0
    while 2 * i + 1 < size:
        child = 2 * i + 1
        if child + 1 < size and key[child + 1] < key[child]:
            child += 1
        if key[child] >= k:
            break
        key[i], item[i] = key[child], item[child]
        i = child
    key[i], item[i] = k, v


@njit(cache=True, nogil=True)
def _run(  # type: ignore[no-untyped-def]
    rank, in_ptr, in_tensor, producer, out_ptr, out_tensor, ptr, consumer, time, size, latency, rate, atom, allowed,
    memory, capacity, favourite, device, begin,
):  # fmt: skip
    """Fill ``device`` and ``begin``; False if a ready op fits nowhere.

    arrives : (n, D) when the inputs of a ready op are on a device.
    free : (D,) when a device has done its ops; kept : (D,) until when it is reserved, for the op ``child``.
    soon, late : heaps of ready ops per device. In ``soon`` are those that have arrived before the device is
        free, by rank, in ``late`` the others, by arrival. Entries of ops that have been placed elsewhere, or
        for which there is no room any more, are dropped when they come up.
    """
    n, devices = time.shape
    arrives = np.zeros((n, devices))
    end = np.zeros(n)
    free, kept, child = np.zeros(devices), np.zeros(devices), np.full(devices, -1, np.int64)
    soon_key, soon = np.empty((devices, n)), np.empty((devices, n), np.int32)
    late_key, late = np.empty((devices, n)), np.empty((devices, n), np.int32)
    soons, lates = np.zeros(devices, np.int64), np.zeros(devices, np.int64)
    missing = np.zeros(n, np.int64)
    left = capacity.copy()
    home = np.full(len(memory), -1, np.int32)
    for v in range(n):
        missing[v] = in_ptr[v + 1] - in_ptr[v]
        if missing[v] == 0:
            for d in range(devices):
                if allowed[atom[v], d]:
                    _push(late_key[d], late[d], lates[d], 0.0, v)
                    lates[d] += 1
    for _ in range(n):
        best, where, best_start = -1, -1, np.inf
        for d in range(devices):
            while lates[d] > 0 and late_key[d, 0] <= free[d]:
                v = late[d, 0]
                _drop_first(late_key[d], late[d], lates[d])
                lates[d] -= 1
                _push(soon_key[d], soon[d], soons[d], float(rank[v]), v)
                soons[d] += 1
            while soons[d] > 0 and not _open(soon[d, 0], d, device, atom, home, memory, left):
                _drop_first(soon_key[d], soon[d], soons[d])
                soons[d] -= 1
            while lates[d] > 0 and not _open(late[d, 0], d, device, atom, home, memory, left):
                _drop_first(late_key[d], late[d], lates[d])
                lates[d] -= 1
            for choice in range(2):
                v = -1
                if choice == 0:
                    if soons[d] > 0:
                        v = soon[d, 0]
                    elif lates[d] > 0:
                        v = late[d, 0]
                elif child[d] >= 0 and missing[child[d]] == 0:
                    w = child[d]
                    if allowed[atom[w], d] and _open(w, d, device, atom, home, memory, left):
                        v = w
                if v < 0:
                    continue
                start = max(arrives[v, d], free[d])
                if child[d] != v:
                    start = max(start, kept[d])
                if best >= 0 and start == best_start:
                    better = rank[v] < rank[best] or (v == best and time[v, d] < time[v, where])
                else:
                    better = start < best_start
                if better:
                    best, where, best_start = v, d, start
        if best < 0:
            return False
        v, d, a = best, where, atom[best]
        if home[a] < 0:
            home[a] = d
            left[d] -= memory[a]
        device[v] = d
        begin[v] = best_start
        end[v] = free[d] = best_start + time[v, d]
        for e in range(devices):
            if child[e] == v:
                child[e], kept[e] = -1, 0.0
        child[d], kept[d] = -1, 0.0
        w = favourite[v]
        longest = 0.0
        for i in range(out_ptr[v], out_ptr[v + 1]):
            t = out_tensor[i]
            for j in range(ptr[t], ptr[t + 1]):
                u = consumer[j]
                missing[u] -= 1
                if u == w:
                    for e in range(devices):
                        if e != d:
                            longest = max(longest, latency[d, e] + size[t] * rate[d, e])
                if missing[u] == 0:
                    _arrive(u, in_ptr, in_tensor, producer, device, end, size, latency, rate, arrives)
                    for e in range(devices):
                        if allowed[atom[u], e]:
                            _push(late_key[e], late[e], lates[e], arrives[u, e], u)
                            lates[e] += 1
        if w >= 0 and device[w] < 0 and allowed[atom[w], d] and home[atom[w]] in (-1, d):
            child[d], kept[d] = w, end[v] + longest
    return True


@njit(cache=True, nogil=True)
def _open(v, d, device, atom, home, memory, left):  # type: ignore[no-untyped-def]
    """Whether op v still waits for a device and may go to d."""
    a = atom[v]
    return device[v] < 0 and (home[a] == d or (home[a] < 0 and memory[a] <= left[d]))


@njit(cache=True, nogil=True)
def _arrive(u, in_ptr, in_tensor, producer, device, end, size, latency, rate, arrives):  # type: ignore[no-untyped-def]
    for i in range(in_ptr[u], in_ptr[u + 1]):
        t = in_tensor[i]
        s = device[producer[t]]
        for e in range(arrives.shape[1]):
            lands = end[producer[t]]
            if e != s:
                lands += latency[s, e] + size[t] * rate[s, e]
            arrives[u, e] = max(arrives[u, e], lands)
