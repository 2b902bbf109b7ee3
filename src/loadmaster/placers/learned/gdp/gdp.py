"""``gdp``: one list scheduler for every graph, whose network may be trained on many graphs or tuned on one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from loadmaster.arrays import FloatArray
from loadmaster.errors import InputError
from loadmaster.placers.frame.feasible import find_feasible, single_devices
from loadmaster.placers.frame.search import Budget, Search
from loadmaster.placers.frame.searcher import Searcher
from loadmaster.placers.learned._scalars import Scalars
from loadmaster.placers.learned.gdp._tracks import LoadTracks, TimeTracks, tracks_of
from loadmaster.placers.learned.gdp._weights import Weights, load_weights, shipped, untrained
from loadmaster.placers.rules.expert import expert_candidates
from loadmaster.placers.rules.greedy import greedy_candidates
from loadmaster.placers.rules.heft import heft_placements
from loadmaster.placers.rules.metis import Metis
from loadmaster.placers.search._incumbents import borrow
from loadmaster.placers.search.local_search import LocalSearch
from loadmaster.problem import Offload, Placement, SimulatedEvaluator

__all__ = ["Gdp", "GdpSearch"]


WORK = 1_000_000
"""Pairs of an op and a device, over all tracks with noise."""
IDLE = 64
"""Draws in a row that gave nothing new, after which tuning ends."""
GROWTH, LOUDEST = 1.5, 1.0
"""Of the noise on the weights, for every draw that gave nothing new; and how far."""


@dataclass(frozen=True)
class Gdp(Searcher):
    """A list scheduler with a network on top, which changes nothing before it is trained or tuned.

    Ops are placed one after another with the state of all devices in view, by the rule of ``lookahead`` plus a
    network that scores (op, device) pairs (``_list_policy.py``); under ``pipeline`` and ``serial`` by sweeps over
    a whole placement (``_load_policy.py``). Several passes, each seeing the one before, on ops and on groups of
    ops; then the same with noise on the weights. One set of weights serves any number and kind of devices, any op
    types and all execution models. See ``docs/gdp.md``.

    GDP as published scores every op by itself (``gdp-paper``), which cannot tell equal devices apart; what is kept
    of it is the aim: one policy, batch training over many graphs, zero-shot use, fine-tuning in few steps.

    References
    ----------
    Y. Zhou et al., "GDP: generalized device placement for dataflow graphs", 2019. L. F. Bittencourt et al.,
    "DAG scheduling using a lookahead variant of the heterogeneous earliest finish time algorithm", PDP 2010, for
    the rule that learning begins with. T. Salimans et al., "Evolution strategies as a scalable alternative to
    reinforcement learning", 2017, for the training.
    """

    weights: str = "none"
    """File of weights (``loadmaster pretrain``, ``loadmaster finetune``), ``shipped`` for those of the package, or
    ``none`` for those that training begins with: training on other graphs gained nothing (``docs/gdp.md``)."""
    passes: int = 3
    """Passes on every level, each seeing the one before."""
    samples: int = 200
    """Tracks that are decoded again with noise on the weights, after the greedy ones; at most as many as a million
    pairs of an op and a device are, so that this takes some seconds on any graph."""
    noise: float = 0.05
    """Standard deviation of that noise."""
    tune: bool = False
    """Then go on until the budget is used up, with noise around the weights that gave the best placement so far: the
    policy is tuned on this graph. Needs a limit of evaluations or seconds."""
    guard: bool = True
    """Also try ``heft``, ``expert``, ``metis``, every single device and (with weights, on graphs that are not large)
    the same passes with the plain rule, so that the answer is never worse; off, it is the policy's own."""
    log_dir: str = ""
    """While tuning, write TensorBoard event files and CSV into this folder: best cost, gap, evaluations, noise."""

    keeps_start: ClassVar[bool] = True
    name: ClassVar[str] = "gdp"
    summary: ClassVar[str] = (
        "a list scheduler in several passes, with noise, tuned on request (GDP, improved)"
    )

    def __post_init__(self) -> None:
        if self.passes < 1:
            raise InputError(f"passes must be >= 1, not {self.passes}")
        if self.samples < 0 or self.noise < 0:
            raise InputError(f"samples and noise must be >= 0, not {self.samples} and {self.noise:g}")

    def explore(self, search: Search, start: Placement | None, seed: int) -> None:
        """Decode greedily, then with noise; ends by itself, or when the budget is used up."""
        problem = search.problem
        vector = self.read().vector
        check = SimulatedEvaluator(problem)
        if start is not None:
            search.try_placement(start)
        seen: set[Placement] = set()

        def offer(placements: Iterable[Placement]) -> bool:
            """Whether any of them was new."""
            before = len(seen)
            for placement in placements:
                # Whether a placement is feasible is known without asking for its cost.
                if placement not in seen and check.evaluate(placement).feasible:
                    seen.add(placement)
                    search.try_placement(placement)
                search.check()
            return len(seen) > before

        tracks = tracks_of(problem, self.passes)
        offer(_candidates(self, tracks, vector, seed))
        if self.tune and search.budget != Budget():
            self._tune(search, tracks, vector, seed, offer)

    def _tune(
        self,
        search: Search,
        tracks: TimeTracks | LoadTracks,
        vector: FloatArray,
        seed: int,
        offer: Callable[[Iterable[Placement]], bool],
    ) -> None:
        """A (1 + 1) evolution strategy: what leads to a better placement is the middle of the next draws.

        The noise grows while no placement is new, and shrinks with every new one; nothing new in a long time ends it.
        """
        rng = np.random.default_rng([seed, 19])
        middle, noise, idle, turn = vector, self.noise, 0, 0
        scalars = Scalars(self.log_dir, search)
        while tracks.names and idle < IDLE:
            drawn = middle + noise * rng.standard_normal(len(vector))
            before = search.cost
            new = offer(tracks.turn(drawn, turn))
            noise = max(self.noise, noise / GROWTH) if new else min(LOUDEST, noise * GROWTH)
            idle = 0 if new else idle + 1
            if search.cost < before:
                middle = drawn
            turn += 1
            scalars.write(turn, noise=noise, idle=idle)

    def read(self) -> Weights:
        """The weights that the placer uses."""
        if self.weights == "none":
            return untrained()
        return shipped() if self.weights == "shipped" else load_weights(self.weights)


@dataclass(frozen=True)
class GdpSearch(Gdp):
    """:class:`Gdp`, and a short local search from the best placement that the policy made."""

    search: float = 2.0
    """Seconds of local search; under a budget of evaluations what is left of it."""

    name: ClassVar[str] = "gdp+ls"
    summary: ClassVar[str] = "gdp, then a short local search from its best placement"

    def explore(self, search: Search, start: Placement | None, seed: int) -> None:
        """The policy, then the search."""
        super().explore(search, start, seed)
        if search.best is None:
            find_feasible(search, seed)
        search.check()
        limit = Budget(seconds=self.search) if search.budget.evaluations is None else Budget()
        borrow(search, replace(LocalSearch(), constructed=False), limit, seed)


def _candidates(
    method: Gdp, tracks: TimeTracks | LoadTracks, vector: FloatArray, seed: int
) -> Iterator[Placement]:
    """Greedy tracks, what the guard asks for, then tracks with noise."""
    problem = tracks.problem
    yield from tracks.all(vector)
    if method.guard:
        yield from heft_placements(problem)
        yield from map(Placement, single_devices(problem))
        yield from map(Placement, expert_candidates(problem))
        if Metis().supports(problem) is None:
            yield from map(Placement, Metis().candidates(problem, seed))
        if method.weights != "none" and not tracks.large:
            yield from tracks.all(np.zeros_like(vector))
    if isinstance(problem.model, Offload):  # list schedules mostly need more calls than there may be
        yield from map(Placement, greedy_candidates(problem))
    yield from noisy(tracks, vector, method.samples, method.noise, seed)


def noisy(
    tracks: TimeTracks | LoadTracks, vector: FloatArray, samples: int, noise: float, seed: int
) -> Iterator[Placement]:
    """Tracks in turn, each with its own noise on the weights."""
    rng = np.random.default_rng([seed, 17])
    pairs = max(tracks.problem.n * tracks.problem.devices, 1)
    for number in range(min(samples, WORK // pairs) if tracks.names and not tracks.large else 0):
        yield from tracks.turn(vector + noise * rng.standard_normal(len(vector)), number)
