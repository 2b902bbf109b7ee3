"""The pipeline problem as a hypergraph of colocation classes: what the bound by bundles works on.

Device d, given the bundle S of classes placed on it, is busy for

    load(S) = Σ_{c in S} time[c, d] + Σ_{nets that S cuts} (send if the producer is in S, else recv),

where a *net* is a tensor with the classes that touch it as pins, and S cuts it if some pins are in S and some
are not. The load of S depends on nothing but S, whatever happens to the other classes; that is what makes
bundles worth pricing one at a time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from loadmaster.arrays import BoolArray, FloatArray, IntArray
from loadmaster.graph.order import csr_from_pairs
from loadmaster.problem import Problem

__all__ = ["Bundles", "Kind", "bundles_of", "loads_of"]


class Kind(NamedTuple):
    """Devices that are alike in every respect (times, transfers, and which classes may go there).

    devices : (count,) the devices.
    time : (classes,) seconds, infinite where the class may not go.
    send, recv : (nets,) seconds that a cut net costs with the producer inside, or outside.
    """

    devices: IntArray
    time: FloatArray
    send: FloatArray
    recv: FloatArray

    @property
    def number(self) -> int:
        """Number of devices."""
        return len(self.devices)


class Bundles(NamedTuple):
    """Classes, nets and kinds of devices of a pipeline problem.

    pin_ptr, pin : the classes of net e are ``pin[pin_ptr[e]:pin_ptr[e + 1]]``, ascending.
    producer : (nets,) class of the producer.
    net_ptr, net : CSR class -> nets.
    kinds : the kinds of devices; between them they hold all devices that may be used.
    """

    classes: int
    pin_ptr: IntArray
    pin: IntArray
    producer: IntArray
    net_ptr: IntArray
    net: IntArray
    kinds: tuple[Kind, ...]


def bundles_of(problem: Problem) -> Bundles:
    """Contract the colocation classes of a pipeline problem; costs are those of the original tensors.

    Tensors with the same pins are one net; where no device tells sending from receiving, whoever produces
    them. A class that alone exceeds a device's memory may not go there; otherwise memory is not looked at.
    O(edges log edges).
    """
    groups = _device_groups(problem)
    alike = np.array_equal(problem.send_latency, problem.recv_latency) and np.array_equal(
        problem.send_rate, problem.recv_rate
    )
    graph, of = problem.graph, problem.class_of
    lookup: dict[tuple[bytes, int], int] = {}
    pins: list[IntArray] = []
    producer: list[int] = []
    net_of = np.full(graph.tensors, -1, np.int32)
    for t in range(graph.tensors):
        home = int(of[graph.tensor_producer[t]])
        touched = np.unique(np.append(of[graph.consumers(t)], home)).astype(np.int32)
        if len(touched) < 2:
            continue
        key = (touched.tobytes(), -1 if alike else home)
        if key not in lookup:
            lookup[key] = len(pins)
            pins.append(touched)
            producer.append(home)
        net_of[t] = lookup[key]
    used = net_of >= 0
    number = np.bincount(net_of[used], minlength=len(pins)).astype(np.float64)
    size = np.bincount(net_of[used], problem.size[used], len(pins))
    kinds = []
    for group in groups:
        d = int(group[0])
        kinds.append(
            Kind(
                devices=group,
                time=np.where(_may_go(problem)[:, d], problem.class_time[:, d], np.inf),
                send=number * problem.send_latency[d] + size * problem.send_rate[d],
                recv=number * problem.recv_latency[d] + size * problem.recv_rate[d],
            )
        )
    sizes = np.array([len(p) for p in pins], np.int64)
    pin = np.concatenate([np.zeros(0, np.int32), *pins])
    pin_ptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    net_ptr, net = csr_from_pairs(
        pin, np.repeat(np.arange(len(pins), dtype=np.int32), sizes), problem.classes
    )
    return Bundles(problem.classes, pin_ptr, pin, np.array(producer, np.int32), net_ptr, net, tuple(kinds))


def _may_go(problem: Problem) -> BoolArray:
    """(classes, D) whether a class may go to a device, its own memory looked at."""
    fits: BoolArray = problem.class_memory[:, None] <= problem.capacity * (1.0 + 1e-9)
    return problem.class_allowed & fits


def _device_groups(problem: Problem) -> list[IntArray]:
    """The usable devices by kind."""
    may_go = _may_go(problem)
    groups: dict[bytes, list[int]] = {}
    for d in np.flatnonzero(may_go.any(axis=0)).tolist():
        transfers = np.array(
            [problem.send_latency[d], problem.send_rate[d], problem.recv_latency[d], problem.recv_rate[d]]
        )
        time = np.where(may_go[:, d], problem.class_time[:, d], np.inf)
        groups.setdefault(transfers.tobytes() + time.tobytes(), []).append(d)
    return [np.array(group, np.int32) for group in groups.values()]


def loads_of(bundles: Bundles, kind: Kind, inside: BoolArray) -> FloatArray:
    """(rows,) the load of each (rows, classes) bundle on a device of the kind, exactly."""
    inside = np.atleast_2d(inside)
    load: FloatArray = np.where(inside, kind.time, 0.0).sum(axis=1)
    if len(bundles.producer):
        taken = np.add.reduceat(inside[:, bundles.pin], bundles.pin_ptr[:-1], axis=1, dtype=np.int32)
        cut = (taken > 0) & (taken < np.diff(bundles.pin_ptr))
        load += np.where(cut, np.where(inside[:, bundles.producer], kind.send, kind.recv), 0.0).sum(axis=1)
    return load
