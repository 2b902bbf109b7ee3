"""What a user says about a model's inputs: shapes that the model leaves open, and values that never change."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from loadmaster.errors import InputError
from loadmaster.files import shown

__all__ = ["Given", "parse_shapes", "parse_values", "typed_value"]

MOST_ELEMENTS = 2**40
MOST_DIMENSIONS = 64
MOST_DIGITS = 20
"""Of one size, before it is read as a number at all."""
LARGEST_VALUE = 1024
"""Elements of a value that is given for an input."""

Shapes = Mapping[str, Sequence[int]] | Iterable[str]
Values = Mapping[str, Any] | Iterable[str]


class Given(dict[str, tuple[int, ...]]):
    """Shapes by name, and beside them the values of inputs that are the same in every run.

    It is a mapping of shapes, so that whatever passes shapes on passes the values on, too.

    >>> given = Given({"x": (1, 3)}, {"sr": 16000})
    >>> given["x"], given.constants
    ((1, 3), {'sr': 16000})
    """

    def __init__(self, shapes: Shapes = (), values: Values = ()) -> None:
        super().__init__(parse_shapes(shapes))
        self.constants: dict[str, Any] = {**getattr(shapes, "constants", {}), **parse_values(values)}
        """Input -> a number, or lists of numbers."""
        for name in self.constants:
            if name in self:
                raise InputError(
                    f"the input {name!r} has a value, which says its shape, too: leave out the shape"
                )

    def __reduce__(self) -> tuple[Any, ...]:
        return Given, (dict(self), self.constants)


def parse_shapes(shapes: Shapes) -> dict[str, tuple[int, ...]]:
    """Shapes by name, from texts as the command line gives them.

    >>> parse_shapes(["x:0=1x3x224x224", "batch=8"])
    {'x:0': (1, 3, 224, 224), 'batch': (8,)}
    """
    if isinstance(shapes, Given):
        return shapes
    if isinstance(shapes, Mapping):
        given = {name: tuple(int(size) for size in shape) for name, shape in shapes.items()}
        for name, shape in given.items():
            if not _is_sensible(shape):
                raise InputError(
                    f"the shape {shown(shape)} of {name!r}: a tensor may have at most 2**40 elements"
                )
        return given
    found: dict[str, tuple[int, ...]] = {}
    for text in shapes:
        name, separator, sizes = text.rpartition("=")
        if not separator or not name or not re.fullmatch(r"\d+(x\d+)*", sizes):
            raise InputError(
                f"the shape {shown(text)} must be written NAME=SIZExSIZEx…, e.g. input=1x3x224x224",
                option="--shape",
            )
        if name in found:
            raise InputError(f"the shape {text!r}: {name!r} appears twice", option="--shape")
        found[name] = tuple(int(size) for size in sizes.split("x") if len(size) < MOST_DIGITS)
        if len(found[name]) <= sizes.count("x") or not _is_sensible(found[name]):
            raise InputError(
                f"the shape {shown(text)}: a tensor may have at most 2**40 elements", option="--shape"
            )
    return found


def _is_sensible(shape: tuple[int, ...]) -> bool:
    """Whether a tensor of the shape could exist: models multiply sizes, and allocate what comes out."""
    return len(shape) <= MOST_DIMENSIONS and math.prod(max(size, 1) for size in shape) <= MOST_ELEMENTS


def parse_values(values: Values) -> dict[str, Any]:
    """Values of inputs by name, from texts as the command line gives them.

    >>> parse_values(["sr=16000", "scale=1.5", "axes=1,2", "training=false"])
    {'sr': 16000, 'scale': 1.5, 'axes': [1, 2], 'training': False}
    """
    if isinstance(values, Mapping):
        return {str(name): np.asarray(value).tolist() for name, value in values.items()}
    found: dict[str, Any] = {}
    for text in values:
        name, separator, written = text.rpartition("=")
        if not separator or not name:
            raise InputError(f"the value {shown(text)} must be written NAME=NUMBER", option="--value")
        if name in found:
            raise InputError(f"the value {text!r}: {name!r} appears twice", option="--value")
        found[name] = _number_or_list(written.strip(), text)
    return found


def _number_or_list(written: str, text: str) -> Any:
    bare = written if written.startswith("[") or "," not in written else f"[{written}]"
    try:
        value = json.loads(bare.lower())
        array = np.asarray(value)
    except (ValueError, RecursionError):
        array = np.array(None)
    if array.dtype.kind not in "biuf" or array.size > LARGEST_VALUE or not np.isfinite(array).all():
        raise InputError(
            f"the value {shown(text)} must be a number, true or false, or a list of up to {LARGEST_VALUE:,} of "
            "them, e.g. sr=16000 or axes=1,2",
            option="--value",
        )
    return value


def typed_value(
    name: str, value: Any, dtype: npt.DTypeLike, sizes: Sequence[int | None] | None, where: str
) -> npt.NDArray[Any]:
    """A value as the input takes it: of its type, and of its shape (``sizes``; None = open) as far as that is known.

    A single number stands for a tensor of any fixed shape that is filled with it.

    Raises
    ------
    InputError : it does not fit.
    """
    kind, given = np.dtype(dtype), np.asarray(value)
    written = f"{where}: the value {name}={shown(given.tolist())}"
    if given.dtype.kind not in "biuf":
        raise InputError(f"{written} is no number", option="--value")
    with np.errstate(all="ignore"):
        array = given.astype(kind)
    if kind.kind in "biu" and not np.array_equal(array.astype(np.float64), given.astype(np.float64)):
        raise InputError(f"{written} does not fit the input, which holds {kind.name}", option="--value")
    if sizes is None:
        return array
    if array.ndim == 0 and all(size is not None for size in sizes):
        array = np.full([size or 0 for size in sizes], array)
    if array.size > LARGEST_VALUE:
        raise InputError(
            f"{written} has {array.size:,} elements: give at most {LARGEST_VALUE:,}", option="--value"
        )
    fits = array.ndim == len(sizes) and all(
        size in (None, n) for size, n in zip(sizes, array.shape, strict=True)
    )
    if not fits:
        shape = "x".join("?" if size is None else str(size) for size in sizes) or "scalar"
        raise InputError(f"{written} does not fit the input, whose shape is {shape}", option="--value")
    return array
