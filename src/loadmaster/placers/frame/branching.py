"""Branch and bound for problems of a few atoms: whatever a search has overlooked there is found, or shown not to exist.

Atoms are placed one after another in topological order. What is placed costs something already, and what is left costs
at least its fastest time; where that is not below the best cost known, nothing behind it is looked at:

- ``serial``: all times and transfers so far, and the least times of the rest;
- ``pipeline``: the busiest device so far, and the average of all devices with the least times of the rest;
- ``concurrent``: computing alone, on average and on each device, between the soonest that an op there can begin and the
  least that must come after one (longest paths, with the transfers between placed ops);
- ``offload``: the busiest accelerator with its transfers, and the longest path without transfers.

With ``memory="peak"`` an op needs its inputs and outputs at once, and beside them what was made on its device before it
and is read there after it, in whatever order ops run (:func:`_fits_at_peak`).

Under ``contiguity`` the pairs of placed ops that a path joins are looked at as arcs: what they break stays broken. Only
complete placements count as evaluations.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from loadmaster.arrays import BoolArray, IntArray
from loadmaster.placers.frame.atoms import atoms_of, judges_peak
from loadmaster.placers.frame.search import Search
from loadmaster.problem import (
    Concurrent,
    Offload,
    Pipeline,
    Placement,
    Problem,
    Serial,
    SimulatedEvaluator,
    chain_arcs,
    forward_arcs,
)
from loadmaster.problem.bounds import Bound

__all__ = ["branch", "branches", "few_atoms"]

ATOMS = 16
"""Atoms with a choice of devices up to which it is tried,"""
OPS = 100
"""and ops."""
NODES = 20_000
"""Partial placements between two looks at the clock."""
MOST_NODES = 3_000_000
"""Partial placements after which it is given up: about a second."""
ROWS = 512
"""Complete placements that are evaluated at a time."""
FEWEST = 1000
"""Evaluations below which a budget is too small to share."""

SERIAL, LOADS, OVERLAP, CONCURRENT, OFFLOAD = 0, 1, 2, 3, 4


def branches(search: Search) -> bool:
    """Whether the problem is one for :func:`branch`, and the budget has room."""
    problem = search.problem
    if not search.simulated or search.budget.seconds == 0 or search.evaluations_left < FEWEST:
        return False
    return few_atoms(problem)


def few_atoms(problem: Problem) -> bool:
    """Whether branch and bound has a chance."""
    return 0 < problem.n <= OPS and int((atoms_of(problem).allowed.sum(axis=1) > 1).sum()) <= ATOMS


def branch(search: Search) -> bool:
    """Look for something better than the best placement known; True if it is certain that there is nothing.

    False if it was given up. Orders of ``concurrent`` and several calls of ``offload`` are left to the evaluator: with
    them the best devices are found, but nothing is proved.
    """
    problem = search.problem
    tree = _Tree(problem)
    check = SimulatedEvaluator(problem)
    # A search may know a placement with an order of its own; all devices without one that beat it are looked at.
    while not tree.over and tree.nodes < MOST_NODES and search.evaluations_left > 0:
        device = tree.next(search.cost, int(min(ROWS, search.evaluations_left)))
        if len(device):
            cost, possible = check.costs(device)
            search.count(len(device))
            cost = np.where(possible, cost, math.inf)
            for i in np.argsort(cost, kind="stable").tolist():
                if not cost[i] < search.cost:
                    break
                search.confirm(Placement(device[i].copy()), float(cost[i]))
        search.check()
    model = problem.model
    plain = not isinstance(model, Concurrent) and not (isinstance(model, Offload) and model.max_calls > 1)
    if tree.over and plain and search.best is not None:
        search.bound = Bound(search.cost, "branch and bound")
    return tree.over and plain


class _Given(NamedTuple):
    """What the kernel needs; passed one by one (see ``problem/loads.py``)."""

    kind: int
    contiguity: int
    sequence: IntArray
    atom: IntArray
    in_ptr: IntArray
    in_tensor: IntArray
    producer: IntArray
    tail: IntArray
    head: IntArray


class _Tree:
    """The complete placements that may be better than what is known, in batches."""

    def __init__(self, problem: Problem) -> None:
        graph, atoms, model = problem.graph, atoms_of(problem), problem.model
        first = np.full(atoms.count, problem.n)
        np.minimum.at(first, atoms.of_op, graph.position)
        self._order = np.argsort(first, kind="stable").astype(np.int32)
        kind = SERIAL if isinstance(model, Serial) else CONCURRENT
        kind = OFFLOAD if isinstance(model, Offload) else kind
        contiguity, tail, head = 0, np.zeros(0, np.int32), np.zeros(0, np.int32)
        if isinstance(model, Pipeline):
            kind = LOADS if model.comm == "sum" else OVERLAP
            if model.contiguity == "device":
                contiguity, (tail, head) = 1, _closure(problem.n, *forward_arcs(problem))
                tail, head = _by_position(tail, head, graph.position)
            elif model.contiguity == "chain":
                contiguity = 2
                ptr, member = problem.members
                op = member[ptr[:-1]]
                a, b = chain_arcs(problem)
                tail, head = _closure(problem.n, op[a], op[b])
        least = np.where(problem.allowed, problem.time, math.inf).min(axis=1, initial=math.inf)
        memory = problem.resident if judges_peak(problem) else problem.memory
        self._given = _Given(
            kind, contiguity, graph.topological_order, atoms.of_op, *graph.inputs, graph.tensor_producer, tail, head
        )  # fmt: skip
        self._alive = _alive(problem)
        self._costs = (
            problem.time, problem.size, problem.latency, problem.rate, problem.send_latency, problem.send_rate,
            problem.recv_latency, problem.recv_rate, least, problem.pool, atoms.allowed, memory,
            problem.capacity * (1 + 1e-9), graph.tensor_bytes,
        )  # fmt: skip
        self._at = np.full(atoms.count, -1, np.int32)
        self._choice = np.full((atoms.count, problem.devices), -1, np.int32)
        self._n = problem.n
        self._state = np.zeros(2, np.int64)
        self.nodes = 0

    @property
    def over(self) -> bool:
        """Whether everything has been looked at."""
        return int(self._state[0]) < 0

    def next(self, best: float, rows: int) -> IntArray:
        """(up to ``rows``, n) more devices that may cost less than ``best``; none after some thousand partial ones."""
        found = np.empty((rows, self._n), np.int32)
        made, nodes = _descend(
            self._order, self._at, self._choice, self._state, best, NODES, found, *self._given, *self._alive,
            *self._costs,
        )  # fmt: skip
        self.nodes += int(nodes)
        return found[:made]


def _closure(ops: int, tail: IntArray, head: IntArray) -> tuple[IntArray, IntArray]:
    """The pairs of ops that a path joins."""
    reach = np.zeros((ops, ops), np.bool_)
    reach[tail, head] = True
    for v in range(ops):
        reach |= reach[:, v : v + 1] & reach[v]
    a, b = np.nonzero(reach & ~np.eye(ops, dtype=np.bool_))
    return a.astype(np.int32), b.astype(np.int32)


def _alive(problem: Problem) -> tuple[IntArray, IntArray, IntArray, IntArray, IntArray, IntArray, BoolArray]:
    """Which tensors take memory while an op runs, if the peak of memory counts; else nothing.

    needs_ptr, needs : of each op, the tensors that it reads or makes.
    passing_ptr, passing : of each op, other tensors that are made before it in every order, and that are read after
        it in every order, or by nobody.
    reader_ptr, reader : of each tensor.
    reaches : (n, n) whether a path leads from one op to another.
    """
    graph, n = problem.graph, problem.n
    reader_ptr, reader = graph.consumer_ptr, graph.consumer_op
    reaches = np.zeros((n, n), np.bool_)
    if not judges_peak(problem):
        empty = np.zeros(0, np.int32)
        return np.zeros(n + 1, np.int32), empty, np.zeros(n + 1, np.int32), empty, reader_ptr, reader, reaches
    reaches[_closure(n, *graph.arcs)] = True
    producer, (in_ptr, in_tensor) = graph.tensor_producer, graph.inputs
    needs, passing = [], []
    for v in range(n):
        mine = np.union1d(in_tensor[in_ptr[v] : in_ptr[v + 1]], np.flatnonzero(producer == v))
        later = [
            reader_ptr[t] == reader_ptr[t + 1]
            or bool(reaches[v, reader[reader_ptr[t] : reader_ptr[t + 1]]].any())
            for t in range(graph.tensors)
        ]
        other = np.setdiff1d(np.flatnonzero(reaches[producer, v] & np.array(later, np.bool_)), mine)
        needs.append(mine)
        passing.append(other)
    return *_rows(needs), *_rows(passing), reader_ptr, reader, reaches


def _rows(rows: list[IntArray]) -> tuple[IntArray, IntArray]:
    ptr = np.cumsum([0, *map(len, rows)]).astype(np.int32)
    return ptr, np.concatenate([np.zeros(0), *rows]).astype(np.int32)


def _by_position(tail: IntArray, head: IntArray, position: IntArray) -> tuple[IntArray, IntArray]:
    order = np.argsort(position[tail], kind="stable")
    return tail[order], head[order]


@njit(cache=True, nogil=True)
def _descend(  # type: ignore[no-untyped-def]
    order, at, choice, state, best, most, found, kind, contiguity, sequence, atom, in_ptr, in_tensor, producer, tail,
    head, needs_ptr, needs, passing_ptr, passing, reader_ptr, reader, reaches, time, size, latency, rate, send_latency,
    send_rate, recv_latency, recv_rate, least, pool, allowed, memory, room, held,
):  # fmt: skip
    """Depth-first; goes on from ``state`` (depth, -1 at the end; whether the atom there has been entered).

    ``choice[i]``: the devices that the i-th atom is still to be tried on, the most promising last; -1 elsewhere.
    Returns (rows filled, partial placements looked at).
    """
    devices, n = allowed.shape[1], len(sequence)
    device, used = np.empty(n, np.int32), np.empty(devices)
    begin, end, after = np.empty(n), np.empty(n), np.empty(n)
    fetched, sent = np.empty((len(size), devices), np.bool_), np.empty(len(size), np.bool_)
    value, load, talk = np.empty(devices), np.empty(devices), np.empty(devices)
    depth, entered = state[0], state[1]
    made = nodes = 0
    while depth >= 0 and made < len(found) and nodes < most:
        a = order[depth]
        if not entered:
            for d in range(devices):
                value[d] = np.inf
                if not allowed[a, d]:
                    continue
                at[a] = d
                for v in range(n):
                    device[v] = at[atom[v]]
                used[:] = 0.0
                for v in range(n):
                    if device[v] >= 0:
                        used[device[v]] += memory[v]
                if (used > room).any() or not _holds(contiguity, tail, head, device, devices):
                    continue
                if len(needs) and not _fits_at_peak(
                    d, device, used, room, held, time, needs_ptr, needs, passing_ptr, passing, producer, reader_ptr,
                    reader, reaches,
                ):  # fmt: skip
                    continue
                nodes += 1
                value[d] = _cost_so_far(
                    kind, device, sequence, in_ptr, in_tensor, producer, time, size, latency, rate, send_latency,
                    send_rate, recv_latency, recv_rate, least, pool, begin, end, after, fetched, sent, load, talk,
                )  # fmt: skip
            # Stable, the dearest first: they are taken from the end.
            ranked = np.argsort(-value, kind="mergesort")
            choice[a, :] = -1
            i = 0
            for d in ranked:
                if value[d] * (1.0 - 1e-12) < best and value[d] < np.inf:
                    choice[a, i] = d
                    i += 1
            entered = 1
        last = devices - 1
        while last >= 0 and choice[a, last] < 0:
            last -= 1
        if last < 0:
            at[a] = -1
            depth -= 1
            continue
        at[a] = choice[a, last]
        choice[a, last] = -1
        if depth + 1 < len(order):
            depth += 1
            entered = 0
            continue
        for v in range(n):
            found[made, v] = at[atom[v]]
        made += 1
    state[0], state[1] = depth, entered
    return made, nodes


@njit(cache=True, nogil=True)
def _holds(contiguity, tail, head, device, devices):  # type: ignore[no-untyped-def]
    """Whether the placed ops (device -1: none) may be part of something contiguous; arcs are closed under paths."""
    if contiguity == 0:
        return True
    if contiguity == 2:
        arc = np.zeros((devices, devices), np.bool_)
        for i in range(len(tail)):
            if device[tail[i]] >= 0 and device[head[i]] >= 0:
                arc[device[tail[i]], device[head[i]]] = True
        for k in range(devices):
            for i in range(devices):
                if arc[i, k]:
                    for j in range(devices):
                        arc[i, j] |= arc[k, j]
        for i in range(devices):
            for j in range(i):
                if arc[i, j] and arc[j, i]:
                    return False
        return True
    # An op elsewhere that is reached from a device and reaches it again.
    before = np.zeros((len(device), devices), np.bool_)
    for i in range(len(tail)):
        a, b = device[tail[i]], device[head[i]]
        if a >= 0 and b >= 0 and a != b:
            before[head[i], a] = True
    for i in range(len(tail)):
        a, b = device[tail[i]], device[head[i]]
        if a >= 0 and b >= 0 and a != b and before[tail[i], b]:
            return False
    return True


@njit(cache=True, nogil=True)
def _cost_so_far(  # type: ignore[no-untyped-def]
    kind, device, sequence, in_ptr, in_tensor, producer, time, size, latency, rate, send_latency, send_rate,
    recv_latency, recv_rate, least, pool, begin, end, after, fetched, sent, load, talk,
):  # fmt: skip
    """What a whole placement with these devices (-1: not placed yet) costs at least."""
    devices = time.shape[1]
    load[:] = 0.0
    talk[:] = 0.0
    fetched[:] = False
    sent[:] = False
    total = rest = longest = 0.0
    for v in sequence:
        d = device[v]
        begin[v] = 0.0
        for i in range(in_ptr[v], in_ptr[v + 1]):
            t = in_tensor[i]
            u = producer[t]
            source = device[u]
            wait = 0.0
            if d >= 0 and source >= 0 and source != d:
                if kind in (SERIAL, CONCURRENT):
                    wait = latency[source, d] + size[t] * rate[source, d]
                if not fetched[t, d]:
                    fetched[t, d] = True
                    total += wait
                    talk[d] += recv_latency[d] + size[t] * recv_rate[d]
                    if not sent[t]:
                        sent[t] = True
                        talk[source] += send_latency[source] + size[t] * send_rate[source]
            begin[v] = max(begin[v], end[u] + wait)
        takes = time[v, d] if d >= 0 else least[v]
        end[v] = begin[v] + takes
        longest = max(longest, end[v])
        total += takes
        if d < 0:
            rest += takes
        else:
            load[d] += takes
    if kind == SERIAL:
        return total
    if kind == OFFLOAD:
        for d in range(devices):
            if not pool[d]:
                longest = max(longest, load[d] + talk[d])
        return longest
    busiest = spread = 0.0
    for d in range(devices):
        works = load[d]
        if kind == LOADS:
            works += talk[d]
        elif kind == OVERLAP:
            works = max(works, talk[d])
        busiest = max(busiest, works)
        spread += load[d] + talk[d] if kind == LOADS else load[d]
    busiest = max(busiest, (spread + rest) / devices)
    if kind != CONCURRENT:
        return busiest
    between = _between(
        device, sequence, in_ptr, in_tensor, producer, time, size, latency, rate, least, begin, after
    )
    return max(busiest, longest, between)


@njit(cache=True, nogil=True)
def _between(  # type: ignore[no-untyped-def]
    device, sequence, in_ptr, in_tensor, producer, time, size, latency, rate, least, begin, after
):
    """``concurrent``: ops of one device that cannot begin before some moment follow each other from then on, and the
    rest of some path follows the last of them.

    Fills ``after`` (n,): the least time between the end of an op and the end of everything.
    """
    after[:] = 0.0
    for i in range(len(sequence) - 1, -1, -1):
        v = sequence[i]
        d = device[v]
        takes = time[v, d] if d >= 0 else least[v]
        for j in range(in_ptr[v], in_ptr[v + 1]):
            t = in_tensor[j]
            u = producer[t]
            source = device[u]
            wait = 0.0
            if d >= 0 and source >= 0 and source != d:
                wait = latency[source, d] + size[t] * rate[source, d]
            after[u] = max(after[u], wait + takes + after[v])
    longest = 0.0
    for first in range(len(device)):
        d = device[first]
        if d < 0:
            continue
        works, rest = 0.0, np.inf
        for v in range(len(device)):
            if device[v] == d and begin[v] >= begin[first]:
                works += time[v, d]
                rest = min(rest, after[v])
        longest = max(longest, begin[first] + works + rest)
    return longest


@njit(cache=True, nogil=True)
def _fits_at_peak(  # type: ignore[no-untyped-def]
    d,
    device,
    used,
    room,
    held,
    time,
    needs_ptr,
    needs,
    passing_ptr,
    passing,
    producer,
    reader_ptr,
    reader,
    reaches,
):
    """Whether the ops on device d may have room beside what must be alive while they run, and results at the end.

    That is certain only of ops that take time: what ends at an instant makes room for what begins then.
    """
    final = used[d]
    for t in range(len(held)):
        if device[producer[t]] == d and reader_ptr[t] == reader_ptr[t + 1]:
            final += held[t]
    if final > room[d]:
        return False
    for v in range(len(device)):
        if device[v] != d or not time[v, d] > 0:
            continue
        alive = used[d]
        for i in range(needs_ptr[v], needs_ptr[v + 1]):
            alive += held[needs[i]]
        for i in range(passing_ptr[v], passing_ptr[v + 1]):
            t = passing[i]
            if device[producer[t]] != d:
                continue
            stays = reader_ptr[t] == reader_ptr[t + 1]
            for j in range(reader_ptr[t], reader_ptr[t + 1]):
                stays |= device[reader[j]] == d and reaches[v, reader[j]]
            if stays:
                alive += held[t]
        if alive > room[d]:
            return False
    return True
