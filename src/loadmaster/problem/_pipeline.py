"""Compiled evaluation of the ``pipeline`` execution model, whole placements and moves."""

from __future__ import annotations

import numpy as np
from numba import njit

from loadmaster.arrays import BoolArray, FloatArray, IntArray
from loadmaster.problem._evaluation import Evaluation
from loadmaster.problem._model import Pipeline
from loadmaster.problem._placement import Placement, plain_devices
from loadmaster.problem._problem import Problem
from loadmaster.problem.contiguity import contiguity_of, contiguity_violations, is_contiguous
from loadmaster.problem.loads import Nets, cost_of, load_cost, nets_of, new_ledger, reset

__all__ = ["PipelineSimulator"]


class PipelineSimulator:
    """Largest load of any device.

    Complexity: O(ops + edges + devices) per placement, and O(degree + devices) per move with a ledger
    (:mod:`loadmaster.problem.loads`).
    """

    def __init__(self, problem: Problem) -> None:
        assert isinstance(problem.model, Pipeline)
        self.problem = problem
        self.model = problem.model
        self.nets: Nets = nets_of(problem)
        self.contiguity = contiguity_of(problem)

    def costs(self, device: IntArray) -> tuple[FloatArray, BoolArray]:
        """(k,) costs of the (k, n) placements, and whether they are as contiguous as asked."""
        cost = np.empty(len(device))
        contiguous = np.ones(len(device), np.bool_)
        _costs(*self.nets, *new_ledger(self.nets), *self.contiguity, plain_devices(device), cost, contiguous)
        return cost, contiguous

    def cost(self, placement: Placement) -> tuple[float, bool]:
        """Cost of one placement, and whether it is as contiguous as asked."""
        cost, contiguous = self.costs(placement.device[None])
        return float(cost[0]), bool(contiguous[0])

    def evaluate(self, placement: Placement) -> Evaluation:
        """Loads per device."""
        problem, device = self.problem, placement.device
        ledger = new_ledger(self.nets)
        reset(*self.nets, *ledger, plain_devices(device))
        busy, comm = ledger.compute.sum(axis=0), ledger.comm.sum(axis=0)
        return Evaluation(
            cost=cost_of(self.nets, ledger),
            violations=tuple(contiguity_violations(problem, device)),
            busy=busy,
            comm=comm,
            load=busy + comm if self.model.comm == "sum" else np.maximum(busy, comm),
            memory=problem.memory_of(device),
        )


@njit(cache=True, nogil=True)
def _costs(  # type: ignore[no-untyped-def]
    kind, ops, touch, tensors, time, size, wire, latency, rate, device, count, compute, comm,
    contiguity, tail, head, placements, cost, contiguous,
):  # fmt: skip
    for row in range(placements.shape[0]):
        reset(
            kind,
            ops,
            touch,
            tensors,
            time,
            size,
            wire,
            latency,
            rate,
            device,
            count,
            compute,
            comm,
            placements[row],
        )
        cost[row] = load_cost(kind, compute, comm)
        contiguous[row] = is_contiguous(contiguity, tail, head, placements[row], time.shape[1])
