"""The network of ``gdp-paper``: what it sees of a graph, how it decides, and its weights in a file.

:mod:`loadmaster.placers.learned.gdp_paper._training` says what of it is the paper's.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from loadmaster.arrays import FloatArray
from loadmaster.errors import InputError
from loadmaster.files import read_arrays, write_atomically
from loadmaster.graph.order import longest_path_levels
from loadmaster.placers.learned._units import Units
from loadmaster.placers.learned.gdp_paper.gdp_paper import NETWORK, GdpPaper
from loadmaster.problem import Problem

__all__ = [
    "Inputs",
    "Layer",
    "Network",
    "State",
    "check_devices",
    "inputs_of",
    "segments_of",
    "state_of",
    "to_float",
]


NEVER = -1e9
"""A logit of probability 0 that leaves gradients finite."""
FORMAT = "loadmaster-gdp-paper/1"


# -- what the policy sees ------------------------------------------------------------------------------------


class Inputs(NamedTuple):
    """A graph as tensors."""

    types: Tensor
    """(nodes, 1 + vocabulary) share of each op type among the ops of a node; the first is UNK."""
    numbers: Tensor
    """(nodes, columns)."""
    sender: Tensor
    """(messages,)."""
    receiver: Tensor
    """(messages,)."""
    allowed: Tensor
    """(nodes, devices) bool."""


def inputs_of(units: Units, vocabulary: Sequence[str], devices: int, settings: GdpPaper) -> Inputs:
    """The features of a graph, with as many devices as the policy knows."""
    code = {name: 1 + i for i, name in enumerate(vocabulary)}
    kind = np.array([code.get(name, 0) for name in units.problem.graph.op_types], np.int64)
    types = np.zeros((units.count, 1 + len(vocabulary)))
    np.add.at(types, (units.of_op, kind), 1.0)
    types /= np.maximum(types.sum(axis=1, keepdims=True), 1.0)
    allowed = np.zeros((units.count, devices), np.bool_)
    allowed[:, : units.problem.devices] = units.allowed
    ends = {
        "in": (units.tail, units.head),
        "out": (units.head, units.tail),
        "both": (np.concatenate([units.tail, units.head]), np.concatenate([units.head, units.tail])),
    }[settings.neighbours]
    return Inputs(
        to_float(types),
        to_float(_numbers(units, costs=settings.costs)),
        _long(ends[0]),
        _long(ends[1]),
        torch.from_numpy(allowed),
    )


def _numbers(units: Units, *, costs: bool) -> FloatArray:
    """(nodes, columns) logarithms of sizes, standardised and on a common scale, and where the node is."""
    problem, graph, count = units.problem, units.problem.graph, units.count
    last = np.zeros(count, np.int64)
    last[units.of_op[graph.topological_order]] = graph.topological_order
    shapes = np.zeros((count, 5, 5))  # five sizes of five outputs; 0 where there is none
    for row, v in zip(shapes, last.tolist(), strict=True):
        for port, shape in enumerate(graph.output_shapes[v][:5]):
            row[port, : len(shape[:5])] = np.log1p(np.maximum(shape[:5], 0))

    def total(amount: FloatArray) -> FloatArray:
        return np.bincount(units.of_op, amount, count).astype(np.float64)

    sizes = [
        np.log1p(np.bincount(units.of_op[graph.tensor_producer], graph.tensor_bytes, count)),
        np.log1p(np.bincount(units.head, minlength=count)),
        np.log1p(np.bincount(units.tail, minlength=count)),
    ]
    if costs:
        # Times of about 1 ns to 1 s become numbers like the others.
        sizes += [np.log1p(total(graph.flops)), np.log1p(1e9 * total(problem.mean_time))]
        sizes += [np.log1p(total(problem.memory)), np.log1p(total(graph.param_bytes))]
    columns = np.concatenate([shapes.reshape(count, 25), np.stack(sizes, axis=1)], axis=1)
    spread = columns.std(axis=0)
    standard = (columns - columns.mean(axis=0)) / np.where(spread > 1e-9, spread, np.inf)
    height = longest_path_levels(np.ascontiguousarray(graph.topological_order[::-1]), *graph.predecessors)
    members = np.maximum(np.bincount(units.of_op, minlength=count), 1)
    deepest = max(int(graph.levels.max(initial=0)), 1)
    where = [2 * total(level / deepest) / members - 1 for level in (graph.levels, height)]
    size = np.full(count, math.log1p(count) / 10)
    return np.concatenate([standard, columns / 10, np.stack([*where, size], axis=1)], axis=1)


# -- the network ---------------------------------------------------------------------------------------------


class Encoder(nn.Module):  # type: ignore[misc]
    """GraphSAGE with max pooling: h' = f(h, max over neighbours of sigmoid(W h + b))."""

    def __init__(self, columns: int, types: int, settings: GdpPaper) -> None:
        super().__init__()
        h = settings.width
        self.types = nn.Linear(types, settings.type_width, bias=False)
        self.enter = nn.Linear(settings.type_width + columns, h)
        self.message = nn.ModuleList(nn.Linear(h, h) for _ in range(settings.rounds))
        self.mix = nn.ModuleList(nn.Linear(2 * h, h) for _ in range(settings.rounds))
        with torch.no_grad():
            self.types.weight[:, 0] = 0.0  # an unknown type says nothing

    def forward(self, inputs: Inputs) -> Tensor:
        """(nodes, width)."""
        h = torch.relu(self.enter(torch.cat([self.types(inputs.types), inputs.numbers], dim=1)))
        into = inputs.receiver[:, None].expand(-1, h.shape[1])
        for message, mix in zip(self.message, self.mix, strict=True):
            sent = torch.sigmoid(message(h))[inputs.sender]
            heard = torch.zeros_like(h).scatter_reduce(0, into, sent, "amax", include_self=False)
            h = torch.relu(mix(torch.cat([h, heard], dim=1)))
        return h


class Dense(nn.Module):  # type: ignore[misc]
    """A dense layer whose input a context gates: g(c * x), where c begins as 1."""

    def __init__(self, i: int, o: int, context: int) -> None:
        super().__init__()
        self.linear = nn.Linear(i, o)
        self.gate = nn.Linear(context, i) if context else None
        if self.gate is not None:
            nn.init.zeros_(self.gate.weight)
            nn.init.zeros_(self.gate.bias)

    def forward(self, x: Tensor, context: Tensor | None) -> Tensor:
        """(..., o); without a context the plain layer."""
        if self.gate is not None and context is not None:
            x = x * (1.0 + self.gate(context))
        return self.linear(x)


class SegmentAttention(nn.Module):  # type: ignore[misc]
    """Attention within a segment and to the segment before it, as it was when it entered this layer.

    What a layer remembers of a segment are the layer's inputs, which all are there before it begins: so all segments
    are computed side by side, with the same result as one after the other.
    """

    def __init__(self, settings: GdpPaper, context: int) -> None:
        super().__init__()
        h = settings.width
        self.heads = settings.heads
        self.query, self.key, self.value, self.out = (Dense(h, h, context) for _ in range(4))

    def forward(self, x: Tensor, seen: Tensor, context: Tensor | None) -> Tensor:
        """(segments, length, width) from the same; ``seen``, (segments, memory + length), are the nodes that exist."""
        segments, length, h = x.shape
        memory = seen.shape[1] - length

        def with_past(y: Tensor) -> Tensor:
            past = torch.cat([torch.zeros_like(y[:1]), y[:-1].detach()])[:, length - memory :]
            return torch.cat([past, y], dim=1)

        # One context for the whole graph needs no past.
        near = context if context is None or context.shape[1] == 1 else with_past(context)
        both = with_past(x)

        def split(y: Tensor) -> Tensor:
            return y.view(segments, -1, self.heads, h // self.heads).transpose(1, 2)

        y = functional.scaled_dot_product_attention(
            split(self.query(x, context)),
            split(self.key(both, near)),
            split(self.value(both, near)),
            attn_mask=seen[:, None, None, :].expand(-1, -1, length, -1),
        )
        return self.out(y.transpose(1, 2).reshape(segments, length, h), context)


class Layer(nn.Module):  # type: ignore[misc]
    """Attention (unless it is off) and two dense layers, each added to what came in."""

    def __init__(self, settings: GdpPaper, context: int) -> None:
        super().__init__()
        h = settings.width
        self.attention = SegmentAttention(settings, context) if settings.attention else None
        self.before, self.between = nn.LayerNorm(h), nn.LayerNorm(h)
        self.wide, self.narrow = Dense(h, 2 * h, context), Dense(2 * h, h, context)

    def forward(self, x: Tensor, seen: Tensor, context: Tensor | None) -> Tensor:
        """(segments, length, width)."""
        if self.attention is not None:
            x = x + self.attention(self.before(x), seen, context)
        return x + self.narrow(torch.relu(self.wide(self.between(x), context)), context)


class Network(nn.Module):  # type: ignore[misc]
    """Encoder, context, placer: logits of every node's devices."""

    def __init__(self, columns: int, types: int, devices: int, settings: GdpPaper) -> None:
        super().__init__()
        self.settings = settings
        context = 0 if settings.superposition == "none" else settings.width
        self.encoder = Encoder(columns, types, settings)
        self.context = Layer(settings, 0) if context else None
        self.layers = nn.ModuleList(Layer(settings, context) for _ in range(settings.layers))
        self.norm = nn.LayerNorm(settings.width)
        self.head = Dense(settings.width, devices, context)
        with torch.no_grad():
            self.head.linear.weight.mul_(settings.contrast)
            self.head.linear.bias.zero_()

    def forward(self, inputs: Inputs) -> Tensor:
        """(nodes, devices) log-probabilities."""
        h = self.encoder(inputs)
        nodes = len(h)
        length = min(self.settings.segment, nodes)
        x, seen = segments_of(h, length, min(self.settings.memory, length))
        context = None
        if self.context is not None:
            context = self.context(x, seen, None)
            if self.settings.superposition == "graph":
                context = context.reshape(-1, context.shape[-1])[:nodes].mean(dim=0).view(1, 1, -1)
        for layer in self.layers:
            x = layer(x, seen, context)
        logits = self.head(self.norm(x), context).reshape(-1, inputs.allowed.shape[1])[:nodes]
        return torch.log_softmax(logits.masked_fill(~inputs.allowed, NEVER), dim=1)


def segments_of(h: Tensor, length: int, memory: int) -> tuple[Tensor, Tensor]:
    """Nodes cut into segments, the last filled up with zeros; and which of memory and segment are nodes.

    >>> x, seen = segments_of(torch.ones(5, 1), 2, 1)
    >>> x.shape
    torch.Size([3, 2, 1])
    >>> seen.int().tolist()
    [[0, 1, 1], [1, 1, 1], [1, 1, 0]]
    """
    count = -(-len(h) // length)
    x = functional.pad(h, (0, 0, 0, count * length - len(h))).view(count, length, -1)
    at = length * torch.arange(count)[:, None] + torch.arange(-memory, length)[None, :]
    return x, (at >= 0) & (at < len(h))


# -- weights without pickle ----------------------------------------------------------------------------------


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
    def load(cls, path: str | Path, settings: GdpPaper | None = None) -> State:
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
            shaped = replace(settings or GdpPaper(), **about["network"])
            state = cls(shaped, tuple(about["vocabulary"]), int(about["devices"]), arrays)
            state.network()
        except Exception as error:  # a file can be broken in many ways
            raise InputError(f"{path}: holds no weights of gdp-paper ({error})") from None
        return state


def state_of(network: Network, vocabulary: tuple[str, ...]) -> State:
    weights = {name: tensor.detach().numpy().copy() for name, tensor in network.state_dict().items()}
    return State(network.settings, vocabulary, network.head.linear.out_features, weights)


def _long(array: npt.NDArray[Any]) -> Tensor:
    return torch.from_numpy(np.asarray(array, np.int64))


def to_float(array: npt.NDArray[Any]) -> Tensor:
    return torch.from_numpy(np.asarray(array, np.float32))


def check_devices(state: State, problem: Problem) -> None:
    if problem.devices > state.devices:
        raise InputError(
            f"gdp-paper: the weights know {state.devices} devices, the problem has {problem.devices}: "
            "train on a cluster at least as large"
        )
