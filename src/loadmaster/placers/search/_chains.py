"""Chains: one walk of a local search each, advanced in slices so that time, Ctrl-C and progress are looked
after in between.

A chain draws moves (``_moves.py``), learns their cost, and accepts by Metropolis' rule at its temperature;
temperature 0 is descent that also walks sideways. Two kinds share that rule: :class:`NetChain` is one
compiled loop with exact deltas, for ``serial`` and ``pipeline``; :class:`BatchChain` asks for the cost of
several moves at a time, for everything else, measured costs included. How a chain is sliced never changes
where it walks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import numpy as np
from numba import njit

from loadmaster.arrays import BoolArray, FloatArray, IntArray
from loadmaster.placers.frame.feasible import atoms_of
from loadmaster.placers.search._critical import critical_ops
from loadmaster.placers.search._moves import LONGEST, members_of, moves_of, propose, uniform
from loadmaster.problem import Evaluator, Pipeline, Problem, Serial, SimulatedEvaluator
from loadmaster.problem.concurrent import ConcurrentSimulator
from loadmaster.problem.contiguity import contiguity_of, is_contiguous
from loadmaster.problem.loads import (
    APART,
    OVERLAP,
    SERIAL,
    Nets,
    cost_of,
    load_cost,
    move_op,
    nets_of,
    nets_of_groups,
    new_ledger,
    reset,
)

__all__ = ["BatchChain", "Chain", "NetChain", "new_chain"]

JOURNAL = 4096
"""Atoms moved since the best placement, from which the next best one is brought up to date; more: all is copied."""

Costs = Callable[[IntArray], tuple[FloatArray, BoolArray]]
Focus = Callable[[IntArray], IntArray]


class Chain(Protocol):
    """One walk through the feasible placements."""

    @property
    def best(self) -> IntArray:
        """(n,) devices of the best placement that the chain has met since it was made."""
        ...

    @property
    def best_cost(self) -> float:
        """Cost of the best placement, up to rounding."""
        ...

    @property
    def cost(self) -> float:
        """Cost of where the chain stands, up to rounding."""
        ...

    @property
    def device(self) -> IntArray:
        """(n,) where the chain stands."""
        ...

    idle: int
    """Evaluations since the chain last improved on its best cost since :meth:`start`."""

    def start(self, device: IntArray) -> None:
        """Go to a feasible placement."""
        ...

    def rebase(self) -> None:
        """Count improvements from here: what is idle begins anew."""
        ...

    def advance(self, evaluations: int, temperature: float, cooling: float) -> int:
        """Walk; the temperature (relative to the cost) is multiplied by ``cooling`` after every move.

        Returns how many evaluations were made, at most ``evaluations`` (fewer if hardly any move is
        feasible).
        """
        ...


def new_chain(problem: Problem, seed: int, evaluator: Evaluator) -> Chain:
    """The right chain for the problem's execution model and evaluator."""
    if not isinstance(evaluator, SimulatedEvaluator):
        return BatchChain(problem, seed, evaluator.evaluate_batch)
    if isinstance(problem.model, Serial | Pipeline):
        return NetChain(problem, seed)
    simulator = evaluator.simulator
    if not isinstance(simulator, ConcurrentSimulator):
        return BatchChain(problem, seed, simulator.costs)

    def focus(device: IntArray) -> IntArray:
        return critical_ops(problem, device, *simulator.schedule(device))

    return BatchChain(problem, seed, simulator.costs, focus)


class NetChain:
    """Exact deltas in O(degree + devices) per move; millions of moves per second.

    The nets are those between atoms, however many ops an atom has; only where stages must be contiguous, a move of an
    atom moves its ops one by one.

    ``pipeline`` minimises not the largest load alone, which most moves do not change, but how far the loads
    exceed a target just below the best cost so far, plus a little of their sum.
    """

    def __init__(self, problem: Problem, seed: int) -> None:
        self._of_op = atoms_of(problem).of_op
        self._contiguity = contiguity_of(problem)
        grouped = problem.derived(_nets_of_atoms) if self._contiguity[0] == 0 else None
        if grouped is None:  # which paths there are between atoms only their ops tell
            self._nets, self._unit = nets_of(problem), np.arange(problem.n, dtype=np.int32)
            self._members = members_of(problem)
        else:
            self._nets, self._unit = grouped, self._of_op
            every = np.arange(len(grouped.time) + 1, dtype=np.int32)
            self._members = every, every[:-1]
        self._moves = moves_of(problem)
        self._ledger = new_ledger(self._nets)
        self._rng = np.array([seed], np.uint64)
        self._at = np.zeros(len(self._moves.memory), np.int32)
        self._used = np.zeros(problem.devices)
        self._numbers = np.array([math.inf, math.inf])
        self._best = np.zeros_like(self._ledger.device)
        self.idle = 0

    @property
    def best(self) -> IntArray:
        """(n,) a copy."""
        return self._best[self._unit]

    @property
    def best_cost(self) -> float:
        """Up to rounding."""
        return float(self._numbers[0])

    @property
    def device(self) -> IntArray:
        """Where the chain stands; a copy."""
        return self._ledger.device[self._unit]

    @property
    def cost(self) -> float:
        """Cost of where the chain stands, up to rounding."""
        return cost_of(self._nets, self._ledger)

    def start(self, device: IntArray) -> None:
        """Go to a feasible placement."""
        of_unit = np.empty_like(self._best)
        of_unit[self._unit] = device
        reset(*self._nets, *self._ledger, of_unit)
        self._at[self._of_op] = device
        self._used[:] = np.bincount(self._at, self._moves.memory, len(self._used))
        cost = self.cost
        self._numbers[1] = cost
        self.idle = 0
        if cost < self.best_cost:
            self._numbers[0] = cost
            self._best[:] = of_unit

    def rebase(self) -> None:
        """Count improvements from here."""
        self._numbers[1], self.idle = self.cost, 0

    def advance(self, evaluations: int, temperature: float, cooling: float) -> int:
        """See :class:`Chain`."""
        made, self.idle = _walk(
            *self._nets, *self._ledger, *self._moves, *self._members, *self._contiguity, self._rng, self._at,
            self._used, self._numbers, self._best, evaluations, temperature, cooling, self.idle,
        )  # fmt: skip
        return int(made)


def _nets_of_atoms(problem: Problem) -> Nets | None:
    atoms = atoms_of(problem)
    return nets_of_groups(problem, atoms.of_op, atoms.count)


@njit(cache=True, nogil=True)
def _energy(kind, compute, comm, target):  # type: ignore[no-untyped-def]
    """What the walk minimises; see :class:`NetChain`."""
    if kind & SERIAL:
        return load_cost(kind, compute, comm)
    devices = compute.shape[1]
    over = total = 0.0
    for d in range(devices):
        work, talk = compute[0, d] + compute[1, d], comm[0, d] + comm[1, d]
        over += max(0.0, (max(work, talk) if kind & OVERLAP else work + talk) - target)
        total += work + talk
    if kind & APART:
        return load_cost(kind, compute, comm) + 0.02 * total / devices
    return over + 0.02 * total


@njit(cache=True, nogil=True)
def _walk(  # type: ignore[no-untyped-def]
    kind, ops, touch, tensors, time, size, wire, latency, rate, device, count, compute, comm,
    movable, allowed, memory, capacity, neighbour_ptr, neighbour, member_ptr, member_op,
    contiguity, tail, head, rng, at, used, numbers, best, evaluations, temperature, cooling, idle,
):  # fmt: skip
    """``numbers``: best cost ever, best cost since the start. Returns (evaluations made, idle
    evaluations). ``moves_since[:noted]`` are the atoms in which ``best`` and ``device`` may differ; with ``noted`` < 0
    it may be any: nearly every step of a descent is a new best, and to copy a large graph takes longer than it."""
    devices = time.shape[1]
    moves_since, noted = np.empty(JOURNAL, np.int32), -1
    atom, target, old = np.empty(LONGEST, np.int32), np.empty(LONGEST, np.int32), np.empty(LONGEST, np.int32)
    compute_before, comm_before = compute.copy(), comm.copy()
    aim = 0.993 * numbers[0]
    energy = _energy(kind, compute, comm, aim)
    made = draws = 0
    while made < evaluations and draws < 8 * evaluations + 64:
        draws += 1
        moved = propose(
            movable, allowed, memory, capacity, neighbour_ptr, neighbour, rng, at, used, atom, target
        )
        if moved == 0:
            continue
        made += 1
        idle += 1
        temperature *= cooling
        for d in range(devices):
            for s in range(2):
                compute_before[s, d] = compute[s, d]
                comm_before[s, d] = comm[s, d]
        for i in range(moved):
            old[i] = at[atom[i]]
            for j in range(member_ptr[atom[i]], member_ptr[atom[i] + 1]):
                move_op(
                    kind, ops, touch, tensors, time, size, wire, latency, rate, device, count, compute, comm,
                    member_op[j], target[i],
                )  # fmt: skip
        fresh = _energy(kind, compute, comm, aim)
        rise = fresh - energy
        accept = rise <= 0.0 or (
            temperature > 0.0 and uniform(rng) < math.exp(-rise / (temperature * numbers[0] + 1e-300))
        )
        if accept and contiguity != 0:
            accept = is_contiguous(contiguity, tail, head, device, devices)
        if not accept:
            for i in range(moved):
                for j in range(member_ptr[atom[i]], member_ptr[atom[i] + 1]):
                    move_op(
                        kind, ops, touch, tensors, time, size, wire, latency, rate, device, count, compute, comm,
                        member_op[j], old[i],
                    )  # fmt: skip
            for d in range(devices):
                for s in range(2):
                    compute[s, d] = compute_before[s, d]
                    comm[s, d] = comm_before[s, d]
            continue
        for i in range(moved):
            at[atom[i]] = target[i]
            used[old[i]] -= memory[atom[i]]
            used[target[i]] += memory[atom[i]]
            if noted == JOURNAL:
                noted = -1
            if noted >= 0:
                moves_since[noted] = atom[i]
                noted += 1
        energy = fresh
        cost = load_cost(kind, compute, comm)
        if cost < numbers[1] * (1.0 - 1e-12):
            numbers[1] = cost
            idle = 0
            if cost < numbers[0]:
                numbers[0] = cost
                if noted < 0:
                    best[:] = device
                for i in range(noted):
                    for j in range(member_ptr[moves_since[i]], member_ptr[moves_since[i] + 1]):
                        best[member_op[j]] = device[member_op[j]]
                noted = 0
                aim = 0.993 * cost
                energy = _energy(kind, compute, comm, aim)
    return made, idle


class BatchChain:
    """Several moves from the same placement are evaluated at once; the first that is accepted is made, the
    rest is forgotten.

    The batch grows while moves are refused and shrinks when they are accepted, so that little is wasted.
    ``focus`` names the ops of a placement that most moves should begin with (the critical ones).
    """

    LARGEST = 32
    CELLS = 8_000_000
    """Devices of ops in a batch at most: on graphs of over 250,000 ops batches are smaller."""
    FOCUSED = 0.7
    """Share of the moves that begin with a critical op."""

    def __init__(self, problem: Problem, seed: int, costs: Costs, focus: Focus | None = None) -> None:
        self._problem = problem
        self._costs = costs
        self._moves = moves_of(problem)
        self._members = members_of(problem)
        self._of_op = atoms_of(problem).of_op
        self._rng = np.array([seed], np.uint64)
        self._at = np.zeros(len(self._moves.memory), np.int32)
        self._used = np.zeros(problem.devices)
        self.cost = math.inf
        self._since = math.inf
        self._largest = max(1, min(self.LARGEST, self.CELLS // max(problem.n, 1)))
        self._batch = min(4, self._largest)
        self._focus = focus
        self._focused = np.zeros(0, np.int32)
        self._stale = 0
        self.best = np.zeros(problem.n, np.int32)
        self.best_cost = math.inf
        self.device = np.zeros(problem.n, np.int32)
        self.idle = 0

    def start(self, device: IntArray) -> None:
        """Go to a feasible placement."""
        self.cost = float(self._costs(device[None])[0][0])
        self.device = device.astype(np.int32, copy=True)
        self._at[self._of_op] = device
        self._used[:] = np.bincount(self._at, self._moves.memory, len(self._used))
        self._since, self.idle = self.cost, 0
        self._stale = 2**30
        self._note()

    def rebase(self) -> None:
        """Count improvements from here."""
        self._since, self.idle = self.cost, 0

    def _note(self) -> None:
        if self.cost < self._since:
            self._since, self.idle = self.cost, 0
        if self.cost < self.best_cost:
            self.best_cost = self.cost
            self.best[:] = self.device

    def advance(self, evaluations: int, temperature: float, cooling: float) -> int:
        """See :class:`Chain`."""
        made = 0
        while made < evaluations:
            rows = min(self._batch, evaluations - made)
            self._refocus()
            atoms, targets = np.empty((rows, LONGEST), np.int32), np.empty((rows, LONGEST), np.int32)
            counts, devices = np.empty(rows, np.int64), np.empty((rows, self._problem.n), np.int32)
            drawn = _draw(
                *self._moves, *self._members, self._focused, self.FOCUSED, self._rng, self._at, self._used, self.device,
                atoms, targets, counts, devices,
            )  # fmt: skip
            if drawn == 0:
                break
            cost, feasible = self._costs(devices[:drawn])
            made += drawn
            self.idle += drawn
            level = temperature * cooling**made * self.best_cost
            accepted = _first_accepted(self._rng, np.where(feasible, cost, np.inf), self.cost, level)
            if accepted < 0:
                self._batch = min(self._largest, self._batch + 1 + self._batch // 2)
                continue
            self._batch = max(1, self._batch // 2)
            for a, d in zip(
                atoms[accepted, : counts[accepted]], targets[accepted, : counts[accepted]], strict=True
            ):
                self._used[self._at[a]] -= self._moves.memory[a]
                self._used[d] += self._moves.memory[a]
                self._at[a] = d
            self.device = devices[accepted].copy()
            self.cost = float(cost[accepted])
            self._stale += drawn
            self._note()
        return made

    def _refocus(self) -> None:
        """Look for the critical ops again, but not after every single move: it costs more than an evaluation, and on
        a large graph one move changes little of the critical path."""
        if self._focus is None or self._stale < max(8, self._problem.n // 1000):
            return
        self._stale = 0
        atoms = np.zeros(len(self._at), np.bool_)
        atoms[self._of_op[self._focus(self.device)]] = True
        self._focused = self._moves.movable[atoms[self._moves.movable]]


@njit(cache=True, nogil=True)
def _draw(  # type: ignore[no-untyped-def]
    movable, allowed, memory, capacity, neighbour_ptr, neighbour, member_ptr, member_op,
    focused, share, rng, at, used, device, atoms, targets, counts, devices,
):  # fmt: skip
    """Fill rows with moves of the current placement; returns how many rows were filled (draws may fail)."""
    rows, made = len(counts), 0
    for _ in range(16 * rows + 64):
        first = focused if len(focused) > 0 and uniform(rng) < share else movable
        count = propose(
            first,
            allowed,
            memory,
            capacity,
            neighbour_ptr,
            neighbour,
            rng,
            at,
            used,
            atoms[made],
            targets[made],
        )
        if count == 0:
            continue
        counts[made] = count
        devices[made] = device
        for i in range(count):
            a = atoms[made, i]
            for j in range(member_ptr[a], member_ptr[a + 1]):
                devices[made, member_op[j]] = targets[made, i]
        made += 1
        if made == rows:
            break
    return made


@njit(cache=True, nogil=True)
def _first_accepted(rng, cost, now, level):  # type: ignore[no-untyped-def]
    """Index of the first cost that Metropolis' rule accepts at temperature ``level``, or -1."""
    for i in range(len(cost)):
        rise = cost[i] - now
        if rise <= 0.0 or (level > 0.0 and uniform(rng) < math.exp(-rise / level)):
            return i
    return -1
