"""Models to try things on, by name: ``zoo:gnmt-8``, ``zoo:bert-base?batch=8&seq=384&training=1``.

The ops are those of the public definitions of the architectures, with their true shapes, work and parameters; times follow from a
cluster. By default a model is what the literature on placement places: a training step for the families of GDP (rnnlm, gnmt,
transformer-xl, amoebanet, wavenet), inference for all else; ``training=0`` and ``training=1`` choose.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, get_type_hints
from urllib.parse import parse_qsl

import msgspec

from loadmaster.errors import InputError
from loadmaster.graph import Graph, layered
from loadmaster.zoo._trace import ZooModel
from loadmaster.zoo.amoebanet import amoebanet
from loadmaster.zoo.bert import bert
from loadmaster.zoo.gnmt import gnmt
from loadmaster.zoo.gpt2 import gpt2, gpt2_decode
from loadmaster.zoo.inception import inception_v3
from loadmaster.zoo.resnet import resnet
from loadmaster.zoo.rnnlm import rnnlm
from loadmaster.zoo.switch import switch_base
from loadmaster.zoo.transformer_xl import transformer_xl
from loadmaster.zoo.unet import unet
from loadmaster.zoo.wavenet import wavenet

__all__ = ["ZooModel", "graph", "model", "names"]

LARGEST = 1_000_000
"""Number behind a family's name that is still taken for what the user meant."""


def _layered(n: int, **parameters: Any) -> ZooModel:
    return ZooModel(layered(n, **parameters), "layered")


class Entry(NamedTuple):
    """How to make the model of a name, whose options are the keywords of ``documented``."""

    make: Callable[..., ZooModel]
    first: tuple[str, ...] = ()
    documented: Callable[..., object] | None = None

    @property
    def options(self) -> dict[str, type]:
        """Name -> type."""
        function = self.documented or self.make
        return {key: hint for key, hint in get_type_hints(function).items() if key in function.__kwdefaults__}  # type: ignore[attr-defined]


MODELS: dict[str, Entry] = {
    "inception-v3": Entry(inception_v3),
    "bert-base": Entry(bert, ("base",)),
    "bert-large": Entry(bert, ("large",)),
    "gpt2": Entry(gpt2),
    "gpt2-decode": Entry(gpt2_decode),
    "amoebanet": Entry(amoebanet),
    "unet": Entry(unet),
}
"""Models by name."""

FAMILIES: dict[str, tuple[Entry, tuple[int, ...]]] = {
    "layered": (Entry(_layered, documented=layered), (1000,)),
    "resnet": (Entry(resnet), (50, 101)),
    "rnnlm": (Entry(rnnlm), (2, 4, 8)),
    "gnmt": (Entry(gnmt), (2, 4, 8)),
    "transformer-xl": (Entry(transformer_xl), (2, 4, 8)),
    "wavenet": (Entry(wavenet), (18, 36)),
    "switch-base": (Entry(switch_base), (8,)),
}
"""Family -> function of the number behind its name, and numbers with which it is known."""


def names() -> list[str]:
    """The models, and for families with a number the usual ones."""
    return [*(f"{family}-{n}" for family, (_, numbers) in FAMILIES.items() for n in numbers), *MODELS]


def graph(name: str) -> Graph:
    """The graph of :func:`model`.

    >>> graph("resnet-50")
    Graph('resnet-50', 176 ops, 175 tensors, 191 edges)
    """
    return model(name).graph


def model(name: str) -> ZooModel:
    """The model called ``name``, with options after a question mark.

    >>> model("bert-base?seq=384")
    ZooModel(Graph('bert-base?seq=384', 325 ops, 324 tensors, 383 edges), 109,482,240 parameters)

    Raises
    ------
    InputError : the name or an option is unknown, or its value is wrong; the message says what there is.
    """
    plain, _, query = name.partition("?")
    entry, arguments = _find(name, plain)
    hints, options = entry.options, {}
    for key, text in parse_qsl(query, keep_blank_values=True):
        if key not in hints:
            raise InputError(f"zoo:{name}: {plain} has no parameter {key!r}: choose from {', '.join(hints)}")
        options[key] = _read(f"zoo:{name}: {key}", text, hints[key], positive=entry.documented is None)
    made = entry.make(*arguments, **options)
    return replace(made, graph=replace(made.graph, name=name)) if query and entry.documented is None else made


def _find(name: str, plain: str) -> tuple[Entry, tuple[str | int, ...]]:
    if plain in MODELS:
        return MODELS[plain], MODELS[plain].first
    match = re.fullmatch(r"([a-z-]+)-(\d+)", plain)
    if not match or match[1] not in FAMILIES:
        raise InputError(f"the zoo has no graph {name!r}: give e.g. {', '.join(names())}")
    number = int(match[2])
    if number > LARGEST:
        raise InputError(f"the zoo makes graphs up to {match[1]}-{LARGEST}, not {name!r}")
    if number == 0 and match[1] != "layered":
        raise InputError(f"the zoo has no graph {name!r}: the number must be at least 1")
    return FAMILIES[match[1]][0], (number,)


def _read(where: str, text: str, kind: type, *, positive: bool) -> Any:
    try:
        value = msgspec.convert(text, kind, strict=False)
    except msgspec.ValidationError:
        raise InputError(f"{where} must be of type {kind.__name__}, not {text!r}") from None
    if positive and not (value is False or 0 < value < math.inf):
        raise InputError(f"{where} must be > 0, not {text}")
    return value
