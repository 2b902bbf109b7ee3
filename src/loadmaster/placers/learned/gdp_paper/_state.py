"""What ``gdp-paper`` has learnt, as a value and as a file without pickle."""

from __future__ import annotations

import io
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from loadmaster.errors import InputError
from loadmaster.files import read_arrays, write_atomically
from loadmaster.placers.learned.gdp_paper._network import Network
from loadmaster.problem import Problem

if TYPE_CHECKING:
    from loadmaster.placers.learned.gdp_paper.gdp_paper import GdpPaper

__all__ = ["NETWORK", "State", "check_devices", "state_of"]


FORMAT = "loadmaster-gdp-paper/1"
NETWORK = (
    "costs", "type_width", "neighbours", "rounds", "width", "layers", "heads", "segment", "memory",
    "attention", "superposition",
)  # fmt: skip
"""Settings that shape the network: weights from a file bring their own."""


@dataclass(frozen=True, eq=False)
class State:
    """What was learnt: enough to place another graph."""

    settings: GdpPaper
    vocabulary: tuple[str, ...]
    devices: int
    weights: dict[str, npt.NDArray[np.float32]]

    def network(self) -> Network:
        """A network with these weights."""
        columns = self.weights["encoder.enter.weight"].shape[1] - self.settings.type_width
        network = Network(columns, 1 + len(self.vocabulary), self.devices, self.settings)
        network.load_state_dict({name: torch.from_numpy(a.copy()) for name, a in self.weights.items()})
        return network

    def save(self, path: str | Path) -> None:
        """Write a ``.npz`` of plain arrays, one of which is the rest as JSON."""
        shape = {key: value for key, value in asdict(self.settings).items() if key in NETWORK}
        about = {"format": FORMAT, "devices": self.devices, "vocabulary": self.vocabulary, "network": shape}
        content = io.BytesIO()
        text = np.frombuffer(json.dumps(about).encode(), np.uint8)
        arrays: dict[str, Any] = {"about": text, **self.weights}
        np.savez(content, **arrays)
        write_atomically(path, content.getvalue())

    @classmethod
    def load(cls, path: str | Path, settings: GdpPaper) -> State:
        """Read what :meth:`save` wrote; the shape of the network is the file's, all else that of ``settings``.

        Raises
        ------
        InputError : the file is not there, or holds something else.
        """
        try:
            arrays = read_arrays(path, "a file of weights")
            about = json.loads(bytes(arrays.pop("about")).decode())
            if about["format"] != FORMAT:
                raise ValueError(f"its format is {about['format']}")
            shaped = replace(settings, **about["network"])
            state = cls(shaped, tuple(about["vocabulary"]), int(about["devices"]), arrays)
            state.network()
        except Exception as error:  # a file can be broken in many ways
            raise InputError(f"{path}: holds no weights of gdp-paper ({error})") from None
        return state


def state_of(network: Network, vocabulary: tuple[str, ...]) -> State:
    """What a network has learnt."""
    weights = {name: tensor.detach().numpy().copy() for name, tensor in network.state_dict().items()}
    return State(network.settings, vocabulary, network.head.linear.out_features, weights)


def check_devices(state: State, problem: Problem) -> None:
    """Refuse a problem with more devices than the weights know."""
    if problem.devices > state.devices:
        raise InputError(
            f"gdp-paper: the weights were trained for {state.devices} devices, the problem has {problem.devices}: "
            "train on a cluster at least as large"
        )
