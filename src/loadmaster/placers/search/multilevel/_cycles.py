"""V-cycles: coarsen, search among the groups, take them apart step by step and search again, over and over."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np

from loadmaster.arrays import IntArray
from loadmaster.placers.frame.feasible import atoms_of
from loadmaster.placers.frame.search import OutOfBudget, Search
from loadmaster.placers.search.local_search import IteratedWalker, LocalSearch
from loadmaster.placers.search.multilevel._groups import Rating, heavy_groups
from loadmaster.placers.search.multilevel._levels import Level, make_level
from loadmaster.problem import Pipeline, Serial, SimulatedEvaluator
from loadmaster.problem.coarsening import matching_rounds

__all__ = ["Cycles", "sizes_of"]

Kind = Rating | Literal["acyclic"]
"""How groups are made: rated, or by matching that keeps the graph of the groups acyclic."""
KINDS: tuple[Kind, ...] = ("acyclic", "repeated", "heavy", "alike", "even", "chain", "acyclic", "random")
"""Cycle after cycle."""
RACE: tuple[Kind, ...] = ("acyclic", "even", "alike")
"""The first cycle begins with the coarsest levels of these, and goes on with the best: which one suits a graph is seen
at once (recurrent networks want the first, those with cells or experts the second)."""
MANY = 5000
"""Ops up to which there is a race where groups are contracted: above, only acyclic ones are contracted quickly."""
NOISE = 0.3
"""Of the acyclic matching, after the first cycle."""
RATINGS: tuple[Rating, ...] = ("even", "heavy", "chain", "random")
HASTE = 0.05
"""The patience of a descent without the level of all atoms."""
SHARE = 0.3
"""Part of what is left of the budget that one level may take."""
HEAT = 0.05
"""The same for the coarsest level of each kind in a race."""
FREE, CALM, FIRST_SHARE = 200, 0.25, 0.6
"""Where there is no level of all atoms, the first cycle: its number of groups, its patience, its part of the budget."""
MOVES, FEWEST_MOVES = 300, 60
"""Moves for so many groups: with less room it has fewer groups. With the least it is left out, since it begins at a
worse placement than the best known."""


def sizes_of(atoms: int, levels: tuple[int, ...]) -> list[int]:
    """How many groups to make, the fewest first: the sizes that are well below what they are made from."""
    sizes: list[int] = []
    above = atoms
    for size in sorted(levels, reverse=True):
        if 2 * size <= above:
            sizes.insert(0, size)
            above = size
    return sizes


class Cycles:
    """A walker that goes through the levels, from the coarsest to all atoms, and begins again with other groups.

    Every other cycle makes its groups freely and begins near the best placement; the cycles between only put atoms
    together that are on one device there, so that they begin exactly at it. Without the finest level, where a move
    costs too much to be spent on a single atom, the first cycle is of the first sort, with one level of some 200
    groups (fewer where there is little time), and has most of the time. All others are of the second sort, of one
    level and short: one descent among some number of groups between the smallest and the largest level, each time
    others.
    """

    def __init__(
        self,
        search: Search,
        settings: LocalSearch,
        levels: tuple[int, ...],
        kicks: int,
        seed: int,
        first: int = 0,
        finest: bool = True,
    ) -> None:
        assert search.best is not None
        self._search, self._problem = search, search.problem
        self._settings = replace(settings, kicks=kicks)
        self._hasty = replace(settings, kicks=0, patience=HASTE)
        self._calm = replace(settings, kicks=kicks, patience=CALM)
        self._finest = finest
        self._fresh = not finest
        self._check = SimulatedEvaluator(self._problem)
        self._rng = np.random.default_rng(seed)
        self._sizes = sizes_of(atoms_of(self._problem).count, levels)
        self._cycle = first - 1
        self._levels: list[Level] = []
        self._walker: IteratedWalker | None = None
        self._level: Level | None = None
        self._left, self._until = 0, math.inf
        tied = not isinstance(self._problem.model, Serial | Pipeline)
        races = finest and first == 0 and (tied or self._problem.n <= MANY)
        self._race = Race(RACE, search.best.device) if races else None
        self.best: IntArray = search.best.device.copy()
        self.best_cost = search.cost
        self._here: IntArray = self.best

    @property
    def chain(self) -> Cycles:
        """The best placement of all levels."""
        return self

    def walk(self, evaluations: int) -> int:
        """See :class:`Walker`."""
        made = 0
        while made < evaluations:
            if self._walker is None and not self._next_level():
                return made
            assert self._walker is not None
            step = self._walker.walk(max(1, min(evaluations - made, self._left)))
            made += step
            self._left -= step
            self._note()
            if step == 0 or self._walker.over or self._left <= 0 or self._search.seconds >= self._until:
                self._here = self._expanded()
                if self._race is not None:
                    assert self._level is not None
                    levels = [self._level, *self._levels]
                    self._race.finished(self._walker.chain.best_cost, self._here, levels)
                self._walker = None
                if step == 0 and not self._sizes:
                    return made
        return made

    def _expanded(self) -> IntArray:
        assert self._level is not None
        assert self._walker is not None
        return self._level.expand(self._walker.chain.best).copy()

    def _note(self) -> None:
        assert self._walker is not None
        if self._walker.chain.best_cost < self.best_cost:
            self.best, self.best_cost = self._expanded(), self._walker.chain.best_cost

    def _next_level(self) -> bool:
        """Begin with the next level, or with the coarsest of the next cycle."""
        if self._race is not None:
            self._next_heat(self._race)
        if not self._levels:
            self._begin_cycle()
        level = self._levels.pop(0)
        start = level.restrict(self._here, self._check)
        if start is None and self._fresh:  # groups of the short cycles keep to a placement that fits
            self._fresh = False
            return self._next_level()
        if start is None:  # the groups do not fit: wait for the next level, which can do more
            return (bool(self._levels) or self._race is not None) and self._next_level()
        self._level = level
        seed = int(self._rng.integers(2**63))
        settings = self._settings if self._finest else self._calm if self._fresh else self._hasty
        share = FIRST_SHARE if self._fresh else SHARE if self._race is None else HEAT
        self._fresh = False
        self._walker = IteratedWalker(
            settings, level.chain(seed, self._search.evaluator), _Once(start), level.coarse
        )
        search = self._search
        limited = search.budget.evaluations is not None
        self._left = max(1, int(share * search.evaluations_left)) if limited else 2**62
        self._until = search.seconds + share * search.seconds_expected
        return True

    def _next_heat(self, race: Race) -> None:
        """The coarsest level of another kind, or after the last one the levels of the best."""
        kind = race.next()
        if kind is not None:
            self._here, self._levels = race.start, self._levels_of(kind, None)
            return
        self._race = None
        self._cycle += 1  # the race was in place of the first cycle's coarsest level
        if race.best is not None:
            self._here, self._levels = race.best.device, race.best.levels

    def _begin_cycle(self) -> None:
        self._cycle += 1
        search, atoms = self._search, atoms_of(self._problem)
        assert search.best is not None
        self._here = self.best if self.best_cost <= search.cost else search.best.device
        moves = self._moves_of_first() if self._fresh and self._sizes else 0.0
        if moves >= FEWEST_MOVES:
            made = self._acyclic([_within(self._sizes, FREE * moves / MOVES)])
            if made:
                self._levels = [self._made(made[0])]
                return
        self._fresh = False
        at = None
        if self._cycle % 2 or not self._finest:
            at = np.empty(atoms.count, np.int32)
            at[atoms.of_op] = self._here
        if not self._finest and self._sizes:
            size = int(math.exp(self._rng.uniform(*np.log([self._sizes[0], self._sizes[-1]]))))
            rating = RATINGS[int(self._rng.integers(len(RATINGS)))]
            group = heavy_groups(self._problem, size, self._rng, rating, at=at, check=self._look_at_clock)
            self._levels = [self._made(group)]
            return
        self._levels = self._levels_of(KINDS[self._cycle % len(KINDS)], at)

    def _levels_of(self, kind: Kind, at: IntArray | None) -> list[Level]:
        """Groups of this kind, the coarsest first, and all atoms; ``at`` : (atoms,) devices that groups keep to."""
        atoms = atoms_of(self._problem).count
        made = self._acyclic(self._sizes) if kind == "acyclic" else self._rated(kind, at)
        groups = [*made, np.arange(atoms, dtype=np.int32)]
        counts = [int(group.max(initial=-1)) + 1 for group in groups]
        # A level that is hardly coarser than the next is left out.
        keep = [i for i, (few, more) in enumerate(pairwise(counts)) if few <= 0.8 * more]
        return [self._made(groups[i]) for i in (*keep, len(groups) - 1)]

    def _moves_of_first(self) -> float:
        """Moves that the first cycle has room for."""
        search = self._search
        if search.budget.evaluations is not None:
            return FIRST_SHARE * search.evaluations_left
        self._check.evaluate_batch(self._here)  # the first one prepares what the others use
        began = search.seconds
        self._check.evaluate_batch(self._here)
        return FIRST_SHARE * search.seconds_expected / max(search.seconds - began, 1e-9)

    def _rated(self, rating: Rating, at: IntArray | None) -> list[IntArray]:
        """(atoms,) groups, the coarsest first: each level is made from the finer one."""
        groups: list[IntArray] = []
        for size in reversed(self._sizes):
            below = groups[0] if groups else None
            made = heavy_groups(
                self._problem, size, self._rng, rating, at=at, group=below, check=self._look_at_clock
            )
            groups.insert(0, made)
        return groups

    def _acyclic(self, sizes: list[int]) -> list[IntArray]:
        """(atoms,) groups, the coarsest first: of the rounds of a matching those nearest to the sizes asked for."""
        if not sizes:
            return []
        atoms = atoms_of(self._problem)
        noise = NOISE if self._cycle else 0.0
        rounds: dict[int, IntArray] = {}
        for _, tied in matching_rounds(self._problem, sizes[0], rng=self._rng, noise=noise):
            self._look_at_clock()
            group = np.empty(atoms.count, np.int32)
            group[atoms.of_op] = np.unique(tied, return_inverse=True)[1].reshape(-1)
            rounds.setdefault(int(group.max(initial=-1)) + 1, group)
        nearest = {min(rounds, key=lambda count: abs(math.log(count / size))) for size in sizes if rounds}
        return [rounds[count] for count in sorted(nearest)]

    def _made(self, group: IntArray) -> Level:
        self._look_at_clock()
        return make_level(self._problem, group, self._search.evaluator)

    def _look_at_clock(self) -> None:
        if self._search.out_of_time():
            raise OutOfBudget


def _within(sizes: list[int], wanted: float) -> int:
    """So many groups, but no fewer than the coarsest level has, nor more than the finest or :data:`FREE`."""
    return int(min(max(wanted, sizes[0]), sizes[-1], max(FREE, sizes[0])))


class _Finished(NamedTuple):
    cost: float
    device: IntArray
    levels: list[Level]


class Race:
    """The coarsest levels of some kinds of groups, from one start.

    best : the least cost that was reached, where, and the levels of that kind.
    """

    def __init__(self, kinds: tuple[Kind, ...], start: IntArray) -> None:
        self._kinds = list(kinds)
        self.start = start
        self.best: _Finished | None = None

    def next(self) -> Kind | None:
        """A kind that has not been tried yet."""
        return self._kinds.pop(0) if self._kinds else None

    def finished(self, cost: float, device: IntArray, levels: list[Level]) -> None:
        """What a kind has come to."""
        if self.best is None or cost < self.best.cost:
            self.best = _Finished(cost, device, levels)


class _Once:
    """One start, and then no other."""

    def __init__(self, device: IntArray) -> None:
        self._device: IntArray | None = device

    def next(self) -> IntArray | None:
        """The start, at the first call."""
        device, self._device = self._device, None
        return device
