"""How far a plan of lower precision may be from the f32 model, in the user's terms."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from loadmaster.errors import InputError, WrongOutputError
from loadmaster.files import shown
from loadmaster.runtime._verifying import CLEARLY_LOWER, Difference, Verification, difference

__all__ = ["Agreement", "Tolerance", "agreement", "judge"]

INPUTS, TOP1_INPUTS = 3, 8
"""Inputs that outputs are compared on; a share of equal answers needs more of them."""
NUMBER = re.compile(r"(\d+\.?\d*|\.\d+)(e-?\d+)?(?P<percent>\s?%)?", re.ASCII)


@dataclass(frozen=True)
class Tolerance:
    """What is allowed; each that is given must hold.

    >>> Tolerance.parse("3%,top1=0.99")
    Tolerance(relative=0.03, cosine=None, top1=0.99)
    """

    relative: float | None = None
    """Largest error of an output, against the largest value of that output."""
    cosine: float | None = None
    """Smallest cosine between an output and that of the f32 model."""
    top1: float | None = None
    """Smallest share of rows of the first output whose largest value is at the same place."""

    @staticmethod
    def parse(text: str | Tolerance) -> Tolerance:
        """From ``3%`` or ``0.03`` (the relative error), ``cosine=0.999``, ``top1=0.99``, or several with commas.

        Raises
        ------
        InputError : the text is not of that form, or a number is not between 0 and 1.
        """
        if isinstance(text, Tolerance):
            return text
        found: dict[str, float] = {}
        for entry in text.split(","):
            name, separator, value = entry.strip().rpartition("=")
            name = name.strip() if separator else "relative"
            match = NUMBER.fullmatch(value.strip())
            if name not in ("relative", "cosine", "top1") or not match or name in found:
                raise InputError(
                    f"--tolerance {shown(text)} must be e.g. 3% (relative error), cosine=0.999 or top1=0.99"
                )
            number = float(value.strip().rstrip("% ")) / (100 if match["percent"] else 1)
            if not 0 < number < 1 and not (name == "top1" and number == 1):
                raise InputError(
                    f"--tolerance {shown(text)}: {shown(value)} must be between 0 and 1 (or 100%)"
                )
            found[name] = number
        return Tolerance(**found)

    @property
    def text(self) -> str:
        """What :meth:`parse` reads back."""
        parts = [] if self.relative is None else [f"{100 * self.relative:.12g}%"]
        parts += [f"{name}={getattr(self, name)!r}" for name in ("cosine", "top1") if getattr(self, name)]
        return ",".join(parts)

    @property
    def inputs(self) -> int:
        """How many inputs it is judged on."""
        return TOP1_INPUTS if self.top1 is not None else INPUTS


@dataclass(frozen=True)
class Agreement:
    """How near two models are on some inputs: the worst error and cosine, the share of equal answers."""

    error: Difference
    cosine: float
    top1: float


Runs = Sequence[Sequence[npt.NDArray[Any]]]


def agreement(found: Runs, expected: Runs) -> Agreement:
    """Of the outputs of two models, input by input."""
    errors = [difference(a, b) for a, b in zip(found, expected, strict=True)]
    cosines = [
        _cosine(a, b) for one, two in zip(found, expected, strict=True) for a, b in zip(one, two, strict=True)
    ]
    same = [
        np.argmax(_rows(one[0]), axis=1) == np.argmax(_rows(two[0]), axis=1)
        for one, two in zip(found, expected, strict=True)
        if one and one[0].shape == two[0].shape
    ]
    return Agreement(
        max(errors, key=lambda error: error.relative, default=Difference(0.0, 0.0, 0)),
        min(cosines, default=1.0),
        float(np.mean(np.concatenate(same))) if same else 0.0,
    )


def _rows(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return array.reshape(-1, array.shape[-1] if array.ndim else 1)


def _cosine(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> float:
    x, y = a.astype(np.float64).reshape(-1), b.astype(np.float64).reshape(-1)
    if x.shape != y.shape or not (np.isfinite(x).all() and np.isfinite(y).all()):
        return -1.0
    size = math.sqrt(float(x @ x)) * math.sqrt(float(y @ y))
    return float(x @ y) / size if size else float(np.array_equal(x, y))


def judge(
    found: Agreement, control: Agreement, tolerance: Tolerance, *, precision: str, what: str
) -> Verification:
    """The verification, if a plan is as near to the f32 model as asked; ``control`` is how near another input is.

    Raises
    ------
    WrongOutputError : it is not, or another input would pass as well, so that comparing proves nothing.
    """
    # What may be lost, what the plan loses, what another input loses.
    measures: list[tuple[str, float, float, float]] = []
    if tolerance.relative is not None:
        measures.append(("relative error", tolerance.relative, found.error.relative, control.error.relative))
    if tolerance.cosine is not None:
        measures.append(("cosine", 1 - tolerance.cosine, 1 - found.cosine, 1 - control.cosine))
    if tolerance.top1 is not None:
        measures.append(("top1", 1 - tolerance.top1, 1 - found.top1, 1 - control.top1))
    for name, allowed, lost, other in measures:
        upward = name != "relative error"
        value, limit, changed = (1 - lost, 1 - allowed, 1 - other) if upward else (lost, allowed, other)
        if not lost <= allowed + 1e-12:
            raise WrongOutputError(
                f"{what} is too far from the f32 model: {name} {value:.4g}, the tolerance is {limit:.4g} "
                f"(--tolerance {tolerance.text}); keep sensitive ops at f32 by --pin, or allow more"
            )
        if not other > CLEARLY_LOWER * allowed:
            raise WrongOutputError(
                f"{what} cannot be verified by {name}: another input gives {changed:.4g}, which a tolerance of "
                f"{limit:.4g} does not tell apart; ask for less tolerance, or for another measure"
            )
    return Verification(
        found.error,
        tolerance.relative,
        precision,
        control.error.relative,
        stated=tolerance.text,
        cosine=found.cosine,
        top1=found.top1,
        inputs=tolerance.inputs,
    )
