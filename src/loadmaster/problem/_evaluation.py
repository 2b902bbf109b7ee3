"""What evaluating a placement in detail gives."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from loadmaster.arrays import FloatArray

__all__ = ["Call", "Evaluation", "Transfer", "Violation"]


@dataclass(frozen=True)
class Violation:
    """One broken constraint, in words and in indices."""

    kind: str
    """``unsupported``, ``pin``, ``forbidden``, ``surplus``, ``colocation``, ``capacity``, ``contiguity``,
    ``calls`` or ``deadlock``."""
    text: str
    ops: tuple[int, ...] = ()
    device: int | None = None

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Transfer:
    """One tensor brought from one device to another; times in seconds."""

    tensor: int
    source: int
    target: int
    start: float
    end: float


@dataclass(frozen=True)
class Call:
    """One call of an accelerator under ``offload``; ops in the order in which they were added."""

    device: int
    ops: tuple[int, ...]
    start: float
    end: float


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The detailed evaluation of a placement.

    ``cost`` is infinite where it is not defined (an unsupported op, a deadlock). ``busy`` is compute and
    ``comm`` transfer time per device; ``load`` is what the pipeline model compares (elsewhere busy + comm).
    ``memory`` is the additive sum per device, ``peak`` the largest amount alive at once (``concurrent`` only).
    ``start`` and ``end`` per op are None for ``pipeline``, which has no schedule, and where there is no cost.
    """

    cost: float
    violations: tuple[Violation, ...]
    busy: FloatArray
    comm: FloatArray
    load: FloatArray
    memory: FloatArray
    peak: FloatArray | None = None
    start: FloatArray | None = None
    end: FloatArray | None = None
    transfers: tuple[Transfer, ...] = field(default=())
    calls: tuple[Call, ...] = field(default=())

    @property
    def feasible(self) -> bool:
        """All constraints hold and the cost is defined."""
        return not self.violations and math.isfinite(self.cost)

    @property
    def why(self) -> list[str]:
        """The violations in words."""
        return [violation.text for violation in self.violations]
