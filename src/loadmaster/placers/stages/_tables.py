"""Arrays of a contracted problem for compiled kernels: times by kind of device, nets, and counting states.

*Nets* are tensors: a producer and its readers, as atoms. Tensors with the same ends are one net; what is read
in its own atom only is none. A vector that says how many devices of each kind are in use is a *state*,
numbered by mixed radix.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from loadmaster.arrays import BoolArray, FloatArray, IntArray
from loadmaster.graph.order import csr_from_pairs, sum_by
from loadmaster.placers.frame.feasible import Atoms
from loadmaster.problem import Pipeline, Problem

__all__ = ["MOST_STATES", "Tables", "change_of", "count_vectors", "kinds_of", "tables_of"]


MOST_STATES = 4096
"""Vectors of device counts that a program over chains may tell apart."""


class Tables(NamedTuple):
    """The contracted problem for kernels: N atoms, E nets, K kinds, L loads per device, C channels.

    A device has one load, or two under the objective ``fw+bw``: load 0, which is minimised, is the backward
    and load 1, which is limited, the forward one. A channel is a set of kinds with the same costs of sending
    and receiving.
    """

    time: FloatArray
    """(N, K * L) seconds of an atom; infinite where it may not go."""
    memory: FloatArray
    """(N,) bytes."""
    capacity: FloatArray
    """(K,) bytes."""
    crowded: bool
    """Some capacity may be exceeded."""
    channel: IntArray
    """(K,) channel of a kind, -1 where communication is free."""
    net_ptr: IntArray
    net: IntArray
    """Atom -> the nets that it is a pin of."""
    role: IntArray
    """Beside ``net``: 4 if the atom is the net's producer, else 0; see ``change``."""
    home: IntArray
    """(E,) atom that produces the net."""
    pins: IntArray
    """(E,) number of atoms of the net, the producer counted."""
    pin_ptr: IntArray
    pin: IntArray
    """Net -> its atoms, ascending."""
    load: IntArray
    """(E,) the load that the net is booked on."""
    send: FloatArray
    recv: FloatArray
    """(E, C) seconds."""
    change: FloatArray
    """(E, C, 8) seconds that communication of a stage changes by when a pin of the net joins it: by role of
    the pin, plus 2 if it is the first, plus 1 if it makes the net complete. A table instead of branches,
    which a processor could not predict."""
    overlap: bool
    loads: int
    following: IntArray
    """(states, K) the state with one more device of a kind in use, -1 where there is none left."""


def kinds_of(problem: Problem, found: Atoms) -> tuple[IntArray, ...]:
    """Devices that are equal in all that matters, by first device; those that nothing may use are left
    out."""
    kinds: dict[tuple[bytes, ...], list[int]] = {}
    rates = np.stack([problem.send_latency, problem.send_rate, problem.recv_latency, problem.recv_rate])
    roomy = found.memory.sum() <= problem.capacity
    usable = problem.class_allowed.any(axis=0) if problem.n else np.ones(problem.devices, np.bool_)
    for d in np.flatnonzero(usable).tolist():
        allowed = problem.class_allowed[:, d]
        time = np.where(problem.allowed[:, d], problem.time[:, d], np.inf)
        capacity = np.inf if roomy[d] else problem.capacity[d]
        key = (allowed.tobytes(), time.tobytes(), rates[:, d].tobytes(), np.float64(capacity).tobytes())
        kinds.setdefault(key, []).append(d)
    return tuple(np.array(kind, np.int32) for kind in kinds.values())


def tables_of(
    problem: Problem,
    atom_of: IntArray,
    atoms: int,
    allowed: BoolArray,
    kinds: tuple[IntArray, ...],
    count: IntArray,
) -> Tables:
    model, graph = problem.model, problem.graph
    assert isinstance(model, Pipeline)
    loads = 2 if model.objective == "fw+bw" and graph.backward.any() else 1
    first = np.array([kind[0] for kind in kinds], np.int32)
    booked = np.where(graph.backward, 0, loads - 1)
    time = np.zeros((atoms, len(kinds), loads))
    for k, d in enumerate(first.tolist()):
        for side in range(loads):
            mine = booked == side
            time[:, k, side] = np.bincount(
                atom_of[mine], np.where(np.isfinite(problem.time[mine, d]), problem.time[mine, d], 0.0), atoms
            )
    time[~allowed[:, first]] = np.inf
    memory = sum_by(atom_of, problem.memory, atoms)
    channel, rates = _channels(problem, first)
    producer, readers, send, recv = _nets(problem, atom_of, booked, rates)
    home, booked_on = producer[:, 0], producer[:, 1]
    pins = [np.sort(np.append(read, p)) for p, read in zip(home, readers, strict=True)]
    sizes = np.array([len(pin) for pin in pins], np.int32)
    pin = np.concatenate(pins).astype(np.int32) if pins else np.zeros(0, np.int32)
    of_net = np.repeat(np.arange(len(pins), dtype=np.int32), sizes)
    net_ptr, net = csr_from_pairs(pin, of_net, atoms)
    owner = np.repeat(np.arange(atoms, dtype=np.int32), np.diff(net_ptr))
    used = (
        count_vectors(count)
        if math.prod((count + 1).tolist()) <= MOST_STATES
        else np.zeros((0, len(count)), np.int32)
    )
    step = np.cumprod(np.append(1, (count + 1)[:0:-1]))[::-1][: len(count)]
    return Tables(
        time=np.ascontiguousarray(time.reshape(atoms, len(kinds) * loads)),
        memory=memory,
        capacity=problem.capacity[first],
        crowded=bool((memory.sum() > problem.capacity[first]).any()),
        channel=channel,
        net_ptr=net_ptr,
        net=net,
        role=np.where(home[net] == owner, 4, 0).astype(np.int32),
        home=np.ascontiguousarray(home, np.int32),
        pins=sizes,
        pin_ptr=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32),
        pin=pin,
        load=np.ascontiguousarray(booked_on, np.int32),
        send=send,
        recv=recv,
        change=change_of(send, recv),
        overlap=model.comm == "overlap",
        loads=loads,
        following=np.where(used < count, np.arange(len(used))[:, None] + step, -1).astype(np.int32),
    )


def count_vectors(count: IntArray) -> IntArray:
    """(states, K) all vectors of at most ``count`` devices of each kind, by mixed radix."""
    shape = tuple((count + 1).tolist())
    return np.ascontiguousarray(np.indices(shape, np.int32).reshape(len(shape), math.prod(shape)).T)


def change_of(send: FloatArray, recv: FloatArray) -> FloatArray:
    """(E, C, 8) see :class:`Tables`."""
    change = np.zeros((*send.shape, 8))
    for first in (False, True):
        for whole in (False, True):
            case = 2 * first + whole
            change[..., 4 + case] = (0.0 if first else -recv) + (0.0 if whole else send)
            change[..., case] = recv if first else -send if whole else 0.0
    return change


def _channels(problem: Problem, first: IntArray) -> tuple[IntArray, FloatArray]:
    """(K,) channel of each kind, and (C, 4) send latency, send rate, receive latency, receive rate of each
    channel.
    """
    rates = np.stack(
        [problem.send_latency, problem.send_rate, problem.recv_latency, problem.recv_rate], axis=1
    )[first]
    channels: dict[bytes, int] = {}
    channel = np.full(len(first), -1, np.int32)
    for k, row in enumerate(rates):
        if row.any():
            channel[k] = channels.setdefault(row.tobytes(), len(channels))
    unlike = [int(np.flatnonzero(channel == c)[0]) for c in range(len(channels))]
    return channel, rates[unlike]


def _nets(
    problem: Problem, atom_of: IntArray, booked: npt.NDArray[np.int64], rates: FloatArray
) -> tuple[IntArray, list[IntArray], FloatArray, FloatArray]:
    """(E, 2) producer and load, readers, and (E, C) costs; tensors with equal ends are added up, free ones
    left out.

    Where receiving costs as much as sending it does not matter which end is the producer.
    """
    graph = problem.graph
    reader = atom_of[graph.consumer_op] if graph.edges else np.zeros(0, np.int32)
    own = atom_of[graph.tensor_producer] if graph.tensors else np.zeros(0, np.int32)
    tensor = graph.edge_tensor
    leaves = reader != own[tensor]
    pairs = np.unique(tensor[leaves].astype(np.int64) * max(problem.n, 1) + reader[leaves])
    tensor, reader = (pairs // max(problem.n, 1)), (pairs % max(problem.n, 1)).astype(np.int32)
    found, start = np.unique(tensor, return_index=True)
    stop = np.append(start, len(tensor))[1:]
    symmetric = bool((rates[:, :2] == rates[:, 2:]).all())
    number: dict[tuple[int, int, bytes], int] = {}
    ends: list[tuple[int, int]] = []
    readers: list[IntArray] = []
    of_tensor = np.empty(len(found), np.int64)
    side = booked[graph.tensor_producer[found]].tolist()
    for i, (t, begin, end) in enumerate(zip(found.tolist(), start.tolist(), stop.tolist(), strict=True)):
        read, home = reader[begin:end], int(own[t])
        key = (
            (side[i], -1, np.sort(np.append(read, own[t])).tobytes())
            if symmetric
            else (side[i], home, read.tobytes())
        )
        if key not in number:
            number[key] = len(ends)
            ends.append((home, side[i]))
            readers.append(read)
        of_tensor[i] = number[key]
    size = problem.size[found]
    send = np.zeros((len(ends), len(rates)))
    recv = np.zeros((len(ends), len(rates)))
    for c, (send_latency, send_rate, recv_latency, recv_rate) in enumerate(rates):
        send[:, c] = np.bincount(of_tensor, send_latency + size * send_rate, len(ends))
        recv[:, c] = np.bincount(of_tensor, recv_latency + size * recv_rate, len(ends))
    costs = np.flatnonzero((send > 0).any(axis=1) | (recv > 0).any(axis=1))
    producer = np.array(ends, np.int32).reshape(-1, 2)[costs]
    return (
        producer,
        [readers[i] for i in costs.tolist()],
        np.ascontiguousarray(send[costs]),
        np.ascontiguousarray(recv[costs]),
    )
