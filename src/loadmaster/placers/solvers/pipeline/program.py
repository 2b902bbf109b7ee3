"""Pipelined throughput as a 0/1 program, in a form that a clause-learning solver and a linear one both take.

Binaries ``x[c, d]`` say that colocation class c is on device d, and ``y[e, d]`` that device d pays for net e
(tensors with the same producer class and readers). Everything but loads and memories is a clause:

    y pays the sending      not x[producer, d]  or  x[reader, d]  or  y[e, d]
    y pays the fetching     not x[reader, d]  or  x[producer, d]  or  y[e, d]
    convex forward ops      z[v, d]: v is on d or leads to an op that is; it is monotone along the arcs, and
                            false after an arc that leaves d

This is the program of Tarnawski et al. (NeurIPS 2020, section 5), with classes contracted, equal nets united
and interchangeable devices put into an order.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from loadmaster.arrays import FloatArray, IntArray
from loadmaster.problem import Pipeline, Problem, forward_arcs

__all__ = ["Program", "program_of", "size_of"]


class Program(NamedTuple):
    """Minimise the sum of ``terms`` variables T subject to choices, clauses, loads and memories.

    variables : number of binaries.
    x : (classes, D) the binary of a class on a device, or -1 where it must not be.
    choice_ptr, choice : exactly one binary of each row is 1.
    clause_ptr, clause : at least one literal of each row holds; v stands for the binary, ~v for its negation.
    load_ptr, load_var, load_cost : rows whose sum (seconds) is at most T[load_term[row]].
    memory_ptr, memory_var, memory_size : rows whose sum (bytes) is at most memory_limit[row].
    groups : devices that may be exchanged for each other.
    leaders : (classes,) the order of the classes by which such devices are numbered: as they first appear.
    """

    variables: int
    terms: int
    x: IntArray
    choice_ptr: IntArray
    choice: IntArray
    clause_ptr: IntArray
    clause: IntArray
    load_ptr: IntArray
    load_var: IntArray
    load_cost: FloatArray
    load_term: IntArray
    memory_ptr: IntArray
    memory_var: IntArray
    memory_size: FloatArray
    memory_limit: FloatArray
    groups: tuple[tuple[int, ...], ...]
    leaders: IntArray

    def placement(self, values: npt.NDArray[np.bool_]) -> IntArray:
        """(classes,) the devices that an assignment of the binaries stands for."""
        on = (self.x >= 0) & values[np.maximum(self.x, 0)]
        return on.argmax(axis=1).astype(np.int32)

    def assignment(self, device: IntArray) -> npt.NDArray[np.bool_]:
        """(variables,) the binaries of a placement (classes,), those that follow from the clauses included.

        A clause without a true literal makes its binary that belongs to no class true; O(clauses · depth).
        """
        at = self.in_order(device)
        values = np.zeros(self.variables, np.bool_)
        chosen = self.x[np.arange(len(at)), at]
        values[chosen[chosen >= 0]] = True
        if not len(self.clause):
            return values
        variable = np.where(self.clause < 0, ~self.clause, self.clause)
        free = (self.clause >= 0) & ~np.isin(variable, self.x)
        row_of = np.repeat(np.arange(len(self.clause_ptr) - 1), np.diff(self.clause_ptr))
        while True:
            holds = np.logical_or.reduceat(values[variable] ^ (self.clause < 0), self.clause_ptr[:-1])
            wanted = variable[free & ~holds[row_of]]
            if not len(wanted):
                return values
            values[wanted] = True

    def in_order(self, device: IntArray) -> IntArray:
        """The placement (classes,) with interchangeable devices renamed into the program's order."""
        rename = np.arange(self.x.shape[1], dtype=np.int32)
        for group in self.groups:
            met = list(dict.fromkeys(d for d in device[self.leaders].tolist() if d in group))
            met += [d for d in group if d not in met]
            rename[met] = group
        return rename[device]


def size_of(problem: Problem) -> int:
    """An upper limit of the number of clauses, without making them."""
    model = problem.model
    pins = 2 * problem.graph.edges * problem.devices
    if isinstance(model, Pipeline) and model.contiguity != "none":
        pins += 3 * problem.graph.edges * problem.devices
    return pins + problem.classes * problem.devices


def program_of(problem: Problem, upper: float) -> Program:
    """The program of a pipeline problem with contiguity ``none`` or ``device``; O(edges · devices).

    upper : seconds; placements that cost more need not be part of it.
    """
    model = problem.model
    assert isinstance(model, Pipeline)
    assert model.contiguity != "chain"
    rows = _Rows()
    split = model.objective == "fw+bw"
    groups = _interchangeable(problem)
    leaders = np.argsort(
        -np.where(np.isinf(problem.class_time), 0.0, problem.class_time).max(axis=1), kind="stable"
    )
    x = _placements(problem, rows, upper, groups, leaders)
    loads = _Loads(problem, overlap=model.comm == "overlap", split=split)
    for c in range(problem.classes):
        rows.choices.append([v for v in x[c].tolist() if v >= 0])
    for v in range(problem.n):
        c, side = int(problem.class_of[v]), int(split and problem.graph.backward[v])
        for d in np.flatnonzero(x[c] >= 0).tolist():
            loads.compute(side, d, int(x[c, d]), float(problem.time[v, d]))
    for net in _nets(problem, split):
        _pay(problem, rows, loads, x, net)
    if model.contiguity == "device":
        _convex(problem, rows, x)
    load_ptr, load_var, load_cost, load_term = loads.arrays()
    limited = [d for d in range(problem.devices) if np.isfinite(problem.capacity[d])]
    held = [np.flatnonzero((x[:, d] >= 0) & (problem.class_memory > 0)) for d in limited]
    choice_ptr, choice = _csr(rows.choices)
    clause_ptr, clause = _csr(rows.clauses)
    memory_ptr, memory_var = _csr([x[h, d].tolist() for h, d in zip(held, limited, strict=True)])
    return Program(
        variables=rows.variables,
        terms=2 if split else 1,
        x=x,
        choice_ptr=choice_ptr,
        choice=choice,
        clause_ptr=clause_ptr,
        clause=clause,
        load_ptr=load_ptr,
        load_var=load_var,
        load_cost=load_cost,
        load_term=load_term,
        memory_ptr=memory_ptr,
        memory_var=memory_var,
        memory_size=np.concatenate([np.zeros(0), *[problem.class_memory[h] for h in held]]),
        memory_limit=problem.capacity[limited].astype(np.float64),
        groups=groups,
        leaders=leaders.astype(np.int32),
    )


class _Rows:
    """Binaries and rows while they are collected."""

    def __init__(self) -> None:
        self.variables = 0
        self.choices: list[list[int]] = []
        self.clauses: list[list[int]] = []

    def binary(self) -> int:
        self.variables += 1
        return self.variables - 1


class _Loads:
    """Loads by (side, part, device): part 0 is compute, 1 communication where they overlap."""

    def __init__(self, problem: Problem, *, overlap: bool, split: bool) -> None:
        self.overlap = overlap
        self.rows: list[dict[int, float]] = [{} for _ in range((1 + split) * (1 + overlap) * problem.devices)]
        self.devices = problem.devices

    def compute(self, side: int, d: int, variable: int, cost: float) -> None:
        self._add(side * (1 + self.overlap), d, variable, cost)

    def comm(self, side: int, d: int, variable: int, cost: float) -> None:
        self._add(side * (1 + self.overlap) + self.overlap, d, variable, cost)

    def _add(self, part: int, d: int, variable: int, cost: float) -> None:
        row = self.rows[part * self.devices + d]
        row[variable] = row.get(variable, 0.0) + cost

    def arrays(self) -> tuple[IntArray, IntArray, FloatArray, IntArray]:
        kept = [(i, row) for i, row in enumerate(self.rows) if any(row.values())]
        ptr, variable = _csr([list(row) for _, row in kept])
        cost = np.array([c for _, row in kept for c in row.values()], np.float64)
        term = [i // ((1 + self.overlap) * self.devices) for i, _ in kept]
        return ptr, variable, cost, np.array(term, np.int32)


class _Net(NamedTuple):
    """Tensors with the same producer class and the same readers."""

    producer: int
    readers: tuple[int, ...]
    side: int
    number: int
    size: float


def _nets(problem: Problem, split: bool) -> list[_Net]:
    graph, of = problem.graph, problem.class_of
    found: dict[tuple[int, tuple[int, ...], int], tuple[int, float]] = {}
    for t in range(graph.tensors):
        producer = int(graph.tensor_producer[t])
        home = int(of[producer])
        readers = tuple(sorted(set(of[graph.consumers(t)].tolist()) - {home}))
        if readers:
            key = (home, readers, int(split and graph.backward[producer]))
            number, size = found.get(key, (0, 0.0))
            found[key] = (number + 1, size + float(problem.size[t]))
    return [_Net(*key, *value) for key, value in found.items()]


def _interchangeable(problem: Problem) -> tuple[tuple[int, ...], ...]:
    """Groups of devices that are alike in every respect."""
    groups: dict[bytes, list[int]] = {}
    for d in range(problem.devices):
        wire = [problem.send_latency[d], problem.send_rate[d], problem.recv_latency[d], problem.recv_rate[d]]
        about = np.array([*wire, problem.capacity[d]]).tobytes()
        key = about + problem.time[:, d].tobytes() + problem.class_allowed[:, d].tobytes()
        groups.setdefault(key, []).append(d)
    return tuple(tuple(group) for group in groups.values() if len(group) > 1)


def _placements(
    problem: Problem,
    rows: _Rows,
    upper: float,
    groups: tuple[tuple[int, ...], ...],
    leaders: npt.NDArray[np.int64],
) -> IntArray:
    """The binaries of the classes.

    Of interchangeable devices, the r-th class in the order of leaders can only be on one of the first r + 1.
    """
    may = problem.class_allowed & (problem.class_time <= upper * (1.0 + 1e-9))
    may &= problem.class_memory[:, None] <= problem.capacity
    for group in groups:
        for i, d in enumerate(group):
            may[leaders[:i], d] = False
    x = np.full((problem.classes, problem.devices), -1, np.int32)
    for c, d in np.argwhere(may).tolist():
        x[c, d] = rows.binary()
    return x


def _pay(problem: Problem, rows: _Rows, loads: _Loads, x: IntArray, net: _Net) -> None:
    """Let every device that holds a part of the net pay its share."""
    for d in range(problem.devices):
        send = net.number * problem.send_latency[d] + net.size * problem.send_rate[d]
        recv = net.number * problem.recv_latency[d] + net.size * problem.recv_rate[d]
        home = int(x[net.producer, d])
        inside = [v for v in x[list(net.readers), d].tolist() if v >= 0]
        both = -1
        if send > 0.0 and home >= 0:
            both = pays = rows.binary()
            loads.comm(net.side, d, pays, float(send))
            if len(inside) < len(net.readers):
                rows.clauses.append([~home, pays])
            else:
                rows.clauses += [[~home, v, pays] for v in inside]
        if recv > 0.0 and inside:
            if both >= 0 and send == recv:
                pays = both  # one binary for both: never at once, and the relaxation is tighter
            else:
                pays = rows.binary()
                loads.comm(net.side, d, pays, float(recv))
            rows.clauses += [[~v, home, pays] if home >= 0 else [~v, pays] for v in inside]


def _convex(problem: Problem, rows: _Rows, x: IntArray) -> None:
    """The forward ops of every device are convex."""
    tail, head = forward_arcs(problem)
    of = problem.class_of
    arcs = np.unique(np.stack([tail, head]), axis=1).T.tolist()
    touched = sorted({v for arc in arcs for v in arc})
    for d in range(problem.devices):
        leads = {v: rows.binary() for v in touched}
        for v in touched:
            if x[of[v], d] >= 0:
                rows.clauses.append([~int(x[of[v], d]), leads[v]])
        for u, v in arcs:
            rows.clauses.append([~leads[v], leads[u]])
            if of[u] == of[v] or x[of[u], d] < 0:
                continue
            left = [~leads[v], ~int(x[of[u], d])]
            rows.clauses.append([*left, int(x[of[v], d])] if x[of[v], d] >= 0 else left)


def _csr(rows: list[list[int]]) -> tuple[IntArray, IntArray]:
    sizes = np.array([len(row) for row in rows], np.int64)
    flat = np.array([v for row in rows for v in row], np.int32)
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32), flat
