"""What evaluating a placement in detail gives."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from loadmaster.arrays import FloatArray

__all__ = ["Action", "Call", "Evaluation", "Message", "Stage", "Transfer", "Violation"]


@dataclass(frozen=True)
class Violation:
    """One broken constraint, in words and in indices."""

    kind: str
    """``unsupported``, ``pin``, ``forbidden``, ``surplus``, ``colocation``, ``capacity``, ``contiguity``,
    ``calls``, ``stages`` or ``deadlock``."""
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


@dataclass(frozen=True)
class Stage:
    """One stage of a step under ``pipeline`` with microbatches; times per microbatch, in seconds."""

    device: int
    ops: tuple[int, ...]
    forward: float
    backward: float
    """With the forward pass once more where the stage is checkpointed."""
    in_flight: int
    """Most microbatches between their forward and their backward pass at once."""
    kept: float
    """Bytes that one of them keeps (but for what the stage has received)."""
    checkpoint: bool
    receives: float = 0.0
    """Bytes of activations per microbatch from the stage before,"""
    returns: float = 0.0
    """and of gradients from the stage after."""


@dataclass(frozen=True)
class Action:
    """The forward or backward pass of one microbatch through one stage."""

    device: int
    stage: int
    microbatch: int
    backward: bool
    start: float
    end: float


@dataclass(frozen=True)
class Message:
    """What goes from a stage to the next one (or back, ``backward``) for one microbatch."""

    stage: int
    """The sender."""
    microbatch: int
    backward: bool
    source: int
    target: int
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
    stages: tuple[Stage, ...] = field(default=())
    """Of a step under ``pipeline`` with microbatches, as are the following."""
    actions: tuple[Action, ...] = field(default=())
    """By device, then by start."""
    messages: tuple[Message, ...] = field(default=())
    """By start."""
    reduced: tuple[float, ...] = field(default=())
    """When the all-reduce of each tie ended; NaN where its ops share a device."""

    @property
    def feasible(self) -> bool:
        """All constraints hold and the cost is defined."""
        return not self.violations and math.isfinite(self.cost)

    @property
    def why(self) -> list[str]:
        """The violations in words."""
        return [violation.text for violation in self.violations]
