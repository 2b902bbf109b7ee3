"""Decoding: from weights and a problem to placements, in passes of which each sees the one before."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from loadmaster.arrays import FloatArray, IntArray
from loadmaster.graph.order import csr_from_pairs
from loadmaster.placers.frame.feasible import atoms_of, repair
from loadmaster.placers.learned.gdp._features import (
    SEGMENTS,
    along_of,
    context_sweep,
    segments_of,
    static_of,
)
from loadmaster.placers.learned.gdp._list_policy import decode, placed_rank
from loadmaster.placers.learned.gdp._load_policy import sweep
from loadmaster.placers.learned.gdp._weights import parts_of
from loadmaster.placers.rules._insertion import ready_order
from loadmaster.placers.rules.lookahead import children_of
from loadmaster.problem import Pipeline, Problem, Serial
from loadmaster.problem.contiguity import contiguity_of
from loadmaster.problem.loads import nets_of, new_ledger

__all__ = ["LoadDecoder", "Schedule", "TimeDecoder", "hidden_of"]


ORDER = 0.1
"""How far one unit of the order head moves an op, as a share of the largest rank."""


class Schedule(NamedTuple):
    """What one pass makes."""

    device: IntArray
    """(n,)."""
    begin: FloatArray
    """(n,) seconds."""
    makespan: float
    """Seconds, as the decoder sees it; infinite where memory ran out and the devices were repaired."""


def hidden_of(problem: Problem, part: dict[str, FloatArray]) -> tuple[FloatArray, FloatArray]:
    """(n, H) and (D, H): what ops and devices add to the hidden layer.

    The context is a recurrent network along and against the arcs, and attention of every op to the means of
    stretches of the topological order. Where its output weights are zero it is not computed.
    """
    static, graph = static_of(problem), problem.graph
    hidden = static.op @ part["op"] + (static.graph @ part["graph"] + part["bias"][0])
    if part["context"].any() and problem.n:
        enter = static.op @ part["enter"]
        order = graph.topological_order
        down = context_sweep(order, *graph.predecessors, enter, part["down"])
        up = context_sweep(order[::-1], *graph.successors, enter, part["up"])
        both = np.concatenate([down, up], axis=1)
        segment = segments_of(problem)
        count = np.maximum(np.bincount(segment, minlength=SEGMENTS), 1)[:, None]
        mean = np.zeros((SEGMENTS, both.shape[1]))
        np.add.at(mean, segment, both)
        mean /= count
        score = (enter @ part["query"]) @ (mean @ part["key"]).T
        score = np.exp(score - score.max(axis=1, keepdims=True))
        attended = (score / score.sum(axis=1, keepdims=True)) @ (mean @ part["value"])
        hidden += np.concatenate([both, attended], axis=1) @ part["context"]
    # A matrix product may round equal rows differently; ops and devices that are alike must stay alike.
    return np.round(hidden, 9), np.round(static.device @ part["device"], 9)


class TimeDecoder:
    """List scheduling of one problem; the problem's arrays are looked up once."""

    def __init__(self, problem: Problem) -> None:
        graph, atoms, static = problem.graph, atoms_of(problem), static_of(problem)
        self.problem = problem
        self._children = children_of(problem)
        self._atoms = atoms
        self._atom_time = np.where(atoms.allowed, atoms.time, 0.0)
        self._static = static
        self._inputs, self._outputs = graph.inputs, graph.outputs

    def run(self, vector: FloatArray, prior: Schedule | None = None, *, rerank: bool = True) -> Schedule:
        """One pass; ``rerank`` takes the ops by the rank that they have under the placement before."""
        part = parts_of(vector, "time")
        return self.decode(part, *hidden_of(self.problem, part), prior, rerank=rerank)

    def decode(
        self,
        part: dict[str, FloatArray],
        hidden_op: FloatArray,
        hidden_device: FloatArray,
        prior: Schedule | None = None,
        *,
        rerank: bool = True,
    ) -> Schedule:
        """One pass with the parts of the hidden layer given."""
        problem, atoms, static = self.problem, self._atoms, self._static
        n, graph = problem.n, problem.graph
        order, priority, before = problem.priority_order, problem.upward_rank, np.full(n, -1, np.int32)
        busy, slack = np.zeros(problem.devices), np.zeros(n)
        if prior is not None:
            before = prior.device
            rank = placed_rank(
                problem.priority_order, *self._outputs, graph.consumer_ptr, graph.consumer_op, problem.time,
                problem.size, problem.latency, problem.rate, before,
            )  # fmt: skip
            load = np.bincount(before, problem.time[np.arange(n), before], problem.devices)
            busy = load / max(load.mean(), 1e-300) - 1.0
            whole = max(float((prior.begin + rank).max(initial=0.0)), 1e-300)
            slack = 1.0 - (prior.begin + rank) / whole
            hidden_device = hidden_device + part["later"]
            if rerank:
                priority = rank
                order = np.lexsort((graph.position, -rank)).astype(np.int32)
        if part["order"].any():
            longest = float(priority.max(initial=0.0))
            wish = np.round(np.maximum(hidden_op, 0.0) @ part["order"][0], 9)
            order = ready_order(problem, priority + ORDER * longest * wish)
        for capacity in (problem.capacity, np.full(problem.devices, np.inf)):
            device, begin = np.full(n, -1, np.int32), np.zeros(n)
            makespan = decode(
                order, *self._inputs, graph.tensor_producer, *self._children, problem.time, problem.size,
                problem.latency, problem.rate, atoms.of_op, atoms.allowed, atoms.memory, capacity, self._atom_time,
                static.unit, static.common, static.fair, before, busy, slack, hidden_op, hidden_device, part["pair"],
                part["out"], device, begin,
            )  # fmt: skip
            if makespan >= 0.0:
                break
        fits = capacity is problem.capacity
        return Schedule(device if fits else repair(problem, device), begin, makespan if fits else np.inf)


class LoadDecoder:
    """Sweeps over one problem under ``pipeline`` or ``serial``."""

    def __init__(self, problem: Problem) -> None:
        assert isinstance(problem.model, Pipeline | Serial)
        atoms, static = atoms_of(problem), static_of(problem)
        self.problem = problem
        self._atoms = atoms
        self._nets, self._contiguity = nets_of(problem), contiguity_of(problem)
        self._members = csr_from_pairs(atoms.of_op, np.arange(problem.n, dtype=np.int32), atoms.count)
        self._atom_time = np.where(atoms.allowed, atoms.time, 0.0)
        count = np.maximum(np.bincount(atoms.of_op, minlength=atoms.count), 1)
        self._position = along_of(problem)
        self._unit = np.zeros(atoms.count)
        np.maximum.at(self._unit, atoms.of_op, static.unit)
        self._count = count
        self._order = np.argsort(self._position, kind="stable").astype(np.int32)
        self._order = self._order[atoms.allowed[self._order].sum(axis=1) > 1]

    def hidden(self, vector: FloatArray) -> tuple[dict[str, FloatArray], FloatArray, FloatArray]:
        """Weights by name and what atoms and devices add to the hidden layer."""
        part = parts_of(vector, "load")
        of_op, of_device = hidden_of(self.problem, part)
        of_atom = np.zeros((self._atoms.count, of_op.shape[1]))
        np.add.at(of_atom, self._atoms.of_op, of_op)
        return part, of_atom / self._count[:, None], of_device

    def decode(
        self,
        part: dict[str, FloatArray],
        hidden_atom: FloatArray,
        hidden_device: FloatArray,
        start: IntArray,
        *,
        aim: float = 0.5,
        backwards: bool = False,
    ) -> tuple[IntArray, float]:
        """One pass from a placement: the best placement met, and its cost up to rounding."""
        static, atoms = static_of(self.problem), self._atoms
        placement = start.astype(np.int32, copy=True)
        cost = sweep(
            *self._nets, *new_ledger(self._nets), *self._contiguity,
            self._order[::-1].copy() if backwards else self._order, *self._members, atoms.allowed, atoms.memory,
            self.problem.capacity, self._atom_time, self._unit, static.common, self._position, aim, hidden_atom,
            hidden_device, part["pair"], part["out"], placement,
        )  # fmt: skip
        return placement, float(cost)
