"""Small modules with what makes splitting hard: ties, dropout, in-place ops, skips, batch norms."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional


class Block(nn.Module):
    """A feed-forward block with dropout."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, value = self.up(self.norm(x)).chunk(2, -1)
        mixed = torch.cat([functional.gelu(gate), value], -1)
        return x + self.dropout(self.down(mixed))


class TiedModel(nn.Module):
    """A language model whose head is its embedding, with an input that only the end reads."""

    def __init__(self, width: int = 8, blocks: int = 3, words: int = 20, dropout: float = 0.0) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width, dropout) for _ in range(blocks))
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.embed.weight
        self.unread = nn.Parameter(torch.zeros(3))

    def forward(self, ids: torch.Tensor, scale: torch.Tensor) -> dict[str, Any]:
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return {"logits": self.head(x) * scale[:, None, None], "mean": x.mean()}


def tied_case(dropout: float = 0.0) -> tuple[Any, Any, Any, Any]:
    """Model, one microbatch, loss, target."""
    torch.manual_seed(0)
    ids = torch.randint(0, 20, (2, 5))

    def loss(result: dict[str, Any], target: torch.Tensor) -> torch.Tensor:
        return (
            functional.cross_entropy(result["logits"].flatten(0, 1), target.flatten()) + 0.1 * result["mean"]
        )

    return TiedModel(dropout=dropout), {"ids": ids, "scale": torch.rand(2) + 0.5}, loss, ids


class Residual(nn.Module):
    """Convolution, batch norm, in-place sum, in-place ReLU."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.conv(x))
        y += x
        return functional.relu(y, inplace=True)


class SkipModel(nn.Module):
    """A skip over everything, which every boundary relays, and batch norms, whose statistics are buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.first = nn.Sequential(Residual(4), Residual(4))
        self.second = nn.Sequential(Residual(4), Residual(4))
        self.head = nn.Conv2d(8, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        return self.head(torch.cat([x, self.second(self.first(x))], 1).transpose(2, 3))


def skip_case(dropout: float = 0.0) -> tuple[Any, Any, Any, Any]:
    """Model, one microbatch, loss, target."""
    torch.manual_seed(0)
    return SkipModel(), torch.randn(2, 3, 6, 6), functional.cross_entropy, torch.randint(0, 2, (2, 6, 6))


class Branching(nn.Module):
    """What runs depends on a value."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            return x + 1
        return x - 1


def build() -> Any:
    """For the command line: model, example, loss, target."""
    return tied_case()
