"""The two models of ``make demo``: a GPT with a large vocabulary and a ResNet, small enough for any CPU.

``loadmaster split benchmarks/demo_models.py:gpt --ranks 2`` takes them as it takes models of your own.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.torch_models import ResNet

__all__ = ["Gpt", "gpt", "next_token", "resnet"]

VOCABULARY = 16384


class Block(nn.Module):
    """Attention and two linear layers, each after a norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.reshape(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.attend(self.norm1(x)).chunk(3, -1)
        )
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.project(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    """A small GPT: as wide as it is deep, with the vocabulary of a large one."""

    def __init__(self, layers: int, width: int, vocabulary: int, length: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.place = nn.Embedding(length, width)
        self.layers = nn.ModuleList(Block(width, 4) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids) + self.place(torch.arange(ids.shape[1], device=ids.device))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def next_token(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(logits.flatten(0, 1), target.flatten())


def gpt() -> tuple[Any, ...]:
    """Eight layers of width 192, a vocabulary of 16,384; a microbatch of 2 x 24 tokens."""
    torch.manual_seed(0)
    ids = torch.randint(0, VOCABULARY, (2, 24))
    return Gpt(8, 192, VOCABULARY, 24), ids, next_token, torch.roll(ids, -1, 1)


def resnet() -> tuple[Any, ...]:
    """ResNet-50 at half its width; a microbatch of 2 images of 64 x 64."""
    torch.manual_seed(0)
    images = torch.randn(2, 3, 64, 64)
    return ResNet(32, 1000, 0.0), images, functional.cross_entropy, torch.randint(0, 1000, (2,))
