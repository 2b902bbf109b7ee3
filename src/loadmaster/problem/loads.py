"""Incremental costs of ``serial`` and ``pipeline``: exact changes for moving an op, in O(degree + devices).

Both models charge a tensor by *which* devices read it, not by how many ops there do. So the ledger keeps, for
every tensor and device, how many readers of the tensor are on the device; moving an op changes a few
counters, and a charge appears or disappears when a counter leaves or reaches zero (a hyper-graph partitioner
would say: pins of a net).

Data structures
---------------
:class:`Nets` is the problem as the kernels need it, read-only. :class:`Ledger` belongs to one placement: the
devices, the counters, and the sums that they stand for. Both are tuples of arrays that are passed to the
kernels one by one (``*nets, *ledger``): inside compiled code, reaching into a tuple of arrays costs reference
counting at every access, which made moves ten times slower.

The sums are updated by adding and subtracting, so they drift by rounding; a search restores them from a saved
copy when it takes a move back, and reports only costs that the evaluator computed afresh.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from loadmaster.arrays import FloatArray, IntArray
from loadmaster.problem._model import Pipeline, Serial
from loadmaster.problem._problem import Problem

__all__ = ["Ledger", "Nets", "cost_of", "load_cost", "move_op", "nets_of", "new_ledger", "reset"]


SERIAL, OVERLAP, APART = 1, 2, 4
"""Bits of ``Nets.kind``: the serial model; communication overlaps with compute; forward and backward
maxima are added."""


class Nets(NamedTuple):
    """A ``serial`` or ``pipeline`` problem for the kernels: n ops, m tensors, D devices."""

    kind: int
    """A sum of SERIAL, OVERLAP, APART."""
    ops: IntArray
    """(n, 4) where in ``touch`` the tensors begin and end that the op reads; its side (1 = backward); where
    those end that it writes (they begin where the others end)."""
    touch: IntArray
    """The tensors that ops read and write, op after op."""
    tensors: IntArray
    """(m, 3) producer, number of readers, side of the producer."""
    time: FloatArray
    """(n, D) seconds."""
    size: FloatArray
    """(m,)."""
    wire: FloatArray
    """(4, D) send latency, send rate, receive latency, receive rate."""
    latency: FloatArray
    """(D, D) seconds, for ``serial``."""
    rate: FloatArray
    """(D, D)."""


class Ledger(NamedTuple):
    """The running totals of one placement."""

    device: IntArray
    """(n,)."""
    reading: IntArray
    """(m, D) readers of each tensor on each device."""
    compute: FloatArray
    """(2, D) seconds, forward and backward."""
    comm: FloatArray
    """(2, D) seconds of sending and receiving, on the side of the tensor's producer; for ``serial`` (0, 0)
    holds all link time."""


def nets_of(problem: Problem) -> Nets:
    """The problem as the kernels need it; its model must be ``serial`` or ``pipeline``."""
    graph, model = problem.graph, problem.model
    assert isinstance(model, Serial | Pipeline)
    kind = SERIAL if isinstance(model, Serial) else 0
    if isinstance(model, Pipeline):
        kind = OVERLAP * (model.comm == "overlap") + APART * (model.objective == "fw+bw")
    in_ptr, in_tensor = graph.inputs
    out_ptr, out_tensor = graph.outputs
    reads, writes = np.diff(in_ptr), np.diff(out_ptr)
    begin = (in_ptr[:-1] + out_ptr[:-1]).astype(np.int32)
    touch = np.empty(len(in_tensor) + len(out_tensor), np.int32)
    touch[np.repeat(begin - in_ptr[:-1], reads) + np.arange(len(in_tensor))] = in_tensor
    touch[np.repeat(begin + reads - out_ptr[:-1], writes) + np.arange(len(out_tensor))] = out_tensor
    side = graph.backward.astype(np.int32)
    return Nets(
        kind=kind,
        ops=np.stack([begin, begin + reads, side, begin + reads + writes], axis=1).astype(np.int32),
        touch=touch,
        tensors=np.stack(
            [graph.tensor_producer, np.diff(graph.consumer_ptr), side[graph.tensor_producer]], axis=1
        ).astype(np.int32),
        time=problem.time,
        size=problem.size,
        wire=np.stack([problem.send_latency, problem.send_rate, problem.recv_latency, problem.recv_rate]),
        latency=problem.latency,
        rate=problem.rate,
    )


def new_ledger(nets: Nets) -> Ledger:
    """An empty ledger; :func:`reset` fills it."""
    n, devices = nets.time.shape
    return Ledger(
        device=np.zeros(n, np.int32),
        reading=np.zeros((len(nets.size), devices), np.int32),
        compute=np.zeros((2, devices)),
        comm=np.zeros((2, devices)),
    )


def cost_of(nets: Nets, ledger: Ledger) -> float:
    """The cost that the ledger stands for."""
    return float(load_cost(nets.kind, ledger.compute, ledger.comm))


@njit(cache=True, nogil=True)
def reset(  # type: ignore[no-untyped-def]
    kind, ops, touch, tensors, time, size, wire, latency, rate, device, count, compute, comm, placement
):
    """Fill the ledger for a placement, from nothing. O(ops + edges + tensors * devices)."""
    devices = time.shape[1]
    device[:] = placement
    count[:] = 0
    compute[:] = 0.0
    comm[:] = 0.0
    for v in range(len(device)):
        d = device[v]
        compute[ops[v, 2], d] += time[v, d]
        for i in range(ops[v, 0], ops[v, 1]):
            count[touch[i], d] += 1
    for t in range(len(size)):
        home, side = device[tensors[t, 0]], tensors[t, 2]
        if count[t, home] == tensors[t, 1]:
            continue
        if kind & SERIAL:
            for e in range(devices):
                if e != home and count[t, e] > 0:
                    comm[0, 0] += latency[home, e] + size[t] * rate[home, e]
            continue
        comm[side, home] += wire[0, home] + size[t] * wire[1, home]
        for e in range(devices):
            if e != home and count[t, e] > 0:
                comm[side, e] += wire[2, e] + size[t] * wire[3, e]


@njit(cache=True, nogil=True)
def load_cost(kind, compute, comm):  # type: ignore[no-untyped-def]
    """The cost that the sums of a ledger stand for. O(devices)."""
    devices = compute.shape[1]
    if kind & SERIAL:
        total = comm[0, 0]
        for d in range(devices):
            total += compute[0, d] + compute[1, d]
        return total
    overlap = kind & OVERLAP
    if kind & APART:
        forward = backward = 0.0
        for d in range(devices):
            f = max(compute[0, d], comm[0, d]) if overlap else compute[0, d] + comm[0, d]
            b = max(compute[1, d], comm[1, d]) if overlap else compute[1, d] + comm[1, d]
            forward, backward = max(forward, f), max(backward, b)
        return forward + backward
    worst = 0.0
    for d in range(devices):
        work, talk = compute[0, d] + compute[1, d], comm[0, d] + comm[1, d]
        worst = max(worst, max(work, talk) if overlap else work + talk)
    return worst


@njit(cache=True, nogil=True)
def move_op(  # type: ignore[no-untyped-def]
    kind, ops, touch, tensors, time, size, wire, latency, rate, device, count, compute, comm, v, b
):
    """Move op v to device b and bring all sums up to date. O(degree), times devices for the outputs under
    ``serial``."""
    a = device[v]
    if a == b:
        return
    side = ops[v, 2]
    compute[side, a] -= time[v, a]
    compute[side, b] += time[v, b]
    device[v] = b
    if kind & SERIAL:
        comm[0, 0] += _move_links(ops, touch, tensors, size, latency, rate, device, count, v, a, b)
        return
    # Whether a charge comes or goes is a coin toss that no branch predictor wins: conditions are multiplied,
    # not branched on.
    recv_latency_a, recv_rate_a = wire[2, a], wire[3, a]
    recv_latency_b, recv_rate_b = wire[2, b], wire[3, b]
    for i in range(ops[v, 0], ops[v, 1]):
        t = touch[i]
        home, readers, s = device[tensors[t, 0]], tensors[t, 1], tensors[t, 2]
        on_a, on_b, on_home = count[t, a] - 1, count[t, b], count[t, home]
        count[t, a] = on_a
        count[t, b] = on_b + 1
        comm[s, a] -= ((on_a == 0) & (a != home)) * (recv_latency_a + size[t] * recv_rate_a)
        comm[s, b] += ((on_b == 0) & (b != home)) * (recv_latency_b + size[t] * recv_rate_b)
        sends = np.int64(on_home - (a == home) + (b == home) < readers) - np.int64(on_home < readers)
        comm[s, home] += sends * (wire[0, home] + size[t] * wire[1, home])
    for i in range(ops[v, 1], ops[v, 3]):
        t = touch[i]
        on_a, on_b, readers = count[t, a], count[t, b], tensors[t, 1]
        recv_a, send_a = recv_latency_a + size[t] * recv_rate_a, wire[0, a] + size[t] * wire[1, a]
        recv_b, send_b = recv_latency_b + size[t] * recv_rate_b, wire[0, b] + size[t] * wire[1, b]
        comm[side, a] += (on_a > 0) * recv_a - (on_a < readers) * send_a
        comm[side, b] += (on_b < readers) * send_b - (on_b > 0) * recv_b


@njit(cache=True, nogil=True)
def _move_links(ops, touch, tensors, size, latency, rate, device, count, v, a, b):  # type: ignore[no-untyped-def]
    """By how much the link time of the ``serial`` model changes when op v goes from a to b."""
    change = 0.0
    for i in range(ops[v, 0], ops[v, 1]):
        t = touch[i]
        home = device[tensors[t, 0]]
        count[t, a] -= 1
        if a != home and count[t, a] == 0:
            change -= latency[home, a] + size[t] * rate[home, a]
        if b != home and count[t, b] == 0:
            change += latency[home, b] + size[t] * rate[home, b]
        count[t, b] += 1
    for i in range(ops[v, 1], ops[v, 3]):
        t = touch[i]
        for e in range(count.shape[1]):
            if count[t, e] > 0:
                if e != a:
                    change -= latency[a, e] + size[t] * rate[a, e]
                if e != b:
                    change += latency[b, e] + size[t] * rate[b, e]
    return change
