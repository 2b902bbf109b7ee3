"""What a human expert does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from loadmaster.arrays import FloatArray, IntArray
from loadmaster.placers.frame.feasible import atoms_of, repair
from loadmaster.placers.frame.search import Search
from loadmaster.placers.frame.searcher import Searcher
from loadmaster.placers.rules._scopes import experts, scopes, units
from loadmaster.problem import Placement, Problem, Serial

__all__ = ["Expert", "balanced_cuts", "expert_candidates"]


@dataclass(frozen=True)
class Expert(Searcher):
    """The rules by which people place networks by hand; they look at op names, op times and nothing else.

    - Layers that are much alike (``layer3/…``, ``stack1/…``) are dealt out evenly, in order: one LSTM layer,
      a few transformer layers or a whole stack of WaveNet per device. Layer i of an encoder and of a decoder
      that are unrolled in time share a device, so that the layers work one behind the other in a wave.
    - What comes before the layers (embeddings) goes to the first device, what comes after (attention,
      softmax, loss) to the last; the experts of a mixture (``expert5/…``) are dealt out evenly whatever their
      layer.
    - Other networks (Inception, ResNet) are cut into contiguous stretches of whole blocks whose largest load
      is least, or of single ops where the names show no blocks.

    The devices are the accelerators, those aside that are much slower than the fastest; under ``serial``,
    where sharing gains nothing, the fastest alone. Should a rule give an infeasible placement, plain
    contiguous stretches are tried instead, then anything feasible.

    Complexity: O(ops + edges).

    References
    ----------
    Y. Wu et al., "Google's neural machine translation system", 2016, section 3.3; the human
    placements to which A. Mirhoseini et al. (ICML 2017) and Y. Zhou et al., "GDP: generalized device
    placement for dataflow graphs", 2019, compare themselves.
    """

    slack: float = 2.0
    """An accelerator is used if the whole graph takes at most this many times as long on it as on the
    fastest."""

    name: ClassVar[str] = "expert"
    summary: ClassVar[str] = "rules of human experts: a layer or stack per device, else balanced blocks"

    def explore(self, search: Search, start: Placement | None, seed: int) -> None:
        """One placement, by the first rule that gives a feasible one."""
        problem = search.problem
        for device in expert_candidates(problem, self.slack):
            search.try_device(device)
            search.check()
            if search.best is not None:
                break


def balanced_cuts(load: FloatArray, parts: int) -> IntArray:
    """Stretch of each entry, where a sequence is cut into at most ``parts`` with the least largest sum.

    >>> balanced_cuts(np.array([3.0, 1.0, 1.0, 1.0, 3.0]), 3).tolist()
    [0, 1, 1, 1, 2]

    Bisection over the sum, filling greedily; O(parts * log(entries)) for each of 60 halvings.
    """
    total = np.concatenate([[0.0], np.cumsum(load)])
    low, high = float(load.max(initial=0.0)), float(total[-1])
    for _ in range(60):
        middle = (low + high) / 2
        if len(_filled(total, middle)) <= parts:
            high = middle
        else:
            low = middle
    ends = _filled(total, high)
    return np.searchsorted(ends, np.arange(len(load)), side="right").astype(np.int32)


def _filled(total: FloatArray, limit: float) -> list[int]:
    """Ends of the stretches when each is filled up to the limit (with one entry at least)."""
    ends: list[int] = []
    begin, count = 0, len(total) - 1
    while begin < count:
        end = int(np.searchsorted(total, total[begin] + limit * (1 + 1e-12), side="right")) - 1
        begin = max(end, begin + 1)
        ends.append(begin)
    return ends


# -- rules ---------------------------------------------------------------------------------------------------


def expert_candidates(problem: Problem, slack: float = 2.0) -> Iterator[IntArray]:
    """Devices by the rule for the family, then by plain stretches of ops."""
    atoms = atoms_of(problem)
    if atoms.count == 0:
        yield np.zeros(0, np.int32)
        return
    workers = _workers(problem, slack)
    load = np.where(np.isfinite(problem.time), problem.time, 0.0)[:, workers].mean(axis=1)
    stage = _by_layer(problem, load, len(workers))
    if stage is None:
        stage = _by_block(problem, load, len(workers))
    yield _placed(problem, workers[stage], load)
    order = atoms.order
    atom_stage = np.empty(atoms.count, np.int32)
    atom_load = np.asarray(np.bincount(atoms.of_op, load, atoms.count), np.float64)
    atom_stage[order] = balanced_cuts(atom_load[order], len(workers))
    yield _placed(problem, workers[atom_stage[atoms.of_op]], load)


def _workers(problem: Problem, slack: float) -> IntArray:
    """The devices that share the work."""
    usable = problem.allowed.any(axis=0)
    accelerators = np.flatnonzero(usable & ~problem.pool)
    devices = accelerators if len(accelerators) else np.flatnonzero(usable)
    finite = np.isfinite(problem.time)
    slowest = problem.time.max(axis=1, initial=0.0, where=finite)
    total = np.where(finite, problem.time, slowest[:, None]).sum(axis=0)
    if isinstance(problem.model, Serial):
        return devices[[total[devices].argmin()]].astype(np.int32)
    return devices[total[devices] <= slack * total[devices].min()].astype(np.int32)


def _by_layer(problem: Problem, load: FloatArray, devices: int) -> IntArray | None:
    """(n,) stage of each op if there are layers, and they are alike; else None."""
    graph = problem.graph
    unit = units(graph)
    inside = unit >= 0
    count = int(unit.max(initial=-1)) + 1
    if count < 2:
        return None
    weight = np.bincount(unit[inside], load[inside], count)
    if weight.max() > 3 * weight[weight > 0].min() or (weight == 0).any():
        return None
    stage = np.where(inside, unit * min(devices, count) // count, 0)
    after = _downstream(problem, inside)
    scope = scopes(graph)
    # A scope outside the layers goes as a whole where its first op in topological order belongs.
    position = np.where(graph.backward, graph.n, 0) + graph.position
    first = np.full(int(scope.max()) + 1, -1, np.int32)
    outside = np.flatnonzero(~inside)
    for v in outside[np.argsort(-position[outside], kind="stable")].tolist():
        first[scope[v]] = v
    last = min(devices, count) - 1
    stage[outside] = np.where(after[first[scope[outside]]], last, 0)
    expert = experts(graph)
    if (expert >= 0).any():
        stage = np.where(expert >= 0, expert * devices // (int(expert.max()) + 1), stage)
    return stage.astype(np.int32)


def _downstream(problem: Problem, source: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """(n,) whether an op comes after one of the sources."""
    ptr, before = (array.tolist() for array in problem.graph.predecessors)
    reached, is_source = [False] * problem.n, source.tolist()
    for v in problem.graph.topological_order.tolist():
        reached[v] = any(reached[u] or is_source[u] for u in before[ptr[v] : ptr[v + 1]])
    return np.array(reached, np.bool_)


def _by_block(problem: Problem, load: FloatArray, devices: int) -> IntArray:
    """(n,) stage of each op: contiguous stretches of blocks, a block being a scope as coarse as there are
    enough of."""
    graph = problem.graph
    depth = 1
    while True:
        block = scopes(graph, depth)
        count = int(block.max()) + 1
        if count >= 4 * devices or int(scopes(graph, depth + 1).max()) + 1 == count:
            break
        depth += 1
    return balanced_cuts(np.asarray(np.bincount(block, load, count), np.float64), devices)[block]


def _placed(problem: Problem, device: IntArray, load: FloatArray) -> IntArray:
    """Colocated ops go where most of their time is wanted; what is not allowed there goes to its fastest
    device."""
    atoms = atoms_of(problem)
    votes = np.zeros((atoms.count, problem.devices))
    # Ops that take no time must count for something, too.
    np.add.at(votes, (atoms.of_op, device), load + 1e-30)
    wanted = votes.argmax(axis=1)
    fastest = np.where(atoms.allowed, atoms.time, np.inf).argmin(axis=1)
    at = np.where(atoms.allowed[np.arange(atoms.count), wanted], wanted, fastest)
    return repair(problem, at.astype(np.int32)[atoms.of_op])
