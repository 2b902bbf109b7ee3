"""The problem as bounds see it: like devices taken together, colocation classes, arcs."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from loadmaster.arrays import BoolArray, FloatArray, IntArray
from loadmaster.problem._model import Concurrent, Offload, Serial
from loadmaster.problem._problem import Problem

__all__ = [
    "Arcs", "Devices", "View", "between_kinds", "class_sums", "class_tensors", "least_memory", "links_of", "row_ptr",
    "view_of",
]  # fmt: skip

Devices = npt.NDArray[np.intp]


class View(NamedTuple):
    """A problem with like devices taken together: n ops, C colocation classes, K kinds of devices.

    of : (n,) class of each op; every class has a member.
    time : (n, K) seconds, infinite where the op's class may not go.
    cost : (C, K) seconds of a whole class.
    number : (K,) devices of each kind.
    kinds : the devices of each kind.
    latency, rate : (K, K) the least of any link from one kind to another; on the diagonal between two devices
        of the kind (latency infinite where there is only one).
    """

    of: IntArray
    time: FloatArray
    cost: FloatArray
    number: FloatArray
    kinds: list[Devices]
    latency: FloatArray
    rate: FloatArray


def view_of(problem: Problem) -> View | None:
    """None where there is no op, or none that any device may run."""
    allowed = (problem.class_allowed & _fits(problem))[problem.class_of]
    devices = np.flatnonzero(allowed.any(axis=0))
    if not len(devices):
        return None
    time = np.where(allowed, problem.time, math.inf)
    time[~allowed.any(axis=1)] = 0.0
    latency, rate = links_of(problem)
    kinds = _kinds(problem, time, latency, rate, devices)
    time = np.ascontiguousarray(time[:, [kind[0] for kind in kinds]])
    of = np.unique(problem.class_of, return_inverse=True)[1].astype(np.int32)
    return View(
        of=of,
        time=time,
        cost=class_sums(of, time),
        number=np.array([float(len(kind)) for kind in kinds]),
        kinds=kinds,
        latency=between_kinds(latency, kinds, math.inf),
        rate=between_kinds(rate, kinds, 0.0),
    )


def _fits(problem: Problem) -> BoolArray:
    """(classes, D) False where the class alone takes more memory than there is."""
    weight = np.bincount(problem.class_of, least_memory(problem), problem.classes)
    return np.asarray(weight[:, None] <= problem.capacity * (1.0 + 1e-9))


def least_memory(problem: Problem) -> FloatArray:
    """(n,) bytes that an op takes of its device all the time."""
    peak = isinstance(problem.model, Concurrent) and problem.model.memory == "peak"
    return problem.resident if peak else problem.memory


def class_sums(of: IntArray, time: FloatArray) -> FloatArray:
    """(C, K) the (n, K) times added up by class."""
    return np.stack([np.bincount(of, column) for column in time.T], axis=1)


def links_of(problem: Problem) -> tuple[FloatArray, FloatArray]:
    """(D, D) latency and rate of a transfer from d to e, through the host where the model says so."""
    if isinstance(problem.model, (Serial, Concurrent)):
        return problem.latency, problem.rate
    pays = ~problem.pool if isinstance(problem.model, Offload) else np.ones(problem.devices, np.bool_)
    latency = (pays * problem.send_latency)[:, None] + (pays * problem.recv_latency)[None, :]
    return latency, (pays * problem.send_rate)[:, None] + (pays * problem.recv_rate)[None, :]


def _kinds(
    problem: Problem, time: FloatArray, latency: FloatArray, rate: FloatArray, devices: Devices
) -> list[Devices]:
    """Devices with equal times, and equal links unless there are too many devices to tell links apart."""
    groups: dict[tuple[bytes, bool], list[int]] = {}
    for d in devices.tolist():
        groups.setdefault((time[:, d].tobytes(), bool(problem.pool[d])), []).append(d)
    kinds = [np.array(group, np.intp) for group in groups.values()]
    alike = all(
        np.array_equal(between_kinds(table, kinds, 0.0), -between_kinds(-table, kinds, 0.0))
        for table in (latency, rate)
    )
    return kinds if alike or len(devices) > 16 else [np.array([d], np.intp) for d in devices.tolist()]


def between_kinds(table: FloatArray, kinds: list[Devices], alone: float) -> FloatArray:
    """(K, K) the least entry of a (D, D) table between two devices of these kinds, else ``alone``."""
    order = np.concatenate(kinds)
    first = np.cumsum([0, *(len(kind) for kind in kinds[:-1])])
    apart = np.where(np.eye(len(table), dtype=bool), math.inf, table)[np.ix_(order, order)]
    least = np.minimum.reduceat(np.minimum.reduceat(apart, first, axis=0), first, axis=1)
    return np.where(np.isinf(least), alone, least)


class Arcs(NamedTuple):
    """Pairs of nodes with tensors between them; bringing these over takes number * latency + size * rate."""

    tail: IntArray
    head: IntArray
    number: FloatArray
    size: FloatArray

    @staticmethod
    def merge(nodes: int, tail: IntArray, head: IntArray, number: FloatArray, size: FloatArray) -> Arcs:
        """One arc for each pair, which carries all that is between the two."""
        key, row = np.unique(tail.astype(np.int64) * nodes + head, return_inverse=True)
        return Arcs(
            (key // nodes).astype(np.int32),
            (key % nodes).astype(np.int32),
            np.bincount(row, number, len(key)).astype(np.float64),
            np.bincount(row, number * size, len(key)).astype(np.float64),
        )

    def reversed(self) -> Arcs:
        return Arcs(self.head, self.tail, self.number, self.size)

    def into(self, nodes: int) -> tuple[IntArray, IntArray, FloatArray, FloatArray]:
        """CSR node -> arcs that end there: (ptr, tail, number, size)."""
        order = np.argsort(self.head, kind="stable")
        return row_ptr(self.head, nodes), self.tail[order], self.number[order], self.size[order]


def row_ptr(row: IntArray, rows: int) -> IntArray:
    """Row starts of a CSR whose entries have these rows."""
    ptr = np.zeros(rows + 1, np.int32)
    np.cumsum(np.bincount(row, minlength=rows), out=ptr[1:])
    return ptr


def class_tensors(problem: Problem, view: View) -> tuple[IntArray, IntArray, IntArray]:
    """The distinct pairs of a tensor and another class that reads it: (tensor, its own class, that class)."""
    graph, of, classes = problem.graph, view.of, len(view.cost)
    tensor, reader = graph.edge_tensor, of[graph.consumer_op]
    if classes < problem.n:
        key = np.unique(tensor.astype(np.int64) * classes + reader)
        tensor, reader = (key // classes).astype(np.int32), (key % classes).astype(np.int32)
    own = of[graph.tensor_producer[tensor]]
    away = own != reader
    return tensor[away], own[away], reader[away]
