"""Contradictions between constraints that can be proved and named without a search."""

from __future__ import annotations

import numpy as np
from numba import njit

from loadmaster.arrays import BoolArray, IntArray
from loadmaster.errors import InfeasibleError
from loadmaster.graph.order import topological_order
from loadmaster.placers.frame.atoms import Atoms, atoms_of
from loadmaster.problem import Pipeline, Problem

__all__ = ["narrowed", "note_infeasible", "prove_infeasible"]

FITS = 1.0 + 1e-12
"""Bytes are added up in another order than the evaluator does."""
ROUNDS = 100
"""Most rounds of narrowing; each takes choices away, and few are needed."""


def prove_infeasible(problem: Problem) -> None:
    """Raise :class:`InfeasibleError` if a contradiction can be named.

    Looked at are each op, each colocation class and each atom alone, memory as a whole, and under contiguity
    ``chain`` what the atoms without a choice say about the order of the devices. With ``memory="peak"`` only the
    resident bytes count, which is a relaxation. What has been found is kept on the problem.
    """
    known = problem.derived(_found)
    if known:
        raise InfeasibleError(known[0])


def note_infeasible(problem: Problem, why: str) -> InfeasibleError:
    """The error for a problem of which a search has proved that it has no placement; it is kept."""
    problem.derived(_found).append(why)
    return InfeasibleError(why)


def _found(problem: Problem) -> list[str]:
    """Why a problem has no placement, as far as it is known: nothing, or at least one sentence."""
    try:
        _look(problem)
    except InfeasibleError as error:
        return [str(error)]
    return []


def _look(problem: Problem) -> None:
    op, name = problem.graph.names, problem.cluster.names
    stuck = np.flatnonzero(~problem.allowed.any(axis=1))
    if len(stuck):
        v = int(stuck[0])
        if not np.isfinite(problem.time[v]).any():
            raise InfeasibleError(f"no device supports op {op[v]!r}")
        if problem.pin[v] >= 0:
            pin = int(problem.pin[v])
            why = "does not support it" if np.isinf(problem.time[v, pin]) else "is forbidden for it"
            raise InfeasibleError(f"op {op[v]!r} is pinned to device {name[pin]!r}, which {why}")
        raise InfeasibleError(f"op {op[v]!r} is forbidden on every device that supports it")
    ptr, member = problem.members
    torn = np.flatnonzero(~problem.class_allowed.any(axis=1))
    if len(torn):
        ops = [op[v] for v in member[ptr[torn[0]] : ptr[torn[0] + 1]][:4]]
        raise InfeasibleError(f"no device may take all of the colocated ops {', '.join(map(repr, ops))}, …")
    atoms = atoms_of(problem)
    torn = np.flatnonzero(~atoms.allowed.any(axis=1))
    if len(torn):
        raise InfeasibleError(_torn(problem, np.flatnonzero(atoms.of_op == torn[0]).astype(np.int32)))
    _weigh(problem, atoms, atoms.allowed)
    if isinstance(problem.model, Pipeline) and problem.model.contiguity == "chain":
        _weigh(problem, atoms, narrowed(problem))


def _torn(problem: Problem, ops: IntArray) -> str:
    """Words for ops that a chain keeps together and that have no device in common."""
    op, name = problem.graph.names, problem.cluster.names
    choices = problem.allowed[ops]
    left, shown = np.ones(problem.devices, np.bool_), []
    while left.any():
        i = int((choices & left).sum(axis=1).argmin())
        left &= choices[i]
        where = np.flatnonzero(choices[i])
        devices = ", ".join(repr(name[d]) for d in where[:4]) + (", …" if len(where) > 4 else "")
        shown.append(f"{op[ops[i]]!r} may only go to {devices}")
    return (
        f"contiguity 'chain' keeps {len(ops)} ops on one device, as they wait for each other through colocation, "
        f"but no device is allowed for all of them: {'; '.join(shown)}"
    )


def _weigh(problem: Problem, atoms: Atoms, allowed: BoolArray) -> None:
    """Memory: each atom alone, the atoms without a choice, and all together."""
    op, name = problem.graph.names, problem.cluster.names
    room = np.where(allowed, problem.capacity, -1.0)
    big = np.flatnonzero(atoms.memory > room.max(axis=1, initial=-1.0) * FITS)
    if len(big):
        a = int(big[0])
        first = op[int((atoms.of_op == a).argmax())]
        need, most = atoms.memory[a], room[a].max()
        together = (
            "with its colocated ops"
            if atoms.count == problem.classes
            else "with what it must share a device with"
        )
        raise InfeasibleError(
            f"memory: op {first!r} ({together}) needs {need:.6g} bytes, but the largest device that "
            f"may take it holds {most:.6g}: {need - most:.6g} too many"
        )
    lone = allowed.sum(axis=1) == 1
    if lone.any():
        where = allowed[lone].argmax(axis=1)
        need_by = np.bincount(where, atoms.memory[lone], problem.devices)
        over = np.flatnonzero(need_by > problem.capacity * FITS)
        if len(over):
            d = int(over[0])
            raise InfeasibleError(
                f"memory: the ops that may only go to device {name[d]!r} need {need_by[d]:.6g} bytes, "
                f"but it holds {problem.capacity[d]:.6g}: {need_by[d] - problem.capacity[d]:.6g} too many"
            )
    usable = allowed.any(axis=0)
    total = float(atoms.memory.sum())
    capacity = float(problem.capacity[usable].sum()) if problem.n else np.inf
    if total > capacity * FITS:
        raise InfeasibleError(
            f"memory: all ops together need {total:.6g} bytes, but all devices together hold {capacity:.6g}: "
            f"{total - capacity:.6g} too many"
        )


def narrowed(problem: Problem) -> BoolArray:
    """(atoms, D) where the atoms of a problem with contiguity ``chain`` may still go, given those without a choice.

    An atom that may only go to d, before one that may only go to e, puts d before e in the line of devices. What
    comes after an atom on d may not go to a device before d, and so on, until nothing changes.

    Raises
    ------
    InfeasibleError : devices would come before themselves, or an atom has no device left.
    """
    atoms = atoms_of(problem)
    allowed = atoms.allowed.copy()
    lone = allowed.sum(axis=1) == 1
    if lone.sum() < 2:
        return allowed
    tail = np.repeat(np.arange(atoms.count, dtype=np.int32), np.diff(atoms.successor_ptr))
    order = topological_order(atoms.count, tail, atoms.successor)
    for _ in range(ROUNDS):
        home = np.where(lone, allowed.argmax(axis=1), -1).astype(np.int32)
        above, below = _relatives(order, atoms.successor_ptr, atoms.successor, home, problem.devices)
        pair = _pairs(home, above)
        before = _closure(pair >= 0)
        circle = np.flatnonzero(before.diagonal())
        if len(circle):
            raise InfeasibleError(_circle(problem, atoms, pair, above, int(circle[0])))
        wrong = ((above >= 0) @ before.T) | ((below >= 0) @ before)
        wrong[lone] = False
        # What lies between two atoms of one device is on that device, too.
        between = (above >= 0) & (below >= 0)
        held = between.any(axis=1) & ~lone
        wrong[held] |= ~between[held] if held.any() else False
        if not (allowed & wrong).any():
            break
        allowed &= ~wrong
        stuck = np.flatnonzero(~allowed.any(axis=1))
        if len(stuck):
            raise InfeasibleError(_stuck(problem, atoms, int(stuck[0]), above, below))
        lone = allowed.sum(axis=1) == 1
    return allowed


@njit(cache=True, nogil=True)
def _relatives(order, ptr, successor, home, devices):  # type: ignore[no-untyped-def]
    """(atoms, D) twice: some atom before, or after, each one that has d as its home; -1 if there is none."""
    above = np.full((len(order), devices), -1, np.int32)
    below = np.full((len(order), devices), -1, np.int32)
    for a in order:
        for i in range(ptr[a], ptr[a + 1]):
            b = successor[i]
            for d in range(devices):
                if above[b, d] < 0:
                    above[b, d] = above[a, d]
            if home[a] >= 0:
                above[b, home[a]] = a
    for a in order[::-1]:
        for i in range(ptr[a], ptr[a + 1]):
            b = successor[i]
            for d in range(devices):
                if below[a, d] < 0:
                    below[a, d] = below[b, d]
            if home[b] >= 0:
                below[a, home[b]] = b
    return above, below


@njit(cache=True, nogil=True)
def _pairs(home, above):  # type: ignore[no-untyped-def]
    """(D, D) an atom at home on the second device that comes after one on the first; -1 if there is none."""
    devices = above.shape[1]
    pair = np.full((devices, devices), -1, np.int32)
    for a in range(len(home)):
        if home[a] >= 0:
            for d in range(devices):
                if d != home[a] and above[a, d] >= 0:
                    pair[d, home[a]] = a
    return pair


def _closure(before: BoolArray) -> BoolArray:
    """Which device comes before which, in one step or several."""
    before = before.copy()
    for d in range(len(before)):
        before |= before[:, d : d + 1] & before[d : d + 1]
    return before


def _an_op(problem: Problem, atoms: Atoms, atom: int) -> str:
    """The name of an op of the atom, one without a choice if there is one."""
    ops = np.flatnonzero(atoms.of_op == atom)
    return repr(problem.graph.names[int(ops[problem.allowed[ops].sum(axis=1).argmin()])])


def _circle(problem: Problem, atoms: Atoms, pair: IntArray, above: IntArray, first: int) -> str:
    """Words for devices that would have to come before themselves."""
    came_from = {first: first}
    queue = [first]
    end = -1
    while end < 0:  # breadth first, so that the circle is short
        d = queue.pop(0)
        for e in np.flatnonzero(pair[d] >= 0).tolist():
            if e == first:
                end = d
                break
            if e not in came_from:
                came_from[e] = d
                queue.append(e)
    line = [first]
    while end != first:
        line.insert(1, end)
        end = came_from[end]
    name, parts = problem.cluster.names, []
    for d, e in zip(line, [*line[1:], first], strict=True):
        later = int(pair[d, e])
        one, other = _an_op(problem, atoms, int(above[later, d])), _an_op(problem, atoms, later)
        parts.append(f"{one} on {name[d]!r} comes before {other} on {name[e]!r}")
    return (
        "contiguity 'chain' cannot be met: data would flow in a cycle through the devices that these ops must be on: "
        + ", and ".join(parts)
    )


def _stuck(problem: Problem, atoms: Atoms, atom: int, above: IntArray, below: IntArray) -> str:
    """Words for an atom that has no device left."""
    name = problem.cluster.names
    around = [
        f"{word} {_an_op(problem, atoms, int(near[atom, d]))} on {name[d]!r}"
        for word, near in (("after", above), ("before", below))
        for d in np.flatnonzero(near[atom] >= 0).tolist()[:3]
    ]
    where = ", ".join(repr(name[d]) for d in np.flatnonzero(atoms.allowed[atom]).tolist()[:4])
    return (
        f"contiguity 'chain' leaves op {_an_op(problem, atoms, atom)} no device: it may go to {where}, and it comes "
        f"{', '.join(around)}"
    )
