"""What whole stages take on this machine, and op times brought into agreement with them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from loadmaster.arrays import FloatArray
from loadmaster.errors import InputError
from loadmaster.graph.torch import Alone, Capture
from loadmaster.runtime.torch._costs import ROUNDS, OpCosts, _home, _one_thread, _Timer, _undisturbed, _usable
from loadmaster.runtime.torch._cut import Cut, Value
from loadmaster.runtime.torch._drawing import Clock
from loadmaster.runtime.torch._modules import stage_module
from loadmaster.runtime.torch._pipeline import unflattened

__all__ = ["StageTime", "corrected", "measure_stages"]


@dataclass(frozen=True)
class StageTime:
    """What a whole stage takes, per microbatch; the last one with the loss."""

    forward: float
    backward: float


def measure_stages(
    capture: Capture,
    cut: Cut,
    *,
    loss: Callable[..., Any] | None = None,
    target: Any = None,
    device: Any = None,
    repeats: int = 5,
    seconds: float = 2.0,
) -> list[StageTime]:
    """What each stage takes as a whole, in this process. Weights, buffers and gradients stay.

    Stages take turns, each forward and backward as in 1F1B, at least ``repeats`` times and until ``seconds`` have gone
    by: a machine that slows down for a while slows all of them, and leaves their shares alone.
    """
    pieces = [
        _Piece(
            stage_module(capture, cut, stage, Clock(0, 1), shared=True), *cut.boundaries[stage : stage + 2]
        )
        for stage in range(cut.count)
    ]
    order = [(stage, way) for stage in range(cut.count) for way in (False, True)]
    return _measure_pieces(capture, pieces, order, loss, target, device, repeats, seconds)


@dataclass(frozen=True)
class _Piece:
    """Some ops as a module, what it is given, and what it returns."""

    module: Any
    given: tuple[Value, ...]
    made: tuple[Value, ...]


def _measure_pieces(
    capture: Capture,
    pieces: Sequence[_Piece],
    order: Sequence[tuple[int, bool]],
    loss: Any,
    target: Any,
    device: Any,
    repeats: int,
    seconds: float,
) -> list[StageTime]:
    """Seconds of every piece, forward and backward, in rounds of this order."""
    if capture.example is None:
        raise InputError(
            f"{capture.name}: there is no example of its inputs, so its stages cannot be measured"
        )
    where = _home(capture) if device is None else _usable(device)
    timer = _Timer(where)
    value = {
        node: tensor.to(where) for node, tensor in zip(capture.inputs, capture.example.tensors(), strict=True)
    }
    taken: list[FloatArray] = []
    with _one_thread(), torch.set_grad_enabled(capture.training):
        every: list[Alone] = []
        for number, piece in enumerate(pieces):
            piece.module.to(where)
            final = number == len(pieces) - 1
            every.append(_piece_alone(capture, piece, value, loss if final else None, target))
            with torch.no_grad():
                results = piece.module(*(value[one.node] for one in piece.given))
            value |= {one.node: part.detach() for one, part in zip(piece.made, results, strict=True)}
        began = time.perf_counter()
        while len(taken) <= repeats or (
            time.perf_counter() - began < seconds and len(taken) <= ROUNDS
        ):  # the first round is to warm up
            taken.append(_round(every, order, timer))
    return [StageTime(float(ahead), float(back)) for ahead, back in _undisturbed(np.stack(taken[1:]))]


def _round(every: Sequence[Alone], order: Sequence[tuple[int, bool]], timer: _Timer) -> FloatArray:
    """(pieces, 2) seconds forward and backward."""
    found, results = np.zeros((len(every), 2)), dict[int, Any]()
    for number, is_backward in order:
        one = every[number]
        if is_backward:
            found[number, 1] = timer.backward(one, results.pop(number))
        else:
            results[number], found[number, 0] = timer.forward(one)
    return found


def _piece_alone(capture: Capture, piece: _Piece, values: Mapping[Any, Any], loss: Any, target: Any) -> Alone:
    leaves = [values[one.node].detach().requires_grad_(one.has_gradient) for one in piece.given]

    def run(arguments: list[Any]) -> Any:
        made = piece.module(*arguments)
        if loss is None:
            return made
        result = unflattened(capture, made, joined=False)
        return loss(result) if target is None else loss(result, target)

    weights = tuple(piece.module.parameters())
    every = (*(leaf for leaf in leaves if leaf.requires_grad), *weights)
    return Alone(lambda: leaves, run, every, weights)


def corrected(costs: OpCosts, cut: Cut, measured: Sequence[StageTime]) -> OpCosts:
    """Op times scaled, stage by stage and direction by direction, so that they add up to what the stages took."""
    stage_of = np.array(cut.stage_of)
    forward, backward, loss = costs.forward.copy(), costs.backward.copy(), costs.loss
    for stage, taken in enumerate(measured):
        mine = stage_of == stage
        last = stage == cut.count - 1
        for array, number, seconds in ((forward, 0, taken.forward), (backward, 1, taken.backward)):
            total = float(array[mine].sum()) + (loss[number] if last else 0.0)
            if total > 0 and seconds > 0:
                array[mine] *= seconds / total
                if last:
                    scaled = list(loss)
                    scaled[number] *= seconds / total
                    loss = (scaled[0], scaled[1])
    return replace(costs, forward=forward, backward=backward, loss=loss)
