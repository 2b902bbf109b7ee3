"""Inputs to run an OpenVINO model on, by seed."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from loadmaster.graph import draw_input, length_of

__all__ = ["draw_inputs"]


def draw_inputs(model: Any, seed: int) -> list[npt.NDArray[Any]]:
    """Random inputs in the order of the model's own: normal numbers, or rows of the tables that ids look up in."""
    drawn = []
    shapes = [tuple(port.shape) for port in model.inputs]
    for at, port in enumerate(model.inputs):
        dtype = np.dtype(port.get_element_type().to_dtype())
        rows = _rows(port) if dtype.kind in "iu" else None
        drawn.append(draw_input(shapes[at], dtype, seed=seed, at=at, rows=rows, length=length_of(at, shapes)))
    return drawn


def _rows(port: Any) -> int | None:
    """Rows of the smallest table that a port indexes; None where it indexes none (a mask, say)."""
    found, seen, left = [], set(), [port]
    while left:
        output = left.pop()
        for reader in output.get_target_inputs():
            node = reader.get_node()
            kind = node.get_type_name()
            if kind == "Gather" and reader.get_index() == 1:
                axis = int(node.input(2).get_source_output().get_node().data.reshape(-1)[0])
                found.append(int(node.input(0).get_shape()[axis]))
            elif (
                kind in ("Convert", "Reshape", "Squeeze", "Unsqueeze")
                and node.get_friendly_name() not in seen
            ):
                seen.add(node.get_friendly_name())
                left.append(node.output(0))
    return min(found, default=None)
