"""Small random problems by number: what searches are measured on, because their optimum can be had."""

from __future__ import annotations

import math

import numpy as np

from loadmaster.errors import NoPlacementError
from loadmaster.graph import Graph, GraphBuilder
from loadmaster.hardware import Cluster, Device
from loadmaster.placers.frame.enumeration import placements_of
from loadmaster.placers.frame.feasible import first_feasible
from loadmaster.problem import Pipeline, Problem
from loadmaster.testing._cases import MODELS

__all__ = ["DRAWN_MODELS", "drawn_problem"]

DRAWN_MODELS = tuple(model for model in MODELS if not (isinstance(model, Pipeline) and model.microbatches))
"""The execution models in turn; steps of microbatches are left to the placer ``stages``, which is no search."""

FEWEST, MOST = 100_000, 17_000_000
"""Placements that pins, forbids and colocation leave: too many for a search of some ten thousand evaluations to try,
few enough for :func:`~loadmaster.testing.optimum`."""
MOMENTS = [0.0, 0.0, 0.5, 1.0, 1.0, 2.0]
SIZES = [0.0, 0.5, 1.0, 1.0, 2.0]


def drawn_problem(
    number: int,
    seed: int = 0,
    *,
    ops: tuple[int, int] = (8, 12),
    devices: tuple[int, int] = (3, 7),
    placements: tuple[int, int] = (FEWEST, MOST),
) -> Problem:
    """One of endlessly many problems of 8 to 12 ops on 3 to 7 devices; the same number gives the same problem.

    ``ops``, ``devices`` and ``placements`` (fewest and most of each) ask for problems of another size.

    The execution models and their settings come in turn. Half of the problems have short binary fractions, so that
    things happen at the same instant often and many costs are zero, the others numbers of all sizes. Memory is short
    in two of three, and there may be pins, forbidden devices, unsupported ops and colocation. All are feasible.

    >>> from loadmaster.placers.frame.enumeration import placements_of
    >>> problem = drawn_problem(7)
    >>> 8 <= problem.n <= 12, problem.devices >= 3, placements_of(problem) >= 100_000
    (True, True, True)
    """
    rng = np.random.default_rng([seed, number])
    while True:
        problem = _draw(rng, number, ops, devices)
        if not placements[0] <= placements_of(problem) <= placements[1]:
            continue
        try:
            first_feasible(problem)
        except NoPlacementError:
            continue
        return problem


def _draw(rng: np.random.Generator, number: int, between: tuple[int, int], sizes: tuple[int, int]) -> Problem:
    model = DRAWN_MODELS[number % len(DRAWN_MODELS)]
    ops = int(rng.integers(between[0], between[1] + 1))
    size = int(rng.integers(sizes[0], sizes[1] + 1))
    short = bool(rng.integers(2))

    def amounts(shape: int | tuple[int, ...], values: list[float]) -> np.ndarray:
        if short:
            return np.array(values)[rng.integers(0, len(values), shape)]
        return np.asarray(rng.lognormal(0.0, 1.0, shape))

    graph = _graph(rng, ops, short)
    unsupported = rng.random((ops, size)) < rng.choice([0.0, 0.1])
    unsupported[np.arange(ops), rng.integers(0, size, ops)] = False
    kinds = rng.choice(["cpu", "acc"], size).tolist()
    # Transfers from much dearer than ops to much cheaper: what a search gets wrong differs.
    weight = float(rng.choice([0.1, 0.5, 1.0, 2.0]))
    memory, resident = amounts(ops, SIZES), amounts(ops, SIZES)
    capacity = np.full(size, math.inf)
    if rng.random() < 2 / 3:
        whole = float(memory.sum()) + (float(graph.tensor_bytes.sum()) if number % 11 == 3 else 0.0)
        share = rng.dirichlet(np.full(size, 4.0))
        capacity = np.maximum(share * whole * rng.choice([1.1, 1.3, 1.8]), memory.max(initial=0.0))
        capacity[rng.random(size) < 0.15] = math.inf
    together = [
        rng.choice(ops, int(rng.integers(2, 4)), replace=False).tolist() for _ in range(rng.integers(3))
    ]
    pins: dict[int, int] = {}
    forbids: list[tuple[int, int]] = []
    if rng.random() < 0.4:
        op = int(rng.integers(ops))
        pins = {op: int(rng.choice(np.flatnonzero(~unsupported[op])))}
    if rng.random() < 0.4:
        forbids = [(int(rng.integers(ops)), int(rng.integers(size))) for _ in range(2)]
    return Problem.make(
        graph,
        Cluster("drawn", tuple(Device(f"d{d}", kind) for d, kind in enumerate(kinds))),
        model,
        time=np.where(unsupported, math.inf, amounts((ops, size), MOMENTS)),
        size=amounts(graph.tensors, SIZES),
        latency=weight * amounts((size, size), MOMENTS),
        rate=weight * amounts((size, size), MOMENTS),
        send_latency=weight * amounts(size, MOMENTS),
        send_rate=weight * amounts(size, MOMENTS),
        recv_latency=weight * amounts(size, MOMENTS),
        recv_rate=weight * amounts(size, MOMENTS),
        memory=memory,
        resident=resident,
        capacity=capacity,
        colocation=together,
        pins=pins,
        forbids=forbids,
    )


def _graph(rng: np.random.Generator, ops: int, short: bool) -> Graph:
    """A DAG whose indices are no topological order; ops have up to three outputs, the last some are backward."""
    order = rng.permutation(ops).tolist()
    place = {v: i for i, v in enumerate(order)}
    forward = int(rng.integers(ops // 2, ops + 1))
    density = float(rng.choice([0.15, 0.3, 0.5]))
    builder = GraphBuilder("drawn")

    def weight() -> float:
        return float(rng.choice(SIZES)) if short else float(rng.lognormal())

    for v in range(ops):
        builder.op(f"op{v}", param_bytes=weight(), backward=place[v] >= forward)
    for v in range(ops):
        later = order[place[v] + 1 :]
        for _ in range(int(rng.choice([1, 1, 1, 2, 3]))):
            readers = [u for u in later if rng.random() < density]
            builder.tensor(v, bytes=weight(), consumers=readers)
    return builder.build()
