"""Graph partitioning with METIS, as it is or made acyclic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from loadmaster.arrays import FloatArray, IntArray
from loadmaster.graph.order import csr_from_pairs, topological_order
from loadmaster.placers.frame.feasible import Atoms, atoms_of, repair
from loadmaster.placers.frame.search import Search
from loadmaster.placers.frame.searcher import Searcher
from loadmaster.problem import Concurrent, Pipeline, Placement, Problem

__all__ = ["Metis"]


UNITS = 1_000_000
"""METIS takes whole numbers: the largest weight becomes this."""
FEW = 100
"""Vertices per part from which on METIS divides into all parts at once."""


@dataclass(frozen=True)
class Metis(Searcher):
    """The undirected graph of colocation classes divided into as many parts as devices, with few cut tensors
    between parts of fair size.

    A vertex weighs the least time of its ops, a device's share is its speed, and an edge weighs what sending and
    receiving its tensors costs on average. METIS knows nothing of directions: its parts mostly form cycles.
    Where a pipeline must be a chain, or if ``acyclic`` is set, the parts are lined up by the mean position of
    their ops, and ops that would flow backwards are moved on to the part of their last predecessor, or else back
    to that of their first successor, whichever is better. Ops on devices that cannot take them, and what exceeds
    a memory, are moved where it costs least time.

    References
    ----------
    G. Karypis, V. Kumar, "A fast and high quality multilevel scheme for partitioning irregular graphs", SIAM
    J. Scientific Computing 20(1), 1998. J. Herrmann et al., "Multilevel algorithms for acyclic partitioning
    of directed acyclic graphs", SIAM J. Scientific Computing 41(4), 2019, for the repair of an undirected
    partition.
    """

    acyclic: bool = False
    """Make the parts a chain even where nothing asks for it."""

    name: ClassVar[str] = "metis"
    summary: ClassVar[str] = "METIS graph partitioning, made acyclic where needed"

    def supports(self, problem: Problem) -> str | None:
        """``pipeline`` and ``concurrent``, where devices work in parallel."""
        if isinstance(problem.model, Pipeline | Concurrent):
            return None
        return f"metis balances devices that work in parallel, but under the {problem.model.name} model they do not"

    def explore(self, search: Search, start: Placement | None, seed: int) -> None:
        """Partition and repair; if nothing of that is feasible, any feasible placement."""
        problem = search.problem
        for device in self.candidates(problem, seed):
            if search.evaluations_left < 2 and search.best is None:
                break
            search.try_device(device)
            search.check()

    def candidates(self, problem: Problem, seed: int) -> Iterator[IntArray]:
        """The partition, or the chains that are made of it; not all need be feasible."""
        atoms = atoms_of(problem)
        if not atoms.count:
            return
        at = _partition(problem, atoms, seed)
        demanded = isinstance(problem.model, Pipeline) and problem.model.contiguity != "none"
        choices = _lined_up(problem, atoms, at) if self.acyclic or demanded else [at]
        for choice in choices:
            usual = np.where(atoms.allowed, atoms.time, np.inf).argmin(axis=1)
            ok = atoms.allowed[np.arange(atoms.count), choice]
            yield repair(problem, np.where(ok, choice, usual).astype(np.int32)[atoms.of_op])


def _partition(problem: Problem, atoms: Atoms, seed: int) -> IntArray:
    """(atoms,) device of each atom by METIS."""
    time = np.where(atoms.allowed, atoms.time, np.inf)
    devices = np.flatnonzero(atoms.allowed.any(axis=0))[: atoms.count]
    if len(devices) < 2:
        return np.full(atoms.count, devices[0] if len(devices) else 0, np.int32)
    weight = np.where(np.isfinite(time.min(axis=1)), time.min(axis=1), 0.0)
    taken = np.isfinite(time[:, devices])
    mine = np.where(taken, time[:, devices], 0.0).sum(axis=0)
    fastest = np.where(taken, weight[:, None], 0.0).sum(axis=0)
    speed = np.divide(fastest, mine, out=np.ones(len(devices)), where=mine > 0)
    # Where nothing takes time on the fastest device, the others have no speed to compare: all are alike. METIS takes no
    # share of 0, which a thousandth of the smallest numbers is.
    speed = np.maximum(speed / speed.max(), 1e-3) if speed.any() else np.ones(len(devices))
    tail, head, price = _edges(problem, atoms)
    order = np.argsort(tail, kind="stable")
    graph = _Weighed(*csr_from_pairs(tail, head, atoms.count), _whole(price[order]), _whole(weight))
    part = _divided(graph, speed / speed.sum(), seed % 2**31)
    return devices[part].astype(np.int32)


class _Weighed(NamedTuple):
    """An undirected graph with whole weights, both directions of every edge listed."""

    ptr: IntArray
    neighbour: IntArray
    price: IntArray
    weight: IntArray

    def inside(self, chosen: IntArray) -> _Weighed:
        """The graph of some vertices alone, numbered in their order."""
        number = np.full(len(self.weight), -1, np.int32)
        number[chosen] = np.arange(len(chosen), dtype=np.int32)
        tail = number[np.repeat(np.arange(len(self.weight)), np.diff(self.ptr))]
        head = number[self.neighbour]
        keep = (tail >= 0) & (head >= 0)
        order = np.argsort(tail[keep], kind="stable")
        ptr, neighbour = csr_from_pairs(tail[keep], head[keep], len(chosen))
        return _Weighed(ptr, neighbour, self.price[keep][order], self.weight[chosen])


def _divided(graph: _Weighed, share: FloatArray, seed: int) -> IntArray:
    """(vertices,) the part of each vertex.

    METIS divides again and again in two, and where a half has no vertex it complains on standard output and
    divides nothing. That can happen where vertices are few or one of them outweighs a part; such graphs are
    divided here, and METIS only sees two parts and at least two vertices.
    """
    parts, vertices = len(share), len(graph.weight)
    heavy = graph.weight.max(initial=0) > 0.5 * share.min() * graph.weight.sum(dtype=np.int64)
    if parts > 2 and (vertices < FEW * parts or heavy):
        half = parts // 2
        first = float(share[:half].sum() / share.sum())
        side = _halved(graph, np.array([first, 1.0 - first]), seed)
        part = np.zeros(vertices, np.int32)
        for number, (low, high) in enumerate(((0, half), (half, parts))):
            mine = np.flatnonzero(side == number).astype(np.int32)
            part[mine] = low + _divided(graph.inside(mine), share[low:high] / share[low:high].sum(), seed)
        return part
    return _halved(graph, share, seed)


def _halved(graph: _Weighed, share: FloatArray, seed: int) -> IntArray:
    import pymetis

    if len(share) < 2 or len(graph.weight) < 2:
        return np.zeros(len(graph.weight), np.int32)
    found = pymetis.part_graph(
        len(share),
        pymetis.CSRAdjacency(graph.ptr, graph.neighbour),
        vweights=graph.weight,
        eweights=graph.price,
        tpwgts=share.tolist(),
        options=pymetis.Options(seed=seed),
    )
    return np.array(found.vertex_part, np.int32)


def _edges(problem: Problem, atoms: Atoms) -> tuple[IntArray, IntArray, FloatArray]:
    """Both directions of every edge between atoms, and the mean seconds that its tensors cost to send and
    receive.
    """
    graph = problem.graph
    a, b = atoms.of_op[graph.tensor_producer[graph.edge_tensor]], atoms.of_op[graph.consumer_op]
    if isinstance(problem.model, Pipeline):
        price = (problem.send_latency + problem.recv_latency).mean() + problem.size * (
            problem.send_rate + problem.recv_rate
        ).mean()
    else:
        price = problem.mean_link
    apart = a != b
    key = np.stack([np.minimum(a, b), np.maximum(a, b)])[:, apart]
    pairs, where = np.unique(key, axis=1, return_inverse=True)
    total = np.bincount(where.ravel(), price[graph.edge_tensor[apart]], pairs.shape[1])
    tail, head = np.concatenate([pairs[0], pairs[1]]), np.concatenate([pairs[1], pairs[0]])
    return tail.astype(np.int32), head.astype(np.int32), np.concatenate([total, total])


def _whole(weight: FloatArray) -> IntArray:
    """Weights as whole numbers, at least 1."""
    largest = weight.max(initial=0.0)
    scaled = weight / largest * UNITS if largest > 0 else weight
    return np.maximum(np.rint(scaled), 1).astype(np.int32)


def _lined_up(problem: Problem, atoms: Atoms, at: IntArray) -> list[IntArray]:
    """The parts as a chain, by moving atoms forwards and by moving them back."""
    parts = len(atoms.waiting)
    tail = np.repeat(np.arange(parts, dtype=np.int32), np.diff(atoms.successor_ptr))
    order = topological_order(parts, tail, atoms.successor)
    position = np.empty(parts)
    position[order] = np.arange(parts)
    total = np.bincount(at, position[atoms.component], problem.devices)
    mean = total / np.maximum(np.bincount(at, minlength=problem.devices), 1)
    line = np.argsort(mean, kind="stable")
    rank = np.empty(problem.devices, np.int64)
    rank[line] = np.arange(problem.devices)
    first = np.unique(atoms.component, return_index=True)[1]
    wanted = rank[at[first]]
    ptr, successor = atoms.successor_ptr.tolist(), atoms.successor.tolist()
    found = []
    forwards = wanted.tolist()
    for u in order.tolist():
        for v in successor[ptr[u] : ptr[u + 1]]:
            forwards[v] = max(forwards[v], forwards[u])
    found.append(forwards)
    backwards = wanted.tolist()
    for u in order[::-1].tolist():
        backwards[u] = min([backwards[u], *(backwards[v] for v in successor[ptr[u] : ptr[u + 1]])])
    found.append(backwards)
    return [line[np.array(stage)][atoms.component].astype(np.int32) for stage in found]
