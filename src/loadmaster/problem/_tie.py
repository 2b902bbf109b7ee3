"""Weights that several ops share."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Tie"]


@dataclass(frozen=True)
class Tie:
    """Weights that ops share and that may be on several devices: each holds a copy, and after a step of ``pipeline``
    with microbatches the copies' gradients are added up.

    Ops that cannot have a copy each are colocated instead.
    """

    ops: tuple[int, ...]
    size: float
    """What the transfer rates multiply: the bytes of the gradient."""
    memory: float
    """Bytes that a device with one of the ops or more holds once: weights, gradient, optimizer state. They are in no
    op's own ``memory``."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "ops", tuple(sorted({int(v) for v in self.ops})))
        object.__setattr__(self, "size", float(self.size))
        object.__setattr__(self, "memory", float(self.memory))
