"""Calls and CPU ops one after another: the best chain of them, by dynamic programming over ideals.

With I running over the ideals of the graph (sets that contain all predecessors of their members) and a over
the numbers of accelerators used,

    best[I][a] = min(best[I - v][a] + cpu(v) over maximal v,   best[J][a - 1] + seconds(I - J) over ideals J within I),

where I - J must fit the memory of an accelerator. Nothing overlaps in such a chain, so that its time is an upper
bound on the time of the placement; on graphs that are narrow it is close. Where there are too many ideals,
the program runs over the prefixes of single topological orders.

References
----------
J. Tarnawski et al., "Efficient algorithms for device placement of DNN graph operators", NeurIPS 2020 (ideals).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from loadmaster.arrays import FloatArray, IntArray, LongArray
from loadmaster.placers.stages._contraction import contract
from loadmaster.placers.stages._tables import MOST_STATES, count_vectors
from loadmaster.placers.stages.ideal_dp._ideals import lattice_of, members_of
from loadmaster.placers.stages.linear_dp._orders import some_order
from loadmaster.problem import Pipeline, Problem

__all__ = ["CallChains"]


MOST_CELLS = 20_000_000
"""(ideal, accelerators used) pairs that there may be."""
BATCH = 64
"""Ideals between two looks at the clock, on wide graphs."""


class Ideals(NamedTuple):
    """Ideals by size: the maximal atoms of each and what is left without them; ``rank`` orders the atoms."""

    top_ptr: LongArray
    top: IntArray
    below: IntArray
    rank: IntArray


class CallChains:
    """The chains of one ``offload`` problem.

    ``possible`` is False where accelerators are of too many kinds to count those in use, or one of them is
    like a CPU in every respect.
    """

    def __init__(self, problem: Problem) -> None:
        free = problem.pool

        def charge(values: FloatArray) -> FloatArray:
            return np.where(free, 0.0, values)

        found = self._contracted = contract(
            replace(
                problem,
                graph=replace(problem.graph, boundary=np.zeros(problem.n, np.bool_)),  # calls take them all
                model=Pipeline(contiguity="chain"),
                send_latency=charge(problem.send_latency),
                send_rate=charge(problem.send_rate),
                recv_latency=charge(problem.recv_latency),
                recv_rate=charge(problem.recv_rate),
            )
        )
        tables = found.tables
        pool = np.array([bool(free[kind[0]]) for kind in found.kinds], np.bool_)
        counts = found.count[~pool]
        self.states = math.prod((counts + 1).tolist())
        mixed = any(free[kind].any() and not free[kind].all() for kind in found.kinds)
        self.possible = not mixed and found.atoms > 0 and self.states <= MOST_STATES
        if not self.possible:
            return
        self._kinds = [kind for kind, cpu in zip(found.kinds, pool.tolist(), strict=True) if not cpu]
        pools = np.array(
            [kind[0] for kind, cpu in zip(found.kinds, pool.tolist(), strict=True) if cpu], np.int32
        )
        stay = np.full(found.atoms, np.inf)
        self._cpu = np.zeros(found.atoms, np.int32)
        if len(pools):
            stay = tables.time[:, pool].min(axis=1)
            self._cpu = pools[tables.time[:, pool].argmin(axis=1)]
        used = count_vectors(counts) if len(counts) else np.zeros((1, 0), np.int32)
        radix = np.cumprod(np.append(1, (counts + 1)[:0:-1]))[::-1][: len(counts)]
        change = np.zeros((len(tables.pins), 8, len(counts)))
        for k, channel in enumerate(tables.channel[~pool].tolist()):
            if channel >= 0:
                change[:, :, k] = tables.change[:, channel]
        self._arrays = (
            stay,
            np.ascontiguousarray(tables.time[:, ~pool]),
            tables.memory,
            tables.capacity[~pool] if tables.crowded else np.full(len(counts), np.inf),
            tables.net_ptr,
            tables.net,
            tables.role,
            tables.pins,
            change,
            np.where(used < counts, np.arange(self.states)[:, None] + radix, -1).astype(np.int64),
        )

    def lattice(self, limit: int) -> Ideals | None:
        """All ideals; None if there are more than ``limit``."""
        lattice = lattice_of(self._contracted, min(limit, MOST_CELLS // self.states))
        if lattice is None:
            return None
        atoms = np.arange(self._contracted.atoms, dtype=np.int32)
        return Ideals(lattice.top_ptr, lattice.top, lattice.below, atoms)

    def prefixes(self, number: int, seed: int) -> Ideals:
        """The prefixes of one topological order."""
        order = some_order(self._contracted, number, seed)
        n = len(order)
        rank = np.empty(n, np.int32)
        rank[order] = np.arange(n, dtype=np.int32)
        ptr = np.maximum(np.arange(-1, n + 1), 0)
        return Ideals(ptr.astype(np.int64), order, np.arange(n, dtype=np.int32), rank)

    def best(self, ideals: Ideals, limit: float, check: Callable[[], None]) -> tuple[float, IntArray] | None:
        """(seconds, devices of the ops) of the best chain of less than ``limit`` seconds; None if there is none.

        ``check`` is called now and then and may raise.
        """
        number = len(ideals.top_ptr) - 1
        value = np.full((number, self.states), limit)
        origin = np.full((number, self.states), -1, np.int32)
        kind = np.full((number, self.states), -1, np.int8)
        value[0] = np.inf
        value[0, 0] = 0.0
        solve: Any = _solve  # mypy counts the arguments of a compiled function wrongly behind a star
        for begin in range(1, number, BATCH):
            check()
            solve(*ideals, *self._arrays, value, origin, kind, begin, min(begin + BATCH, number))
        state = int(value[-1].argmin())
        if not value[-1, state] < limit:
            return None
        return float(value[-1, state]), self._devices(ideals, origin, kind, state)

    def _devices(self, ideals: Ideals, origin: IntArray, kind: npt.NDArray[np.int8], state: int) -> IntArray:
        """The way back from the last ideal."""
        device = self._cpu.copy()
        taken = [0] * len(self._kinds)
        following = self._arrays[-1]
        ideal = len(ideals.top_ptr) - 2
        while ideal:
            before, k = int(origin[ideal, state]), int(kind[ideal, state])
            if k >= 0:
                members, rest = (
                    members_of(ideals.top_ptr, ideals.top, ideals.below, i) for i in (ideal, before)
                )
                device[np.setdiff1d(members, rest)] = self._kinds[k][taken[k]]
                taken[k] += 1
                state = int(np.flatnonzero(following[:, k] == state)[0])
            ideal = before
        return device[self._contracted.atom_of]


@njit(cache=True, nogil=True)
def _solve(  # type: ignore[no-untyped-def]
    top_ptr, top, below, rank, stay, time, memory, capacity, net_ptr, net, role, pins, change, following,
    value, origin, kind, begin, end,
):  # fmt: skip
    """Solve the ideals begin … end - 1, of which all smaller ones are solved.

    Depth first from each ideal down to the smaller ones, atoms leaving in falling ``rank``, so that every
    smaller ideal is met once; ``have`` counts the pins of each net that have left, which form the call.
    """
    states, kinds = value.shape[1], time.shape[1]
    n = len(rank)
    have = np.zeros(len(pins), np.int32)
    atom = np.empty(n + 1, np.int32)
    at, stop = np.zeros(n + 1, np.int64), np.zeros(n + 1, np.int64)
    work, talk, weight = np.zeros((n + 1, kinds)), np.zeros((n + 1, kinds)), np.zeros(n + 1)
    for target in range(begin, end):
        for i in range(top_ptr[target], top_ptr[target + 1]):
            for s in range(states):
                total = value[below[i], s] + stay[top[i]]
                if total < value[target, s]:
                    value[target, s], origin[target, s], kind[target, s] = total, below[i], -1
        depth = 0
        at[0], stop[0] = top_ptr[target], top_ptr[target + 1]
        while kinds > 0:
            if at[depth] == stop[depth]:
                if depth == 0:
                    break
                v = atom[depth]
                for i in range(net_ptr[v], net_ptr[v + 1]):
                    have[net[i]] -= 1
                depth -= 1
                continue
            edge = at[depth]
            at[depth] += 1
            v = top[edge]
            if depth > 0 and rank[v] > rank[atom[depth]]:
                continue
            weight[depth + 1] = weight[depth] + memory[v]
            alive = False
            for k in range(kinds):
                work[depth + 1, k] = work[depth, k] + time[v, k]
                talk[depth + 1, k] = talk[depth, k]
                # Compute and memory only grow from here on.
                alive = alive or (
                    weight[depth + 1] <= capacity[k] and work[depth + 1, k] < value[target, states - 1]
                )
            if not alive:
                continue
            depth += 1
            atom[depth] = v
            for i in range(net_ptr[v], net_ptr[v + 1]):
                e = net[i]
                case = role[i] + 2 * (have[e] == 0) + (have[e] + 1 == pins[e])
                for k in range(kinds):
                    talk[depth, k] += change[e, case, k]
                have[e] += 1
            ideal = below[edge]
            at[depth], stop[depth] = top_ptr[ideal], top_ptr[ideal + 1]
            for k in range(kinds):
                if weight[depth] > capacity[k]:
                    continue
                seconds = work[depth, k] + talk[depth, k]
                for s in range(states):
                    to = following[s, k]
                    if to >= 0 and value[ideal, s] + seconds < value[target, to]:
                        value[target, to] = value[ideal, s] + seconds
                        origin[target, to], kind[target, to] = ideal, k
