"""Inputs to run a model on, by seed: every engine draws the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["draw_input", "length_of"]


def draw_input(
    shape: tuple[int, ...],
    dtype: npt.DTypeLike,
    *,
    seed: int,
    at: int = 0,
    rows: int | None = None,
    length: int | None = None,
) -> npt.NDArray[Any]:
    """A random array for input number ``at``: normal numbers, booleans, or whole numbers.

    Whole numbers are below ``rows`` where they look something up; else all are the ``length``, or 0 and 1.

    >>> draw_input((2, 2), bool, seed=0).shape
    (2, 2)
    """
    generator, kind = np.random.default_rng([seed, at]), np.dtype(dtype)
    # A scalar is an array without dimensions here, where NumPy draws a plain number.
    if kind.kind in "iu":
        if rows is None and length is not None:
            return np.full(shape, length, kind)
        return np.asarray(generator.integers(0, rows or 2, shape)).astype(kind)
    if kind.kind == "b":
        return np.asarray(generator.integers(0, 2, shape)).astype(kind)
    return np.asarray(generator.standard_normal(shape)).astype(kind)


def length_of(at: int, shapes: Sequence[tuple[int, ...]]) -> int | None:
    """What input number ``at`` is taken to say, if it holds a whole number or a row of them that look nothing up: how
    long another input is, and that is all of it. None for more dimensions, which are masks.

    >>> length_of(1, [(1, 32000), (1,)])
    32000
    """
    others = [size for n, shape in enumerate(shapes) if n != at for size in shape]
    return max(others) if others and len(shapes[at]) <= 1 else None
