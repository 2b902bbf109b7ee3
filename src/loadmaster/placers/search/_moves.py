"""Random feasible moves: one atom, a connected cluster, a swap, or a short chain where memory is full.

Everything that searches locally draws its moves here, so that local search and annealing differ only in what
they accept.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from loadmaster.arrays import BoolArray, FloatArray, IntArray
from loadmaster.graph.order import csr_from_pairs, distinct_pairs
from loadmaster.placers.frame.feasible import atoms_of
from loadmaster.problem import Problem

__all__ = ["LONGEST", "Moves", "members_of", "moves_of", "propose", "uniform"]


LONGEST = 16
"""Most atoms that one move may change."""


class Moves(NamedTuple):
    """The atoms of a problem as :func:`propose` needs them; passed to kernels one by one (see ``loads.py``
    for why)."""

    movable: IntArray
    """Atoms with a choice of devices."""
    allowed: BoolArray
    memory: FloatArray
    capacity: FloatArray
    neighbour_ptr: IntArray
    neighbour: IntArray
    """Atoms that exchange a tensor with an atom."""


def members_of(problem: Problem) -> tuple[IntArray, IntArray]:
    """CSR atom -> ops: (ptr, op); kept on the problem, and not to be changed."""
    return problem.derived(_members)


def _members(problem: Problem) -> tuple[IntArray, IntArray]:
    atoms = atoms_of(problem)
    return csr_from_pairs(atoms.of_op, np.arange(problem.n, dtype=np.int32), atoms.count)


def moves_of(problem: Problem) -> Moves:
    """The atoms of a problem, with their neighbours; kept on it, and not to be changed."""
    return problem.derived(_moves)


def _moves(problem: Problem) -> Moves:
    atoms = atoms_of(problem)
    tail, head = problem.graph.arcs
    a, b = atoms.of_op[tail], atoms.of_op[head]
    keep = a != b
    a, b = a[keep], b[keep]
    both = distinct_pairs(np.concatenate([a, b]), np.concatenate([b, a]))
    neighbour_ptr, neighbour = csr_from_pairs(both[0], both[1], atoms.count)
    # A copy: kernels are compiled once for arrays that can be written, and again for those that cannot.
    limited = problem.capacity.copy() if atoms.memory.sum() > 0 else np.full(problem.devices, np.inf)
    return Moves(
        movable=np.flatnonzero(atoms.allowed.sum(axis=1) > 1).astype(np.int32),
        allowed=atoms.allowed,
        memory=atoms.memory,
        capacity=limited,
        neighbour_ptr=neighbour_ptr,
        neighbour=neighbour,
    )


@njit(cache=True, nogil=True)
def _bits(rng):  # type: ignore[no-untyped-def]
    """The next 64 random bits (splitmix64); ``rng`` is a uint64 array of one."""
    rng[0] += np.uint64(0x9E3779B97F4A7C15)
    z = rng[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@njit(cache=True, nogil=True)
def uniform(rng):  # type: ignore[no-untyped-def]
    """A random number in [0, 1)."""
    return (_bits(rng) >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@njit(cache=True, nogil=True)
def _below(rng, n):  # type: ignore[no-untyped-def]
    return np.int64((_bits(rng) >> np.uint64(32)) * np.uint64(n) >> np.uint64(32))


@njit(cache=True, nogil=True)
def propose(  # type: ignore[no-untyped-def]
    movable, allowed, memory, capacity, neighbour_ptr, neighbour, rng, at, used, atom, target
):
    """Draw one move of the atoms that are now on ``at`` with ``used`` bytes per device.

    Fills ``atom`` and ``target`` (each of length LONGEST) and returns how many atoms move; 0 if the draw was
    not feasible. The target is mostly the device of a neighbour: transfers are what a random target gets
    wrong.
    """
    devices = allowed.shape[1]
    if len(movable) == 0 or devices < 2:
        return 0
    a = movable[_below(rng, len(movable))]
    here = at[a]
    first, degree = neighbour_ptr[a], neighbour_ptr[a + 1] - neighbour_ptr[a]
    kind = uniform(rng)
    if kind < 0.1:
        b = movable[_below(rng, len(movable))]
        there = at[b]
        if there == here or not (allowed[a, there] and allowed[b, here]):
            return 0
        change = memory[b] - memory[a]
        if used[here] + change > capacity[here] or used[there] - change > capacity[there]:
            return 0
        atom[0], target[0], atom[1], target[1] = a, there, b, here
        return 2
    there = here
    if degree > 0 and uniform(rng) < 0.75:
        for _ in range(3):
            there = at[neighbour[first + _below(rng, degree)]]
            if there != here:
                break
    if there == here:
        there = _below(rng, devices - 1)
        if there >= here:
            there += 1
    count = 1
    atom[0] = a
    if kind < 0.3:
        # Grow a connected cluster on the same device, from a random member each time.
        wanted = 2 + _below(rng, LONGEST - 1)
        for _ in range(3 * wanted):
            c = atom[_below(rng, count)]
            reach = neighbour_ptr[c + 1] - neighbour_ptr[c]
            if reach == 0:
                break
            b = neighbour[neighbour_ptr[c] + _below(rng, reach)]
            if at[b] != here:
                continue
            known = False
            for i in range(count):
                known |= atom[i] == b
            if not known:
                atom[count] = b
                count += 1
                if count in (wanted, LONGEST):
                    break
    total = 0.0
    for i in range(count):
        target[i] = there
        total += memory[atom[i]]
        if not allowed[atom[i], there]:
            return 0
    over = used[there] + total - capacity[there]
    if over <= 0.0:
        return count
    return _eject(movable, allowed, memory, capacity, rng, at, used, atom, target, count, total, over)


@njit(cache=True, nogil=True)
def _eject(  # type: ignore[no-untyped-def]
    movable, allowed, memory, capacity, rng, at, used, atom, target, count, total, over
):
    """Make room for a move to a full device: another atom leaves it for a device with room, the first one's or a
    third. Returns how many atoms move then, 0 if none was found in a few draws."""
    here, there, devices = at[atom[0]], target[0], allowed.shape[1]
    if count == LONGEST:
        return 0
    for _ in range(6):
        b = movable[_below(rng, len(movable))]
        if at[b] != there or memory[b] < over:
            continue
        first = _below(rng, devices)
        for i in range(devices):
            e = (first + i) % devices
            freed = total if e == here else 0.0
            if e != there and allowed[b, e] and used[e] - freed + memory[b] <= capacity[e]:
                atom[count], target[count] = b, e
                return count + 1
    return 0
