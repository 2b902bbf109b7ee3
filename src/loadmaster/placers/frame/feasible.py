"""Finding some placement that satisfies all constraints, or saying which constraint cannot be met.

Packing classes into limited memories is NP-hard, so there is no guarantee in general; simple contradictions
are proved, easy cases are solved by packing rules, and small hard ones by exhaustive search.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numba import njit

from loadmaster.arrays import BoolArray, FloatArray, IntArray
from loadmaster.errors import InfeasibleError
from loadmaster.graph.order import csr_from_pairs, sum_by
from loadmaster.problem import Problem
from loadmaster.problem._constraints import chain_arcs
from loadmaster.problem._evaluator import SimulatedEvaluator
from loadmaster.problem._model import Concurrent, Offload, Pipeline

__all__ = [
    "Atoms",
    "atoms_of",
    "first_feasible",
    "prove_infeasible",
    "random_segments",
    "repair",
    "single_devices",
]


TRIES = 200
"""Randomised packings before exhaustive search."""
NODES = 200_000
"""Nodes that the exhaustive search may visit."""


@dataclass(frozen=True, eq=False)
class Atoms:
    """What moves as one: the colocation classes; under contiguity ``chain`` classes that wait for each other
    are united.

    ``component`` numbers groups of atoms that wait for each other (each atom its own, mostly); their graph is
    acyclic, and a topological order of the atoms is one of the components.
    """

    of_op: IntArray
    """(n,) atom of each op."""
    count: int
    allowed: BoolArray
    """(atoms, D)."""
    memory: FloatArray
    """(atoms,) bytes that count against the capacity."""
    time: FloatArray
    """(atoms, D) seconds, infinite where unsupported."""
    component: IntArray
    """(atoms,)."""
    successor_ptr: IntArray
    successor: IntArray
    waiting: IntArray
    """(components,) number of predecessors."""


def atoms_of(problem: Problem) -> Atoms:
    """The atoms of a problem, kept on it."""
    known = problem.__dict__.get("_atoms")
    if known is None:
        known = problem.__dict__["_atoms"] = _atoms(problem)
    return known


def _atoms(problem: Problem) -> Atoms:
    of = problem.class_of
    if isinstance(problem.model, Pipeline):
        tail, head = chain_arcs(problem)
    else:
        a, b = problem.graph.arcs
        tail, head = of[a], of[b]
    keep = tail != head
    tail, head = tail[keep], head[keep]
    classes = problem.classes
    parts, part = classes, np.arange(classes, dtype=np.int32)
    if classes < problem.n:
        from scipy.sparse import coo_array  # slow to import, and most problems need neither
        from scipy.sparse.csgraph import connected_components

        graph = coo_array((np.ones(len(tail)), (tail, head)), shape=(classes, classes))
        parts, part = connected_components(graph, connection="strong")
    arcs = np.stack([part[tail], part[head]]) if len(tail) else np.zeros((2, 0), np.int32)
    arcs = np.unique(arcs[:, arcs[0] != arcs[1]], axis=1).astype(np.int32)
    ptr, successor = csr_from_pairs(arcs[0], arcs[1], parts)
    unite = isinstance(problem.model, Pipeline) and problem.model.contiguity == "chain"
    count, label = (parts, part) if unite else (classes, np.arange(classes, dtype=np.int32))
    component = np.arange(count, dtype=np.int32) if unite else part.astype(np.int32)
    allowed = np.ones((count, problem.devices), np.bool_)
    np.logical_and.at(allowed, label, problem.class_allowed)
    time = np.zeros((count, problem.devices))
    np.add.at(time, label, problem.class_time)
    weighed = problem.resident if _peak(problem) else problem.memory
    of_op = label[of].astype(np.int32)
    return Atoms(
        of_op=of_op,
        count=int(count),
        allowed=allowed,
        memory=sum_by(of_op, weighed, count),
        time=time,
        component=component,
        successor_ptr=ptr,
        successor=successor,
        waiting=np.bincount(arcs[1], minlength=parts).astype(np.int32),
    )


def _peak(problem: Problem) -> bool:
    return isinstance(problem.model, Concurrent) and problem.model.memory == "peak"


def prove_infeasible(problem: Problem) -> None:
    """Raise :class:`InfeasibleError` if one constraint alone, or memory as a whole, cannot be met.

    With ``memory="peak"`` only the resident bytes are looked at, which is a relaxation.
    """
    op, name = problem.graph.names, problem.cluster.names
    stuck = np.flatnonzero(~problem.allowed.any(axis=1))
    if len(stuck):
        v = int(stuck[0])
        if not np.isfinite(problem.time[v]).any():
            raise InfeasibleError(f"no device supports op {op[v]!r}")
        if problem.pin[v] >= 0:
            pin = int(problem.pin[v])
            why = "does not support it" if np.isinf(problem.time[v, pin]) else "is forbidden to it"
            raise InfeasibleError(f"op {op[v]!r} is pinned to device {name[pin]!r}, which {why}")
        raise InfeasibleError(f"op {op[v]!r} is forbidden on every device that supports it")
    ptr, member = problem.members
    torn = np.flatnonzero(~problem.class_allowed.any(axis=1))
    if len(torn):
        ops = [op[v] for v in member[ptr[torn[0]] : ptr[torn[0] + 1]][:4]]
        raise InfeasibleError(f"no device may take all of the colocated ops {', '.join(map(repr, ops))}, …")
    weighed = problem.resident if _peak(problem) else problem.memory
    class_memory = np.bincount(problem.class_of, weighed, problem.classes)
    room = np.where(problem.class_allowed, problem.capacity, -1.0)
    big = np.flatnonzero(class_memory > room.max(axis=1, initial=-1.0))
    if len(big):
        c = int(big[0])
        first = op[member[ptr[c]]]
        need, most = class_memory[c], room[c].max()
        raise InfeasibleError(
            f"memory: op {first!r} (with its colocated ops) needs {need:.6g} bytes, but the largest device that "
            f"may take it holds {most:.6g}: {need - most:.6g} too many"
        )
    lone = problem.class_allowed.sum(axis=1) == 1
    if lone.any():
        where = problem.class_allowed[lone].argmax(axis=1)
        need_by = np.bincount(where, class_memory[lone], problem.devices)
        over = np.flatnonzero(need_by > problem.capacity * (1 + 1e-12))
        if len(over):
            d = int(over[0])
            raise InfeasibleError(
                f"memory: the ops that may only go to device {name[d]!r} need {need_by[d]:.6g} bytes, "
                f"but it holds {problem.capacity[d]:.6g}: {need_by[d] - problem.capacity[d]:.6g} too many"
            )
    usable = problem.class_allowed.any(axis=0)
    total, capacity = (
        float(class_memory.sum()),
        float(problem.capacity[usable].sum()) if problem.n else np.inf,
    )
    if total > capacity * (1 + 1e-12):
        raise InfeasibleError(
            f"memory: all ops together need {total:.6g} bytes, but all devices together hold {capacity:.6g}: "
            f"{total - capacity:.6g} too many"
        )


def single_devices(problem: Problem) -> Iterator[IntArray]:
    """For each device: everything that may go there does, the rest goes to its best device; then memory is
    repaired."""
    atoms = atoms_of(problem)
    best = (
        np.where(atoms.allowed, atoms.time, np.inf).argmin(axis=1) if atoms.count else np.zeros(0, np.int64)
    )
    for d in range(problem.devices):
        if atoms.count and not atoms.allowed[:, d].any():
            continue
        chosen = np.where(atoms.allowed[:, d], d, best)
        yield repair(problem, chosen.astype(np.int32)[atoms.of_op])


def repair(problem: Problem, device: IntArray) -> IntArray:
    """Move atoms from overfull devices to devices with room, the least loss of time per byte first.

    The result may still be overfull, or break the contiguity of the pipeline model: callers check.
    """
    atoms = atoms_of(problem)
    if not np.isfinite(problem.capacity).any() or atoms.count == 0:
        return device
    at = np.empty(atoms.count, np.int32)
    at[atoms.of_op] = device
    used = np.bincount(at, atoms.memory, problem.devices)
    for d in np.flatnonzero(used > problem.capacity).tolist():
        mine = np.flatnonzero((at == d) & (atoms.memory > 0))
        here = atoms.time[mine, d][:, None]
        loss = np.where(atoms.allowed[mine], atoms.time[mine], np.inf) - here
        loss[:, d] = np.inf
        cheapest = loss.min(axis=1)
        for i in np.argsort(cheapest / atoms.memory[mine], kind="stable").tolist():
            if used[d] <= problem.capacity[d]:
                break
            a = int(mine[i])
            room = used + atoms.memory[a] <= problem.capacity
            choices = np.where(room, loss[i], np.inf)
            e = int(choices.argmin())
            if np.isfinite(choices[e]):
                used[d] -= atoms.memory[a]
                used[e] += atoms.memory[a]
                at[a] = e
    return at[atoms.of_op]


def random_segments(problem: Problem, rng: np.random.Generator, *, full: bool = False) -> IntArray | None:
    """Cut a random topological order into as many stretches as devices and hand them out.

    Such a placement is contiguous in every sense. ``full`` fills each device up to its memory before the next
    one is opened, else the cuts are random. None if an op fits nowhere any more.
    """
    atoms = atoms_of(problem)
    if atoms.count == 0:
        return np.zeros(0, np.int32)
    order = random_order(atoms, rng)
    sequence = _device_sequence(problem, atoms, order, rng)
    if not len(sequence):
        return None
    # Atoms without a choice (inputs pinned to the host) would end stretches: mostly they are set aside.
    lone = atoms.allowed.sum(axis=1) == 1
    if rng.random() < 0.25:
        lone[:] = False
    at = np.where(lone, atoms.allowed.argmax(axis=1), -1).astype(np.int32)
    capacity = problem.capacity - sum_by(at[lone], atoms.memory[lone], problem.devices)
    order = order[~lone[order]]
    quota = np.full(len(sequence), np.inf)
    if not full:
        wanted = int(rng.integers(1, len(sequence) + 1))
        cuts = np.sort(rng.integers(0, len(order) + 1, wanted - 1))
        quota[:wanted] = np.diff(np.concatenate([[0], cuts, [len(order)]]))
    filled = _fill(order, sequence, quota, atoms.allowed, atoms.memory, capacity, at)
    return at[atoms.of_op] if filled else None


def _device_sequence(problem: Problem, atoms: Atoms, order: IntArray, rng: np.random.Generator) -> IntArray:
    """A random order of the devices in which those that some atoms need exclusively come by the position
    of these atoms."""
    position = np.empty(atoms.count)
    position[order] = np.arange(atoms.count)
    key = rng.random(problem.devices) * max(atoms.count, 1)
    lone = np.flatnonzero(atoms.allowed.sum(axis=1) == 1)
    where = atoms.allowed[lone].argmax(axis=1)
    for d in np.unique(where).tolist():
        key[d] = position[lone[where == d]].mean()
    usable = np.flatnonzero(atoms.allowed.any(axis=0))
    return usable[np.argsort(key[usable], kind="stable")].astype(np.int32)


@njit(cache=True, nogil=True)
def _fill(order, sequence, quota, allowed, memory, capacity, at):  # type: ignore[no-untyped-def]
    """Hand out stretches of ``order`` to the devices of ``sequence``, into ``at``; False if an atom is
    left over."""
    i, taken, used = 0, 0, 0.0
    for a in order:
        while i < len(sequence):
            d = sequence[i]
            if taken < quota[i] and allowed[a, d] and used + memory[a] <= capacity[d]:
                break
            i += 1
            taken, used = 0, 0.0
        if i == len(sequence):
            return False
        at[a] = sequence[i]
        taken += 1
        used += memory[a]
    return True


def random_order(atoms: Atoms, rng: np.random.Generator) -> IntArray:
    """A random topological order of the atoms: at each step any ready one, or (half of the time) one made
    ready last."""
    seed, depth_first = int(rng.integers(1, 2**62)), rng.random()
    parts = _random_order(atoms.successor_ptr, atoms.successor, atoms.waiting, seed, depth_first)
    place = np.empty(len(parts), np.int32)
    place[parts] = np.arange(len(parts), dtype=np.int32)
    return np.argsort(place[atoms.component], kind="stable").astype(np.int32)


@njit(cache=True, nogil=True)
def _random_order(ptr, successor, waiting, seed, depth_first):  # type: ignore[no-untyped-def]
    """``depth_first`` is the probability of taking the newest ready atom. O(atoms + arcs)."""
    n = len(waiting)
    left = waiting.copy()
    ready, order = np.empty(n, np.int32), np.empty(n, np.int32)
    top = made = 0
    for a in range(n):
        if left[a] == 0:
            ready[top] = a
            top += 1
    x = np.uint64(seed)
    while top:
        x ^= x << np.uint64(13)
        x ^= x >> np.uint64(7)
        x ^= x << np.uint64(17)
        if (x >> np.uint64(40)) * (1.0 / (1 << 24)) >= depth_first:
            i = np.int64((x >> np.uint64(8)) % np.uint64(top))
            ready[i], ready[top - 1] = ready[top - 1], ready[i]
        top -= 1
        a = ready[top]
        order[made] = a
        made += 1
        for j in range(ptr[a], ptr[a + 1]):
            left[successor[j]] -= 1
            if left[successor[j]] == 0:
                ready[top] = successor[j]
                top += 1
    return order


def first_feasible(problem: Problem, seed: int = 0) -> IntArray:
    """Devices of some feasible placement.

    Raises
    ------
    InfeasibleError : proved, or nothing found after packing rules and a limited exhaustive search.
    """
    prove_infeasible(problem)
    check = SimulatedEvaluator(problem)

    def feasible(device: IntArray) -> bool:
        return bool(check.evaluate_batch(device)[1][0])

    for single in single_devices(problem):
        if feasible(single):
            return single
    rng = np.random.default_rng(seed)
    for attempt in range(TRIES):
        for device in (random_segments(problem, rng, full=attempt % 2 == 0), _first_fit(problem, rng)):
            if device is not None and feasible(device):
                return device
    found = _exhaustive(problem, feasible)
    if found is None:
        raise InfeasibleError(f"no placement was found that satisfies all constraints: {_tightest(problem)}")
    return found


def _first_fit(problem: Problem, rng: np.random.Generator) -> IntArray | None:
    """First-fit decreasing over atoms with a random disturbance; None if something is left over."""
    atoms = atoms_of(problem)
    choices = atoms.allowed.sum(axis=1)
    key = np.lexsort((-atoms.memory * (1 + 0.2 * rng.random(atoms.count)), choices))
    free = problem.capacity.copy()
    at = np.empty(atoms.count, np.int32)
    for a in key.tolist():
        fits = atoms.allowed[a] & (atoms.memory[a] <= free)
        if not fits.any():
            return None
        cost = np.where(fits, atoms.time[a] * (0.5 + rng.random(problem.devices)), np.inf)
        d = int(cost.argmin())
        at[a] = d
        free[d] -= atoms.memory[a]
    return at[atoms.of_op]


def _exhaustive(problem: Problem, feasible) -> IntArray | None:  # type: ignore[no-untyped-def]
    """Depth-first search over atoms, the largest first; gives up after :data:`NODES` nodes."""
    atoms = atoms_of(problem)
    key = np.lexsort((-atoms.memory, atoms.allowed.sum(axis=1))).tolist()
    at = np.full(atoms.count, -1, np.int32)
    free = problem.capacity.copy()
    visited = 0

    def descend(depth: int) -> bool:
        nonlocal visited
        visited += 1
        if visited > NODES:
            return False
        if depth == len(key):
            return bool(feasible(at[atoms.of_op]))
        a = key[depth]
        for d in np.flatnonzero(atoms.allowed[a] & (atoms.memory[a] <= free)).tolist():
            at[a] = d
            free[d] -= atoms.memory[a]
            if descend(depth + 1):
                return True
            free[d] += atoms.memory[a]
        return False

    if atoms.count > 500:
        return None
    return at[atoms.of_op] if descend(0) else None


def _tightest(problem: Problem) -> str:
    """Words for the constraints that most likely are the trouble."""
    atoms = atoms_of(problem)
    parts = []
    if np.isfinite(problem.capacity).any():
        total, room = atoms.memory.sum(), problem.capacity[atoms.allowed.any(axis=0)].sum()
        parts.append(f"memory ({total:.6g} of {room:.6g} bytes in pieces of up to {atoms.memory.max():.6g})")
    if isinstance(problem.model, Pipeline) and problem.model.contiguity != "none":
        parts.append(f"contiguity {problem.model.contiguity!r}")
    if isinstance(problem.model, Offload):
        parts.append(f"at most {problem.model.max_calls} calls per accelerator")
    if (problem.pin >= 0).any():
        parts.append(f"{int((problem.pin >= 0).sum())} pins")
    if problem.classes < problem.n:
        parts.append("colocation")
    return ", ".join(parts) or "unsupported ops"
