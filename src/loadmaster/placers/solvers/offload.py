"""CP-SAT on the ``offload`` model: calls of accelerators as slots with a start and a length.

Every accelerator has ``max_calls`` slots, which run one after another; every CPU is a pool on which ops run when
their inputs are there. With x[c, s] = 1 where unit c (a colocation class, or an op where a class may be spread
over several calls) is in slot s:

- a tensor that slot s reads and does not make is received, one that others read is sent: both lengthen it;
- a slot starts after what it receives is ready; a tensor made in a slot is ready when the slot ends, one made on
  a CPU when its op ends; so slots that wait for each other, and slots that are not convex, would end after they
  end.

All seconds are rounded down to whole units; then every slot takes one unit more, for the sake of slots without any
time. So a placement's value in the program is at most its time and one unit for every slot, and the program's
proven bound less these units is a bound.

The formulation follows J. Tarnawski et al., "Efficient algorithms for device placement of DNN graph operators",
NeurIPS 2020 (the latency IP), with conditional constraints in place of big-M ones and without its contiguity
constraints, which time implies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from ortools.sat.python import cp_model

from loadmaster.arrays import IntArray
from loadmaster.placers.frame.search import Search
from loadmaster.placers.search._incumbents import note_bound
from loadmaster.placers.solvers._following import follow_cp_sat
from loadmaster.problem import Offload, Placement, Problem, evaluate

__all__ = ["OffloadProgram", "solve_offload"]


UNITS = 2**31
"""The known cost in whole units: what a call of a thousand parts loses by rounding down is 5e-7 of it."""
MEMORY_UNITS = 2**40
"""The capacity of a device in whole units; ops are rounded down."""


@dataclass(frozen=True)
class _Slot:
    """One call of an accelerator."""

    device: int
    number: int


class OffloadProgram:
    """The program of one problem, for placements of at most ``limit`` seconds."""

    def __init__(self, problem: Problem, limit: float) -> None:
        assert isinstance(problem.model, Offload)
        self.problem = problem
        self.calls = problem.model.max_calls
        self.unit = limit / UNITS if limit > 0 else 1.0
        self.model = cp_model.CpModel()
        usable = problem.class_allowed.any(axis=0) if problem.n else np.zeros(problem.devices, np.bool_)
        self.slots = [
            _Slot(d, i) for d in np.flatnonzero(usable & ~problem.pool).tolist() for i in range(self.calls)
        ]
        self.pools = np.flatnonzero(usable & problem.pool).tolist()
        self._place()
        self._schedule()
        self._break_symmetry()
        self.model.minimize(self.end)

    def _floor(self, seconds: float) -> int:
        """Seconds in whole units, rounded down by more than dividing may have added."""
        return max(0, math.floor(seconds / self.unit * (1.0 - 1e-12)))

    # -- where ops go ----------------------------------------------------------------------------------------

    def _place(self) -> None:
        problem, model = self.problem, self.model
        self.on = {}
        """(op, slot index or -1 - pool) -> literal."""
        one_call = self.calls == 1
        made: dict[tuple[int, int], cp_model.IntVar] = {}
        for v in range(problem.n):
            c = int(problem.class_of[v])
            row = []
            for s, slot in enumerate(self.slots):
                if not problem.class_allowed[c, slot.device]:
                    continue
                key = (c if one_call else v, s)
                if key not in made:
                    made[key] = model.new_bool_var(f"x{key[0]}_{s}")
                self.on[v, s] = made[key]
                row.append(made[key])
            for d in self.pools:
                if problem.class_allowed[c, d]:
                    if (c, -1 - d) not in made:
                        made[c, -1 - d] = model.new_bool_var(f"x{c}_cpu{d}")
                    self.on[v, -1 - d] = made[c, -1 - d]
                    row.append(made[c, -1 - d])
            model.add_exactly_one(row)
        if not one_call:
            self._share_accelerators()
        self._fit_memory()

    def _share_accelerators(self) -> None:
        """Ops of a class share the accelerator, whichever call they are in."""
        problem = self.problem
        ptr, member = problem.members
        for c in range(problem.classes):
            ops = member[ptr[c] : ptr[c + 1]].tolist()
            for u, v in pairwise(ops):
                for d in sorted({slot.device for slot in self.slots}):
                    mine = [s for s, slot in enumerate(self.slots) if slot.device == d]
                    if all((u, s) in self.on for s in mine):
                        self.model.add(sum(self.on[u, s] for s in mine) == sum(self.on[v, s] for s in mine))

    def _fit_memory(self) -> None:
        problem = self.problem
        for d in range(problem.devices):
            room = float(problem.capacity[d])
            if math.isinf(room):
                continue
            places = [s for s, slot in enumerate(self.slots) if slot.device == d]
            places += [-1 - d] if d in self.pools else []
            scale = MEMORY_UNITS / room if room > 0 else 1.0
            terms = []
            for v in range(problem.n):
                weight = min(math.floor(problem.memory[v] * scale * (1.0 - 1e-12)), 2 * MEMORY_UNITS)
                if room == 0.0 and problem.memory[v] > 0:
                    weight = 1
                terms += [weight * self.on[v, s] for s in places if weight and (v, s) in self.on]
            if terms:
                self.model.add(sum(terms) <= (MEMORY_UNITS if room > 0 else 0))

    # -- when they run ---------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        problem, model, graph = self.problem, self.model, self.problem.graph
        horizon = UNITS + 2 + len(self.slots)
        self.end = model.new_int_var(0, horizon, "end")
        self.ready = [model.new_int_var(0, horizon, f"ready{v}") for v in range(problem.n)]
        self.start = [model.new_int_var(0, horizon, f"start{s}") for s in range(len(self.slots))]
        self.stop = [model.new_int_var(0, horizon, f"stop{s}") for s in range(len(self.slots))]
        length: list[list[cp_model.LinearExprT]] = [[] for _ in self.slots]
        for v in range(problem.n):
            model.add(self.ready[v] <= self.end)
            for s, slot in enumerate(self.slots):
                if (v, s) in self.on:
                    length[s].append(self._floor(problem.time[v, slot.device]) * self.on[v, s])
                    model.add(self.ready[v] >= self.stop[s]).only_enforce_if(self.on[v, s])
            cpu = [
                self._floor(problem.time[v, d]) * self.on[v, -1 - d]
                for d in self.pools
                if (v, -1 - d) in self.on
            ]
            # An op is never ready before what it reads, wherever it is.
            for u in graph.predecessors[1][graph.predecessors[0][v] : graph.predecessors[0][v + 1]].tolist():
                model.add(self.ready[v] >= self.ready[u] + cp_model.LinearExpr.sum(cpu))
            model.add(self.ready[v] >= cp_model.LinearExpr.sum(cpu))
        for t in range(graph.tensors):
            self._transfer(t, length)
        for s in range(len(self.slots)):
            model.add(self.stop[s] >= self.start[s] + cp_model.LinearExpr.sum(length[s]) + 1)
            if s and self.slots[s - 1].device == self.slots[s].device:
                model.add(self.start[s] >= self.stop[s - 1])

    def _transfer(self, t: int, length: list[list[cp_model.LinearExprT]]) -> None:
        """What a tensor adds to the slots that send or receive it, and for which of them they wait."""
        problem, model, graph = self.problem, self.model, self.problem.graph
        u = int(graph.tensor_producer[t])
        readers = [v for v in np.unique(graph.consumers(t)).tolist() if v != u]
        for s, slot in enumerate(self.slots):
            d = slot.device
            recv = self._floor(problem.recv_latency[d] + problem.size[t] * problem.recv_rate[d])
            send = self._floor(problem.send_latency[d] + problem.size[t] * problem.send_rate[d])
            inside = self.on.get((u, s))
            gets, puts = model.new_bool_var(f"in{t}_{s}"), model.new_bool_var(f"out{t}_{s}")
            for v in readers:
                there = self.on.get((v, s))
                if there is not None:
                    model.add_bool_or([gets, ~there, *([inside] if inside is not None else [])])
                if inside is not None:
                    model.add_bool_or([puts, ~inside, *([there] if there is not None else [])])
            model.add(self.start[s] >= self.ready[u]).only_enforce_if(gets)
            length[s] += [recv * gets, send * puts]

    def _break_symmetry(self) -> None:
        """Of accelerators that are alike, the one with the smaller number holds the earlier first class."""
        problem = self.problem
        alike: dict[bytes, list[int]] = {}
        for d in sorted({slot.device for slot in self.slots}):
            key = [
                problem.send_latency[d],
                problem.send_rate[d],
                problem.recv_latency[d],
                problem.recv_rate[d],
            ]
            time = np.where(problem.class_allowed[problem.class_of, d], problem.time[:, d], np.inf)
            alike.setdefault(np.array([*key, problem.capacity[d]]).tobytes() + time.tobytes(), []).append(d)
        self.groups = list(alike.values())
        first = np.full(problem.classes, problem.n, np.int64)
        np.minimum.at(first, problem.class_of, problem.graph.position)
        self.by_first = np.argsort(first, kind="stable")
        ptr, member = problem.members
        for group in self.groups:
            for before, d in pairwise(group):
                # A class goes to d only if an earlier class is on the device before.
                earlier: list[cp_model.IntVar] = []
                for c in self.by_first.tolist():
                    v = int(member[ptr[c]])
                    for literal in self._on_device(v, d):
                        self.model.add_bool_or([*earlier, ~literal])
                    earlier = self._seen(earlier, v, before)

    def _on_device(self, v: int, device: int) -> list[cp_model.IntVar]:
        """The literals of op v in the slots of a device."""
        mine = [s for s, slot in enumerate(self.slots) if slot.device == device]
        return [self.on[v, s] for s in mine if (v, s) in self.on]

    def _seen(self, earlier: list[cp_model.IntVar], v: int, device: int) -> list[cp_model.IntVar]:
        """[literal]: some class up to that of v is on the device."""
        mine = self._on_device(v, device)
        if not mine:
            return earlier
        seen = self.model.new_bool_var("")
        self.model.add_max_equality(seen, [*earlier, *mine])
        return [seen]

    # -- placements ------------------------------------------------------------------------------------------

    def hint(self, placement: Placement) -> None:
        """Begin at a placement: its devices, renamed so that the symmetry is broken, its calls and times."""
        problem = self.problem
        detail = evaluate(problem, placement)
        if not detail.feasible or detail.end is None:
            return
        rename = self._canonical(placement.device)
        call = np.zeros(problem.n, np.int32)
        number: dict[int, int] = {}
        for one in sorted(detail.calls, key=lambda one: (one.device, one.start)):
            call[list(one.ops)] = number.get(one.device, 0)
            number[one.device] = number.get(one.device, 0) + 1
        index = {(slot.device, slot.number): s for s, slot in enumerate(self.slots)}
        hinted = {}
        for (v, s), literal in self.on.items():
            d = int(placement.device[v])
            at = -1 - d if problem.pool[d] else index[rename[d], int(call[v])]
            hinted[literal.index] = (literal, at == s)
        self.model.clear_hints()  # type: ignore[no-untyped-call]
        for literal, value in hinted.values():
            self.model.add_hint(literal, value)
        for v in range(problem.n):
            self.model.add_hint(self.ready[v], self._floor(float(detail.end[v])))

    def _canonical(self, device: IntArray) -> dict[int, int]:
        """New numbers of the accelerators, those that are alike by their first class."""
        ptr, member = self.problem.members
        at = device[member[ptr[:-1]]][self.by_first].tolist()
        rename: dict[int, int] = {}
        for group in self.groups:
            used = sorted((d for d in group if d in at), key=at.index)
            rename.update(zip(used, group, strict=False))
        return rename

    def placement(self, value) -> Placement:  # type: ignore[no-untyped-def]
        """The placement of a solution; ``value`` says whether a literal holds."""
        problem = self.problem
        device, call = np.zeros(problem.n, np.int32), np.zeros(problem.n, np.int32)
        for (v, s), literal in self.on.items():
            if value(literal):
                device[v] = -1 - s if s < 0 else self.slots[s].device
                call[v] = 0 if s < 0 else self.slots[s].number
        return Placement(device, call=call if self.calls > 1 else None)


def solve_offload(search: Search, *, seconds: float = math.inf, workers: int = 4, seed: int = 0) -> bool:
    """Run CP-SAT from the best placement of ``search`` for at most ``seconds`` and its budget, telling it of every
    better placement and bound; whether CP-SAT finished (with a proof up to the rounding of seconds).

    CP-SAT needs a portfolio: with one worker it stalls. ``workers`` are threads.
    """
    assert search.best is not None
    problem = search.problem
    if problem.n == 0 or search.cost <= 0.0:
        return True
    program = OffloadProgram(problem, search.cost)
    program.hint(search.best)

    def note(units: float) -> None:
        # Placements above the limit are not in the program, so that it proves nothing beyond the limit.
        proven = min(math.ceil(units - 1e-6) - len(program.slots), UNITS)
        note_bound(search, proven * program.unit * (1.0 - 1e-12), "cp-sat")

    return follow_cp_sat(
        search,
        program.model,
        lambda solution: program.placement(solution.boolean_value),
        note,
        seconds=min(seconds, search.seconds_left),
        workers=workers,
        seed=seed,
    )
