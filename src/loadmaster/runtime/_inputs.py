"""Inputs to run a model on, by seed: every engine draws the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["draw_input"]


def draw_input(
    shape: tuple[int, ...], dtype: npt.DTypeLike, *, seed: int, at: int = 0, rows: int = 2
) -> npt.NDArray[Any]:
    """A random array for input number ``at``: normal numbers, booleans, or whole numbers below ``rows``.

    >>> draw_input((2, 2), bool, seed=0).shape
    (2, 2)
    """
    generator, kind = np.random.default_rng([seed, at]), np.dtype(dtype)
    # A scalar is an array without dimensions here, where NumPy draws a plain number.
    if kind.kind in "iu":
        return np.asarray(generator.integers(0, rows, shape)).astype(kind)
    if kind.kind == "b":
        return np.asarray(generator.integers(0, 2, shape)).astype(kind)
    return np.asarray(generator.standard_normal(shape)).astype(kind)
