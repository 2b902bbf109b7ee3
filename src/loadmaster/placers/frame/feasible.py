"""Finding some placement that satisfies all constraints, or saying which constraint cannot be met.

Packing classes into limited memories is NP-hard, so there is no guarantee in general; simple contradictions
are proved, easy cases are solved by packing rules, and small hard ones by exhaustive search.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np
from numba import njit

from loadmaster.arrays import IntArray
from loadmaster.errors import UndecidedError
from loadmaster.graph.order import sum_by
from loadmaster.placers.frame.atoms import Atoms, atoms_of, judges_peak
from loadmaster.placers.frame.contradictions import note_infeasible, prove_infeasible
from loadmaster.placers.frame.deciding import Deciding
from loadmaster.placers.frame.enumeration import MOST, Rows, placements_of
from loadmaster.placers.frame.search import Search
from loadmaster.problem import Offload, Pipeline, Placement, Problem, SimulatedEvaluator

__all__ = [
    "Atoms",
    "atoms_of",
    "find_feasible",
    "first_feasible",
    "prove_infeasible",
    "random_segments",
    "repair",
    "single_devices",
]


TRIES = 200
"""Randomised packings,"""
TRIES_FIRST = 10
"""of which so many come before a first part of the exhaustive search."""
SLICE = 20_000
"""Steps of the exhaustive search between two looks at the clock: some milliseconds."""
FIRST_SLICES = 5
DRAWN, ENTRIES = 64, 1_000_000
"""Random placements at a time where only the schedule says what fits, and random numbers for them."""
STEPS = 10_000_000
"""Steps that the exhaustive search may take where there is no clock."""
GRACE = 0.2
"""Seconds for the search whatever the budget: most answers are found in this time."""


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
    used = np.bincount(at, atoms.memory, problem.devices).astype(np.float64)
    for d in np.flatnonzero(used > problem.capacity).tolist():
        mine = np.flatnonzero((at == d) & (atoms.memory > 0)).astype(np.int32)
        with np.errstate(invalid="ignore"):  # nowhere but where it cannot be: infinity less infinity
            loss = np.where(atoms.allowed[mine], atoms.time[mine], np.inf) - atoms.time[mine, d][:, None]
            loss[:, d] = np.inf
            order = np.argsort(loss.min(axis=1) / atoms.memory[mine], kind="stable")
        _relieve(d, mine[order], loss[order], atoms.memory, problem.capacity, at, used)
    return at[atoms.of_op]


@njit(cache=True, nogil=True)
def _relieve(d, movers, loss, memory, capacity, at, used):  # type: ignore[no-untyped-def]
    """Move atoms off device d, in this order, until the rest fits: each to where it loses least and there is room."""
    for i in range(len(movers)):
        if used[d] <= capacity[d]:
            break
        a = movers[i]
        best, target = np.inf, -1
        for e in range(len(capacity)):
            if loss[i, e] < best and used[e] + memory[a] <= capacity[e]:
                best, target = loss[i, e], e
        if target >= 0:
            used[d] -= memory[a]
            used[target] += memory[a]
            at[a] = target


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


def first_feasible(
    problem: Problem, seed: int = 0, out_of_time: Callable[[], bool] | None = None
) -> Placement:
    """Some feasible placement: single devices, random packings, then an exhaustive search.

    out_of_time : asked some hundred times a second whether to give up; without it the search gives up after a
        fixed number of steps, so that it repeats. A fraction of a second is spent in any case.

    What is found is kept on the problem, so that the members of a portfolio do not search again.

    Raises
    ------
    InfeasibleError : there is none, which is proved.
    UndecidedError : none was found, and it may be that there is one.
    """
    prove_infeasible(problem)
    known = problem.derived(_known)
    if seed not in known:
        known[seed] = _search(problem, seed, _Patience(out_of_time))
    return known[seed]


def _known(problem: Problem) -> dict[int, Placement]:
    """Feasible placements of a problem by seed, as they are found."""
    return {}


def find_feasible(search: Search, seed: int) -> Placement:
    """:func:`first_feasible` within the time of a search, offered to it."""
    timed = search.budget.seconds is not None
    placement = first_feasible(search.problem, seed, search.out_of_time if timed else None)
    search.try_placement(placement)
    return placement


class _Patience:
    """How long to go on."""

    def __init__(self, out_of_time: Callable[[], bool] | None) -> None:
        self._out_of_time = out_of_time
        self._began = time.perf_counter()
        self._steps = 0

    def over(self, steps: int = 0) -> bool:
        """Whether to give up, after so many more steps."""
        self._steps += steps
        if self._out_of_time is None:
            return self._steps >= STEPS
        return time.perf_counter() - self._began >= GRACE and self._out_of_time()


def _search(problem: Problem, seed: int, patience: _Patience) -> Placement:
    check = SimulatedEvaluator(problem)

    def feasible(device: IntArray) -> bool:
        return bool(check.evaluate_batch(device)[1][0])

    for single in single_devices(problem):
        if feasible(single):
            return Placement(single)
    rng = np.random.default_rng(seed)
    if isinstance(problem.model, Pipeline) and problem.model.microbatches:
        return _some_chain(problem, rng, feasible, patience)
    exhaustive = Deciding(problem)
    for attempt in range(TRIES):
        if attempt == TRIES_FIRST:
            # What is small is decided here, and needs no luck.
            for _ in range(FIRST_SLICES):
                if exhaustive.go_on(SLICE):
                    break
        if exhaustive.over or patience.over():
            break
        for device in (random_segments(problem, rng, full=attempt % 2 == 0), _first_fit(problem, rng)):
            if device is not None and feasible(device):
                return Placement(device)
        if judges_peak(problem):
            # Only a schedule tells what fits, so that packing is of little use: many are drawn.
            drawn = _many(problem, rng)
            fits = check.evaluate_batch(drawn)[1]
            if fits.any():
                return Placement(drawn[int(fits.argmax())].copy())
    if judges_peak(problem) and not exhaustive.over and placements_of(problem) <= MOST:
        found = _any_of_all(problem, check, patience)
        if found is not None:
            return found
    while not exhaustive.over and not patience.over(SLICE):
        exhaustive.go_on(SLICE)
    if exhaustive.found is not None:
        return exhaustive.found
    if exhaustive.over:
        # Peak memory depends on the order of the ops, and there are too many orders to try them all.
        orders = " with the model's own order of the ops" if judges_peak(problem) else ""
        raise note_infeasible(
            problem,
            f"no placement satisfies all constraints together{orders}, as an exhaustive search showed: "
            f"{_tightest(problem)}",
        )
    raise UndecidedError(
        "no feasible placement was found in the time given, and it is not proved that there is none: "
        f"{_tightest(problem)}; give more time, or relax a constraint"
    )


def _some_chain(
    problem: Problem, rng: np.random.Generator, feasible: Callable[[IntArray], bool], patience: _Patience
) -> Placement:
    """Random chains of stages. Whether there is any that fits is for the placer ``stages`` to prove: what a stage keeps
    depends on its place."""
    for attempt in range(TRIES):
        device = random_segments(problem, rng, full=attempt % 2 == 0)
        if device is not None and feasible(device):
            return Placement(device)
        if patience.over():
            break
    raise UndecidedError(
        "no feasible chain of stages was found at random, and it is not proved that there is none: "
        f"{_tightest(problem)}; the method 'stages' searches systematically"
    )


def _any_of_all(problem: Problem, check: SimulatedEvaluator, patience: _Patience) -> Placement | None:
    """The first of all placements that fits, by its schedule; None if there is none, or no time."""
    rows = Rows(problem)
    while len(device := rows.next(SLICE)):
        fits = check.evaluate_batch(device)[1]
        if fits.any():
            return Placement(device[int(fits.argmax())].copy())
        if patience.over():
            break
    return None


def _many(problem: Problem, rng: np.random.Generator) -> IntArray:
    """(rows, n) allowed devices, each row with a liking for some devices of its own."""
    atoms = atoms_of(problem)
    rows = max(1, min(DRAWN, ENTRIES // max(atoms.allowed.size, 1)))
    weight = rng.random((rows, 1, problem.devices)) * rng.random((rows, *atoms.allowed.shape))
    at = np.where(atoms.allowed, weight, -1.0).argmax(axis=2).astype(np.int32)
    return np.ascontiguousarray(at[:, atoms.of_op])


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
        calls = problem.model.max_calls
        parts.append(f"at most {calls} call{'s' if calls > 1 else ''} per accelerator")
    if (problem.pin >= 0).any():
        parts.append(f"{int((problem.pin >= 0).sum())} pins")
    if problem.classes < problem.n:
        parts.append("colocation")
    return ", ".join(parts) or "unsupported ops"
