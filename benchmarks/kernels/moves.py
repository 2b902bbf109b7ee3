"""Moves per second with exact deltas: how fast the ``pipeline`` model learns the largest load after moving one op."""

from __future__ import annotations

import time

import numpy as np
from numba import njit

from loadmaster.graph import layered
from loadmaster.hardware import accelerators, roofline
from loadmaster.problem import Pipeline, Problem
from loadmaster.problem.loads import load_cost, move_op, nets_of, new_ledger, reset

__all__ = ["moves_per_second"]


@njit(cache=True, nogil=True)
def _random_moves(  # type: ignore[no-untyped-def]
    kind, ops, touch, tensors, time, size, wire, latency, rate, device, count, compute, comm, moved, targets
):
    """Make the given moves one after another and learn the cost after each; the sum of the costs."""
    total = 0.0
    for i in range(len(moved)):
        target = targets[i] + (targets[i] >= device[moved[i]])
        move_op(
            kind,
            ops,
            touch,
            tensors,
            time,
            size,
            wire,
            latency,
            rate,
            device,
            count,
            compute,
            comm,
            moved[i],
            target,
        )
        total += load_cost(kind, compute, comm)
    return total


def moves_per_second(
    n: int, devices: int, *, moves: int = 2_000_000, repeats: int = 3, seed: int = 0
) -> float:
    """The best of a few repeats, in CPU time; every move changes the device of a random op."""
    graph = layered(n, seed=seed)
    cluster = accelerators(devices, 0)
    problem = Problem.make(graph, cluster, Pipeline(), time=roofline(graph, cluster))
    rng = np.random.default_rng(seed)
    nets = nets_of(problem)
    ledger = new_ledger(nets)
    reset(*nets, *ledger, rng.integers(0, devices, n).astype(np.int32))
    best = 0.0
    _random_moves(*nets, *ledger, np.zeros(1, np.int32), np.zeros(1, np.int32))
    for _ in range(repeats):
        ops = rng.integers(0, n, moves).astype(np.int32)
        targets = rng.integers(0, devices - 1, moves).astype(np.int32)
        began = time.thread_time()
        _random_moves(*nets, *ledger, ops, targets)
        best = max(best, moves / (time.thread_time() - began))
    return best
