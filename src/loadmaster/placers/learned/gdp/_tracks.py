"""The placements that ``gdp`` makes from one set of weights: fixed sequences of passes at several coarsenings.

Nothing here asks an evaluator, so that the same sequence serves inference, training and measured costs. Under models
with a schedule (``concurrent``, ``offload``) a *track* is a level (all ops, or groups of them) on which the list
scheduler runs a few passes, each seeing the schedule before; the placement that the loads alone suggest is the
prior of one track. Under ``pipeline`` and ``serial`` a track is a start, improved by sweeps on groups and then on
ops.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np

from loadmaster.arrays import FloatArray, IntArray
from loadmaster.errors import InputError
from loadmaster.placers.frame.constructed import allowed_and_repaired, scheduled
from loadmaster.placers.frame.feasible import atoms_of, repair, single_devices
from loadmaster.placers.frame.search import Budget
from loadmaster.placers.learned.gdp._decoder import LoadDecoder, Schedule, TimeDecoder, hidden_of
from loadmaster.placers.learned.gdp._features import along_of
from loadmaster.placers.learned.gdp._weights import parts_of
from loadmaster.placers.rules.greedy import _heaviest_first
from loadmaster.placers.stages.linear_dp import LinearDp
from loadmaster.problem import Pipeline, Placement, Problem, Serial
from loadmaster.problem.coarsening import Coarsening, coarsen

__all__ = ["LoadTracks", "TimeTracks", "tracks_of"]


LARGE = 100_000
"""Ops times devices from which on there are few tracks: decoding must stay a matter of a second or two."""
AIMS = (0.3, 0.6, 0.8, 0.9, 0.95)
"""Where between the mean and the largest load the sweeps of a track aim, one after another."""
GROUPS = (4, 8, 16)
"""Groups per device at the coarse levels of sweeps."""
BALANCED = 4
"""Placements of least load that are tried under models with a schedule."""
ORDERS = 4
"""Topological orders that are cut into stages, for starts of sweeps."""


def tracks_of(problem: Problem, passes: int = 3) -> TimeTracks | LoadTracks:
    """The tracks for the problem's execution model."""
    if isinstance(problem.model, Pipeline | Serial):
        return LoadTracks(problem, passes)
    return TimeTracks(problem, passes)


class TimeTracks:
    """List scheduling: on all ops, on chains, on matched groups, and after what the loads alone suggest."""

    def __init__(self, problem: Problem, passes: int = 3) -> None:
        self.problem, self.passes = problem, passes
        self.large = problem.n * problem.devices > LARGE
        self._decoders: dict[str, tuple[Coarsening | None, TimeDecoder]] = {}

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The tracks, the plain one first."""
        n, devices = self.problem.n, self.problem.devices
        if self.large:
            return ("ops", f"matching:{max(n // 8, 16 * devices)}")
        found = ["ops", "chain"]
        found += [f"matching:{size}" for size in (n // 2, 16 * devices) if 2 * devices < size <= n // 2]
        return (*dict.fromkeys(found), "loads")

    def _decoder(self, name: str) -> tuple[Coarsening | None, TimeDecoder]:
        if name not in self._decoders:
            if name == "ops":
                self._decoders[name] = None, TimeDecoder(self.problem)
            else:
                groups = coarsen(self.problem, name)
                self._decoders[name] = groups, TimeDecoder(groups.coarse)
        return self._decoders[name]

    def all(self, vector: FloatArray) -> Iterator[Placement]:
        """The placements of all tracks."""
        for name in self.names:
            yield from self.track(vector, name)

    def turn(self, vector: FloatArray, number: int) -> Iterator[Placement]:
        """The placements of one track, counted round and round; that of the loads begins elsewhere every time."""
        name = self.names[number % len(self.names)]
        return self.track(vector, f"loads:{number}" if name == "loads" else name)

    def track(self, vector: FloatArray, name: str) -> Iterator[Placement]:
        """The placements of one track: each pass with the order it found and without."""
        problem = self.problem
        if not problem.n:
            yield Placement(np.zeros(0, np.int32))
            return
        prior: Schedule | None = None
        if name.startswith("loads"):
            devices = self._loads(vector, name)
            if not devices:
                return
            yield from map(Placement, devices)
            prior = self._as_placed(devices[0])
            name = "ops"
        part = parts_of(vector, "time")
        groups, decoder = self._decoder(name)
        hidden = hidden_of(decoder.problem, part)
        best = prior
        for _ in range(1 if self.large and groups is None else self.passes):
            found = decoder.decode(part, *hidden, best)
            for placement in scheduled(decoder.problem, found.device, found.begin):
                yield placement if groups is None else groups.expand(placement)
            if best is None or best is prior or found.makespan < best.makespan:
                best = found
        if groups is not None and not self.large and best is not None:
            # The same on all ops, which may see where their groups were.
            fine = self._as_placed(best.device[groups.group_of], best.begin[groups.group_of], best.makespan)
            _, decoder = self._decoder("ops")
            found = decoder.decode(part, *hidden_of(problem, part), fine)
            yield from scheduled(problem, found.device, found.begin)

    def _as_placed(
        self, device: IntArray, begin: FloatArray | None = None, makespan: float = np.inf
    ) -> Schedule:
        start = np.zeros(self.problem.n) if begin is None else begin
        return Schedule(device.astype(np.int32), start, makespan)

    @cached_property
    def _balanced(self) -> LoadTracks:
        return LoadTracks(self.problem.with_model(Pipeline()), self.passes)

    def _loads(self, vector: FloatArray, name: str) -> list[IntArray]:
        """The placements with the least largest loads, the best first, and plain stretches of the graph;
        ``loads:3`` is one from start number 3."""
        tracks = self._balanced
        if name != "loads":
            number = int(name.split(":")[1]) % max(len(tracks.names), 1)
            return [device for device, _ in tracks.costed(vector, tracks.names[number : number + 1])]
        found = sorted(tracks.costed(vector, tracks.names), key=lambda pair: pair[1])
        return [device for device, _ in found[:BALANCED]] + self._lines

    @cached_property
    def _lines(self) -> list[IntArray]:
        """Stretches of chains and of name scopes, on two, some and all of the fast devices."""
        fast, found = _fast(self.problem), []
        for rule in ("chain", "scope:1"):
            groups = coarsen(self.problem, rule)
            for count in sorted({2, (fast + 2) // 2, fast} & set(range(2, fast + 1))):
                found += [device[groups.group_of] for device in _stretches(groups.coarse, count)]
        return found


class LoadTracks:
    """Sweeps from several starts: stretches of the graph on groups and on ops, and cut topological orders."""

    def __init__(self, problem: Problem, passes: int = 3) -> None:
        self.problem, self.passes = problem, passes
        self.large = problem.n * problem.devices > LARGE
        self._levels: dict[str, tuple[Coarsening | None, LoadDecoder]] = {}

    @cached_property
    def starts(self) -> list[tuple[str, IntArray]]:
        """(level, devices on that level) to begin with."""
        problem, found = self.problem, []
        if not problem.n:
            return []
        if isinstance(problem.model, Serial):
            return [("ops", device) for device in single_devices(problem)]
        free = int((atoms_of(problem).allowed.sum(axis=1) > 1).sum())
        for each in (16,) if self.large else GROUPS:
            size = max(each * problem.devices, problem.n // 8 if self.large else 0)
            if size > 0.7 * free:
                continue
            name = f"matching:{size}"
            coarse = self._level(name)[1].problem
            found += [(name, device) for device in _stretches(coarse)]
            if each < 16:
                found.append((name, repair(coarse, _heaviest_first(coarse, atoms_of(coarse)))))
        found += [("ops", device) for device in _stretches(problem)][: 1 if self.large else 2]
        if not self.large and LinearDp().supports(problem) is None:
            found += [("ops", device) for device in self._cuts()]
        return found

    def _cuts(self) -> list[IntArray]:
        try:
            cut = LinearDp(orders=ORDERS, rounds=0).place(self.problem, budget=Budget())
        except InputError:
            return []
        return [cut.placement.device]

    def _level(self, name: str) -> tuple[Coarsening | None, LoadDecoder]:
        if name not in self._levels:
            if name == "ops":
                self._levels[name] = None, LoadDecoder(self.problem)
            else:
                groups = coarsen(self.problem, name)
                self._levels[name] = groups, LoadDecoder(groups.coarse)
        return self._levels[name]

    @cached_property
    def names(self) -> tuple[int, ...]:
        """The tracks: numbers of starts."""
        return tuple(range(len(self.starts)))

    def all(self, vector: FloatArray) -> Iterator[Placement]:
        """The placements of all tracks."""
        for name in self.names:
            yield from self.track(vector, name)

    def turn(self, vector: FloatArray, number: int) -> Iterator[Placement]:
        """The placement of one track, counted round and round."""
        return self.track(vector, self.names[number % len(self.names)])

    def track(self, vector: FloatArray, name: int) -> Iterator[Placement]:
        """The placement that a start leads to."""
        for device, _ in self._track(vector, name):
            yield Placement(device)

    def costed(self, vector: FloatArray, names: tuple[int, ...]) -> Iterator[tuple[IntArray, float]]:
        """The placements of tracks with their costs up to rounding."""
        for name in names:
            yield from self._track(vector, name)

    def _track(self, vector: FloatArray, name: int) -> Iterator[tuple[IntArray, float]]:
        level, device = self.starts[name]
        groups, decoder = self._level(level)
        if groups is not None:
            device, _ = self._sweeps(vector, decoder, device)
            device = device[groups.group_of]
        yield self._sweeps(vector, self._level("ops")[1], device)

    def _sweeps(self, vector: FloatArray, decoder: LoadDecoder, device: IntArray) -> tuple[IntArray, float]:
        hidden = decoder.hidden(vector)
        rounds = 1 if self.large and decoder.problem is self.problem else self.passes
        cost = np.inf
        for _ in range(rounds):
            before = cost
            for aim in AIMS[:: 2 if self.large else 1]:
                for backwards in (False, True):
                    device, cost = decoder.decode(*hidden, device, aim=aim, backwards=backwards)
            if not cost < before * (1.0 - 1e-3):
                break
        return device, cost


def _fast(problem: Problem) -> int:
    """Number of devices on which the network takes at most twice as long as on the fastest."""
    atoms = atoms_of(problem)
    mine = np.where(np.isfinite(atoms.time), atoms.time, 0.0).sum(axis=0)[atoms.allowed.any(axis=0)]
    return int((mine <= 2.0 * mine.min(initial=np.inf)).sum())


def _stretches(problem: Problem, most: int | None = None) -> list[IntArray]:
    """The network cut into one stretch per device by its speed, fast devices first and last; on the fastest
    ``most`` devices.

    Along the topological order where stretches must be contiguous, else with the backward pass folded back onto
    the forward pass.
    """
    atoms = atoms_of(problem)
    usable = np.flatnonzero(atoms.allowed.any(axis=0))
    finite = np.isfinite(atoms.time)
    mine = np.where(finite, atoms.time, 0.0).sum(axis=0)[usable]
    speed = 1.0 / np.maximum(mine, max(float(mine.max(initial=0.0)) * 1e-6, 1e-300))
    contiguous = isinstance(problem.model, Pipeline) and problem.model.contiguity != "none"
    order = atoms.order if contiguous else np.argsort(along_of(problem), kind="stable")
    # Atoms without a choice go where they must, and their work does not count.
    choice = atoms.allowed.sum(axis=1) > 1
    count = np.maximum(finite.sum(axis=1), 1)
    load = np.where(choice, np.where(finite, atoms.time, 0.0).sum(axis=1) / count, 0.0)[order]
    total = float(load.sum())
    done = (np.cumsum(load) - load / 2) / total if total > 0 else np.linspace(0.0, 1.0, len(load))
    found = []
    fastest = np.argsort(-speed, kind="stable")[:most]
    for line in (fastest, fastest[::-1]):
        ends = np.cumsum(speed[line]) / speed[line].sum()
        stage = np.minimum(np.searchsorted(ends, done), len(line) - 1)
        at = np.empty(atoms.count, np.int32)
        at[order] = usable[line][stage]
        found.append(allowed_and_repaired(problem, at))
    return found
