"""The network of ``gdp-paper``: from what it sees of a graph to the devices of all nodes at once.

:mod:`loadmaster.placers.learned.gdp_paper._training` says what of it is the paper's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

from loadmaster.placers.learned._tensors import NEVER
from loadmaster.placers.learned.gdp_paper._inputs import Inputs

if TYPE_CHECKING:
    from loadmaster.placers.learned.gdp_paper.gdp_paper import GdpPaper

__all__ = ["Layer", "Network", "segments_of"]


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
