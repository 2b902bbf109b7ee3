"""What the main job gives back: the plan, and everything that was measured beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from loadmaster.plan import Plan
from loadmaster.runtime import Line, OverlapFit

__all__ = ["Optimized"]


@dataclass(frozen=True)
class Optimized:
    """What :func:`loadmaster.optimize.optimize` found."""

    plan: Plan
    lines: tuple[Line, ...]
    """Measured side by side: the best single device, OpenVINO's own use of all cores, the others, the best plan."""
    alone: str
    """Name of the best single device; none where no device can run the whole model."""
    pays: bool
    """Whether the plan is faster than the best single device beyond the noise, or there is none; if not, the plan is
    that device, unless pins forbid it."""
    predicted: float | None
    fit: OverlapFit
    screened: Mapping[str, float]
    """Seconds of every candidate when the winner was chosen."""
    model: str
    cores: tuple[int, ...]
    engine: Mapping[str, str]
    """Its name and version."""
    seconds: float
    budget: float = 0.0
    spent: Mapping[str, float] = field(default_factory=dict)
    """Phase -> seconds."""
    left_out: Sequence[str] = ()
    """Placements that were not measured, with the reason."""
    tolerance: str = ""

    def line(self, name: str) -> Line:
        """One of the lines."""
        return next(line for line in self.lines if line.name == name)

    def compared(self) -> list[dict[str, Any]]:
        """The lines as plain values, each with how many times as fast as the best single device it is, if any."""
        alone = self.line(f"{self.alone} alone").measurement if self.alone else None
        return [
            {
                **line.document(),
                "speedup": alone.median / line.measurement.median if alone and line.measurement else None,
            }
            for line in self.lines
        ]

    def document(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "model": self.model,
            "pays": self.pays,
            "alone": self.alone,
            "predicted": self.predicted,
            "fit": self.fit.document(),
            "screened": dict(self.screened),
            "lines": self.compared(),
            "cores": list(self.cores),
            **self.engine,
            "seconds": self.seconds,
            "budget": self.budget,
            "spent": dict(self.spent),
            "left_out": list(self.left_out),
            "tolerance": self.tolerance or None,
        }
