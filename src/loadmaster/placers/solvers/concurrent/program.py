"""Placement and schedule under ``concurrent`` as a constraint program.

In whole units of time, durations rounded down:

- every colocation class is on one device, within memory (rounded so that nothing that fits is excluded);
- a device runs one op at a time, and an op starts when its inputs are there;
- tensor t goes from d to e if its producer is on d and a reader on e; a link carries one tensor at a time;
- on a link tensors keep the order in which they were produced (by port within an op), which is why the
  sequence of any two ops on one device is a variable;
- where ops take no time, a position for each op makes the sequences at one instant agree with each other.

Devices that are alike in every respect are used in the order of their first class, which removes symmetric
placements.
"""

from __future__ import annotations

import math
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from ortools.sat.python import cp_model

from loadmaster.arrays import IntArray
from loadmaster.placers.frame.feasible import atoms_of
from loadmaster.problem import Problem
from loadmaster.problem.bounds import placed_paths, view_of

__all__ = ["Program", "schedule_program"]


PAIRS = 300_000
"""Most pairs of tensors on links whose order is written out; beyond, links may reorder (a relaxation)."""
BYTES = 2**40
"""Memories are counted in units of which the largest is about this many."""


def schedule_program(problem: Problem, scale: float, horizon: int, bound: int) -> Program:
    """The program with ``scale`` units a second (a power of two), for costs between ``bound`` and ``horizon``
    units."""
    program = Program(problem, scale, horizon, bound)
    program.place()
    program.run()
    program.transfer()
    program.queue()
    return program


class Program:
    """The constraint program and its variables.

    ``x[c, d]``: class c is on device d (only where it may be); ``start[v]``; ``sent[t, d, e]``: tensor t goes
    from d to e, and ``leaves[t, e]`` when; ``first[u, v]``: u runs before v if they share a device, for u < v.
    """

    def __init__(self, problem: Problem, scale: float, horizon: int, bound: int) -> None:
        self.model: Any = cp_model.CpModel()
        self.problem, self._horizon, self._scale = problem, horizon, scale
        self._atoms = atoms_of(problem)
        self._devices = np.flatnonzero(self._atoms.allowed.any(axis=0)).tolist()
        self._length = np.floor(np.where(np.isfinite(problem.time), problem.time, 0.0) * scale).astype(
            np.int64
        )
        apart = ~np.eye(problem.devices, dtype=bool)
        link = problem.latency[None] + problem.size[:, None, None] * problem.rate[None]
        # Rounding of the sum must not reach a whole unit that the true time does not.
        self._link = np.floor(np.where(apart, link, 0.0) * scale * (1.0 - 1e-15)).astype(np.int64)
        self._twins = twin_devices(problem)
        self.makespan = self.model.new_int_var(bound, horizon, "makespan")
        self.model.minimize(self.makespan)
        self.x: dict[tuple[int, int], Any] = {}
        self.start: list[Any] = []
        self.end: list[Any] = []
        self.position: list[Any] = []
        self.sent: dict[tuple[int, int, int], Any] = {}
        self.leaves: dict[tuple[int, int], Any] = {}
        self.first: dict[tuple[int, int], Any] = {}

    # -- constraints -----------------------------------------------------------------------------------------

    def place(self) -> None:
        """Every class on one device, within memory; twins in the order of their first class."""
        model, atoms = self.model, self._atoms
        for c in range(atoms.count):
            row = []
            for d in np.flatnonzero(atoms.allowed[c]).tolist():
                self.x[c, d] = model.new_bool_var(f"x{c},{d}")
                row.append(self.x[c, d])
            model.add_exactly_one(row)
        for twins in self._twins:
            for left, right in pairwise(twins):
                for c in range(atoms.count):
                    if (c, right) in self.x:
                        earlier = [self.x[b, left] for b in range(c) if (b, left) in self.x]
                        model.add_bool_or([*earlier, self.x[c, right].negated()])
        for d in self._devices:
            mine = [c for c in range(atoms.count) if (c, d) in self.x]
            capacity = float(self.problem.capacity[d])
            if atoms.memory[mine].sum() > capacity:
                unit = 2.0 ** math.floor(math.log2(BYTES / max(capacity, float(atoms.memory.max()))))
                weights = np.floor(atoms.memory[mine] * unit).astype(np.int64).tolist()
                used = sum(w * self.x[c, d] for w, c in zip(weights, mine, strict=True))
                model.add(used <= math.ceil(capacity * unit))

    def run(self) -> None:
        """One op at a time on a device, after its predecessors."""
        model, problem, of_op = self.model, self.problem, self._atoms.of_op
        intervals: dict[int, list[Any]] = {d: [] for d in self._devices}
        timeless = False
        head, tail = self._paths()
        for v in range(problem.n):
            c = int(of_op[v])
            mine = [d for d in self._devices if (c, d) in self.x]
            start = model.new_int_var(0, self._horizon, f"s{v}")
            length = sum(int(self._length[v, d]) * self.x[c, d] for d in mine)
            self.start.append(start)
            self.end.append(start + length)
            before, behind = (sum(int(table[v, d]) * self.x[c, d] for d in mine) for table in (head, tail))
            model.add(start >= before)
            model.add(start + length + behind <= self.makespan)
            timeless |= any(self._length[v, d] == 0 for d in mine)
            for d in mine:
                intervals[d].append(
                    model.new_optional_fixed_size_interval_var(
                        start, int(self._length[v, d]), self.x[c, d], f"i{v},{d}"
                    )
                )
        for d in self._devices:
            model.add_no_overlap(intervals[d])
        arcs = list(zip(*(a.tolist() for a in problem.graph.arcs), strict=True))
        for u, v in arcs:
            model.add(self.start[v] >= self.end[u])
        if timeless:
            self.position = [model.new_int_var(0, problem.n - 1, f"p{v}") for v in range(problem.n)]
            for u, v in arcs:
                model.add(self.position[v] >= self.position[u] + 1)

    def _paths(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """(n, D) units before which an op cannot start on a device, and that remain after it, by the longest
        paths of the bounds: they see transfers and queues that the solver would have to find by itself."""
        problem = self.problem
        head, tail = np.zeros((2, problem.n, problem.devices), np.int64)
        view = view_of(problem)
        if view is not None:
            paths = placed_paths(problem, view)
            for k, kind in enumerate(view.kinds):
                for table, path in ((head, paths.head), (tail, paths.tail)):
                    units = np.floor(
                        np.where(np.isfinite(path[:, k]), path[:, k], 0.0) * self._scale * (1 - 1e-9)
                    )
                    table[:, kind] = units.astype(np.int64)[:, None]
        return head, tail

    def transfer(self) -> None:
        """Tensors go where they are read, and are there in time; one at a time on a link."""
        model, graph, of_op = self.model, self.problem.graph, self._atoms.of_op
        links: dict[tuple[int, int], list[Any]] = {}
        for t in range(graph.tensors):
            readers = graph.consumers(t).tolist()
            u = int(graph.tensor_producer[t])
            source = int(of_op[u])
            for e in self._devices:
                there = [v for v in readers if (int(of_op[v]), e) in self.x and of_op[v] != source]
                sources = [d for d in self._devices if d != e and (source, d) in self.x]
                if not there or not sources:
                    continue
                leaves = self.leaves[t, e] = model.new_int_var(0, self._horizon, f"l{t},{e}")
                model.add(leaves >= self.end[u])
                for d in sources:
                    takes = int(self._link[t, d, e])
                    sent = self.sent[t, d, e] = model.new_bool_var(f"y{t},{d},{e}")
                    model.add_implication(sent, self.x[source, d])
                    model.add_bool_or([sent.negated(), *(self.x[int(of_op[v]), e] for v in there)])
                    for v in there:
                        here = self.x[int(of_op[v]), e]
                        model.add_bool_or([sent, self.x[source, d].negated(), here.negated()])
                        model.add(self.start[v] >= leaves + takes).only_enforce_if([sent, here])
                    links.setdefault((d, e), []).append(
                        model.new_optional_fixed_size_interval_var(leaves, takes, sent, f"t{t},{d},{e}")
                    )
        for intervals in links.values():
            model.add_no_overlap(intervals)

    def queue(self) -> None:
        """Tensors leave in the order in which they are produced."""
        graph, reach = self.problem.graph, self.problem.graph.reachable
        on_link: dict[tuple[int, int], list[int]] = {}
        for t, d, e in self.sent:
            on_link.setdefault((d, e), []).append(t)
        if sum(len(tensors) ** 2 // 2 for tensors in on_link.values()) > PAIRS:
            return
        for (d, e), tensors in on_link.items():
            for t, s in combinations(tensors, 2):
                u, v = int(graph.tensor_producer[t]), int(graph.tensor_producer[s])
                both = [self.sent[t, d, e], self.sent[s, d, e]]
                if u == v or reach[u, v // 64] >> np.uint64(v % 64) & np.uint64(1):
                    self._keep(t, s, d, e, both)
                elif reach[v, u // 64] >> np.uint64(u % 64) & np.uint64(1):
                    self._keep(s, t, d, e, both)
                else:
                    ahead = self._before(u, v)
                    self._keep(t, s, d, e, [*both, ahead])
                    self._keep(s, t, d, e, [*both, ahead.negated()])

    def _keep(self, t: int, s: int, d: int, e: int, when: list[Any]) -> None:
        """Tensor t is through the link before s leaves."""
        done = self.leaves[t, e] + int(self._link[t, d, e])
        self.model.add(self.leaves[s, e] >= done).only_enforce_if(when)

    def _before(self, u: int, v: int) -> Any:
        """True if u runs before v where they share a device."""
        if u > v:
            return self._before(v, u).negated()
        if (u, v) not in self.first:
            model, of_op = self.model, self._atoms.of_op
            ahead = self.first[u, v] = model.new_bool_var(f"b{u},{v}")
            a, b = int(of_op[u]), int(of_op[v])
            for d in self._devices:
                if (a, d) in self.x and (b, d) in self.x:
                    when = [self.x[a, d], self.x[b, d]] if a != b else [self.x[a, d]]
                    model.add(self.start[v] >= self.end[u]).only_enforce_if([*when, ahead])
                    model.add(self.start[u] >= self.end[v]).only_enforce_if([*when, ahead.negated()])
                    if self.position:
                        later, sooner = self.position[v], self.position[u]
                        model.add(later >= sooner + 1).only_enforce_if([*when, ahead])
                        model.add(sooner >= later + 1).only_enforce_if([*when, ahead.negated()])
        return self.first[u, v]

    # -- in and out ------------------------------------------------------------------------------------------

    def hint(self, device: IntArray, sequence: IntArray) -> None:
        """Start from a placement whose ops run in this (topological) sequence; twins are renamed to fit."""
        graph, model = self.problem.graph, self.model
        device = self._renamed(device)
        at = device.tolist()
        free_device: dict[int, int] = dict.fromkeys(self._devices, 0)
        free_link: dict[tuple[int, int], int] = {}
        ready, begin, place = [0] * len(at), [0] * len(at), [0] * len(at)
        out_ptr, out_tensor = graph.outputs
        leaves: dict[tuple[int, int], int] = {}
        for i, v in enumerate(sequence.tolist()):
            d = at[v]
            begin[v], place[v] = max(ready[v], free_device[d]), i
            end = free_device[d] = begin[v] + int(self._length[v, d])
            for t in out_tensor[out_ptr[v] : out_ptr[v + 1]].tolist():
                readers = graph.consumers(t).tolist()
                for e in sorted({at[u] for u in readers}):
                    lands = end
                    if e != d:
                        leaves[t, e] = max(end, free_link.get((d, e), 0))
                        lands = free_link[d, e] = leaves[t, e] + int(self._link[t, d, e])
                    for u in readers:
                        if at[u] == e:
                            ready[u] = max(ready[u], lands)
        for (c, d), x in self.x.items():
            model.add_hint(x, bool(at[int(np.flatnonzero(self._atoms.of_op == c)[0])] == d))
        for v, start in enumerate(self.start):
            model.add_hint(start, begin[v])
        for v, position in enumerate(self.position):
            model.add_hint(position, place[v])
        for (t, d, e), sent in self.sent.items():
            model.add_hint(sent, (t, e) in leaves and at[int(graph.tensor_producer[t])] == d)
        for (t, e), leave in self.leaves.items():
            u = int(graph.tensor_producer[t])
            model.add_hint(leave, leaves.get((t, e), begin[u] + int(self._length[u, at[u]])))
        for (u, v), ahead in self.first.items():
            model.add_hint(ahead, place[u] < place[v])

    def _renamed(self, device: IntArray) -> IntArray:
        """The same placement with twins numbered by their first class."""
        at = np.empty(self._atoms.count, np.int32)
        at[self._atoms.of_op] = device
        name = np.arange(self.problem.devices, dtype=np.int32)
        for twins in self._twins:
            used = list(dict.fromkeys(d for d in at.tolist() if d in twins))
            used += [d for d in twins if d not in used]
            name[used] = twins
        return np.asarray(name[device])

    def read(self, solution: Any) -> tuple[IntArray, IntArray]:
        """(n,) devices and order of a solution, which has a method ``value``."""
        at = np.zeros(self._atoms.count, np.int32)
        for (c, d), x in self.x.items():
            if solution.value(x):
                at[c] = d
        device = at[self._atoms.of_op]
        start = np.array([solution.value(s) for s in self.start], np.int64)
        end = start + self._length[np.arange(self.problem.n), device]
        if self.position:
            place = np.array([solution.value(p) for p in self.position], np.int64)
        else:
            place = self.problem.graph.position.astype(np.int64)
        order = np.empty(self.problem.n, np.int32)
        order[np.lexsort((place, end, start))] = np.arange(self.problem.n, dtype=np.int32)
        return device, order


def twin_devices(problem: Problem) -> list[list[int]]:
    """Groups of at least two devices that can be exchanged without changing anything."""
    atoms = atoms_of(problem)
    usable = np.flatnonzero(atoms.allowed.any(axis=0)).tolist()
    time = np.where(atoms.allowed[atoms.of_op], problem.time, np.inf)

    def alike(d: int, e: int) -> bool:
        name = np.arange(problem.devices)
        name[[d, e]] = e, d
        apart = ~np.eye(problem.devices, dtype=bool)
        tables = (np.where(apart, problem.latency, 0.0), np.where(apart, problem.rate, 0.0))
        return (
            bool(np.array_equal(time[:, d], time[:, e]))
            and bool(problem.capacity[d] == problem.capacity[e])
            and all(np.array_equal(table, table[np.ix_(name, name)]) for table in tables)
        )

    groups: list[list[int]] = []
    for d in usable:
        group = next((g for g in groups if all(alike(d, e) for e in g)), None)
        if group is None:
            groups.append([d])
        else:
            group.append(d)
    return [g for g in groups if len(g) > 1]
