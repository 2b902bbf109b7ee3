"""The weights of ``gdp``: one vector for training, arrays by name for use, and a file without pickle."""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from loadmaster.arrays import FloatArray
from loadmaster.errors import InputError
from loadmaster.files import read_arrays, write_atomically
from loadmaster.placers.learned.gdp._features import DEVICE, GRAPH, OP
from loadmaster.placers.learned.gdp._list_policy import PAIR

__all__ = [
    "PARTS",
    "SHIPPED",
    "Weights",
    "load_weights",
    "new_weights",
    "save_weights",
    "shipped",
    "untrained",
]


HIDDEN = 16
"""Width of the hidden layer."""
CHANNELS = 6
"""Width of the context in each direction."""
KINDS = ("time", "load")
"""What a decoder keeps in view: a schedule (``concurrent``, ``offload``) or loads (``pipeline``, ``serial``)."""
FORMAT = 1
"""Raised when features change their meaning: weights of another format are refused."""
SHIPPED = Path(__file__).parent / "weights" / "gdp.npz"


def _shapes() -> dict[str, tuple[int, ...]]:
    h, c = HIDDEN, CHANNELS
    one = {
        "op": (len(OP), h), "graph": (len(GRAPH), h), "device": (len(DEVICE), h), "pair": (len(PAIR), h),
        "later": (1, h), "bias": (1, h), "enter": (len(OP), c), "down": (c, c), "up": (c, c), "query": (c, c),
        "key": (2 * c, c), "value": (2 * c, c), "context": (3 * c, h), "order": (1, h), "out": (2, h),
    }  # fmt: skip
    return {f"{kind}/{name}": shape for kind in KINDS for name, shape in one.items()}


PARTS = _shapes()
"""Array by name -> its shape."""
SIZE = sum(math.prod(shape) for shape in PARTS.values())


class Weights(NamedTuple):
    """A vector of all weights, and how it came to be."""

    vector: FloatArray
    recipe: Mapping[str, Any]

    @property
    def digest(self) -> str:
        """SHA-256 of the vector."""
        return hashlib.sha256(np.ascontiguousarray(self.vector, "<f8").tobytes()).hexdigest()

    def arrays(self, kind: str) -> dict[str, FloatArray]:
        """The arrays of one kind by name, as views of the vector."""
        return parts_of(self.vector, kind)


def parts_of(vector: FloatArray, kind: str) -> dict[str, FloatArray]:
    """Views of a vector by name."""
    found, at = {}, 0
    for name, shape in PARTS.items():
        size = math.prod(shape)
        if name.startswith(f"{kind}/"):
            found[name.split("/")[1]] = vector[at : at + size].reshape(shape)
        at += size
    return found


def span_of(kind: str) -> slice:
    """Where the weights of one kind are in the vector."""
    half = SIZE // len(KINDS)
    first = KINDS.index(kind) * half
    return slice(first, first + half)


def new_weights(seed: int) -> FloatArray:
    """Random hidden weights, and outputs of zero: the policy begins as the plain rule."""
    rng = np.random.default_rng([seed, 9])
    vector = np.zeros(SIZE)
    at = 0
    for name, shape in PARTS.items():
        size = math.prod(shape)
        part = name.split("/")[1]
        if part not in ("out", "order", "context", "bias", "later"):
            vector[at : at + size] = rng.standard_normal(size) / math.sqrt(shape[0])
        at += size
    return vector


def untrained(seed: int = 0) -> Weights:
    """Weights before any training."""
    return Weights(new_weights(seed), {"trained": False, "seed": seed})


def save_weights(path: str | Path, weights: Weights) -> None:
    """Write arrays by name and the recipe with a checksum; no pickle."""
    recipe = {**weights.recipe, "format": FORMAT, "sha256": weights.digest}
    content = io.BytesIO()
    text = np.frombuffer(json.dumps(recipe, sort_keys=True).encode(), np.uint8)
    arrays: dict[str, Any] = {
        f"{kind}/{name}": a for kind in KINDS for name, a in weights.arrays(kind).items()
    }
    np.savez(content, recipe=text, **arrays)
    write_atomically(str(path), content.getvalue())


def load_weights(path: str | Path) -> Weights:
    """Read what :func:`save_weights` wrote.

    Raises
    ------
    InputError : the file is not there, is not one of weights, or its checksum is wrong.
    """
    if not os.path.exists(path):
        raise InputError(f"{path}: there are no weights of that name")
    found = read_arrays(path, "a file of weights for gdp")
    try:
        recipe = json.loads(found["recipe"].tobytes())
        parts = [np.asarray(found[name], np.float64) for name in PARTS]
    except Exception as error:  # numpy raises many kinds
        raise InputError(f"{path}: is not a file of weights for gdp ({error})") from None
    if not isinstance(recipe, dict):
        raise InputError(f"{path}: is not a file of weights for gdp (its recipe is not an object)")
    if recipe.get("format") != FORMAT or any(
        part.shape != shape for part, shape in zip(parts, PARTS.values(), strict=True)
    ):
        raise InputError(f"{path}: holds weights for a different version of gdp: train again")
    weights = Weights(np.concatenate([part.ravel() for part in parts]), recipe)
    if weights.digest != recipe.get("sha256"):
        raise InputError(f"{path}: the checksum of the weights is wrong: the file is damaged")
    return weights


@cache
def shipped() -> Weights:
    """The weights of the package."""
    return load_weights(SHIPPED)
