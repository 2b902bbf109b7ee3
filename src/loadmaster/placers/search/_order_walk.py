"""A walk over placements and orders under ``concurrent``: ops change their device, or their turn."""

from __future__ import annotations

import numpy as np
from numba import njit

from loadmaster.arrays import FloatArray, IntArray
from loadmaster.placers.frame.feasible import atoms_of
from loadmaster.placers.search._moves import members_of, uniform
from loadmaster.problem import Placement, Problem

__all__ = ["OrderWalk"]


class OrderWalk:
    """Descent (with sideways steps) from a placement and the sequence in which its ops start.

    A move shifts one op within the sequence, between its inputs and its readers, or moves an atom to another
    device; half of the moves begin with an op on the chain of causes of the makespan. Every device follows
    the sequence strictly, and a move is evaluated by replaying all of it: O(ops + edges).
    """

    def __init__(self, problem: Problem, device: IntArray, begin: FloatArray, seed: int) -> None:
        graph, atoms = problem.graph, atoms_of(problem)
        rank = np.empty(problem.n, np.int64)
        rank[problem.priority_order] = np.arange(problem.n)
        self._problem = problem
        self._sequence = np.lexsort((rank, begin)).astype(np.int32)
        place = np.empty(problem.n, np.int64)
        place[self._sequence] = np.arange(problem.n)
        tail, head = graph.arcs
        if (place[tail] > place[head]).any():  # zero-time ops that start together
            self._sequence = problem.priority_order.copy()
        self._device = device.astype(np.int32, copy=True)
        at = np.zeros(atoms.count, np.int32)
        at[atoms.of_op] = device
        self._used = np.bincount(at, atoms.memory, problem.devices).astype(np.float64)
        self._rng = np.array([seed], np.uint64)
        self._graph = (
            *graph.inputs, *graph.outputs, graph.tensor_producer, graph.consumer_ptr, graph.consumer_op,
        )  # fmt: skip
        self._costs = (problem.time, problem.size, problem.latency, problem.rate)
        self._atoms = (atoms.of_op, *members_of(problem), atoms.allowed, atoms.memory, problem.capacity)
        self.cost = np.inf

    def advance(self, evaluations: int) -> int:
        """Try so many moves; returns how many replays were made."""
        made, self.cost = _walk(
            self._sequence,
            self._device,
            self._used,
            *self._graph,
            *self._costs,
            *self._atoms,
            self._rng,
            evaluations,
        )
        return int(made)

    @property
    def placement(self) -> Placement:
        """Where the walk stands, with its order."""
        order = np.empty(self._problem.n, np.int32)
        order[self._sequence] = np.arange(self._problem.n, dtype=np.int32)
        return Placement(self._device, order=order)


@njit(cache=True, nogil=True)
def _replay(  # type: ignore[no-untyped-def]
    sequence, device, out_ptr, out_tensor, consumer_ptr, consumer, time, size, latency, rate, ready, busy, free,
    landing, sent, cause, last, why,
):  # fmt: skip
    """The makespan of the sequence; ``cause[v]`` is the op that v waited for last (-1: none).

    ``ready`` and ``why``: when the inputs of an op are there, and whose came last; ``last[d]`` the op that ran
    last on d. The op that ends last is left in ``last[D]``.
    """
    ready[:] = 0.0
    why[:] = -1
    busy[:] = 0.0
    free[:] = 0.0
    last[:] = -1
    sent[:] = -1
    makespan, final = -1.0, -1
    for v in sequence:
        d = device[v]
        begin, cause[v] = ready[v], why[v]
        if busy[d] > begin or cause[v] < 0:
            begin, cause[v] = max(begin, busy[d]), last[d]
        end = begin + time[v, d]
        busy[d], last[d] = end, v
        if end > makespan:
            makespan, final = end, v
        for i in range(out_ptr[v], out_ptr[v + 1]):
            t = out_tensor[i]
            for c in range(consumer_ptr[t], consumer_ptr[t + 1]):
                u = consumer[c]
                e = device[u]
                if e == d:
                    lands = end
                else:
                    if sent[e] != t:
                        sent[e] = t
                        landing[e] = max(end, free[d, e]) + (latency[d, e] + size[t] * rate[d, e])
                        free[d, e] = landing[e]
                    lands = landing[e]
                if lands > ready[u] or why[u] < 0:
                    ready[u], why[u] = max(ready[u], lands), v
    last[len(busy)] = final
    return max(makespan, 0.0)


@njit(cache=True, nogil=True)
def _shift(sequence, place, source, target):  # type: ignore[no-untyped-def]
    """Move the op at position ``source`` to ``target``; those in between make room."""
    v = sequence[source]
    step = 1 if target > source else -1
    i = source
    while i != target:
        sequence[i] = sequence[i + step]
        place[sequence[i]] = i
        i += step
    sequence[target] = v
    place[v] = target


@njit(cache=True, nogil=True)
def _walk(  # type: ignore[no-untyped-def]
    sequence, device, used, in_ptr, in_tensor, out_ptr, out_tensor, producer, consumer_ptr, consumer, time, size,
    latency, rate, atom, member_ptr, member, allowed, memory, capacity, rng, evaluations,
):  # fmt: skip
    """Returns (replays made, cost of where the walk stands)."""
    n, devices = time.shape
    ready, busy, free = np.empty(n), np.empty(devices), np.empty((devices, devices))
    landing, sent = np.empty(devices), np.empty(devices, np.int64)
    cause, last, why = np.empty(n, np.int64), np.empty(devices + 1, np.int64), np.empty(n, np.int64)
    place, chain = np.empty(n, np.int64), np.empty(n, np.int64)
    for i in range(n):
        place[sequence[i]] = i
    cost = np.inf
    fresh = True
    made = links = 0
    for _ in range(4 * evaluations + 16):
        if made >= evaluations:
            break
        if fresh:
            cost = _replay(
                sequence, device, out_ptr, out_tensor, consumer_ptr, consumer, time, size, latency, rate, ready, busy,
                free, landing, sent, cause, last, why,
            )  # fmt: skip
            made += 1
            links, v = 0, last[devices]
            while v >= 0:
                chain[links] = v
                links += 1
                v = cause[v]
            fresh = False
            continue
        v = chain[int(uniform(rng) * links)] if uniform(rng) < 0.5 else int(uniform(rng) * n)
        a, here = atom[v], device[v]
        source = target = place[v]
        there = here
        if devices > 1 and uniform(rng) < 0.5:
            there = int(uniform(rng) * (devices - 1))
            there += there >= here
            if not allowed[a, there] or used[there] + memory[a] > capacity[there]:
                continue
            for j in range(member_ptr[a], member_ptr[a + 1]):
                device[member[j]] = there
        else:
            low, high = 0, n - 1
            for i in range(in_ptr[v], in_ptr[v + 1]):
                low = max(low, place[producer[in_tensor[i]]] + 1)
            for i in range(out_ptr[v], out_ptr[v + 1]):
                t = out_tensor[i]
                for c in range(consumer_ptr[t], consumer_ptr[t + 1]):
                    high = min(high, place[consumer[c]] - 1)
            reach = 1 + int(uniform(rng) * uniform(rng) * n)
            low, high = max(low, source - reach), min(high, source + reach)
            target = low + int(uniform(rng) * (high - low + 1))
            if target == source:
                continue
            _shift(sequence, place, source, target)
        value = _replay(
            sequence, device, out_ptr, out_tensor, consumer_ptr, consumer, time, size, latency, rate, ready, busy, free,
            landing, sent, cause, last, why,
        )  # fmt: skip
        made += 1
        if value <= cost:
            if there != here:
                used[here] -= memory[a]
                used[there] += memory[a]
            cost = value
            links, v = 0, last[devices]
            while v >= 0:
                chain[links] = v
                links += 1
                v = cause[v]
        elif there != here:
            for j in range(member_ptr[a], member_ptr[a + 1]):
                device[member[j]] = here
        else:
            _shift(sequence, place, target, source)
    return made, cost
