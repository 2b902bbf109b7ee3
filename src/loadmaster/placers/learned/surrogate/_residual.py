"""What a machine may have that its model does not: few numbers, learnt from every run.

The numbers are standardised, with a normal prior each: factors of the times of a device, of an op type on a device and
of an op, a price of every transfer, a factor of the bytes, a price of a cut behind an op whose only reader would be
fused with it, and how much devices slow each other down. Costs are simulated with them, so that a run tells about all
of them at once; the posterior is normal around the likeliest numbers (Gauss-Newton steps, Jacobians by differences).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_solve, solve_triangular

from loadmaster.arrays import FloatArray, IntArray
from loadmaster.placers.search._critical import critical_ops
from loadmaster.problem import Concurrent, Problem, SimulatedEvaluator
from loadmaster.problem.concurrent import ConcurrentSimulator

__all__ = ["Posterior", "Residual", "Trace", "moved_seconds"]

DEVICE, TYPE, OP, RATE, PRICE, FUSED, OVERLAP = 0.15, 0.25, 0.2, 0.4, 1.0, 0.3, 0.15
"""Standard deviations of the prior: logarithms of factors, transfers, shares of an op, shares of the cost."""
STEP = 0.1
"""Of the differences."""
SMALL = 0.002
"""Share of the time of all ops below which an op type has no number of its own."""
MOST = 128
"""Numbers of devices and op types together; beyond that the types that take least have none."""
LARGE = 2000
"""Ops from which on they have no numbers of their own."""
NOISE, STRUCTURE = 0.02, 0.01
"""Relative errors: of a run, and of the model with the best numbers."""
MANY = 8
"""Runs from which on the latter is estimated."""
PIECE = 0.04
"""The same of a piece, whose ops differ more than whole models do."""


class Trace(NamedTuple):
    """What one run says beside its time, where it does."""

    pieces: Sequence[IntArray]
    """Ops that ran without a stop, by number."""
    seconds: FloatArray
    """(pieces,) what they took."""
    moved: float
    """Seconds of all transfers."""


class Residual:
    """A problem as a function of what its model may have wrong."""

    def __init__(self, problem: Problem) -> None:
        self.told = problem
        graph, devices = problem.graph, problem.devices
        known = np.isfinite(problem.time)
        time = np.where(known, problem.time, 0.0)
        names, code = np.unique(np.array(graph.op_types, np.str_), return_inverse=True)
        share = np.stack([np.bincount(code, column, len(names)) for column in time.T])
        share = (share / np.maximum(share.sum(axis=1, keepdims=True), 1e-30)).max(axis=0, initial=0.0)
        number = np.full(len(names), -1)
        room = max(MOST // max(devices, 1) - 1, 0)
        kept = np.sort(np.argsort(-share, kind="stable")[:room])
        kept = kept[share[kept] >= SMALL]
        number[kept] = np.arange(len(kept))
        self._type = number[code]
        self._types = len(kept)
        self._off = 1.0 - np.eye(devices)
        off = self._off > 0
        mean = time.sum(axis=1) / np.maximum(known.sum(axis=1), 1)
        size = float(problem.size.mean()) if len(problem.size) else 0.0
        link = float(np.median((problem.latency + size * problem.rate)[off])) if devices > 1 else 0.0
        self._transfer = max(link, float(np.median(mean)) if len(mean) else 0.0)
        readers = np.bincount(graph.edge_tensor, minlength=graph.tensors)
        rate = float(problem.rate[off].mean()) if devices > 1 else 0.0
        self._fused = (readers == 1) * mean[graph.tensor_producer] / rate if rate > 0 else 0.0 * problem.size
        self.links = devices * (1 + self._types)
        """Where the numbers of links begin."""
        self.overlaps = isinstance(problem.model, Concurrent)
        self.few = self.links + 3 + self.overlaps
        """Where the numbers of ops begin."""
        self.count = self.few + (problem.n if problem.n < LARGE else 0)

    def log_factors(self, theta: FloatArray) -> FloatArray:
        """(ops, devices) logarithms of the factors of op times."""
        devices = self.told.devices
        by_type = np.concatenate(
            [theta[devices : devices * (1 + self._types)].reshape(-1, devices), np.zeros((1, devices))]
        )
        own = OP * theta[self.few :, None] if self.count > self.few else 0.0
        return DEVICE * theta[:devices] + TYPE * by_type[self._type] + own

    def problem(self, theta: FloatArray) -> Problem:
        """With these numbers, but for how devices slow each other down."""
        told = self.told
        rate, price, fused = theta[self.links :][:3]
        latency = np.maximum(told.latency + self._off * PRICE * price * self._transfer, 0.2 * told.latency)
        return replace(
            told, time=told.time * np.exp(self.log_factors(theta)), latency=latency,
            rate=told.rate * np.exp(RATE * rate), size=told.size + max(FUSED * fused, 0.0) * self._fused,
        )  # fmt: skip

    def costs(self, theta: FloatArray, device: IntArray) -> FloatArray:
        """(k,) costs of (k, ops) placements."""
        problem = self.problem(theta)
        return self.slowed(theta, problem, SimulatedEvaluator(problem).costs(device)[0], device)

    def slowed(self, theta: FloatArray, problem: Problem, cost: FloatArray, device: IntArray) -> FloatArray:
        """Costs with what devices that work at the same time take longer."""
        slower = max(OVERLAP * float(theta[self.few - 1]), 0.0) if self.overlaps else 0.0
        if not slower:
            return cost
        rows = np.arange(problem.n)
        busy = np.stack([np.bincount(one, problem.time[rows, one], problem.devices) for one in device])
        beside = (busy.sum(axis=1) - busy.max(axis=1)) / np.maximum(cost, 1e-30)
        return cost * (1.0 + slower * np.minimum(beside, 1.0))

    def pieces(
        self, theta: FloatArray, device: IntArray, pieces: Sequence[IntArray]
    ) -> tuple[FloatArray, FloatArray]:
        """(pieces,) logarithms of their seconds, and the (pieces, numbers) derivatives."""
        devices = self.told.devices
        rows = np.arange(self.told.n)
        time = (self.told.time * np.exp(self.log_factors(theta)))[rows, device]
        value, slope = np.zeros(len(pieces)), np.zeros((len(pieces), self.count))
        for number, ops in enumerate(pieces):
            total = max(float(time[ops].sum()), 1e-30)
            value[number] = np.log(total)
            part = time[ops] / total
            np.add.at(slope[number], device[ops], DEVICE * part)
            own = self._type[ops] >= 0
            at = devices * (1 + self._type[ops]) + device[ops]
            np.add.at(slope[number], at[own], TYPE * part[own])
            if self.count > self.few:
                slope[number, self.few + ops] = OP * part
        return value, slope

    def of_ops(self, theta: FloatArray, device: IntArray) -> FloatArray:
        """(k, ops) derivatives of the logarithms of costs by the ops' numbers: the shares of those that hold up the
        end, all of them where ops run one after another."""
        problem = self.problem(theta)
        rows = np.arange(problem.n)
        simulator = SimulatedEvaluator(problem).simulator
        found = np.zeros(device.shape)
        for number, one in enumerate(device):
            time = problem.time[rows, one]
            if isinstance(simulator, ConcurrentSimulator):
                critical = critical_ops(problem, one, *simulator.schedule(one))
                found[number, critical] = time[critical]
            else:
                found[number] = time
            cost = float(simulator.costs(one[None])[0][0])
            found[number] *= OP / max(cost, float(found[number].sum()), 1e-30)
        return found


def moved_seconds(problem: Problem, device: IntArray) -> float:
    """Seconds of all transfers of a placement, one for each tensor and device that reads it."""
    graph = problem.graph
    target = device[graph.consumer_op]
    key = np.unique(graph.edge_tensor.astype(np.int64) * problem.devices + target)
    tensor, target = key // problem.devices, key % problem.devices
    source = device[graph.tensor_producer[tensor]]
    apart = source != target
    tensor, source, target = tensor[apart], source[apart], target[apart]
    return float(
        (problem.latency[source, target] + problem.size[tensor] * problem.rate[source, target]).sum()
    )


class Posterior:
    """What is known of the numbers after some runs."""

    def __init__(self, residual: Residual) -> None:
        self.residual = residual
        self.mean = np.zeros(residual.count)
        self._root = np.eye(residual.count)
        """A square root of the inverse of the covariance."""
        self._device: list[IntArray] = []
        self._log: list[float] = []
        self._trace: list[Trace | None] = []
        self._value, self._slope = np.zeros(0), np.zeros((0, residual.count))
        self._at = np.zeros((0, residual.count))
        self._gram, self._want = np.zeros((residual.count, residual.count)), np.zeros(residual.count)
        self.structure = STRUCTURE
        """Relative error of a run that no numbers explain, by what is left of the runs so far."""

    def learn(self, device: IntArray, cost: float, trace: Trace | None = None) -> None:
        """One run; a placement that the model cannot cost says nothing about it."""
        if not (
            np.isfinite(cost) and cost > 0 and np.isfinite(self.residual.costs(self.mean, device[None])[0])
        ):
            return
        self._device.append(np.asarray(device, np.int32))
        self._log.append(float(np.log(cost)))
        self._trace.append(trace)

    def update(self, steps: int = 2) -> None:
        """Find the likeliest numbers. Jacobians of runs are made anew when there are twice as many, else kept."""
        for step in range(steps):
            have = len(self._value)
            anew = step > 0 and (len(self._log) & (len(self._log) - 1)) == 0
            if anew:
                have = 0
            fresh = self._device[have:]
            if fresh:
                value, slope = self._linear(np.stack(fresh))
                at = np.broadcast_to(self.mean, slope.shape)
                self._value = np.concatenate([self._value[:have], value])
                self._slope = np.concatenate([self._slope[:have], slope])
                self._at = np.concatenate([self._at[:have], at])
            elif step:
                break
            left = np.array(self._log) - self._value + (self._slope * self._at).sum(axis=1)
            self._learn_traces(have)
            error = np.hypot(NOISE, self.structure)
            a = self._slope / error
            precision = np.eye(self.residual.count) + self._gram + a.T @ a
            self._root = np.linalg.cholesky(precision)
            self.mean = cho_solve((self._root, True), self._want + a.T @ (left / error)).clip(-4, 4)
            if len(self._log) >= MANY:
                over = float(np.mean((left - self._slope @ self.mean) ** 2)) - NOISE**2
                self.structure = float(np.sqrt(np.clip(over, 0.25 * STRUCTURE**2, 9.0 * STRUCTURE**2)))

    def _learn_traces(self, have: int) -> None:
        """Sums over the traces, of runs after the first ``have``, or of all anew."""
        if have == 0:
            self._gram[:], self._want[:] = 0.0, 0.0
        for device, trace in zip(self._device[have:], self._trace[have:], strict=True):
            if trace is not None:
                for a, b in self._traced(device, trace):
                    self._gram += a.T @ a
                    self._want += a.T @ b

    def judged(self) -> dict[bytes, float]:
        """Placement that was run -> the logarithm of its cost that the numbers say."""
        value = self._value + ((self.mean - self._at) * self._slope).sum(axis=1)
        return {one.tobytes(): float(cost) for one, cost in zip(self._device, value, strict=False)}

    def _linear(self, device: IntArray) -> tuple[FloatArray, FloatArray]:
        """Logarithms of the costs at the likeliest numbers, and their derivatives."""
        value = np.log(self.residual.costs(self.mean, device))
        slope = np.empty((len(device), self.residual.count))
        if self.residual.count > self.residual.few:
            slope[:, self.residual.few :] = self.residual.of_ops(self.mean, device)
        for number in range(self.residual.few):
            moved = self.mean.copy()
            moved[number] += STEP
            slope[:, number] = (np.log(self.residual.costs(moved, device)) - value) / STEP
        return value, slope

    def _traced(self, device: IntArray, trace: Trace) -> list[tuple[FloatArray, FloatArray]]:
        value, slope = self.residual.pieces(self.mean, device, trace.pieces)
        left = np.log(np.maximum(trace.seconds, 1e-30)) - value + slope @ self.mean
        found = [(slope / PIECE, left / PIECE)]
        if trace.moved > 0:
            at = np.log(max(moved_seconds(self.residual.problem(self.mean), device), 1e-30))
            row = np.zeros(self.residual.count)
            first = self.residual.links
            for number in range(first, first + 3):
                moved = self.mean.copy()
                moved[number] += STEP
                row[number] = (
                    np.log(max(moved_seconds(self.residual.problem(moved), device), 1e-30)) - at
                ) / STEP
            found.append((row[None] / PIECE, np.array([np.log(trace.moved) - at + row @ self.mean]) / PIECE))
        return found

    def drawn(self, rng: np.random.Generator, heat: float = 1.0) -> FloatArray:
        """Numbers from the posterior."""
        noise = solve_triangular(self._root.T, rng.standard_normal(len(self.mean)))
        return (self.mean + heat * noise).clip(-4, 4)
