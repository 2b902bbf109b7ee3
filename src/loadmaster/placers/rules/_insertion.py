"""List scheduling with insertion: ops in a given order, each to the device that a rule likes best."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba import njit

from loadmaster.arrays import FloatArray, IntArray
from loadmaster.placers.frame.feasible import atoms_of, repair
from loadmaster.problem import Problem

__all__ = [
    "bring",
    "empty_schedule",
    "find_gap",
    "insert_ops",
    "insertion_schedule",
    "may_take",
    "ready_on",
    "ready_order",
    "take_gap",
    "within_memory",
]


NOBODY = np.zeros((0, 0))


def insertion_schedule(
    problem: Problem, order: IntArray, *, extra: FloatArray = NOBODY, forced: IntArray | None = None
) -> tuple[IntArray, FloatArray]:
    """(n,) devices and (n,) start times: each op where its finish plus ``extra`` is least.

    Parameters
    ----------
    order : a topological order of the ops.
    extra : (n, D) seconds added to the finish when devices are compared; none if empty.
    forced : (n,) the device that an op goes to if it may and fits, or -1.

    Complexity: O(edges * devices) and the search for gaps.
    """
    atoms, graph = atoms_of(problem), problem.graph
    forced = np.full(problem.n, -1, np.int32) if forced is None else forced

    def fill(capacity: FloatArray, device: IntArray, begin: FloatArray) -> bool:
        done: bool = insert_ops(
            order, *graph.inputs, graph.tensor_producer, problem.time, problem.size, problem.latency, problem.rate,
            atoms.of_op, atoms.allowed, atoms.memory, capacity, extra, forced, True, device, begin,
        )  # fmt: skip
        return done

    return within_memory(problem, fill)


def within_memory(
    problem: Problem, fill: Callable[[FloatArray, IntArray, FloatArray], bool]
) -> tuple[IntArray, FloatArray]:
    """(n,) devices and (n,) start times as ``fill(capacity, device, begin)`` writes them.

    If it returns False, since memory ran out on the way, the schedule is made without limits and its devices are
    repaired. Then the start times are those before the repair.
    """
    for capacity in (problem.capacity, np.full(problem.devices, np.inf)):
        device, begin = np.full(problem.n, -1, np.int32), np.zeros(problem.n)
        if fill(capacity, device, begin):
            break
    return repair(problem, device), begin


def ready_order(problem: Problem, priority: FloatArray) -> IntArray:
    """(n,) ops as a scheduler takes them that always picks the ready op of the highest priority; ties by
    topological position. Ready is an op whose predecessors have been picked."""
    graph = problem.graph
    waiting = np.diff(graph.predecessors[0]).astype(np.int32)
    rank = np.empty(problem.n, np.int64)
    rank[np.lexsort((graph.position, -priority))] = np.arange(problem.n)
    order: IntArray = _by_rank(rank, waiting, *graph.successors)
    return order


@njit(cache=True, nogil=True)
def _by_rank(rank, waiting, ptr, successor):  # type: ignore[no-untyped-def]
    """Pop the ready op of the least rank from a binary heap until none is left."""
    n = len(rank)
    op = np.empty(n, np.int32)
    op[rank] = np.arange(n).astype(np.int32)
    heap, size = np.empty(n, np.int64), 0
    order, made = np.empty(n, np.int32), 0
    for v in range(n):
        if waiting[v] == 0:
            size = _push(heap, size, rank[v])
    while size > 0:
        v = op[heap[0]]
        size -= 1
        _sink(heap, size, heap[size])
        order[made] = v
        made += 1
        for i in range(ptr[v], ptr[v + 1]):
            waiting[successor[i]] -= 1
            if waiting[successor[i]] == 0:
                size = _push(heap, size, rank[successor[i]])
    return order


@njit(cache=True, nogil=True)
def _push(heap, size, key):  # type: ignore[no-untyped-def]
    i = size
    while i > 0 and heap[(i - 1) // 2] > key:
        heap[i] = heap[(i - 1) // 2]
        i = (i - 1) // 2
    heap[i] = key
    return size + 1


@njit(cache=True, nogil=True)
def _sink(heap, size, key):  # type: ignore[no-untyped-def]
    """Put ``key`` at the root of a heap of ``size`` and let it sink."""
    i = 0
    while 2 * i + 1 < size:
        child = 2 * i + 1
        if child + 1 < size and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= key:
            break
        heap[i] = heap[child]
        i = child
    heap[i] = key


@njit(cache=True, nogil=True)
def find_gap(gap_start, gap_end, gaps, ready, length):  # type: ignore[no-untyped-def]
    """Index of the first of the sorted ``gaps`` gaps of a device that takes ``length`` seconds from ``ready``
    on; the last gap is open.

    By bisection the first that ends late enough, then the first that is long enough.
    """
    low, high = 0, gaps - 1
    while low < high:
        middle = (low + high) // 2
        if gap_end[middle] >= ready + length:
            high = middle
        else:
            low = middle + 1
    while max(gap_start[low], ready) + length > gap_end[low]:
        low += 1
    return low


@njit(cache=True, nogil=True)
def take_gap(gap_start, gap_end, gaps, d, g, start, end):  # type: ignore[no-untyped-def]
    """Take [start, end] out of gap g of device d: nothing, one or two gaps remain.

    ``gap_start``, ``gap_end`` : (D, room), ``gaps`` : (D,). Returns the first two, wider if need be.
    """
    room = gap_start.shape[1]
    if end == start:
        return gap_start, gap_end
    before, after = start > gap_start[d, g], end < gap_end[d, g]
    if before and after:
        if gaps[d] == room:
            wider_start = np.zeros((len(gaps), 2 * room))
            wider_end = np.full((len(gaps), 2 * room), np.inf)
            wider_start[:, :room] = gap_start
            wider_end[:, :room] = gap_end
            gap_start, gap_end = wider_start, wider_end
        for i in range(gaps[d], g + 1, -1):
            gap_start[d, i] = gap_start[d, i - 1]
            gap_end[d, i] = gap_end[d, i - 1]
        gap_start[d, g + 1] = end
        gap_end[d, g + 1] = gap_end[d, g]
        gap_end[d, g] = start
        gaps[d] += 1
    elif before:
        gap_end[d, g] = start
    elif after:
        gap_start[d, g] = end
    else:
        for i in range(g, gaps[d] - 1):
            gap_start[d, i] = gap_start[d, i + 1]
            gap_end[d, i] = gap_end[d, i + 1]
        gaps[d] -= 1
    return gap_start, gap_end


@njit(cache=True, nogil=True)
def insert_ops(  # type: ignore[no-untyped-def]
    order, in_ptr, in_tensor, producer, time, size, latency, rate, atom, allowed, memory, capacity, extra, forced,
    insertion, device, begin,
):  # fmt: skip
    """Fill ``device`` and ``begin``; False if some op has no device with room left.

    ``insertion``: gaps before the last op of a device are used. ``lookahead`` and ``gdp`` write out the same steps:
    in a function of their own, which many arrays are passed to, they take up to three times as long.
    """
    n, devices = time.shape
    gap_start, gap_end, gaps, there, free, end, left, home = empty_schedule(
        n, len(producer), len(memory), capacity
    )
    for v in order:
        a = atom[v]
        # Not bare numbers: numba would compile what they are passed to once for the literals, and once for integers.
        best, best_score, best_start, best_gap = np.int64(-1), np.inf, 0.0, np.int64(0)
        only = home[a]
        if only < 0 and forced[v] >= 0 and allowed[a, forced[v]] and memory[a] <= left[forced[v]]:
            only = forced[v]
        for d in range(devices):
            if not may_take(d, only, allowed[a, d], memory[a], left[d]):
                continue
            ready = ready_on(v, d, in_ptr, in_tensor, producer, device, end, size, latency, rate, there, free)
            g = gaps[d] - 1
            if insertion:
                g = find_gap(gap_start[d], gap_end[d], gaps[d], ready, time[v, d])
            start = max(gap_start[d, g], ready)
            score = start + time[v, d]
            if len(extra) > 0:
                score += extra[v, d]
            if score < best_score or best < 0:
                best, best_score, best_start, best_gap = d, score, start, g  # type: ignore[assignment]
        if best < 0:
            return False
        if home[a] < 0:
            home[a] = best
            left[best] -= memory[a]
        device[v] = best
        begin[v] = best_start
        end[v] = best_start + time[v, best]
        bring(v, best, in_ptr, in_tensor, producer, device, end, size, latency, rate, there, free)
        gap_start, gap_end = take_gap(gap_start, gap_end, gaps, best, best_gap, best_start, end[v])
    return True


@njit(cache=True, nogil=True)
def empty_schedule(ops, tensors, atoms, capacity):  # type: ignore[no-untyped-def]
    """The state of a list scheduler before the first op.

    ``gap_start``, ``gap_end`` (D, room) and ``gaps`` (D,): when each device is idle, as in :func:`take_gap`.
    ``there[t, d]``: when tensor t is on device d (infinite: not under way). ``free[d, e]``: when the link is idle
    again. ``end`` (ops,): when an op is done. ``left`` (D,): bytes. ``home`` (atoms,): the device, or -1.
    """
    devices = len(capacity)
    gap_start, gap_end = np.zeros((devices, 64)), np.full((devices, 64), np.inf)
    there = np.full((tensors, devices), np.inf)
    free, end = np.zeros((devices, devices)), np.zeros(ops)
    home = np.full(atoms, -1, np.int32)
    return gap_start, gap_end, np.ones(devices, np.int64), there, free, end, capacity.copy(), home


@njit(cache=True, nogil=True)
def may_take(d, only, allowed, memory, left):  # type: ignore[no-untyped-def]
    """Whether device d may take an atom of ``memory`` bytes, which must go to ``only`` unless that is -1."""
    return d == only if only >= 0 else allowed and memory <= left


@njit(cache=True, nogil=True)
def bring(v, d, in_ptr, in_tensor, producer, device, end, size, latency, rate, there, free):  # type: ignore[no-untyped-def]
    """Bring the inputs of op v to device d, where they are not there or under way."""
    for i in range(in_ptr[v], in_ptr[v + 1]):
        t = in_tensor[i]
        s = device[producer[t]]
        if s != d and there[t, d] == np.inf:
            there[t, d] = max(end[producer[t]], free[s, d]) + (latency[s, d] + size[t] * rate[s, d])
            free[s, d] = there[t, d]


@njit(cache=True, nogil=True)
def ready_on(v, d, in_ptr, in_tensor, producer, device, end, size, latency, rate, there, free):  # type: ignore[no-untyped-def]
    """When the inputs of op v can all be on device d."""
    ready = 0.0
    for i in range(in_ptr[v], in_ptr[v + 1]):
        t = in_tensor[i]
        u = producer[t]
        s = device[u]
        if s == d:
            arrival = end[u]
        elif there[t, d] < np.inf:
            arrival = there[t, d]
        else:
            arrival = max(end[u], free[s, d]) + (latency[s, d] + size[t] * rate[s, d])
        ready = max(ready, arrival)
    return ready
