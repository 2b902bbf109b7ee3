"""One search over the chains of a set of cuts, for every number of ranks; it can pause."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from loadmaster.arrays import FloatArray, IntArray
from loadmaster.placers.frame.search import Search
from loadmaster.placers.stages.steps._branch import DONE, FOUND, branch
from loadmaster.placers.stages.steps._cuts import Chains, Cuts
from loadmaster.placers.stages.steps._lower import lower_bounds, nearest
from loadmaster.problem import Pipeline, Placement, Problem
from loadmaster.problem.step import step_tables

__all__ = ["Tree", "placed"]

WORK_MOST = 3e8
"""Steps of the dynamic program up to which it tells apart which devices are used."""
SLICE = 20_000
"""Nodes between two looks at the clock."""
BETTER = 1.0 - 1e-9
"""A chain must be better by this to be looked for."""


@dataclass(eq=False)
class _Branch:
    """The search with one number of ranks."""

    ranks: int
    stages: int
    stride: npt.NDArray[np.int64]
    tables: tuple[FloatArray, FloatArray, FloatArray]
    root: float
    state: dict[str, Any] | None = None
    over: bool = False

    @property
    def bound(self) -> float:
        """No chain with so many ranks that has not been looked at costs less."""
        if self.over:
            return np.inf
        if self.state is None or self.state["at"][0, 0] < 0:
            return self.root
        count, tried = self.state["at"][0]
        # The choice at hand is not finished.
        return max(self.root, float(self.state["choice"][0, max(tried - 1, 0), 0]) if count else np.inf)


class Tree:
    """All chains of ``cuts``; the best go to the search."""

    def __init__(self, search: Search, chains: Chains, cuts: Cuts) -> None:
        self.search, self.problem, self.chains, self.cuts = search, search.problem, chains, cuts
        model = self.problem.model
        assert isinstance(model, Pipeline)
        self.model = model
        self.steps = step_tables(self.problem)
        training = bool(self.steps.settings[2])
        self.flush = model.schedule == "gpipe" or not training
        self.number = np.array([len(kind) for kind in chains.kinds], np.int64)
        most = max(self.number, default=1)
        self.devices = np.array([kind + [-1] * (most - len(kind)) for kind in chains.kinds], np.int32)
        self.tie_size, self.tie_memory = self.steps.tie_weight
        self.into, self.back = np.empty_like(cuts.forward), np.empty_like(cuts.forward)
        nearest(cuts.cut, chains.hop, self.into, self.back)
        self._simulated = np.inf
        self.branches = [found for ranks in self._numbers() if (found := self._rooted(ranks)) is not None]
        self.branches.sort(key=lambda one: (one.root, one.ranks))

    def _numbers(self) -> list[int]:
        most = int(min(self.number.sum(), self.chains.atoms))
        return [ranks for ranks in range(1, most + 1) if self.steps.program[ranks, 3]]

    def _rooted(self, ranks: int) -> _Branch | None:
        per_rank = self.model.stages_per_rank if ranks > 1 else 1
        stages = ranks * per_rank
        cuts, chains = self.cuts, self.chains
        if stages > chains.atoms:
            return None
        states = int(np.prod(self.number + 1.0))
        exact = per_rank == 1 and states * len(cuts.after) * len(chains.kinds) <= WORK_MOST
        stride = np.zeros(len(self.number), np.int64)
        if exact:
            stride[:] = np.concatenate([[1], np.cumprod(self.number[:-1] + 1)])
        size = (states if exact else stages + 1, len(cuts.member))
        tables = np.empty(size), np.empty(size), np.empty((*size, 2))
        settings = self.steps.settings.copy()
        settings[1] = per_rank
        lower_bounds(
            settings, self.flush, stages, self.number, stride, cuts.after_ptr, cuts.after, cuts.forward,
            cuts.backward, cuts.banned, cuts.held, cuts.cut, cuts.ties, self.tie_memory, chains.base,
            chains.capacity, self.into, self.back, *tables,
        )  # fmt: skip
        root = float(tables[0][0, 0])
        if not np.isfinite(root):
            return None
        if per_rank > 1:
            work = np.where(chains.banned, np.inf, chains.forward + chains.backward).min(axis=1).sum()
            root = max(root, self.model.microbatches * float(work) / ranks)
        return _Branch(ranks, stages, stride, tables, root)

    @property
    def bound(self) -> float:
        """No chain that has not been looked at costs less."""
        return min((one.bound for one in self.branches), default=np.inf)

    @property
    def limit(self) -> float:
        """What a chain must cost less than; where costs are measured, by simulation."""
        return (self.search.cost if self.search.simulated else self._simulated) * BETTER

    def run(self, *, nodes: int | None = None, on_slice: Any = None) -> bool:
        """Search until nothing better can be found (True) or for so many nodes."""
        left = np.inf if nodes is None else nodes
        for one in self.branches:
            while not one.over and left > 0:
                if one.bound >= self.limit:
                    one.over = True
                    break
                room = int(min(SLICE, left, max(self.search.evaluations_left - 1, 0)))
                if room <= 0:
                    return False
                left -= self._go_on(one, room)
                if on_slice is not None:
                    on_slice()
                self.search.check()
        return all(one.over for one in self.branches)

    def _go_on(self, one: _Branch, nodes: int) -> int:
        cuts, chains = self.cuts, self.chains
        if one.state is None:
            one.state = self._state(one)
        state = one.state
        begin, stop, message, _ = self.steps.program[one.ranks].tolist()
        code = self.steps.code[begin:stop]
        before = self.steps.before[message : message + 2 * (one.stages - 1) * self.model.microbatches]
        what, cost, done = branch(  # type: ignore[call-arg]
            state["settings"], self.flush, one.stages, one.ranks, self.number, one.stride, cuts.after_ptr, cuts.after,
            cuts.forward, cuts.backward, cuts.banned, cuts.held, cuts.cut, cuts.ties, self.tie_memory, self.tie_size,
            chains.base, chains.capacity, chains.hop, self.back, self.devices, self.steps.link, code, before,
            *one.tables, *(state[key] for key in STATE), self.limit, nodes,
        )  # fmt: skip
        if self.search.simulated:
            self.search.count(done)
        if what == DONE:
            one.over = True
        elif what == FOUND:
            device = state["where"][: one.stages]
            placement = placed(
                self.problem, chains, cuts.member[state["path"][1 : one.stages + 1, 0]], device
            )
            if self.search.simulated:
                self.search.confirm(placement, float(cost))
            else:
                self._simulated = float(cost)
                self.search.try_placement(placement)
        return int(done)

    def _state(self, one: _Branch) -> dict[str, Any]:
        stages, width = one.stages, len(self.cuts.member) * len(self.number)
        settings = self.steps.settings.copy()
        settings[1] = one.stages // one.ranks
        return {
            "settings": settings,
            "path": np.zeros((stages + 1, 3), np.int64),
            "seconds": np.zeros((stages, 4)),
            "child": np.zeros((stages, width, 2), np.int32),
            "choice": np.zeros((stages, width, 6)),
            "at": np.full((stages, 2), -1, np.int64),
            "sums": np.zeros((stages, 4)),
            "crossing": np.zeros((stages, 4)),
            "where": np.zeros(stages, np.int32),
            "now": np.zeros(max(one.ranks, 1)),
            "arrived": np.zeros(max(2 * stages * self.model.microbatches, 1)),
            "depth": np.full(1, -1, np.int64),
        }


STATE = ("path", "seconds", "child", "choice", "at", "sums", "crossing", "where", "now", "arrived", "depth")


def placed(problem: Problem, chains: Chains, inside: FloatArray, device: IntArray) -> Placement:
    """The placement of a chain: (S, A) the atoms up to the end of each stage, (S,) its device."""
    stage_of = (~inside.astype(np.bool_)).sum(axis=0).astype(np.int32)
    stage = np.where(chains.atom >= 0, stage_of[chains.atom], 0).astype(np.int32)
    at = device[stage].astype(np.int32)
    # Boundary ops that belong to no stage: at an end of the chain, if they may.
    for v in np.flatnonzero(chains.atom < 0).tolist():
        mates = np.flatnonzero(problem.class_of == problem.class_of[v])
        allowed = np.logical_and.reduce(problem.allowed[mates], axis=0)
        reads = problem.graph.inputs[0][v + 1] > problem.graph.inputs[0][v]
        wanted = int(device[-1] if reads else device[0])
        at[mates] = wanted if allowed[wanted] else int(allowed.argmax())
    return Placement(at, call=stage)
