"""Compiled evaluation of the ``serial`` execution model."""

from __future__ import annotations

import numpy as np
from numba import njit

from loadmaster.arrays import BoolArray, FloatArray, IntArray
from loadmaster.graph.order import sum_by
from loadmaster.problem._evaluation import Evaluation, Transfer
from loadmaster.problem._placement import Placement, plain_devices
from loadmaster.problem._problem import Problem

__all__ = ["SerialSimulator"]


class SerialSimulator:
    """Sum of op times and of one transfer per (tensor, destination device).

    Complexity: O(ops + edges) per placement.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        graph = problem.graph
        in_ptr, in_tensor = graph.inputs
        self._arrays = (
            graph.topological_order,
            in_ptr,
            in_tensor,
            graph.tensor_producer,
            problem.time,
            problem.size,
            problem.latency,
            problem.rate,
        )

    def costs(self, device: IntArray) -> tuple[FloatArray, BoolArray]:
        """(k,) costs of the (k, n) placements; the model itself forbids nothing."""
        cost = np.empty(len(device))
        moments = np.empty((4, 0))
        _serial(*self._arrays, plain_devices(device), cost, moments, np.empty((0, 5)))
        return cost, np.ones(len(device), np.bool_)

    def cost(self, placement: Placement) -> tuple[float, bool]:
        """Cost of one placement."""
        return float(self.costs(placement.device[None])[0][0]), True

    def evaluate(self, placement: Placement) -> Evaluation:
        """The sequence of ops and transfers, one after another in topological order."""
        problem, device = self.problem, placement.device
        cost = np.empty(1)
        moments = np.empty((2, problem.n))
        log = np.empty((problem.graph.edges, 5))
        made = _serial(*self._arrays, plain_devices(device[None]), cost, moments, log)
        rows = np.arange(problem.n)
        busy = sum_by(device, problem.time[rows, device], problem.devices)
        tensor, source, target = log[:made, :3].astype(np.int64).T
        seconds = problem.latency[source, target] + problem.size[tensor] * problem.rate[source, target]
        comm = sum_by(target, seconds, problem.devices)
        defined = bool(np.isfinite(cost[0]))
        transfers = [Transfer(int(t), int(a), int(b), s, e) for t, a, b, s, e in log[:made].tolist()]
        return Evaluation(
            cost=float(cost[0]),
            violations=(),
            busy=busy,
            comm=comm,
            load=busy + comm,
            memory=problem.memory_of(device),
            start=moments[0] if defined else None,
            end=moments[1] if defined else None,
            transfers=tuple(transfers) if defined else (),
        )


@njit(cache=True, nogil=True)
def _serial(order, in_ptr, in_tensor, producer, time, size, latency, rate, device, cost, moments, log):  # type: ignore[no-untyped-def]
    """Costs of a batch; where ``moments`` has room, start and end of every op and transfer of the last placement.

    A stamp per (tensor, device) says in which placement of the batch the tensor was last brought there.
    """
    devices = time.shape[1]
    stamp = np.full((len(producer), devices), -1, np.int32)
    record = moments.shape[1] > 0
    made = 0
    for row in range(device.shape[0]):
        now = 0.0
        for v in order:
            d = device[row, v]
            for i in range(in_ptr[v], in_ptr[v + 1]):
                t = in_tensor[i]
                source = device[row, producer[t]]
                if source != d and stamp[t, d] != row:
                    stamp[t, d] = row
                    finish = now + (latency[source, d] + size[t] * rate[source, d])
                    if record:
                        log[made, 0] = t
                        log[made, 1] = source
                        log[made, 2] = d
                        log[made, 3] = now
                        log[made, 4] = finish
                        made += 1
                    now = finish
            if record:
                moments[0, v] = now
            now += time[v, d]
            if record:
                moments[1, v] = now
        cost[row] = now
    return made
