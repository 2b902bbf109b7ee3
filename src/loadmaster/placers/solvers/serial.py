"""The ``serial`` model with memory as a mixed-integer program: where each class is, and which tensors go where.

With x[c, d] = 1 where class c is on device d: a tensor that a class on e reads comes from the one device where its
producer is, so for each e the sum over d of z[t, d, e] is at least x[c, e] for every class c that reads it, and
z[t, d, e] at most x[producer, d]. The cost is that of the x and of the z with d != e; a z with d = e is free. Where a
tensor has one reader, both sums are equations. Only the x need be whole: then the least z are. Without the rows for
memory the relaxation is as good as that of message passing; with them, what is left to decide is a knapsack.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from loadmaster.arrays import BoolArray
from loadmaster.placers.frame.feasible import atoms_of
from loadmaster.placers.frame.search import Search
from loadmaster.placers.solvers._highs import Arrays, HighsSolver
from loadmaster.placers.solvers._solving import drive
from loadmaster.problem import Placement, Problem

__all__ = ["HighsSerial", "solve_serial", "unsuited"]

MOST = 120_000
"""Larger programs are not built."""


def unsuited(problem: Problem) -> str | None:
    """Why the program is not for a problem, or None."""
    if float(problem.memory.sum()) <= float(problem.capacity.min(initial=math.inf)):
        return "serial without short memory has a better exact method: use min-cut"
    size = problem.devices * (problem.n + problem.devices * problem.graph.tensors)
    if size > MOST:
        return f"its program for serial would have {size:,} variables, more than {MOST:,}: use min-cut"
    return None


class HighsSerial(HighsSolver):
    """Columns: x by class and device, then z by tensor, device it comes from and device it goes to."""

    def __init__(self, problem: Problem, seed: int) -> None:
        super().__init__(seed)
        self.problem, self.atoms = problem, atoms_of(problem)
        graph, of = problem.graph, self.atoms.of_op
        sources = of[graph.tensor_producer]
        readers = [np.unique(of[graph.consumers(t)]) for t in range(graph.tensors)]
        self._carried = [
            (t, int(sources[t]), elsewhere.tolist())
            for t in range(graph.tensors)
            if len(elsewhere := readers[t][readers[t] != sources[t]])
        ]

    @property
    def binaries(self) -> int:
        """See :class:`HighsSolver`."""
        return self.atoms.count * self.problem.devices

    def arrays(self, unit: float, cost: float) -> Arrays:
        """Rows: a device for each class, what is carried, memories."""
        problem, atoms, devices = self.problem, self.atoms, self.problem.devices
        rows, every = _Rows(), range(devices)
        for c in range(atoms.count):
            rows.add([c * devices + d for d in every], [1.0] * devices, 1.0, 1.0)
        for i, (_, source, readers) in enumerate(self._carried):
            first = self.binaries + i * devices * devices
            alone = len(readers) == 1
            for e in every:
                coming = [first + d * devices + e for d in every]
                for c in readers:
                    columns = [*coming, c * devices + e]
                    rows.add(columns, [1.0] * devices + [-1.0], 0.0, 0.0 if alone else math.inf)
            for d in every:
                leaving = [first + d * devices + e for e in every]
                if alone:
                    rows.add([*leaving, source * devices + d], [1.0] * devices + [-1.0], 0.0, 0.0)
                for z in () if alone else leaving:
                    rows.add([z, source * devices + d], [1.0, -1.0], -math.inf, 0.0)
        for d in np.flatnonzero(np.isfinite(problem.capacity)).tolist():
            scale = max(float(problem.capacity[d]), float(atoms.memory.max(initial=0.0)), 1e-300)
            room = float(problem.capacity[d]) / scale * (1.0 + 1e-9) + 1e-12
            rows.add(
                [c * devices + d for c in range(atoms.count)],
                (atoms.memory / scale).tolist(),
                -math.inf,
                room,
            )
        time = np.where(atoms.allowed, np.where(atoms.allowed, atoms.time, 0.0), 0.0)
        t = np.array([one[0] for one in self._carried], np.int64)
        link = problem.latency[None] + problem.size[t, None, None] * problem.rate[None]
        link = np.where(np.eye(devices, dtype=bool)[None] | ~np.isfinite(link), 0.0, link)
        may = np.ones(len(t) * devices * devices)
        return {
            "binaries": np.array(self.binaries),
            "cost": np.concatenate([time.ravel(), link.ravel()]) / unit,
            "upper": np.concatenate([atoms.allowed.ravel().astype(np.float64), may]),
            **rows.arrays(),
        }

    def columns(self, placement: Placement) -> npt.NDArray[np.float64]:
        """See :class:`HighsSolver`."""
        devices = self.problem.devices
        at = np.empty(self.atoms.count, np.int64)
        at[self.atoms.of_op] = placement.device
        x = np.zeros((self.atoms.count, devices))
        x[np.arange(len(at)), at] = 1.0
        z = np.zeros((len(self._carried), devices, devices))
        for i, (_, source, readers) in enumerate(self._carried):
            z[i, at[source], at[readers]] = 1.0
        return np.concatenate([x.ravel(), z.ravel()])

    def placement(self, values: BoolArray) -> Placement:
        """See :class:`HighsSolver`."""
        at = values.reshape(self.atoms.count, self.problem.devices).argmax(axis=1).astype(np.int32)
        return Placement(at[self.atoms.of_op])


class _Rows:
    """Rows of a program, one after another."""

    def __init__(self) -> None:
        self._index: list[int] = []
        self._value: list[float] = []
        self._ptr, self._lower, self._upper = [0], list[float](), list[float]()

    def add(self, columns: list[int], values: list[float], lower: float, upper: float) -> None:
        self._index += columns
        self._value += values
        self._ptr.append(len(self._index))
        self._lower.append(lower)
        self._upper.append(upper)

    def arrays(self) -> Arrays:
        return {
            "ptr": np.array(self._ptr, np.int32),
            "index": np.array(self._index, np.int32),
            "value": np.array(self._value),
            "row_lower": np.array(self._lower),
            "row_upper": np.array(self._upper),
        }


def solve_serial(search: Search, seed: int) -> None:
    """Run HiGHS from the best placement of ``search`` for the rest of its budget."""
    if search.problem.n and search.cost > 0.0:
        drive(search, [HighsSerial(search.problem, seed)], search.seconds_left)
