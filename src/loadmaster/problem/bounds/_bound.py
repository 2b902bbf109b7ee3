"""What a bound is."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["EPS", "Bound"]

EPS = 2.0**-52
"""The spacing of floating point numbers at 1."""


@dataclass(frozen=True)
class Bound:
    """No feasible placement costs less than ``value`` seconds; ``name`` says by which argument."""

    value: float
    name: str
