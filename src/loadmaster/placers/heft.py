"""Heterogeneous earliest finish time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from numba import njit

from loadmaster.placers._base import parameters
from loadmaster.placers._feasible import atoms_of, first_feasible, prove_infeasible
from loadmaster.placers._search import Budget, ProgressCallback, Search
from loadmaster.problem import Concurrent, Placement, Problem, Solution
from loadmaster.problem._evaluator import Evaluator

__all__ = ["Heft", "heft_placements", "list_schedule"]

IntArray = npt.NDArray[np.int32]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Heft:
    """Ops by falling upward rank, each to the device where it finishes earliest, gaps in the schedule used.

    A tensor that was brought to a device once is there for later readers, and a link carries one tensor at a
    time. The sequence on each device is returned as ``order``; if the event schedule without it is faster,
    that one is. Colocated ops follow the first of them; a device without room for an op (with its colocated
    ops) is not considered.

    Complexity: O(edges * devices) and the search for gaps, which is short in practice.

    References
    ----------
    H. Topcuoglu, S. Hariri, M.-Y. Wu, "Performance-effective and low-complexity task scheduling for
    heterogeneous computing", IEEE TPDS 13(3), 2002.
    """

    insertion: bool = True
    """Use gaps between ops that are scheduled already."""

    name: ClassVar[str] = "heft"
    summary: ClassVar[str] = "earliest finish time by upward rank, with insertion"

    def supports(self, problem: Problem) -> str | None:
        """Only ``concurrent``: the other models have no schedule to insert into."""
        if isinstance(problem.model, Concurrent):
            return None
        return f"heft builds a schedule, and the {problem.model.name} model has none: use it with --model concurrent"

    def place(
        self,
        problem: Problem,
        *,
        budget: Budget,
        seed: int = 0,
        start: Placement | None = None,
        evaluator: Evaluator | None = None,
        on_progress: ProgressCallback | None = None,
    ) -> Solution:
        """One pass; two evaluations."""
        prove_infeasible(problem)
        with Search(problem, budget, self.name, evaluator, on_progress) as search:
            for placement in heft_placements(problem, insertion=self.insertion):
                search.try_placement(placement)
                search.check()
            if search.best is None:
                search.try_device(first_feasible(problem, seed))
        return search.solution(seed, parameters(self))


def heft_placements(problem: Problem, *, insertion: bool = True) -> Iterator[Placement]:
    """The HEFT schedule with its order, and the same devices without; nothing for models without a
    schedule."""
    schedule = list_schedule(problem, insertion=insertion) if isinstance(problem.model, Concurrent) else None
    if schedule is not None:
        device, begin = schedule
        order, rank = np.empty(problem.n, np.int32), np.empty(problem.n, np.int32)
        rank[problem.priority_order] = np.arange(problem.n, dtype=np.int32)
        order[np.lexsort((rank, begin))] = np.arange(problem.n, dtype=np.int32)
        yield Placement(device, order=order)
        yield Placement(device)


def list_schedule(problem: Problem, *, insertion: bool = True) -> tuple[IntArray, FloatArray] | None:
    """(n,) devices and (n,) start times of the HEFT schedule; None if memory runs out on the way."""
    atoms = atoms_of(problem)
    graph = problem.graph
    in_ptr, in_tensor = graph.inputs
    device, begin = np.full(problem.n, -1, np.int32), np.zeros(problem.n)
    done = _heft(
        problem.priority_order, in_ptr, in_tensor, graph.tensor_producer, problem.time, problem.size, problem.latency,
        problem.rate, atoms.of_op, atoms.allowed, atoms.memory, problem.capacity, insertion, device, begin,
    )  # fmt: skip
    return (device, begin) if done else None


@njit(cache=True, nogil=True)
def _heft(  # type: ignore[no-untyped-def]
    order,
    in_ptr,
    in_tensor,
    producer,
    time,
    size,
    latency,
    rate,
    atom,
    allowed,
    memory,
    capacity,
    insertion,
    device,
    begin,
):
    """Fill ``device`` and ``begin``; False if some op has no device with room left.

    The gaps of device d are ``gap_start[d, i]``, ``gap_end[d, i]`` for i < ``gaps[d]``, sorted; the last is
    open. ``there[t, d]`` is when tensor t is on device d (infinite: not under way), ``free[a, b]`` when the
    link is idle again.
    """
    n, devices = time.shape
    room = 64
    gap_start = np.zeros((devices, room))
    gap_end = np.full((devices, room), np.inf)
    gaps = np.ones(devices, np.int64)
    there = np.full((len(producer), devices), np.inf)
    free = np.zeros((devices, devices))
    end = np.zeros(n)
    left = capacity.copy()
    home = np.full(len(memory), -1, np.int32)
    for v in order:
        a = atom[v]
        best, best_end, best_start, best_gap = -1, np.inf, 0.0, 0
        for d in range(devices):
            if home[a] >= 0:
                if d != home[a]:
                    continue
            elif not allowed[a, d] or memory[a] > left[d]:
                continue
            ready = 0.0
            for i in range(in_ptr[v], in_ptr[v + 1]):
                t = in_tensor[i]
                u = producer[t]
                if device[u] == d:
                    arrival = end[u]
                elif there[t, d] < np.inf:
                    arrival = there[t, d]
                else:
                    s = device[u]
                    arrival = max(end[u], free[s, d]) + (latency[s, d] + size[t] * rate[s, d])
                ready = max(ready, arrival)
            length = time[v, d]
            g = gaps[d] - 1
            if insertion:
                # The first gap that ends late enough, by bisection; then the first that is long enough.
                low, high = 0, gaps[d] - 1
                while low < high:
                    middle = (low + high) // 2
                    if gap_end[d, middle] >= ready + length:
                        high = middle
                    else:
                        low = middle + 1
                g = low
                while max(gap_start[d, g], ready) + length > gap_end[d, g]:
                    g += 1
            start = max(gap_start[d, g], ready)
            if start + length < best_end or best < 0:
                best, best_end, best_start, best_gap = d, start + length, start, g
        if best < 0:
            return False
        if home[a] < 0:
            home[a] = best
            left[best] -= memory[a]
        device[v] = best
        begin[v] = best_start
        end[v] = best_end
        for i in range(in_ptr[v], in_ptr[v + 1]):
            t = in_tensor[i]
            s = device[producer[t]]
            if s != best and there[t, best] == np.inf:
                there[t, best] = max(end[producer[t]], free[s, best]) + (
                    latency[s, best] + size[t] * rate[s, best]
                )
                free[s, best] = there[t, best]
        # Take the op out of its gap: nothing, one or two gaps remain.
        d, g = best, best_gap
        if best_end == best_start:
            continue
        before, after = best_start > gap_start[d, g], best_end < gap_end[d, g]
        if before and after:
            if gaps[d] == room:
                wider_start = np.zeros((devices, 2 * room))
                wider_end = np.full((devices, 2 * room), np.inf)
                wider_start[:, :room] = gap_start
                wider_end[:, :room] = gap_end
                gap_start, gap_end, room = wider_start, wider_end, 2 * room
            for i in range(gaps[d], g + 1, -1):
                gap_start[d, i] = gap_start[d, i - 1]
                gap_end[d, i] = gap_end[d, i - 1]
            gap_start[d, g + 1] = best_end
            gap_end[d, g + 1] = gap_end[d, g]
            gap_end[d, g] = best_start
            gaps[d] += 1
        elif before:
            gap_end[d, g] = best_start
        elif after:
            gap_start[d, g] = best_end
        else:
            for i in range(g, gaps[d] - 1):
                gap_start[d, i] = gap_start[d, i + 1]
                gap_end[d, i] = gap_end[d, i + 1]
            gaps[d] -= 1
    return True
