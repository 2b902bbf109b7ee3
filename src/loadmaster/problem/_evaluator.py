"""Evaluators: what a placer asks for the cost of a placement."""

from __future__ import annotations

import math
import os
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Protocol

import numpy as np

from loadmaster.arrays import BoolArray, FloatArray, IntArray
from loadmaster.errors import InputError
from loadmaster.problem._constraints import capacity_violations, placement_violations
from loadmaster.problem._evaluation import Evaluation
from loadmaster.problem._model import Concurrent, Offload, Pipeline, Serial
from loadmaster.problem._offload import OffloadSimulator
from loadmaster.problem._pipeline import PipelineSimulator
from loadmaster.problem._placement import Placement
from loadmaster.problem._problem import Problem
from loadmaster.problem._serial import SerialSimulator
from loadmaster.problem.concurrent import ConcurrentSimulator
from loadmaster.problem.step import StepSimulator

__all__ = ["Evaluator", "Outcome", "SimulatedEvaluator", "evaluate"]


Simulator = SerialSimulator | PipelineSimulator | StepSimulator | ConcurrentSimulator | OffloadSimulator


class Outcome(NamedTuple):
    """The cost of one placement (infinite where undefined), and whether all constraints hold."""

    cost: float
    feasible: bool

    @property
    def value(self) -> float:
        """What a search minimizes: the cost if feasible, else infinity."""
        return self.cost if self.feasible else math.inf


class Evaluator(Protocol):
    """Determines the cost of placements, by simulation or by measurement."""

    problem: Problem
    evaluations: int
    """Number of evaluations so far."""

    def evaluate(self, placement: Placement) -> Outcome:
        """The cost of one placement."""
        ...

    def evaluate_batch(self, device: IntArray) -> tuple[FloatArray, BoolArray]:
        """(k,) costs and feasibility of the (k, n) devices, one placement a row."""
        ...


class SimulatedEvaluator:
    """Costs by the compiled kernels of the problem's execution model."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.evaluations = 0
        self.simulator = simulator(problem)

    def evaluate(self, placement: Placement) -> Outcome:
        """The cost of one placement, its ``order`` and ``call`` honoured."""
        self.evaluations += 1
        _check_devices(self.problem, placement.device)
        cost, ok = self.simulator.cost(placement)
        return Outcome(
            cost, ok and math.isfinite(cost) and bool(self._constraints_hold(placement.device[None])[0])
        )

    def evaluate_batch(self, device: IntArray) -> tuple[FloatArray, BoolArray]:
        """Costs and feasibility of many placements, on all cores."""
        device = np.ascontiguousarray(np.atleast_2d(device), np.int32)
        _check_devices(self.problem, device)
        self.evaluations += len(device)
        cost, ok = self.costs(device)
        return cost, ok & np.isfinite(cost) & self._constraints_hold(device)

    def costs(self, device: IntArray) -> tuple[FloatArray, BoolArray]:
        """Costs of many placements and whether the model itself allows them, on all cores; not counted.

        For callers that respect pins, forbids, colocation and memory by themselves.
        """
        return in_threads(self.simulator.costs, device)

    def best_calls(self, device: IntArray) -> tuple[FloatArray, IntArray]:
        """Least costs of many placements over all their calls (``offload``), and those calls; not counted."""
        assert isinstance(self.simulator, OffloadSimulator)
        return self.simulator.best_calls(device)

    def _constraints_hold(self, device: IntArray) -> BoolArray:
        """Everything but what the simulator itself checks: support, pins, forbids, colocation, additive
        memory."""
        problem = self.problem
        hold: BoolArray = np.asarray(problem.allowed[np.arange(problem.n), device].all(axis=1))
        if problem.classes < problem.n:
            ptr, member = problem.members
            hold &= (device == device[:, member[ptr[:-1]][problem.class_of]]).all(axis=1)
        if np.isfinite(problem.capacity).any() and getattr(problem.model, "memory", "sum") == "sum":
            for row in np.flatnonzero(hold):
                hold[row] = (problem.memory_of(device[row]) <= problem.capacity).all()
        return hold


def simulator(problem: Problem) -> Simulator:
    """The compiled simulator of the problem's execution model."""
    match problem.model:
        case Serial():
            return SerialSimulator(problem)
        case Pipeline(microbatches=microbatches) if microbatches:
            return StepSimulator(problem)
        case Pipeline():
            return PipelineSimulator(problem)
        case Concurrent():
            return ConcurrentSimulator(problem)
        case Offload():
            return OffloadSimulator(problem)
    raise InputError(f"{problem.model!r} is not an execution model")


def evaluate(problem: Problem, placement: Placement) -> Evaluation:
    """One placement in detail: cost, loads, memory, schedule, and every constraint it breaks."""
    if placement.device.shape != (problem.n,):
        raise InputError(f"the placement has {len(placement.device)} ops, the problem {problem.n}")
    _check_devices(problem, placement.device)
    run = simulator(problem).evaluate(placement)
    violations = [*placement_violations(problem, placement.device), *run.violations]
    weighed = run.peak if getattr(problem.model, "memory", "sum") == "peak" else run.memory
    if weighed is not None:
        violations += capacity_violations(problem, weighed)
    return Evaluation(**{**vars(run), "violations": tuple(violations)})


def in_threads(kernel, device: IntArray) -> tuple[FloatArray, BoolArray]:  # type: ignore[no-untyped-def]
    """Run a batch kernel (which releases the interpreter lock) on slices of the rows, one slice a core."""
    workers = min(os.cpu_count() or 1, len(device))
    if workers < 2 or device.size < 4096:
        cost, ok = kernel(device)
        return cost, ok
    slices = np.array_split(device, workers)
    with ThreadPoolExecutor(workers) as pool:
        parts = list(pool.map(kernel, slices))
    return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])


def _check_devices(problem: Problem, device: IntArray) -> None:
    if device.size and (device.min() < 0 or device.max() >= problem.devices):
        raise InputError(
            f"a placement names device {int(device.max())}, but there are {problem.devices} (0-based)"
        )
