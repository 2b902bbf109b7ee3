"""An answer: which op goes where, what it costs, and how good that is known to be."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from loadmaster.arrays import IntArray
from loadmaster.errors import InputError
from loadmaster.notebook import facts_html
from loadmaster.problem._problem import Problem
from loadmaster.units import percent, seconds_text

__all__ = ["Placement", "Point", "Solution", "plain_devices", "relative_gap"]


def plain_devices(device: IntArray) -> IntArray:
    """The same devices as a writeable C-ordered array, the one type that kernels are compiled for."""
    return np.require(device, np.int32, ["C", "W"])


OPTIMAL_GAP = 1e-6
"""A placement counts as optimal when its relative gap is at most this."""


@dataclass(frozen=True, eq=False, repr=False)
class Placement:
    """``device[v]`` for every op v; small, frozen, hashable.

    Attributes
    ----------
    device : (n,) device of each op.
    order : (n,) position of each op in the sequence of its device (smaller runs first), under ``concurrent``; None lets
        the execution model choose.
    call : (n,) which call of its accelerator an op belongs to, under ``offload`` (ignored for CPU ops); None lets the
        execution model cut the calls. Under ``pipeline`` with microbatches, the stage of the op in the chain (ignored
        for boundary ops); None makes every device one stage, in the order in which data flows.
    """

    device: IntArray
    order: IntArray | None = None
    call: IntArray | None = None

    def __post_init__(self) -> None:
        for name in ("device", "order", "call"):
            value = getattr(self, name)
            if value is not None:
                array = np.array(value, np.int32)
                array.flags.writeable = False
                object.__setattr__(self, name, array)
                if array.shape != self.device.shape:
                    raise InputError(f"{name} has {array.shape} entries for {self.device.shape} ops")

    def _key(self) -> tuple[bytes | None, ...]:
        return tuple(None if a is None else a.tobytes() for a in (self.device, self.order, self.call))

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, Placement) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        used = np.bincount(self.device).tolist() if len(self.device) else []
        return f"Placement({len(self.device)} ops, per device {used})"

    @staticmethod
    def from_names(problem: Problem, placement: Mapping[str, str]) -> Placement:
        """The placement that a mapping op name -> device name describes; every op must be in it."""
        device = np.full(problem.n, -1, np.int32)
        for op, where in placement.items():
            if op not in problem.graph.index:
                raise InputError(
                    f"the placement names op {op!r}, which is not in {problem.graph.name or 'the graph'}"
                )
            if where not in problem.cluster.index:
                known = ", ".join(problem.cluster.names)
                raise InputError(f"the placement puts op {op!r} on {where!r}: the devices are {known}")
            device[problem.graph.index[op]] = problem.cluster.index[where]
        missing = np.flatnonzero(device < 0)
        if len(missing):
            names = ", ".join(repr(problem.graph.names[v]) for v in missing[:3])
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            raise InputError(f"the placement leaves out op {names}{more}")
        return Placement(device)

    def to_names(self, problem: Problem) -> dict[str, str]:
        """The mapping op name -> device name."""
        names = problem.cluster.names
        return {op: names[d] for op, d in zip(problem.graph.names, self.device.tolist(), strict=True)}


@dataclass(frozen=True)
class Point:
    """One improvement in the history of a search."""

    seconds: float
    evaluations: int
    cost: float


@dataclass(frozen=True)
class Solution:
    """A feasible placement with its cost and a proven lower bound on the cost of any feasible placement."""

    placement: Placement
    cost: float
    bound: float
    bound_by: str
    method: str
    evaluations: int = 0
    seconds: float = 0.0
    seed: int = 0
    parameters: Mapping[str, Any] = field(default_factory=dict)
    history: Sequence[Point] = ()
    found_by: str = ""
    """The member of a portfolio that found the placement; the method itself by default."""
    stopped: str = "finished"
    """Why the search ended: ``finished``, ``budget`` or ``interrupted``."""

    @property
    def gap(self) -> float:
        """(cost - bound) / cost, at least 0."""
        return relative_gap(self.cost, self.bound)

    @property
    def optimal(self) -> bool:
        """Proven optimal, under the problem's own settings."""
        return self.gap <= OPTIMAL_GAP

    def _repr_html_(self) -> str:
        return facts_html(
            "Solution",
            [
                ("cost", seconds_text(self.cost)),
                ("bound", f"{seconds_text(self.bound)} by {self.bound_by}"),
                ("gap", "proven optimal" if self.optimal else percent(self.gap)),
                ("method", f"{self.method}, seed {self.seed}"),
                ("found by", self.found_by or self.method),
                (
                    "search",
                    f"{self.evaluations:,} evaluations in {seconds_text(self.seconds)} ({self.stopped})",
                ),
                ("ops per device", ", ".join(f"{count:,}" for count in np.bincount(self.placement.device))),
            ],
        )


def relative_gap(cost: float, bound: float) -> float:
    """(cost - bound) / cost, 0 for a cost of 0, 1 for an infinite cost."""
    if math.isinf(cost):
        return 1.0
    return max(0.0, (cost - bound) / cost) if cost > 0 else 0.0
