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
from loadmaster.graph.order import sum_by
from loadmaster.problem._model import Pipeline, Serial
from loadmaster.problem._problem import Problem

__all__ = [
    "Ledger",
    "Nets",
    "cost_of",
    "load_cost",
    "move_op",
    "nets_of",
    "nets_of_groups",
    "new_ledger",
    "reset",
]


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
    """(m, 4) producer, number of readers, side of the producer, how many tensors it stands for (:func:`nets_of_groups`
    puts those together that have the same ends)."""
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
            [
                graph.tensor_producer,
                np.diff(graph.consumer_ptr),
                side[graph.tensor_producer],
                np.ones(graph.tensors),
            ],
            axis=1,
        ).astype(np.int32),
        time=problem.time,
        size=problem.size,
        wire=np.stack([problem.send_latency, problem.send_rate, problem.recv_latency, problem.recv_rate]),
        latency=problem.latency,
        rate=problem.rate,
    )


def nets_of_groups(problem: Problem, group: IntArray, groups: int) -> Nets | None:
    """The nets between groups of ops that move as one; None where a group has two sides that must be told apart.

    A placement of the groups has the cost that it has on all ops. What stays in a group is left out, a group reads a
    tensor once, and tensors with the same ends are put together. Groups may wait for each other in circles: these
    models charge what crosses between devices, whatever its direction.

    group : (n,) the group of each op.

    Complexity: O(ops + edges + tensors log tensors).
    """
    plain, graph = nets_of(problem), problem.graph
    side = np.zeros(groups, np.int32)
    if plain.kind & APART:
        side[group] = plain.ops[:, 2]
        if np.any(side[group] != plain.ops[:, 2]):
            return None
    ends = (group, groups, graph.tensor_producer, graph.consumer_ptr, graph.consumer_op)
    label, readers = _labels(*ends)
    leaving = np.flatnonzero(readers).astype(np.int32)
    leaving = leaving[np.argsort(label[leaving], kind="stable")]
    first = _first_alike(*ends, label, readers, leaving)
    chosen = np.unique(first)
    net = np.empty(graph.tensors, np.int32)
    net[chosen] = np.arange(len(chosen), dtype=np.int32)
    home = group[graph.tensor_producer[chosen]]
    touch, begin = _touch(*ends, chosen)
    return plain._replace(
        ops=np.stack([begin[:-1:2], begin[1::2], side, begin[2::2]], axis=1).astype(np.int32),
        touch=touch,
        tensors=np.stack(
            [home, readers[chosen], side[home], np.bincount(net[first], minlength=len(chosen))], axis=1
        ).astype(np.int32),
        time=np.stack([sum_by(group, column, groups) for column in plain.time.T], axis=1),
        size=sum_by(net[first], plain.size[leaving], len(chosen)),
    )


@njit(cache=True, nogil=True)
def _mixed(x):  # type: ignore[no-untyped-def]
    """A number whose bits all depend on those of x (splitmix64)."""
    z = np.uint64(x) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x632BE59BD9B4E019)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@njit(cache=True, nogil=True)
def _labels(group, groups, producer, ptr, consumer):  # type: ignore[no-untyped-def]
    """(m,) labels, equal for tensors with the same ends, and (m,) how many other groups read each tensor."""
    label, readers = np.empty(len(producer), np.uint64), np.zeros(len(producer), np.int32)
    seen = np.full(groups, -1, np.int32)
    for t in range(len(producer)):
        home = group[producer[t]]
        label[t] = _mixed(_mixed(home))
        for i in range(ptr[t], ptr[t + 1]):
            g = group[consumer[i]]
            if g != home and seen[g] != t:
                seen[g] = t
                readers[t] += 1
                label[t] += _mixed(g)
    return label, readers


@njit(cache=True, nogil=True)
def _first_alike(group, groups, producer, ptr, consumer, label, readers, order):  # type: ignore[no-untyped-def]
    """For each tensor of ``order`` (by label) the first with the same ends; like labels alone prove nothing."""
    first = order.copy()
    mark = np.full(groups, -1, np.int32)
    for i in range(len(order)):
        t, head = order[i], first[i - 1] if i > 0 else order[i]
        home = group[producer[t]]
        same = (
            i > 0
            and label[t] == label[head]
            and readers[t] == readers[head]
            and home == group[producer[head]]
        )
        for j in range(ptr[t], ptr[t + 1]):
            g = group[consumer[j]]
            same &= g == home or mark[g] == head
        if same:
            first[i] = head
            continue
        for j in range(ptr[t], ptr[t + 1]):
            mark[group[consumer[j]]] = t
    return first


@njit(cache=True, nogil=True)
def _touch(group, groups, producer, ptr, consumer, chosen):  # type: ignore[no-untyped-def]
    """What groups read and write, and (2 groups + 1,) where that of each begins: its reads, then its writes."""
    begin = np.zeros(2 * groups + 1, np.int64)
    touch = np.empty(0, np.int32)
    for filling in range(2):
        seen = np.full(groups, -1, np.int32)
        for net in range(len(chosen)):
            t = chosen[net]
            home = group[producer[t]]
            if filling:
                touch[begin[2 * home + 1]] = net
            begin[2 * home + 1] += 1
            for i in range(ptr[t], ptr[t + 1]):
                g = group[consumer[i]]
                if g != home and seen[g] != t:
                    seen[g] = t
                    if filling:
                        touch[begin[2 * g]] = net
                    begin[2 * g] += 1
        if not filling:
            total = 0
            for i in range(2 * groups + 1):
                size = begin[i]
                begin[i] = total
                total += size
            touch = np.empty(total, np.int32)
    begin[1:] = begin[:-1].copy()
    begin[0] = 0
    return touch, begin


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
        home, side, number = device[tensors[t, 0]], tensors[t, 2], tensors[t, 3]
        if count[t, home] == tensors[t, 1]:
            continue
        if kind & SERIAL:
            for e in range(devices):
                if e != home and count[t, e] > 0:
                    comm[0, 0] += number * latency[home, e] + size[t] * rate[home, e]
            continue
        comm[side, home] += number * wire[0, home] + size[t] * wire[1, home]
        for e in range(devices):
            if e != home and count[t, e] > 0:
                comm[side, e] += number * wire[2, e] + size[t] * wire[3, e]


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
        home, readers, s, number = device[tensors[t, 0]], tensors[t, 1], tensors[t, 2], tensors[t, 3]
        on_a, on_b, on_home = count[t, a] - 1, count[t, b], count[t, home]
        count[t, a] = on_a
        count[t, b] = on_b + 1
        comm[s, a] -= ((on_a == 0) & (a != home)) * (number * recv_latency_a + size[t] * recv_rate_a)
        comm[s, b] += ((on_b == 0) & (b != home)) * (number * recv_latency_b + size[t] * recv_rate_b)
        sends = np.int64(on_home - (a == home) + (b == home) < readers) - np.int64(on_home < readers)
        comm[s, home] += sends * (number * wire[0, home] + size[t] * wire[1, home])
    for i in range(ops[v, 1], ops[v, 3]):
        t = touch[i]
        on_a, on_b, readers, number = count[t, a], count[t, b], tensors[t, 1], tensors[t, 3]
        recv_a, send_a = (
            number * recv_latency_a + size[t] * recv_rate_a,
            number * wire[0, a] + size[t] * wire[1, a],
        )
        recv_b, send_b = (
            number * recv_latency_b + size[t] * recv_rate_b,
            number * wire[0, b] + size[t] * wire[1, b],
        )
        comm[side, a] += (on_a > 0) * recv_a - (on_a < readers) * send_a
        comm[side, b] += (on_b < readers) * send_b - (on_b > 0) * recv_b


@njit(cache=True, nogil=True)
def _move_links(ops, touch, tensors, size, latency, rate, device, count, v, a, b):  # type: ignore[no-untyped-def]
    """By how much the link time of the ``serial`` model changes when op v goes from a to b."""
    change = 0.0
    for i in range(ops[v, 0], ops[v, 1]):
        t = touch[i]
        home, number = device[tensors[t, 0]], tensors[t, 3]
        count[t, a] -= 1
        if a != home and count[t, a] == 0:
            change -= number * latency[home, a] + size[t] * rate[home, a]
        if b != home and count[t, b] == 0:
            change += number * latency[home, b] + size[t] * rate[home, b]
        count[t, b] += 1
    for i in range(ops[v, 1], ops[v, 3]):
        t = touch[i]
        number = tensors[t, 3]
        for e in range(count.shape[1]):
            if count[t, e] > 0:
                if e != a:
                    change -= number * latency[a, e] + size[t] * rate[a, e]
                if e != b:
                    change += number * latency[b, e] + size[t] * rate[b, e]
    return change
