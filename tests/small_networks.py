"""A small network in a file, and the devices that tests run it on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import openvino as ov
from openvino import opset13 as ops

DEVICES = ["A=cpu", "B=cpu", "C=cpu"]
CLOCK = "core"
"""Tests run beside other tests: no sample is undisturbed, and no time is asserted."""


def block(x, generator, name: str, channels: int = 8):
    """A residual block whose weights keep the signal."""
    y = x
    for i in range(2):
        weight = generator.normal(size=(channels, channels, 3, 3)).astype(np.float32) * 0.12
        filters = ops.constant(weight, name=f"{name}/weight{i}")
        y = ops.convolution(y, filters, [1, 1], [1, 1], [1, 1], [1, 1], name=f"{name}/conv{i}")
        bias = ops.constant(
            generator.normal(size=(1, channels, 1, 1)).astype(np.float32), name=f"{name}/bias{i}"
        )
        y = ops.relu(ops.add(y, bias, name=f"{name}/add{i}"), name=f"{name}/relu{i}")
    return ops.add(y, x, name=f"{name}/sum")


def write_network(path: Path, *, blocks: int = 3, seed: int = 0) -> Path:
    generator = np.random.default_rng(seed)
    x = ops.parameter([1, 8, 16, 16], np.float32, name="image")
    y = x
    for i in range(blocks):
        y = block(y, generator, f"block{i}")
    model = ov.Model([ops.result(y, name="features")], [x], "net")
    ov.save_model(model, str(path))
    return path
