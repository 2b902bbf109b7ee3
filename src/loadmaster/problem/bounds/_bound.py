"""What a bound is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["EPS", "Bound"]

EPS = 2.0**-52
"""The spacing of floating point numbers at 1."""

IntArray = npt.NDArray[np.int32]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Bound:
    """No feasible placement costs less than ``value`` seconds; ``name`` says by which argument."""

    value: float
    name: str
