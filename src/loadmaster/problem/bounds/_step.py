"""Bounds on one step of microbatches, for every chain of stages.

L is the largest F + B of any stage, W the sum over all stages (at least every op on its fastest device), M the
microbatches. One microbatch passes through all stages, one after another: W. A device works on all microbatches: M L.
Both together:

- inference, ``gpipe``: the last forward pass ends no earlier than that of a flow shop, sum F + (M - 1) max F; then the
  backward passes likewise. W + (M - 1)(max F + max B).
- ``1f1b`` with S <= M stages: let stage j have load L, k stages after it with X seconds in all, and W - L - X before.
  It begins no earlier and ends no later than these allow. While the first microbatch is away it runs k forward passes,
  while the last one is away k backward passes; of the idle time max(0, X - k F) and max(0, X - k B) at least the
  larger one counts, which is X - k L / 2 or more. So the step takes at least M L + (W - L - X) + max(0, X - k L / 2),
  which is at least W + (M - 1 - (S - 1) / 2) L whatever X is.
- interleaved stages: max(W, M L).
"""

from __future__ import annotations

import math

import numpy as np

from loadmaster.arrays import BoolArray, FloatArray
from loadmaster.problem._model import Pipeline
from loadmaster.problem._problem import Problem
from loadmaster.problem.bounds._bound import Bound
from loadmaster.problem.bounds._load_dual import load_dual
from loadmaster.problem.bounds._view import View, class_sums

__all__ = ["step_bounds"]


def step_bounds(problem: Problem, view: View) -> list[Bound]:
    """What no chain of stages gets below; memory and transfers are relaxed."""
    model, graph = problem.model, problem.graph
    assert isinstance(model, Pipeline)
    work = np.where(graph.boundary[:, None] & np.isfinite(view.time), 0.0, view.time)
    forward = _sums(view, work, ~graph.backward)
    backward = _sums(view, work, graph.backward)
    both = forward + backward
    every = model.microbatches
    way = float(both.min(axis=1).sum())
    load = _largest(both, view)
    bounds = [
        Bound(way, "one microbatch through all stages"),
        Bound(every * load, "load dual"),
    ]
    if model.stages_per_rank > 1:
        return bounds
    if model.schedule == "gpipe" or not graph.backward.any():
        apart = max(load, _largest(forward, view) + _largest(backward, view))
        return [*bounds, Bound(way + (every - 1) * apart, "flow shop")]
    stages = min(every, int(view.number.sum()), len(both))
    return [*bounds, Bound(way + (every - 1 - (stages - 1) / 2) * load, "one forward, one backward")]


def _sums(view: View, work: FloatArray, side: BoolArray) -> FloatArray:
    return class_sums(view.of, np.where(side[:, None] | np.isinf(work), work, 0.0))


def _largest(cost: FloatArray, view: View) -> float:
    """What the most loaded device has at least."""
    dual = load_dual(cost, view.number)[0]
    return max(dual, float(cost.min(axis=1).max(initial=0.0))) if math.isfinite(dual) else dual
