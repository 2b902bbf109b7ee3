"""Tensors that cross from one device to another, and what that takes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from loadmaster.problem import Offload, Pipeline, Placement, Problem

__all__ = ["Cut", "cuts"]


@dataclass(frozen=True)
class Cut:
    """One tensor that leaves its device: ``seconds`` over all destinations, sending and receiving."""

    tensor: int
    source: int
    targets: tuple[int, ...]
    seconds: float


def cuts(problem: Problem, placement: Placement) -> list[Cut]:
    """Every cut tensor, dearest first; ties by index.

    ``serial`` and ``concurrent`` pay one ``link`` per destination device; ``pipeline`` and ``offload`` one
    ``send`` and a ``recv`` per destination (two calls of one accelerator are not counted here).
    """
    graph, device = problem.graph, placement.device
    source = device[graph.tensor_producer[graph.edge_tensor]]
    target = device[graph.consumer_op]
    cut = source != target
    pairs = np.unique(np.stack([graph.edge_tensor[cut], target[cut]], axis=1), axis=0)
    targets: dict[int, list[int]] = {}
    for t, e in pairs.tolist():
        targets.setdefault(t, []).append(e)
    model = problem.model
    step = isinstance(model, Pipeline) and model.microbatches > 0
    through_host = isinstance(model, Pipeline | Offload) and not step
    found = []
    for t, ends in targets.items():
        d, size = int(device[graph.tensor_producer[t]]), problem.size[t]
        if through_host:
            seconds = problem.send_latency[d] + size * problem.send_rate[d]
            seconds += sum(problem.recv_latency[e] + size * problem.recv_rate[e] for e in ends)
        else:
            seconds = sum(problem.latency[d, e] + size * problem.rate[d, e] for e in ends)
        found.append(Cut(t, d, tuple(ends), float(seconds)))
    return sorted(found, key=lambda cut: (-cut.seconds, cut.tensor))
