"""Whether two runs gave the same: errors, tolerances, and a control that shows the comparison can fail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from loadmaster.errors import WrongOutputError

__all__ = [
    "CLEARLY_LOWER",
    "F32_TOLERANCE",
    "NUDGES",
    "OTHERS",
    "Difference",
    "UnclearError",
    "Verification",
    "check",
    "difference",
    "nudged",
    "scaled",
]

F32_TOLERANCE = 1e-4
"""Relative error of f32 devices: kernels may add up in another order, nothing more."""
F32_MOST = 1e-2
"""For models that amplify rounding, e.g. by a loop that reads what it wrote; what amplifies it more is refused."""
NUDGE, NUDGES = 1e-6, 5
"""Share by which inputs are moved to see how a model amplifies rounding, what sums in another order differ by; and how
many times."""
SLACK = 2.0
"""Lower precision, or a nudge: so many times what the precision, or the nudge, itself changes."""
CLEARLY, CLEARLY_LOWER = 10.0, 3.0
"""By so many tolerances the outputs must move when the input is another; and at lower precision."""

OTHERS = ((1.0, 0.0), (10.0, 0.0), (1.0, 3.0), (1.0, -3.0))
"""The other input as it is drawn, then scaled and shifted, until it clearly changes the outputs: a model may say the
same of all noise."""

Arrays = Sequence[npt.NDArray[Any]]


class UnclearError(WrongOutputError):
    """The outputs hardly follow the input, so that comparing them proves nothing."""


@dataclass(frozen=True)
class Difference:
    """The largest error over all outputs: absolute, and relative to the largest value of its output."""

    absolute: float
    relative: float
    output: int
    """Number of the output with the largest relative error."""


def difference(found: Arrays, expected: Arrays) -> Difference:
    """How far outputs are apart; infinitely where shapes differ or a number is not finite on one side only."""
    worst = Difference(0.0, 0.0, 0)
    for at, (a, b) in enumerate(zip(found, expected, strict=True)):
        if a.shape != b.shape or not np.array_equal(np.isfinite(a), np.isfinite(b)):
            return Difference(np.inf, np.inf, at)
        finite = np.isfinite(b)
        apart = np.abs(a[finite].astype(np.float64) - b[finite].astype(np.float64))
        absolute = float(apart.max(initial=0.0))
        scale = float(np.abs(b[finite].astype(np.float64)).max(initial=0.0))
        relative = absolute / scale if scale else (np.inf if absolute else 0.0)
        if relative > worst.relative:
            worst = Difference(max(absolute, worst.absolute), relative, at)
    return worst


def scaled(inputs: Arrays, factor: float, shift: float) -> list[npt.NDArray[Any]]:
    """The inputs, their floating point numbers multiplied, and moved."""
    return [
        (array * factor + shift).astype(array.dtype) if np.issubdtype(array.dtype, np.floating) else array
        for array in inputs
    ]


def nudged(inputs: Arrays, seed: int) -> list[npt.NDArray[Any]]:
    """The inputs, their numbers moved by about :data:`NUDGE`; what is no floating point number stays."""
    noise = np.random.default_rng(seed)
    return [
        (array * (1.0 + NUDGE * noise.standard_normal(array.shape))).astype(array.dtype)
        if np.issubdtype(array.dtype, np.floating)
        else array
        for array in inputs
    ]


@dataclass(frozen=True)
class Verification:
    """The outputs of a placed model against the unplaced one at the same precision, or at f32 by a stated tolerance."""

    error: Difference
    tolerance: float | None
    """Of the relative error; None where another measure was stated alone."""
    precision: str
    control: float
    """Relative change of the outputs when the input is replaced: what an error looks like. Infinite where their shapes
    change; no number in documents."""
    stated: str = ""
    """The tolerance that the user gave (:class:`~loadmaster.runtime.Tolerance`), where it was judged by one."""
    cosine: float | None = None
    top1: float | None = None
    inputs: int = 1
    """That it was compared on."""

    def document(self) -> dict[str, Any]:
        """As plain values."""
        return {**asdict(self), "control": self.control if np.isfinite(self.control) else None}


def check(
    error: Difference, control: Difference, precision: str, *, rounding: float, what: str
) -> Verification:
    """The verification, if it is passed.

    ``rounding`` is how far the unplaced model at ``precision`` is from itself at f32; at f32, from itself on nudged
    inputs.

    Raises
    ------
    WrongOutputError : the error exceeds the tolerance.
    UnclearError : the outputs hardly follow the input.
    """
    allowed = SLACK * rounding if precision != "f32" else min(SLACK * rounding, F32_MOST)
    tolerance = max(F32_TOLERANCE, allowed)
    if not error.relative <= tolerance:
        raise WrongOutputError(
            f"{what} gives wrong results: output {error.output} differs by {error.relative:.2g} of its largest value "
            f"({error.absolute:.2g}), more than the tolerance {tolerance:.2g}"
        )
    if not control.relative > (CLEARLY if precision == "f32" else CLEARLY_LOWER) * tolerance:
        raise UnclearError(
            f"{what} cannot be verified: a different input changes the outputs by only {control.relative:.2g}, "
            f"too close to the tolerance {tolerance:.2g} to tell right from wrong; inputs are random: give one "
            "that is a setting its value (--value NAME=NUMBER)"
        )
    return Verification(error, tolerance, precision, control.relative)
