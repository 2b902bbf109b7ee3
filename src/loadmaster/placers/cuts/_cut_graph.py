"""Minimum cuts for the ``serial`` execution model.

Both cuts below share one idea. A node is an atom (what moves as one); it lies on the source side for one
choice and on the sink side for the other. What a choice costs by itself is an arc from the source or to the
sink. A tensor's one charge per destination is an auxiliary node: the arcs between it and the readers are
infinite, so that it takes the side of *any* reader on that side, and its one arc to or from the producer
carries the charge once, however many readers there are.

Capacities are whole numbers: seconds times a power of two, rounded down, so that the value of the cut, scaled
back, never exceeds the true minimum.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from ortools.graph.python import max_flow

from loadmaster.arrays import BoolArray, FloatArray
from loadmaster.placers.cuts._flow_process import solve_apart
from loadmaster.placers.frame.feasible import Atoms
from loadmaster.placers.frame.search import look_at_clock
from loadmaster.problem import Problem

__all__ = ["Arcs", "Cut", "minimum_cut", "two_device_arcs"]


APART = 600_000
"""Arcs from which on a network is solved in a process of its own: that takes a tenth of a second or more."""
BITS = 59
"""All finite capacities together stay below two to this power, and an infinite one is above them all."""


class Arcs(NamedTuple):
    """Arcs of a flow network with ``nodes`` nodes besides the source (-1) and the sink (-2); capacities in
    seconds."""

    nodes: int
    tail: npt.NDArray[np.int64]
    head: npt.NDArray[np.int64]
    capacity: FloatArray


class Cut(NamedTuple):
    """A minimum cut: its value, rounded down (infinite if there is no finite cut), which nodes are on the
    source's side, and where it was asked for, the flow along each arc in seconds."""

    value: float
    source_side: BoolArray
    flow: FloatArray | None = None


def minimum_cut(arcs: Arcs, *, flows: bool = False) -> Cut:
    """The minimum cut between source and sink (push-relabel, OR-tools); with ``flows`` also a maximum flow.

    Notes
    -----
    Complexity: O(nodes² √arcs) in the worst case, close to linear on operator graphs.
    """
    finite = np.isfinite(arcs.capacity)
    total = float(arcs.capacity[finite].sum())
    exponent = BITS - math.frexp(total)[1] if total > 0 else 0
    units = np.zeros(len(arcs.capacity), np.int64)
    units[finite] = np.floor(np.ldexp(arcs.capacity[finite], exponent)).astype(np.int64)
    units[~finite] = 2 ** (BITS + 2)
    source, sink = arcs.nodes, arcs.nodes + 1
    tail = np.where(arcs.tail == -1, source, np.where(arcs.tail == -2, sink, arcs.tail)).astype(np.int32)
    head = np.where(arcs.head == -1, source, np.where(arcs.head == -2, sink, arcs.head)).astype(np.int32)
    if len(tail) >= APART:
        value, inside, taken = solve_apart(tail, head, units, source, sink, flows, look_at_clock)
    else:
        flow = max_flow.SimpleMaxFlow()
        flow.add_arcs_with_capacity(tail, head, units)
        flow.add_arc_with_capacity(source, sink, 0)  # both ends exist even without any other arc
        status = flow.solve(source, sink)
        assert status == flow.OPTIMAL, status
        value, inside = flow.optimal_flow(), flow.get_source_side_min_cut()
        taken = flow.flows(np.arange(len(units))) if flows else None
    side = np.zeros(arcs.nodes + 2, np.bool_)
    side[inside] = True
    exact = math.inf if value >= 2 ** (BITS + 2) else math.ldexp(value, -exponent)
    along = None if taken is None else np.ldexp(taken.astype(np.float64), -exponent)
    return Cut(exact, side[: arcs.nodes], along)


def two_device_arcs(problem: Problem, atoms: Atoms, pair: tuple[int, int], price: FloatArray) -> Arcs:
    """The network whose cuts are the placements on two devices; the source's side is the first of the pair.

    ``price`` (D,) seconds per byte is added to what an op costs on each device (a Lagrangian multiplier of
    its memory).
    """
    first, second = pair
    graph = problem.graph
    producer = atoms.of_op[graph.tensor_producer].astype(np.int64)
    consumer = atoms.of_op[graph.consumer_op].astype(np.int64)
    tensor = graph.edge_tensor.astype(np.int64)
    outside = consumer != producer[tensor]
    consumer, tensor = consumer[outside], tensor[outside]
    used = np.unique(tensor)
    aux = np.full(graph.tensors, -1, np.int64)
    aux[used] = atoms.count + np.arange(len(used))
    away, back = aux, aux + len(used)
    cost = np.where(atoms.allowed, atoms.time, np.inf) + atoms.memory[:, None] * price
    to, fro = (first, second), (second, first)
    link_to = problem.latency[to] + problem.size[used] * problem.rate[to]
    link_fro = problem.latency[fro] + problem.size[used] * problem.rate[fro]
    atom = np.arange(atoms.count)
    infinite = np.full(len(tensor), np.inf)
    parts = [
        (np.full(atoms.count, -1), atom, cost[:, second]),  # on the second: the arc from the source is cut
        (atom, np.full(atoms.count, -2), cost[:, first]),
        (producer[used], away[used], link_to),  # producer on the first, some reader on the second
        (away[tensor], consumer, infinite),
        (back[used], producer[used], link_fro),  # producer on the second, some reader on the first
        (consumer, back[tensor], infinite),
    ]
    tail, head, capacity = (np.concatenate([part[i] for part in parts]) for i in range(3))
    return Arcs(atoms.count + 2 * len(used), tail.astype(np.int64), head.astype(np.int64), capacity)
