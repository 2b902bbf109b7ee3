"""Compiled evaluation of the ``concurrent`` execution model."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from loadmaster.arrays import BoolArray, FloatArray, IntArray
from loadmaster.problem._evaluation import Evaluation, Transfer, Violation
from loadmaster.problem._model import Concurrent
from loadmaster.problem._placement import Placement, plain_devices
from loadmaster.problem._problem import Problem
from loadmaster.problem.concurrent._event import event_kernel
from loadmaster.problem.concurrent._peak import peak_memory
from loadmaster.problem.concurrent._rank import RankSpace, Trace, rank_space
from loadmaster.problem.concurrent._static import (
    LANES,
    given_order,
    static_costs,
    static_lanes,
    static_traced,
)

__all__ = ["ConcurrentSimulator"]


MOST_IN_LANES = 16
"""With more devices the state of 32 placements at once leaves the cache."""


class ConcurrentSimulator:
    """The makespan of a schedule in which all devices work at once.

    ``schedule="event"`` is simulated round by round (``_concurrent_event.py``); ``"static"`` and a given
    order are one pass (``_concurrent_static.py``). All of them make the very same floating-point operations
    as the reference, so costs are equal to the last bit.

    Complexity: O(ops + edges) per placement, with a small factor of the number of devices under ``event``.
    """

    def __init__(self, problem: Problem) -> None:
        assert isinstance(problem.model, Concurrent)
        self.problem = problem
        self.model = problem.model
        event = problem.model.schedule == "event"
        self._event = event_kernel(problem.devices, traced=False)
        self._traced = event_kernel(problem.devices, traced=True) if event else static_traced

    @cached_property
    def space(self) -> RankSpace:
        """The arrays that the kernels read."""
        return self.problem.derived(rank_space)

    @cached_property
    def _untraced(self) -> tuple[Trace, FloatArray]:
        """What a kernel gets in place of room for a trace and for peaks, if it is to write neither."""
        return Trace.room(self.space, wanted=False), np.empty((0, 0))

    def costs(self, device: IntArray) -> tuple[FloatArray, BoolArray]:
        """(k,) costs of the (k, n) placements; with ``memory="peak"`` also which of them fit."""
        cost, fits = np.empty(len(device)), np.ones(len(device), np.bool_)
        if self.model.memory == "peak":
            peak = np.zeros((len(device), self.problem.devices))
            self._run(device, cost, peak)
            fits[:] = (peak <= self.problem.capacity).all(axis=1)
        elif self.model.schedule == "event":
            self._event(self.space, plain_devices(device), cost, *self._untraced)
        else:
            self._static(plain_devices(device), cost)
        return cost, fits

    def cost(self, placement: Placement) -> tuple[float, bool]:
        """Cost of one placement, its order honoured; with ``memory="peak"`` also whether it fits."""
        if placement.order is None:
            cost, fits = self.costs(placement.device[None])
            return float(cost[0]), bool(fits[0])
        makespan, peak, _, _ = self._follow(placement)
        weighed = self.model.memory == "peak"
        return makespan, not weighed or bool((peak <= self.problem.capacity).all())

    def evaluate(self, placement: Placement) -> Evaluation:
        """The whole schedule: when every op and every transfer starts and ends, and the peak memory."""
        problem, space, device = self.problem, self.space, placement.device
        violations: tuple[Violation, ...] = ()
        if placement.order is not None:
            cost, peak, trace, stuck = self._follow(placement)
            if stuck < problem.n and np.isfinite(problem.time[np.arange(problem.n), device]).all():
                waiting = int(space.order[stuck])
                text = f"the given order deadlocks: op {problem.graph.names[waiting]!r} waits for ever"
                violations = (Violation("deadlock", text, (waiting,)),)
        else:
            costs, peaks = np.empty(1), np.zeros((1, problem.devices))
            trace = self._run(device[None], costs, peaks)
            cost, peak = float(costs[0]), peaks[0]
        defined = bool(np.isfinite(cost))
        start, end = np.empty(problem.n), np.empty(problem.n)
        start[space.order], end[space.order] = trace.start, trace.end
        made = int(trace.made[0]) if defined else 0
        log, span = trace.log[:made].astype(np.int64), trace.span[:made]
        busy = self._per_device(device, problem.time[np.arange(problem.n), device])
        comm = self._per_device(log[:, 2], span[:, 1] - span[:, 0])
        tensor = space.tensor[log[:, 0]].tolist()
        moved = zip(tensor, log[:, 1].tolist(), log[:, 2].tolist(), *span.T.tolist(), strict=True)
        return Evaluation(
            cost=cost,
            violations=violations,
            busy=busy,
            comm=comm,
            load=busy + comm,
            memory=self._per_device(device, problem.memory),
            peak=peak if defined else None,
            start=start if defined else None,
            end=end if defined else None,
            transfers=tuple(Transfer(*transfer) for transfer in moved),
        )

    def schedule(self, device: IntArray) -> tuple[FloatArray, FloatArray]:
        """(n,) start and end of every op of one placement, infinite or NaN where it has no cost."""
        trace = self._run(device[None], np.empty(1), np.zeros((1, self.problem.devices)))
        start, end = np.empty(self.problem.n), np.empty(self.problem.n)
        start[self.space.order], end[self.space.order] = trace.start, trace.end
        return start, end

    def _per_device(self, device: npt.NDArray[Any], amount: FloatArray) -> FloatArray:
        """(D,) amounts added up per device."""
        return np.bincount(device, amount, self.problem.devices).astype(np.float64)

    def _static(self, device: IntArray, cost: FloatArray) -> None:
        """As many as fill the lanes side by side, and the rest one by one if they are few."""
        whole = len(device) // LANES * LANES
        if len(device) - whole > LANES // 2:
            whole = len(device)
        if self.problem.devices > MOST_IN_LANES:
            whole = 0
        if whole:
            static_lanes(self.space, device[:whole], cost[:whole])
        if whole < len(device):
            static_costs(self.space, device[whole:], cost[whole:])

    def _run(self, device: IntArray, cost: FloatArray, peak: FloatArray) -> Trace:
        """Fill costs and peaks of a batch; the trace of its last placement."""
        trace = Trace.room(self.space)
        self._traced(self.space, plain_devices(device), cost, trace, peak)
        return trace

    def _follow(self, placement: Placement) -> tuple[float, FloatArray, Trace, int]:
        """Makespan, peak and trace under the given order, and the rank it is stuck at (n: not at all)."""
        problem, space = self.problem, self.space
        trace, peak = Trace.room(space), np.zeros(problem.devices)
        at = placement.device[space.order].astype(np.uint32)
        rank = np.empty(problem.n, np.uint32)
        rank[space.order] = np.arange(problem.n, dtype=np.uint32)
        order = np.asarray(placement.order)
        trace.sequence[:] = rank[np.lexsort((problem.graph.position, order, placement.device))]
        trace.sequence_ptr[0] = 0
        np.cumsum(np.bincount(at, minlength=problem.devices), out=trace.sequence_ptr[1:])
        stuck = int(given_order(space, at, trace))
        makespan = float(trace.end.max(initial=0.0)) if stuck == problem.n else np.inf
        if np.isfinite(makespan):
            peak_memory(space, at, trace, peak)
        return makespan, peak, trace, stuck
