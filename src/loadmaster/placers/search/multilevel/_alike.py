"""Ops that repeat: networks repeat their layers, and what is alike mostly belongs together or is cut alike.

Every atom has a colour: what it takes on each device, what its tensors cost, and the colours around it, some steps
deep. Atoms of several ops (the weights of a layer, with all that is colocated with them) are each a colour of their
own, so that in a recurrent network the ops of one layer at all its time steps have one colour, and those of another
layer another. Where no op is colocated, one colour runs through all layers.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from loadmaster.arrays import BoolArray, FloatArray, IntArray
from loadmaster.placers.frame.feasible import atoms_of
from loadmaster.problem import Problem

__all__ = ["Colours", "colours_of", "mixed", "stretches_of_colours"]

Colours = npt.NDArray[np.uint64]

DEEP = 2
"""Steps around an atom that its colour depends on."""


def mixed(value: Colours, salt: int = 0) -> Colours:
    """Hashes (splitmix64): equal where the values are."""
    z = value + np.uint64((0x9E3779B97F4A7C15 * (salt + 1)) % 2**64)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(z ^ (z >> np.uint64(31)))


def colours_of(problem: Problem) -> Colours:
    """(atoms,) colours, kept on the problem.

    Complexity: O(edges) for each step.

    References
    ----------
    B. Weisfeiler, A. Leman, "The reduction of a graph to canonical form", 1968 (colour refinement).
    """
    return problem.derived(_colours)


def _colours(problem: Problem) -> Colours:
    atoms, graph = atoms_of(problem), problem.graph
    colour = np.zeros(atoms.count, np.uint64)
    for column in (*atoms.time.T, *atoms.allowed.T, atoms.memory):
        colour = mixed(colour ^ _bits(column))
    several = np.bincount(atoms.of_op, minlength=atoms.count) > 1
    colour[several] = mixed(np.flatnonzero(several).astype(np.uint64), 7)
    tensor = graph.edge_tensor
    tail, head = atoms.of_op[graph.tensor_producer[tensor]], atoms.of_op[graph.consumer_op]
    apart = tail != head
    tail, head, size = tail[apart], head[apart], _bits(problem.size[tensor[apart]])
    for _ in range(DEEP):
        before, behind = np.zeros(atoms.count, np.uint64), np.zeros(atoms.count, np.uint64)
        np.add.at(before, head, mixed(colour[tail] ^ size, 1))
        np.add.at(behind, tail, mixed(colour[head] ^ size, 2))
        around = mixed(colour ^ mixed(before, 3) ^ mixed(behind, 4), 5)
        colour = np.where(several, colour, around)
    return colour


def _bits(values: FloatArray | BoolArray) -> Colours:
    return np.ascontiguousarray(values, np.float64).view(np.uint64)


def stretches_of_colours(
    problem: Problem, mass: FloatArray, most: float, room: float, at: IntArray | None = None
) -> IntArray:
    """(atoms,) groups: the atoms of one colour, in topological order, cut where a group would have more than ``most``
    of the (atoms,) mass or more than ``room`` bytes; of one device each where ``at`` (atoms,) is given."""
    atoms = atoms_of(problem)
    place = np.empty(atoms.count, np.int64)
    place[atoms.order] = np.arange(atoms.count)
    colour = colours_of(problem)
    if at is not None:
        colour = mixed(colour ^ at.astype(np.uint64), 6)
    order = np.lexsort((place, colour))
    return np.asarray(_cut(order, colour, mass, most, atoms.memory, room))


@njit(cache=True, nogil=True)
def _cut(order, colour, mass, most, memory, room):  # type: ignore[no-untyped-def]
    """A new group begins with a new colour, and where one more atom would be too much."""
    group = np.empty(len(order), np.int32)
    made, heavy, bytes_, before = -1, 0.0, 0.0, np.uint64(0)
    for v in order:
        heavy += mass[v]
        bytes_ += memory[v]
        if made < 0 or colour[v] != before or heavy > most or bytes_ > room:
            made += 1
            heavy, bytes_, before = mass[v], memory[v], colour[v]
        group[v] = made
    return group
