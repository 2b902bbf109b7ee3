"""Expansion moves: the best set of atoms to move to one device, found by a minimum cut.

References
----------
Y. Boykov, O. Veksler, R. Zabih, "Fast approximate energy minimization via graph cuts", IEEE TPAMI 23(11),
2001. The charge of a tensor is not submodular where links are unlike, so the cut minimises an upper bound
that is exact where nothing moves (a majorisation), and the caller accepts a move only if the true cost falls.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from loadmaster.arrays import FloatArray, IntArray
from loadmaster.placers.cuts._cut_graph import Arcs, minimum_cut
from loadmaster.placers.frame.feasible import Atoms
from loadmaster.problem import Problem

__all__ = ["expand"]


def expand(problem: Problem, atoms: Atoms, at: IntArray, target: int, price: FloatArray) -> IntArray:
    """(atoms,) devices after the best expansion of device ``target``: every atom stays or goes there.

    ``at`` (atoms,) is where they are; ``price`` (D,) seconds per byte is added to what an atom costs on a
    device. On the source's side an atom stays. Let h be the device of a tensor's producer p, and e a device
    with readers of it.
    """
    graph = problem.graph
    producer = atoms.of_op[graph.tensor_producer].astype(np.int64)
    consumer, tensor = atoms.of_op[graph.consumer_op].astype(np.int64), graph.edge_tensor.astype(np.int64)
    outside = consumer != producer[tensor]
    consumer, tensor = consumer[outside], tensor[outside]
    cost = np.where(atoms.allowed, atoms.time, np.inf) + atoms.memory[:, None] * price
    every = np.arange(atoms.count)
    movable = (at != target) & atoms.allowed[:, target]
    network = _Network(atoms.count)
    network.add(every, -2, np.where(movable, cost[every, at], 0.0))  # stays: the arc to the sink is cut
    network.add(-1, every[movable], cost[movable, target])
    network.add(-1, every[~movable], np.full((~movable).sum(), np.inf))
    # Where an atom already is on the target, staying and going are the same: it is held on the side of
    # "stays" and charged nothing.

    home = at[producer]
    size = problem.size

    def link(a: npt.NDArray[np.int64], b: npt.NDArray[np.int64], t: npt.NDArray[np.int64]) -> FloatArray:
        seconds = problem.latency[a, b] + size[t] * problem.rate[a, b]
        return np.where(a == b, 0.0, seconds)

    # Groups: the readers of a tensor that are on one device now.
    key = tensor * problem.devices + at[consumer]
    groups, group_of = np.unique(key, return_inverse=True)
    group_tensor, group_device = groups // problem.devices, groups % problem.devices
    group_home = home[group_tensor].astype(np.int64)
    goal = np.full(len(groups), target)
    stay = link(group_home, group_device, group_tensor)  # if the producer stays
    go = link(goal, group_device, group_tensor)  # if the producer goes to the target
    here = group_device == target
    fixed = group_home == target
    # Readers elsewhere (e != target): the charge is due while some reader stays; w = stay whether or not the
    # producer stays where that is an upper bound, and the rest only if the producer goes.
    base = np.where(fixed, go, np.where(here, 0.0, stay))
    extra = np.where(fixed | here, 0.0, np.maximum(go - stay, 0.0))
    some_stays = network.new(len(groups))
    member = ~here[group_of]
    network.add(consumer[member], some_stays[group_of[member]], np.full(member.sum(), np.inf))
    network.add(some_stays, -2, np.where(here, 0.0, base))
    network.add(some_stays, producer[group_tensor], extra)
    # Readers on the target already: the charge is due while the producer stays.
    waiting = here & ~fixed
    network.add(producer[group_tensor[waiting]], -2, stay[waiting])
    # No reader there yet: the charge is due if the producer stays and some reader goes.
    has = np.zeros(graph.tensors, np.bool_)
    has[group_tensor[here]] = True
    fresh = np.unique(tensor[~has[tensor] & (home[tensor] != target)])
    some_goes = np.full(graph.tensors, -1, np.int64)
    some_goes[fresh] = network.new(len(fresh))
    network.add(
        producer[fresh],
        some_goes[fresh],
        link(home[fresh].astype(np.int64), np.full(len(fresh), target), fresh),
    )
    reads = some_goes[tensor] >= 0
    network.add(some_goes[tensor[reads]], consumer[reads], np.full(reads.sum(), np.inf))
    cut = minimum_cut(network.arcs())
    goes = movable & ~cut.source_side[: atoms.count]
    return np.where(goes, target, at).astype(np.int32)


class _Network:
    """Arcs collected piece by piece; scalars are repeated."""

    def __init__(self, nodes: int) -> None:
        self.nodes = nodes
        self._parts: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], FloatArray]] = []

    def new(self, count: int) -> npt.NDArray[np.int64]:
        """Numbers of fresh nodes."""
        self.nodes += count
        return np.arange(self.nodes - count, self.nodes, dtype=np.int64)

    def add(
        self, tail: npt.NDArray[np.int64] | int, head: npt.NDArray[np.int64] | int, capacity: FloatArray
    ) -> None:
        """Add arcs; those without capacity are left out."""
        keep = capacity > 0
        shape = capacity.shape
        self._parts.append(
            (np.broadcast_to(tail, shape)[keep], np.broadcast_to(head, shape)[keep], capacity[keep])
        )

    def arcs(self) -> Arcs:
        """All of them."""
        tail, head, capacity = (np.concatenate([part[i] for part in self._parts]) for i in range(3))
        return Arcs(self.nodes, tail.astype(np.int64), head.astype(np.int64), capacity)
