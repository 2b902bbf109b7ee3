"""What lies between two ops of a long path, as a problem of its own: how far the two are apart at least.

A long path through the graph (the *spine*) is cut into stretches of some dozens of ops: all that comes after the op
at one end of the stretch and before the op at its other end. All of it runs between the two, on the same devices and
with the same transfers. So a bound on that alone says how far apart the two ops are, wherever everything else is; and
as these problems are small, fixing their heavy classes comes close to the best there is (:class:`Division`). Networks
repeat themselves: stretches that look the same are solved once.

Distances add up along the spine, and :func:`placed_paths` takes them for arcs.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numba import njit

from loadmaster.arrays import FloatArray, IntArray
from loadmaster.graph import Graph
from loadmaster.graph.order import csr_from_pairs
from loadmaster.placers.solvers.concurrent.dividing import SLACK, Division
from loadmaster.problem import Problem
from loadmaster.problem.bounds import NOWHERE, Apart, Glances, View, placed_paths, view_of

__all__ = ["Stretches", "stretch_bounds"]

GAIN = 1e-2
"""What a level must raise the bound by, relative to the cost, for the next one to be tried."""

LEVELS = ((40, 0.25), (90, 0.75))
"""Ops of a stretch at most, and the part of the time for them; longer stretches know how far apart shorter ones are."""
LARGEST = 50_000
"""Most ops of a graph whose stretches are looked for."""
SHARE = 8
"""So many nodes and a quarter of those before are looked at before another stretch may have its turn."""


def stretch_bounds(
    problem: Problem, known: float, target: Callable[[], float], over: Callable[[float], bool], work: float
) -> Iterator[tuple[float, Apart]]:
    """Rising lower bounds on the cost of any placement under ``concurrent``, and what is known to be apart.

    known, target : as in :func:`dividing_bounds`. It ends where a level gains next to nothing.
    over : whether to stop when that part of the time should be gone.
    work : ops in all nodes of a level at most.
    """
    if problem.n > LARGEST:
        return
    apart, used, reached = NOWHERE, 0.0, _root(problem, NOWHERE, target())
    for most, part in LEVELS:
        used += part
        until = partial(over, used)
        stretches = Stretches(problem, most, apart, until)
        stretches.solve(until, work)
        apart = apart.joined(stretches.apart())
        before, reached = reached, _root(problem, apart, target())
        known = max(known, reached)
        yield known, apart
        if reached <= before + GAIN * target() or known >= target():
            return


def _root(problem: Problem, apart: Apart, target: float) -> float:
    """What is proved where no class is fixed."""
    value = Glances(problem, apart)(np.full(problem.classes, -1, np.int32), target)
    return min(value * (1.0 - SLACK), target)


class _Stretch(NamedTuple):
    """Ops between two ops of the spine (-1: the start or the end of everything), and where they lie."""

    first: int
    second: int
    ops: IntArray


class Stretches:
    """Stretches of a spine and how far their ends are apart.

    most : ops of a stretch at most.
    apart : what is known already; used within the stretches.
    """

    def __init__(
        self, problem: Problem, most: int, apart: Apart = NOWHERE, over: Callable[[], bool] = lambda: False
    ) -> None:
        self._problem, self._view = problem, view_of(problem)
        self._stretches: list[_Stretch] = []
        self.kinds: dict[bytes, Division] = {}
        """The different stretches, by what they look like."""
        self._division: list[Division] = []
        if self._view is None:
            return
        place = np.full(problem.n + 1, -1, np.int32)
        for stretch in _stretches(problem, self._view, most):
            if over():
                return
            local, known = _problem_of(problem, self._view, stretch, apart, place)
            key = _looks(local, known)
            if key not in self.kinds:
                self.kinds[key] = Division(local, 0.0, known)
            self._stretches.append(stretch)
            self._division.append(self.kinds[key])

    def solve(self, over: Callable[[], bool], work: float) -> None:
        """Look at more nodes where that has paid best.

        Until all are done, it is over, or nodes of so many ops in all have been looked at.
        """
        heap: list[tuple[float, int, Division, float]] = []
        often = {id(division): 0 for division in self.kinds.values()}
        for division in self._division:
            often[id(division)] += 1
        for number, division in enumerate(self.kinds.values()):
            division.advance(math.inf, over)
            heap.append((-math.inf, number, division, division.bound))
        while heap and work > 0 and not over():
            _, number, division, first = heapq.heappop(heap)
            stop = division.made + division.made // 4 + SHARE
            before = division.made
            while not (division.ended or division.made >= stop or over()):
                division.advance(math.inf, over)
            work -= (division.made - before) * division.ops
            if not division.ended:
                paid = often[id(division)] * (division.bound - first) / (division.made * division.ops)
                heapq.heappush(heap, (-paid, number, division, first))

    def apart(self) -> Apart:
        """How far the ends of the stretches are apart."""
        return Apart(
            np.array([stretch.first for stretch in self._stretches], np.int32),
            np.array([stretch.second for stretch in self._stretches], np.int32),
            np.array([division.bound if division.bound < math.inf else 0.0 for division in self._division]),
        )


def _spine(problem: Problem, view: View) -> IntArray:
    """A path that takes long, from an op without predecessors to one without successors."""
    paths = placed_paths(problem, view)
    ends = (paths.head + view.time).min(axis=1)
    remains = (paths.tail + view.time).min(axis=1)
    middle = int((paths.head + view.time + paths.tail).min(axis=1).argmax())
    before = _walk(middle, *problem.graph.predecessors, ends)
    behind = _walk(middle, *problem.graph.successors, remains)
    return np.array([*before[:0:-1], *behind], np.int32)


def _walk(op: int, ptr: IntArray, onward: IntArray, value: FloatArray) -> list[int]:
    """From an op always on to the one of largest value."""
    path = [op]
    while ptr[op] < ptr[op + 1]:
        near = onward[ptr[op] : ptr[op + 1]]
        op = int(near[value[near].argmax()])
        path.append(op)
    return path


def _stretches(problem: Problem, view: View, most: int) -> list[_Stretch]:
    """The spine cut where least of what is beside it is cut: the work within stretches is largest."""
    spine = _spine(problem, view)
    graph, length = problem.graph, len(spine) + 2
    place = np.full(problem.n, -1, np.int32)
    place[spine] = np.arange(1, length - 1)
    from_end = place.copy()
    from_end[spine] = np.arange(length - 2, 0, -1)
    order = graph.topological_order
    before = _latest(order, *graph.predecessors, place)
    behind = (length - 1 - _latest(order[::-1].copy(), *graph.successors, from_end)).astype(np.int32)
    beside = np.flatnonzero(place < 0)
    work = view.time.min(axis=1)
    cuts = _cuts(before[beside], behind[beside], work[beside], length, most)
    ends = np.array([-1, *spine.tolist(), -1], np.int32)
    found = []
    for i, j in pairwise(cuts):
        inside = beside[(before[beside] >= i) & (behind[beside] <= j)]
        if len(inside):
            ops = np.sort(np.concatenate([inside, spine[max(i - 1, 0) : j]])).astype(np.int32)
            found.append(_Stretch(int(ends[i]), int(ends[j]), ops))
    return found


def _latest(order: IntArray, ptr: IntArray, op: IntArray, place: IntArray) -> IntArray:
    """(n,) the largest place of any ancestor, 0 if none has one; an op that has a place has that one."""
    out: IntArray = _latest_kernel(order, ptr, op, place)
    return out


@njit(cache=True, nogil=True)
def _latest_kernel(order, ptr, op, place):  # type: ignore[no-untyped-def]
    found = np.zeros(len(place), np.int32)
    for v in order:
        for i in range(ptr[v], ptr[v + 1]):
            found[v] = max(found[v], found[op[i]])
        if place[v] >= 0:
            found[v] = place[v]
    return found


def _cuts(before: IntArray, behind: IntArray, work: FloatArray, length: int, most: int) -> list[int]:
    """Places 0 .. length - 1 at which the spine is cut, so that stretches have at most that many ops."""
    ptr, item = csr_from_pairs(before, np.arange(len(before), dtype=np.int32), length)
    onward: IntArray = _cuts_kernel(ptr, item, behind, work, most)
    cuts = [0]
    while cuts[-1] < length - 1:
        cuts.append(int(onward[cuts[-1]]))
    return cuts


@njit(cache=True, nogil=True)
def _cuts_kernel(ptr, item, behind, work, most):  # type: ignore[no-untyped-def]
    """For each place the next cut, if the sum of the work beside the spine within stretches is to be largest."""
    length = len(ptr) - 1
    count, amount = np.zeros(length, np.int64), np.zeros(length)
    best, onward = np.zeros(length), np.full(length, length - 1, np.int64)
    for i in range(length - 2, -1, -1):
        for a in range(ptr[i], ptr[i + 1]):
            count[behind[item[a]]] += 1
            amount[behind[item[a]]] += work[item[a]]
        best[i], onward[i] = best[i + 1], i + 1
        ops, inside = 0, 0.0
        for j in range(i + 1, length):
            ops += count[j]
            inside += amount[j]
            if ops + j - i + 1 > most:
                break
            if inside + best[j] > best[i]:
                best[i], onward[i] = inside + best[j], j
    return onward


def _problem_of(
    problem: Problem, view: View, stretch: _Stretch, apart: Apart, place: IntArray
) -> tuple[Problem, Apart]:
    """The ops of a stretch as a problem, its two ends without time; and what is known to be apart in it.

    place : (n + 1,) all -1; scratch.
    """
    ops, graph, n = stretch.ops, problem.graph, len(stretch.ops)
    place[ops] = np.arange(n, dtype=np.int32)
    out_ptr, out_tensor = graph.outputs
    kept, reader = [], []
    for v in ops.tolist():
        for t in out_tensor[out_ptr[v] : out_ptr[v + 1]].tolist():
            inside = place[graph.consumers(t)]
            if (inside >= 0).any():
                kept.append(t)
                reader.append(inside[inside >= 0])
    tensors = np.array(kept, np.int32)
    none = np.zeros(n)
    local = Graph(
        name=graph.name, names=tuple(str(i) for i in range(n)), op_types=(), output_shapes=(), flops=none,
        bytes_read=none, bytes_written=none, param_bytes=none, backward=np.zeros(n, np.bool_),
        tensor_producer=place[graph.tensor_producer[tensors]], tensor_bytes=graph.tensor_bytes[tensors],
        consumer_ptr=np.cumsum([0, *map(len, reader)]).astype(np.int32),
        consumer_op=np.concatenate([*reader, np.zeros(0, np.int32)]),
    )  # fmt: skip
    time = np.full((n, problem.devices), np.inf)
    for k, kind in enumerate(view.kinds):
        time[:, kind] = view.time[ops, k][:, None]
    ends = [int(place[v]) for v in (stretch.first, stretch.second) if v >= 0]
    time[ends] = np.where(np.isfinite(time[ends]), 0.0, np.inf)
    found = replace(
        problem, graph=local, time=time, size=problem.size[tensors], memory=none, resident=none,
        class_of=np.unique(view.of[ops], return_inverse=True)[1].astype(np.int32), pin=np.full(n, -1, np.int32),
        forbidden=np.zeros((n, problem.devices), np.bool_), kept=None, ties=(), origin=None,
    )  # fmt: skip
    first, second = place[apart.first], place[apart.second]
    both = (first >= 0) & (second >= 0)
    place[ops] = -1
    return found, Apart(first[both], second[both], apart.seconds[both])


def _looks(problem: Problem, apart: Apart) -> bytes:
    """The same for problems that differ only in their names."""
    graph = problem.graph
    parts = (
        problem.time, problem.size, problem.class_of, graph.tensor_producer, graph.consumer_ptr, graph.consumer_op,
        *apart,
    )  # fmt: skip
    return b"".join(len(part).to_bytes(8, "little") + part.tobytes() for part in parts)
