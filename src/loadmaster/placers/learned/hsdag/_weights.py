"""The weights of the pre-trained policy: arrays by name in a file without pickle, with recipe and checksum."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from loadmaster.arrays import FloatArray
from loadmaster.errors import InputError
from loadmaster.files import read_arrays, write_atomically
from loadmaster.placers.learned.hsdag._network import PairNetwork

__all__ = ["SHIPPED", "Weights", "load_weights", "network_of", "save_weights", "weights_of"]

FORMAT = 1
"""Raised when inputs or the network change their meaning: weights of another format are refused."""
SHIPPED = Path(__file__).parent / "weights" / "hsdag.npz"


class Weights(NamedTuple):
    """Arrays by name, and how they came to be."""

    arrays: Mapping[str, Any]
    recipe: Mapping[str, Any]

    @property
    def digest(self) -> str:
        """SHA-256 of the arrays in the order of their names."""
        content = hashlib.sha256()
        for name in sorted(self.arrays):
            content.update(name.encode() + np.ascontiguousarray(self.arrays[name], "<f4").tobytes())
        return content.hexdigest()


def weights_of(network: PairNetwork, recipe: Mapping[str, Any]) -> Weights:
    """A copy of what a network has learnt."""
    return Weights({name: value.numpy().copy() for name, value in network.state_dict().items()}, recipe)


def network_of(weights: Weights) -> PairNetwork:
    """A network with these weights; the state of PyTorch's random numbers is left alone."""
    with torch.random.fork_rng([]):
        network = PairNetwork()
    network.load_state_dict({name: torch.from_numpy(np.array(a)) for name, a in weights.arrays.items()})
    return network


def save_weights(path: str | Path, weights: Weights) -> None:
    """Write the arrays and the recipe with a checksum."""
    recipe = {**weights.recipe, "format": FORMAT, "sha256": weights.digest}
    content = io.BytesIO()
    np.savez(
        content, recipe=np.frombuffer(json.dumps(recipe, sort_keys=True).encode(), np.uint8), **weights.arrays
    )
    write_atomically(str(path), content.getvalue())


def load_weights(path: str | Path) -> Weights:
    """Read what :func:`save_weights` wrote.

    Raises
    ------
    InputError : the file is not there, is not one of weights, or its checksum is wrong.
    """
    if not Path(path).exists():
        raise InputError(f"{path}: there are no weights of that name (weights=none begins without any)")
    found = read_arrays(path, "a file of weights for hsdag")
    with torch.random.fork_rng([]):
        shapes = {name: tuple(value.shape) for name, value in PairNetwork().state_dict().items()}
    try:
        recipe = json.loads(found.pop("recipe").tobytes())
        if not isinstance(recipe, dict):
            raise ValueError("its recipe is not an object")
        arrays: dict[str, FloatArray] = {name: np.asarray(found[name], np.float32) for name in shapes}
    except Exception as error:  # numpy raises many kinds
        raise InputError(f"{path}: is not a file of weights for hsdag ({error})") from None
    if recipe.get("format") != FORMAT or any(arrays[name].shape != shape for name, shape in shapes.items()):
        raise InputError(f"{path}: holds weights for a different version of hsdag: train again")
    weights = Weights(arrays, recipe)
    if weights.digest != recipe.get("sha256"):
        raise InputError(f"{path}: the checksum of the weights is wrong: the file is damaged")
    return weights
