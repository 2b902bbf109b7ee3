"""What running a plan beside its baselines showed, and the pieces that it is run in."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from loadmaster.errors import InputError
from loadmaster.plan import Plan
from loadmaster.runtime._lint import Finding
from loadmaster.runtime._measuring import Latency, Measurement
from loadmaster.runtime._pieces import DATA, JOINS, Piece, cut
from loadmaster.runtime._verifying import Verification

__all__ = ["Change", "Line", "PlanRun", "measuring", "pieces_of"]


@dataclass(frozen=True)
class Change:
    """The model placed anew while it ran."""

    nodes: tuple[str, ...]
    """That died."""
    lost: tuple[str, ...]
    """Devices of theirs."""
    joined: tuple[str, ...]
    """Devices that came."""
    devices: tuple[str, ...]
    """That the new plan uses."""
    seconds: float
    """From noticing to going on."""
    cost: float
    """What the new plan is predicted to take, in seconds."""

    def document(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


@dataclass(frozen=True)
class Line:
    """One thing that was run: the plan, or a baseline."""

    name: str
    measurement: Measurement | None
    verification: Verification | None
    why: str = ""
    """Why there is no measurement, for a baseline that cannot run."""
    latency: Latency | None = None
    """Of single requests, where a run is a stream of them."""

    def document(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "name": self.name,
            "measured": None if self.measurement is None else self.measurement.document(),
            "verified": None if self.verification is None else self.verification.document(),
            "why": self.why,
            "latency": None if self.latency is None else self.latency._asdict(),
        }


@dataclass(frozen=True)
class PlanRun:
    """What running a plan showed; the plan is the first line."""

    lines: tuple[Line, ...]
    predicted: float
    findings: tuple[Finding, ...]
    spans: Sequence[Mapping[str, Any]]
    engine: Mapping[str, str]
    """Its name and version."""
    cores: tuple[int, ...]
    changes: tuple[Change, ...] = ()
    """Of the plan, when nodes died; what is shown was measured after the last."""
    now: Plan | None = None
    """The plan after these changes."""
    better: Plan | None = None
    """The plan that would be better, where a node is slower than it was measured to be."""

    @property
    def plan(self) -> Measurement:
        """The plan's own measurement."""
        found = self.lines[0].measurement
        assert found is not None
        return found

    def document(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "predicted": self.predicted,
            "measured": self.plan.document(),
            "error": (self.predicted - self.plan.median) / self.plan.median,
            "lines": [line.document() for line in self.lines],
            "findings": [finding.document() for finding in self.findings],
            "trace": list(self.spans),
            **self.engine,
            "core": self.cores[0],
            "cores": list(self.cores),
            **({"replanned": [change.document() for change in self.changes]} if self.changes else {}),
            **({"better": dict(self.better.document)} if self.better is not None else {}),
        }


def _op_name(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("an op is given by its name")
    return value


def pieces_of(plan: Plan) -> list[Piece]:
    """The submodels that a plan was measured with, or, where it was not measured, those that its costs suggest.

    Raises
    ------
    InputError : the pieces in the plan do not fit its placement.
    """
    placement = plan.document["placement"]
    if "pieces" not in plan.document:
        return cut(plan.problem(), plan.placement())
    try:
        pieces = [Piece(str(device), tuple(map(_op_name, ops))) for device, ops in plan.document["pieces"]]
    except (TypeError, ValueError):
        raise InputError(f"{plan.source}: pieces must be a list of [device, [ops]]") from None
    devices = {op: {piece.device for piece in pieces if op in piece.ops} for op in placement}
    for op, device in placement.items():
        kind = plan.problem().graph.op_types[plan.problem().graph.index[op]]
        if kind not in DATA | JOINS and devices[op] != {device}:
            raise InputError(f"{plan.source}: pieces: op {op!r} must be in pieces on device {device!r} only")
    return pieces


def measuring(ways: int, until: float) -> str:
    """What is said before the plan and its baselines are measured until a time of ``time.monotonic``."""
    left, many = max(0.0, until - time.monotonic()), "s" if ways > 1 else ""
    return f"outputs are right; measuring {ways} way{many} to run the model in turns, {left:.0f} s at most"
