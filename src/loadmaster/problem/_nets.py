"""Incremental costs of ``serial`` and ``pipeline``: exact changes for moving an op, in O(degree + devices).

Both models charge a tensor by *which* devices read it, not by how many ops there do. So the ledger keeps, for every tensor
and device, how many readers of the tensor are on the device; moving an op changes a few counters, and a charge appears or
disappears when a counter leaves or reaches zero (a hyper-graph partitioner would say: pins of a net).

Data structures
---------------
``Nets`` is the problem as the kernels need it, read-only: op -> tensors read and written (CSR), tensor -> producer and number
of readers, times, and the factorised transfer costs. ``Ledger`` belongs to one placement: the devices, the counters, and the
sums that the counters stand for: ``compute`` and ``comm`` (2, D) for the forward and the backward side (a transfer is booked
on the side of its producer), and for ``serial`` the total of all link times in ``link[0]``.

The sums are updated by adding and subtracting, so they drift by rounding; a search restores them from the saved copy when it
takes a move back, calls :func:`reset` now and then, and reports only costs that the evaluator computed afresh.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from loadmaster.problem._model import Pipeline, Serial
from loadmaster.problem._problem import Problem

__all__ = ["Ledger", "Nets", "load_cost", "move_op", "nets_of", "new_ledger", "reset"]

IntArray = npt.NDArray[np.int32]
FloatArray = npt.NDArray[np.float64]


class Nets(NamedTuple):
    """A ``serial`` or ``pipeline`` problem for the kernels."""

    serial: bool
    overlap: bool
    apart: bool
    """Forward and backward maxima are taken apart and added (objective ``fw+bw``)."""
    side: IntArray
    in_ptr: IntArray
    in_tensor: IntArray
    out_ptr: IntArray
    out_tensor: IntArray
    producer: IntArray
    readers: IntArray
    consumer_ptr: IntArray
    consumer_op: IntArray
    time: FloatArray
    size: FloatArray
    latency: FloatArray
    rate: FloatArray
    send_latency: FloatArray
    send_rate: FloatArray
    recv_latency: FloatArray
    recv_rate: FloatArray


class Ledger(NamedTuple):
    """The running totals of one placement."""

    device: IntArray
    count: IntArray
    compute: FloatArray
    comm: FloatArray
    link: FloatArray


def nets_of(problem: Problem) -> Nets:
    """The problem as the kernels need it; its model must be ``serial`` or ``pipeline``."""
    graph, model = problem.graph, problem.model
    assert isinstance(model, Serial | Pipeline)
    in_ptr, in_tensor = graph.inputs
    out_ptr, out_tensor = graph.outputs
    return Nets(
        serial=isinstance(model, Serial),
        overlap=isinstance(model, Pipeline) and model.comm == "overlap",
        apart=isinstance(model, Pipeline) and model.objective == "fw+bw",
        side=graph.backward.astype(np.int32),
        in_ptr=in_ptr,
        in_tensor=in_tensor,
        out_ptr=out_ptr,
        out_tensor=out_tensor,
        producer=graph.tensor_producer,
        readers=np.diff(graph.consumer_ptr).astype(np.int32),
        consumer_ptr=graph.consumer_ptr,
        consumer_op=graph.consumer_op,
        time=problem.time,
        size=problem.size,
        latency=problem.latency,
        rate=problem.rate,
        send_latency=problem.send_latency,
        send_rate=problem.send_rate,
        recv_latency=problem.recv_latency,
        recv_rate=problem.recv_rate,
    )


def new_ledger(nets: Nets) -> Ledger:
    """An empty ledger; :func:`reset` fills it."""
    n, devices = nets.time.shape
    return Ledger(
        device=np.zeros(n, np.int32),
        count=np.zeros((len(nets.producer), devices), np.int32),
        compute=np.zeros((2, devices)),
        comm=np.zeros((2, devices)),
        link=np.zeros(1),
    )


@njit(cache=True, nogil=True)
def reset(nets, ledger, device):  # type: ignore[no-untyped-def]
    """Fill the ledger for a placement, from nothing. O(ops + tensors * devices + edges)."""
    ledger.device[:] = device
    ledger.count[:] = 0
    ledger.compute[:] = 0.0
    ledger.comm[:] = 0.0
    ledger.link[0] = 0.0
    devices = nets.time.shape[1]
    for v in range(len(device)):
        ledger.compute[nets.side[v], device[v]] += nets.time[v, device[v]]
    for t in range(len(nets.producer)):
        for i in range(nets.consumer_ptr[t], nets.consumer_ptr[t + 1]):
            ledger.count[t, device[nets.consumer_op[i]]] += 1
        p = nets.producer[t]
        home, side = device[p], nets.side[p]
        if ledger.count[t, home] == nets.readers[t]:
            continue
        if nets.serial:
            for e in range(devices):
                if e != home and ledger.count[t, e] > 0:
                    ledger.link[0] += nets.latency[home, e] + nets.size[t] * nets.rate[home, e]
            continue
        ledger.comm[side, home] += nets.send_latency[home] + nets.size[t] * nets.send_rate[home]
        for e in range(devices):
            if e != home and ledger.count[t, e] > 0:
                ledger.comm[side, e] += nets.recv_latency[e] + nets.size[t] * nets.recv_rate[e]


@njit(cache=True, nogil=True)
def load_cost(nets, ledger):  # type: ignore[no-untyped-def]
    """The cost that the ledger stands for. O(devices)."""
    compute, comm = ledger.compute, ledger.comm
    devices = compute.shape[1]
    if nets.serial:
        total = ledger.link[0]
        for d in range(devices):
            total += compute[0, d] + compute[1, d]
        return total
    if nets.apart:
        forward = backward = 0.0
        for d in range(devices):
            f = max(compute[0, d], comm[0, d]) if nets.overlap else compute[0, d] + comm[0, d]
            b = max(compute[1, d], comm[1, d]) if nets.overlap else compute[1, d] + comm[1, d]
            forward, backward = max(forward, f), max(backward, b)
        return forward + backward
    worst = 0.0
    for d in range(devices):
        work, talk = compute[0, d] + compute[1, d], comm[0, d] + comm[1, d]
        worst = max(worst, max(work, talk) if nets.overlap else work + talk)
    return worst


@njit(cache=True, nogil=True)
def move_op(nets, ledger, v, b):  # type: ignore[no-untyped-def]
    """Move op v to device b and bring all sums up to date. O(degree), times devices for ``serial`` outputs."""
    a = ledger.device[v]
    if a == b:
        return
    count, comm, side = ledger.count, ledger.comm, nets.side[v]
    ledger.compute[side, a] -= nets.time[v, a]
    ledger.compute[side, b] += nets.time[v, b]
    for i in range(nets.in_ptr[v], nets.in_ptr[v + 1]):
        t = nets.in_tensor[i]
        p = nets.producer[t]
        home, s, size = ledger.device[p], nets.side[p], nets.size[t]
        was_home = count[t, home]
        count[t, a] -= 1
        if a != home and count[t, a] == 0:
            if nets.serial:
                ledger.link[0] -= nets.latency[home, a] + size * nets.rate[home, a]
            else:
                comm[s, a] -= nets.recv_latency[a] + size * nets.recv_rate[a]
        if b != home and count[t, b] == 0:
            if nets.serial:
                ledger.link[0] += nets.latency[home, b] + size * nets.rate[home, b]
            else:
                comm[s, b] += nets.recv_latency[b] + size * nets.recv_rate[b]
        count[t, b] += 1
        if not nets.serial:
            sent, sends = was_home < nets.readers[t], count[t, home] < nets.readers[t]
            if sends and not sent:
                comm[s, home] += nets.send_latency[home] + size * nets.send_rate[home]
            elif sent and not sends:
                comm[s, home] -= nets.send_latency[home] + size * nets.send_rate[home]
    for i in range(nets.out_ptr[v], nets.out_ptr[v + 1]):
        t = nets.out_tensor[i]
        size, on_a, on_b, readers = nets.size[t], count[t, a], count[t, b], nets.readers[t]
        if readers == 0:
            continue
        if nets.serial:
            for e in range(count.shape[1]):
                if count[t, e] > 0:
                    if e != a:
                        ledger.link[0] -= nets.latency[a, e] + size * nets.rate[a, e]
                    if e != b:
                        ledger.link[0] += nets.latency[b, e] + size * nets.rate[b, e]
            continue
        if on_a < readers:
            comm[side, a] -= nets.send_latency[a] + size * nets.send_rate[a]
        if on_b < readers:
            comm[side, b] += nets.send_latency[b] + size * nets.send_rate[b]
        if on_b > 0:
            comm[side, b] -= nets.recv_latency[b] + size * nets.recv_rate[b]
        if on_a > 0:
            comm[side, a] += nets.recv_latency[a] + size * nets.recv_rate[a]
    ledger.device[v] = b
