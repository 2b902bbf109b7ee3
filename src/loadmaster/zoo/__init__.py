"""Models to try things on, by name: ``zoo:gnmt-8``, ``zoo:bert-base?batch=8&seq=384&training=1``.

The ops are those of the public definitions of the architectures, with their true shapes, work and
parameters; times follow from a cluster. By default a model is what the literature on placement places: a
training step for the families of GDP (rnnlm, gnmt, transformer-xl, amoebanet, wavenet), inference for all
else; ``training=0`` and ``training=1`` choose.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from loadmaster.errors import InputError
from loadmaster.files import check_limit, shown
from loadmaster.graph import Graph, layered
from loadmaster.zoo._export import EXPORTABLE, export_model, exported
from loadmaster.zoo._trace import ZooModel
from loadmaster.zoo.amoebanet import amoebanet
from loadmaster.zoo.bert import bert
from loadmaster.zoo.gnmt import gnmt
from loadmaster.zoo.gpt2 import gpt2, gpt2_decode
from loadmaster.zoo.inception import inception_v3
from loadmaster.zoo.resnet import resnet, two_tower
from loadmaster.zoo.rnnlm import rnnlm
from loadmaster.zoo.switch import switch_base
from loadmaster.zoo.transformer_xl import transformer_xl
from loadmaster.zoo.unet import unet
from loadmaster.zoo.wavenet import wavenet

__all__ = ["EXPORTABLE", "ZooModel", "export_model", "exported", "graph", "make", "model", "names"]

MODELS: dict[str, Callable[..., ZooModel]] = {
    "inception-v3": inception_v3,
    "bert-base": partial(bert, "base"),
    "bert-large": partial(bert, "large"),
    "gpt2": gpt2,
    "gpt2-decode": gpt2_decode,
    "amoebanet": amoebanet,
    "unet": unet,
    "two-tower": two_tower,
}
"""Models by name; their options are the keywords."""

FAMILIES: dict[str, tuple[Callable[..., ZooModel | Graph], tuple[int, ...]]] = {
    "layered": (layered, (1000,)),
    "resnet": (resnet, (50, 101)),
    "rnnlm": (rnnlm, (2, 4, 8)),
    "gnmt": (gnmt, (2, 4, 8)),
    "transformer-xl": (transformer_xl, (2, 4, 8)),
    "wavenet": (wavenet, (18, 36)),
    "switch-base": (switch_base, (8,)),
}
"""Family -> function of the number behind its name, and the usual numbers."""


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
    ZooModel(Graph('bert-base?seq=384', 328 ops, 327 tensors, 386 edges), 109,482,240 parameters)

    Raises
    ------
    InputError : the name or an option is unknown, or its value is wrong; the message says what there is.
    """
    made = make(name)
    if isinstance(made, Graph):
        return ZooModel(made, "layered")
    return replace(made, graph=replace(made.graph, name=name)) if "?" in name else made


def make(name: str, *, defaults: Mapping[str, Any] | None = None, **given: Any) -> ZooModel | Graph:
    """What the function behind ``name`` makes of its options; ``defaults`` are options that the name may change."""
    plain, _, query = name.partition("?")
    maker = _maker(name, plain)
    hints, options = _options(maker), dict(defaults or {})
    for key, text in parse_qsl(query, keep_blank_values=True):
        if key not in hints:
            raise InputError(f"zoo:{name}: {plain} has no parameter {key!r}: choose from {', '.join(hints)}")
        # The random graphs check their own numbers, some of which may be zero.
        options[key] = _read(
            f"zoo:{name}: {key}", text, hints[key], positive=not plain.startswith("layered-")
        )
    return maker(**options, **given)


def _maker(name: str, plain: str) -> Callable[..., ZooModel | Graph]:
    if plain in MODELS:
        return MODELS[plain]
    match = re.fullmatch(r"([a-z-]+)-(\d{1,20})", plain)
    if not match or match[1] not in FAMILIES:
        raise InputError(f"the zoo has no graph {name!r}: give e.g. {', '.join(names())}")
    make, number = FAMILIES[match[1]][0], int(match[2])
    check_limit("ops", number, f"the zoo is asked for {shown(plain)}")
    if number == 0 and make is not layered:
        raise InputError(f"the zoo has no graph {name!r}: the number must be at least 1")
    return partial(make, number)


def _options(make: Callable[..., ZooModel | Graph]) -> dict[str, type]:
    parameters = inspect.signature(make, eval_str=True).parameters.values()
    return {p.name: p.annotation for p in parameters if p.kind is p.KEYWORD_ONLY}


def _read(where: str, text: str, kind: type, *, positive: bool) -> Any:
    try:
        value: Any = msgspec.convert(text, kind, strict=False)
    except msgspec.ValidationError:
        raise InputError(f"{where} must be of type {kind.__name__}, not {text!r}") from None
    if positive and kind is not bool and not 0 < value < math.inf:
        raise InputError(f"{where} must be > 0, not {text}")
    if kind is int and abs(value) >= 2**62:
        raise InputError(f"{where} must be below 2**62, not {shown(value)}")
    return value
