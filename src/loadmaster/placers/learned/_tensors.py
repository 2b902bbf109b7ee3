"""The few tensor operations that the learned placers share."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

__all__ = ["NEVER", "floats", "log_softmax_by", "longs"]

NEVER = -1e9
"""A logit of probability 0 that leaves gradients finite."""


def log_softmax_by(row: Tensor, score: Tensor, rows: int) -> Tensor:
    """Logarithms of the softmax within each row of a ragged array."""
    top = torch.full((rows,), -math.inf).scatter_reduce(0, row, score.detach(), "amax")
    shifted = score - top[row]
    total = torch.zeros(rows).index_add(0, row, shifted.exp())
    return shifted - total.log()[row]


def longs(array: npt.NDArray[Any]) -> Tensor:
    """An array of any kind as indices."""
    return torch.from_numpy(np.asarray(array, np.int64))


def floats(array: npt.NDArray[Any]) -> Tensor:
    """An array of any kind in single precision."""
    return torch.from_numpy(np.asarray(array, np.float32))
