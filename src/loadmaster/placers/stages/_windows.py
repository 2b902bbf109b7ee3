"""What is left must fit into the devices that are left: bounds by which a program over chains drops states.

With weights λ of the kinds, every device of kind k does at most λ_k * limit of weighted work, and an atom v
is at least min_k λ_k * time[v, k] of it. So if the atoms outside an ideal weigh more than the devices that
are left may do, the ideal cannot be completed. Any λ >= 0 is valid; kinds of which nothing is left take no
part. The same holds for bytes and capacities.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from loadmaster.arrays import FloatArray, IntArray
from loadmaster.placers.stages._contraction import Contracted
from loadmaster.problem.bounds import Bound

__all__ = ["Windows", "chain_bound", "windows_of"]


SLACK = 1e-9
"""Relative widening: sums are made in different orders."""


@dataclass(frozen=True, eq=False)
class Windows:
    """J tests, each a weight per atom and a room per state.

    A room is in units of the limit of a load where ``load`` names one, and infinite where the test does not
    apply.
    """

    weight: FloatArray
    """(J, N)."""
    left: FloatArray
    used: FloatArray
    """(J, states) room of the devices that are left, and of those in use."""
    load: IntArray
    """(J,) load whose limit scales the rooms, or -1."""
    largest: FloatArray
    """(L,) seconds of the atom that takes longest wherever it goes, by load."""

    def rooms(self, share: FloatArray, limits: tuple[float, ...]) -> FloatArray:
        """(J, states) room, given a limit for each load of a device."""
        scale = np.array([1.0 if load < 0 else limits[load] for load in self.load.tolist()])
        with np.errstate(invalid="ignore"):
            room = np.where(share == 0.0, 0.0, share * scale[:, None])
        return room * (1 + SLACK) + SLACK * self.weight.sum(axis=1, keepdims=True)

    def floors(self, loads: int) -> tuple[float, ...]:
        """A lower bound on the largest load of any device, for each of its loads."""
        total = self.weight.sum(axis=1)
        share = self.left[:, 0]
        tests = [(self.load == side) & (share > 0.0) for side in range(loads)]
        return tuple(
            float((total[test] / share[test]).max(initial=largest)) * (1 - SLACK)
            for test, largest in zip(tests, self.largest, strict=True)
        )


def windows_of(contracted: Contracted) -> Windows:
    """The tests for sets of kinds: all sets of up to three kinds, else all kinds, each kind alone, and all
    but one.
    """
    tables, kinds = contracted.tables, len(contracted.kinds)
    used = contracted.used()
    counts = (contracted.count - used, used)
    sizes = range(1, kinds + 1) if kinds <= 3 else sorted({1, kinds - 1, kinds})
    weight: list[FloatArray] = []
    load: list[int] = []
    rooms: tuple[list[FloatArray], list[FloatArray]] = ([], [])
    everywhere = _fitting_time(contracted)
    for chosen in (list(c) for size in sizes for c in combinations(range(kinds), size)):
        others = np.delete(np.arange(kinds), chosen)
        applies = [(count[:, others] == 0).all(axis=1) for count in counts]
        time = everywhere[:, chosen]
        stuck = np.isinf(time[:, :, 0]).all(axis=1)
        if stuck.any():
            weight.append(stuck.astype(float))
            load.append(-1)
            for room, where in zip(rooms, applies, strict=True):
                room.append(np.where(where, 0.0, np.inf))
        for side in range(tables.loads):
            scale = _weights(time[~stuck][:, :, side], contracted.count[chosen])
            least = np.zeros(contracted.atoms)
            least[~stuck] = (time[~stuck][:, :, side] * scale).min(axis=1)
            weight.append(least)
            load.append(side)
            for room, where, count in zip(rooms, applies, counts, strict=True):
                room.append(np.where(where, count[:, chosen] @ scale, np.inf))
    if tables.crowded and tables.memory.any():
        weight.append(tables.memory)
        load.append(-1)
        for room, count in zip(rooms, counts, strict=True):
            with np.errstate(invalid="ignore"):
                room.append(np.where(count > 0, count * tables.capacity, 0.0).sum(axis=1))
    return Windows(
        weight=np.array(weight).reshape(len(load), contracted.atoms),
        left=np.array(rooms[0]).reshape(len(load), contracted.states),
        used=np.array(rooms[1]).reshape(len(load), contracted.states),
        load=np.array(load, np.int32),
        largest=everywhere.min(axis=1, initial=np.inf).max(axis=0, initial=0.0),
    )


def _fitting_time(contracted: Contracted) -> FloatArray:
    """(N, K, L) seconds of each atom by kind, infinite where it needs more memory than there is."""
    tables = contracted.tables
    time = tables.time.reshape(contracted.atoms, len(contracted.kinds), tables.loads)
    if not tables.crowded:
        return time
    fits = tables.memory[:, None] <= tables.capacity * (1 + SLACK)
    return np.where(fits[:, :, None], time, np.inf)


def chain_bound(contracted: Contracted) -> Bound:
    """What no chain of stages costs less than: atoms, unlike colocation classes, cannot be split by any."""
    floors = windows_of(contracted).floors(contracted.tables.loads)
    return Bound(sum(floors) if np.isfinite(floors).all() else 0.0, "load of atoms")


def _weights(time: FloatArray, count: IntArray, rounds: int = 40) -> FloatArray:
    """(K,) positive weights under which the (N, K) times are spread evenly, by multiplicative updates."""
    weight = np.ones(len(count))
    if len(count) == 1 or not len(time):
        return weight
    best, chosen = -1.0, weight
    rows = np.arange(len(time))
    for i in range(rounds):
        weight = weight / (weight @ count)
        to = (time * weight).argmin(axis=1)
        mine = time[rows, to]
        value = float((mine * weight[to]).sum())
        if value > best:
            best, chosen = value, weight
        busy = np.bincount(to, mine, len(count)) / count
        weight = weight * np.exp(2.0 / (1 + i) * (busy / max(busy.max(), 1e-300) - 0.5))
    return chosen
