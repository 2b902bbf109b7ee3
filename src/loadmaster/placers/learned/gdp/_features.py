"""What the policy of ``gdp`` knows of ops, devices and graphs before it decides: numbers without a unit.

Every feature is a ratio of seconds or of bytes, a share or a count, so that a problem in other units, or with its
devices in another order, looks the same. Op types are not among them: what a type means for placing, the
times on the devices and the sizes of the tensors say, and a type never seen before means nothing new.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from loadmaster.arrays import FloatArray, IntArray
from loadmaster.placers.frame.feasible import atoms_of
from loadmaster.placers.learned.gdp._list_policy import squash
from loadmaster.problem import Concurrent, Offload, Pipeline, Problem, Serial

__all__ = [
    "DEVICE",
    "GRAPH",
    "OP",
    "SEGMENTS",
    "Static",
    "along_of",
    "context_sweep",
    "segments_of",
    "static_of",
]


OP = (
    "rank", "slack", "time", "bytes in", "bytes out", "inputs", "readers", "atom", "atom ops", "memory", "choices",
    "backward", "spread",
)  # fmt: skip
"""Features of an op."""
GRAPH = (
    "ops", "devices", "communication", "parallelism", "memory", "serial", "concurrent", "static", "pipeline",
    "overlap", "contiguous", "offload",
)  # fmt: skip
"""Features of a graph on its devices, and the execution model."""
DEVICE = ("speed", "links out", "links in", "memory", "pool", "ops")
"""Features of a device."""
SEGMENTS = 16
"""Stretches of the topological order, of equal work, that ops attend to."""


class Static(NamedTuple):
    """Features and units of a problem; A atoms."""

    op: FloatArray
    """(n, :data:`OP`)."""
    graph: FloatArray
    """(:data:`GRAPH`,)."""
    device: FloatArray
    """(D, :data:`DEVICE`)."""
    unit: FloatArray
    """(n,) seconds that matter to an op: the mean time of its atom and of its largest input."""
    common: float
    """Mean seconds of an op."""
    fair: float
    """One over the seconds that each device would work if all shared evenly."""


def static_of(problem: Problem) -> Static:
    """The features of a problem, kept on it."""
    known = problem.__dict__.get("_list_features")
    if known is None:
        known = problem.__dict__["_list_features"] = _static(problem)
    return known


def _static(problem: Problem) -> Static:
    graph, atoms, n = problem.graph, atoms_of(problem), problem.n
    mean, link = problem.mean_time, problem.mean_link
    total = float(mean.sum())
    common = max(total / max(n, 1), 1e-300)
    fair = problem.devices / max(total, 1e-300)
    producer, reader = graph.tensor_producer[graph.edge_tensor], graph.consumer_op
    way = link[graph.edge_tensor]
    came, went = (np.bincount(end, way, n).astype(np.float64) for end in (reader, producer))
    largest = np.zeros(n)
    np.maximum.at(largest, reader, way)
    atom_mean = np.bincount(atoms.of_op, mean, atoms.count)
    rank = problem.upward_rank
    top = _top(graph.topological_order, *graph.predecessors, *_arc_links(problem), mean)
    longest = max(float(rank.max(initial=0.0)), 1e-300)
    finite = np.isfinite(problem.time)
    fastest = np.where(finite, problem.time, np.inf).min(axis=1, initial=np.inf)
    slowest = np.where(finite, problem.time, 0.0).max(axis=1, initial=0.0)
    roomy = float(np.where(np.isfinite(problem.capacity), problem.capacity, 0.0).mean())
    op = np.stack(
        [
            rank / longest,
            1.0 - (top + rank) / longest,
            _ratio(mean, common),
            _ratio(came, mean),
            _ratio(went, mean),
            _small(np.diff(graph.inputs[0])),
            _small(np.bincount(producer, minlength=n)),
            squash_all(np.asarray(atom_mean[atoms.of_op] * fair, np.float64)),
            _small(np.bincount(atoms.of_op, minlength=atoms.count)[atoms.of_op] - 1),
            squash_all(atoms.memory[atoms.of_op] / roomy) if roomy > 0 else np.zeros(n),
            atoms.allowed.mean(axis=1)[atoms.of_op],
            graph.backward.astype(np.float64),
            _ratio(slowest, np.where(np.isfinite(fastest), fastest, 0.0)),
        ],
        axis=1,
    ) if n else np.zeros((0, len(OP)))  # fmt: skip
    held, room = float(atoms.memory.sum()), float(problem.capacity.sum())
    model = problem.model
    whole = np.array(
        [
            np.log1p(n) / 10.0,
            np.log(problem.devices) / 3.0,
            float(_ratio(np.array([way.sum()]), np.array([total]))[0]),
            float(_ratio(np.array([total]), np.array([longest]))[0]),
            held / room if 0.0 < room < np.inf else 0.0,
            isinstance(model, Serial),
            isinstance(model, Concurrent),
            isinstance(model, Concurrent) and model.schedule == "static",
            isinstance(model, Pipeline),
            isinstance(model, Pipeline) and model.comm == "overlap",
            isinstance(model, Pipeline) and model.contiguity != "none",
            isinstance(model, Offload),
        ],
        np.float64,
    )
    return Static(
        op=op,
        graph=whole,
        device=_devices(problem, held),
        unit=np.maximum(atom_mean[atoms.of_op] + largest, 1e-3 * common) if n else np.zeros(0),
        common=common,
        fair=fair,
    )


def _devices(problem: Problem, held: float) -> FloatArray:
    finite = np.isfinite(problem.time)
    fastest = np.where(finite, problem.time, np.inf).min(axis=1, initial=np.inf)
    fastest = np.where(np.isfinite(fastest), fastest, 0.0)[:, None]
    least, mine = np.where(finite, fastest, 0.0).sum(axis=0), np.where(finite, problem.time, 0.0).sum(axis=0)
    size = float(problem.size.mean()) if len(problem.size) else 0.0
    way = problem.latency + size * problem.rate
    others = max(problem.devices - 1, 1)
    out, into = way.sum(axis=1) / others, way.sum(axis=0) / others
    usual = np.full(problem.devices, max(float(way.sum()) / (others * problem.devices), 1e-300))
    with np.errstate(divide="ignore", invalid="ignore"):
        pressure = np.where(np.isfinite(problem.capacity), held / problem.capacity, 0.0)
    pressure = np.where(np.isfinite(pressure), squash_all(np.nan_to_num(pressure)), 1.0)
    share = problem.allowed.mean(axis=0) if problem.n else np.ones(problem.devices)
    return np.stack(
        [
            _ratio(mine, least),
            _ratio(out, usual),
            _ratio(into, usual),
            pressure,
            problem.pool.astype(float),
            share,
        ],
        axis=1,
    )


def squash_all(x: FloatArray) -> FloatArray:
    """Element by element into (-1, 1)."""
    return x / (1.0 + np.abs(x))


def _ratio(a: FloatArray, b: FloatArray | float) -> FloatArray:
    """Logarithm of a ratio of amounts, at most e^8 either way, into (-1, 1); 0 where both are nothing."""
    b = np.broadcast_to(np.asarray(b, np.float64), a.shape)
    scale = np.maximum(np.maximum(a, b), 1e-300)
    return squash_all(np.log(np.maximum(a / scale, 3e-4)) - np.log(np.maximum(b / scale, 3e-4)))


def _small(count: npt.NDArray[np.int64]) -> FloatArray:
    return squash_all(np.log1p(count.astype(np.float64)))


def _arc_links(problem: Problem) -> tuple[FloatArray]:
    """Mean seconds of the largest tensor over each arc, in the order of ``graph.predecessors``."""
    graph = problem.graph
    tail, head = graph.arcs
    if not len(tail):
        return (np.zeros(0),)
    key = graph.tensor_producer[graph.edge_tensor].astype(np.int64) * graph.n + graph.consumer_op
    arc = np.searchsorted(tail.astype(np.int64) * graph.n + head, key)
    way = np.zeros(len(tail))
    np.maximum.at(way, arc, problem.mean_link[graph.edge_tensor])
    return (way[np.argsort(head, kind="stable")],)


@njit(cache=True, nogil=True)
def _top(order, ptr, before, way, mean):  # type: ignore[no-untyped-def]
    """(n,) seconds from the beginning of the graph to the start of an op along the longest mean path."""
    top = np.zeros(len(order))
    for v in order:
        for i in range(ptr[v], ptr[v + 1]):
            u = before[i]
            top[v] = max(top[v], top[u] + mean[u] + way[i])
    return top


def along_of(problem: Problem) -> FloatArray:
    """(atoms,) how far along the network an atom is, 0 to 1, by work.

    The backward pass runs the other way: an op of it is where the forward ops are whose gradients it makes, about.
    """
    graph, atoms = problem.graph, atoms_of(problem)
    order = graph.topological_order
    work = problem.mean_time[order]
    work = work + work.mean() / 10 + 1e-300 if len(order) else work
    along = np.empty(problem.n)
    for back in (False, True):
        mine = graph.backward[order] == back
        if mine.any():
            done = np.cumsum(work[mine])
            share = (done - work[mine] / 2) / done[-1]
            along[order[mine]] = 1.0 - share if back else share
    weight = np.empty(problem.n)
    weight[order] = work
    total = np.bincount(atoms.of_op, weight, atoms.count)
    return np.asarray(
        np.bincount(atoms.of_op, weight * along, atoms.count) / np.maximum(total, 1e-300), np.float64
    )


# -- context ---------------------------------------------------------------------------------------------------


def segments_of(problem: Problem) -> IntArray:
    """(n,) the stretch of the topological order, of equal work, that each op is in."""
    order = problem.graph.topological_order
    work = problem.mean_time[order]
    done = np.cumsum(work + work.mean() / 10 + 1e-300) if len(order) else np.zeros(0)
    segment = np.empty(problem.n, np.int32)
    share = done / done[-1] if len(done) else done
    segment[order] = np.minimum((share * SEGMENTS).astype(np.int32), SEGMENTS - 1)
    return segment


@njit(cache=True, nogil=True)
def context_sweep(order, ptr, neighbour, enter, mix):  # type: ignore[no-untyped-def]
    """(n, C) a recurrent network along the arcs: squash(enter[v] + mean of the neighbours before · mix).

    With the reverse order and the successors it runs against the arcs. O(arcs * C + n * C²).
    """
    n, width = enter.shape
    state, mean = np.zeros((n, width)), np.empty(width)
    for v in order:
        mean[:] = 0.0
        count = ptr[v + 1] - ptr[v]
        for i in range(ptr[v], ptr[v + 1]):
            for j in range(width):
                mean[j] += state[neighbour[i], j]
        for j in range(width):
            state[v, j] = enter[v, j]
        if count > 0:
            for k in range(width):
                for j in range(width):
                    state[v, j] += mean[k] / count * mix[k, j]
        for j in range(width):
            state[v, j] = squash(state[v, j])
    return state
