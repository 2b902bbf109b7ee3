"""Small problems that the tests of several learned placers use."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from loadmaster.graph import layered
from loadmaster.hardware import accelerators
from loadmaster.placers import Budget, Placer, ProgressCallback, Search
from loadmaster.problem import ExecutionModel, Problem, Serial, Solution

__all__ = ["layers", "path", "place_telling_always", "scored_graphs"]


def layers(
    n: int,
    seed: int = 1,
    *,
    width: int,
    devices: int = 2,
    model: ExecutionModel | None = None,
    **more: object,
) -> Problem:
    """A problem whose optimum meets no bound, so that nobody stops early."""
    graph, cluster = layered(n, width=width, seed=seed), accelerators(devices - 1, 1)
    rng = np.random.default_rng(seed)
    return Problem.make(
        graph, cluster, model or Serial(), time=0.5 + rng.random((n, devices)), size=rng.random(graph.tensors),
        latency=0.1 * (1 - np.eye(devices)), rate=0.2 * (1 - np.eye(devices)), **more,  # type: ignore[arg-type]
    )  # fmt: skip


def place_telling_always(
    placer: Placer, problem: Problem, budget: Budget, tell: ProgressCallback, seed: int = 2
) -> Solution:
    """Place, and be told of progress every time, not ten times a second at most."""
    quiet = Search.tell
    try:
        Search.tell = lambda self, *, always=False: quiet(self, always=True)  # type: ignore[method-assign]
        return placer.place(problem, budget=budget, seed=seed, on_progress=tell)
    finally:
        Search.tell = quiet  # type: ignore[method-assign]


def path(n: int) -> tuple[np.ndarray, np.ndarray]:
    """The ends of the arcs of a path."""
    return np.arange(n - 1, dtype=np.int32), np.arange(1, n, dtype=np.int32)


@st.composite
def scored_graphs(draw: st.DrawFn) -> tuple[int, np.ndarray, np.ndarray, np.ndarray]:
    """Nodes, undirected edges (first < second) and distinct scores."""
    n = draw(st.integers(1, 14))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    first, second = np.nonzero(np.triu(rng.random((n, n)) < draw(st.sampled_from([0.1, 0.3, 0.8])), 1))
    return (
        n,
        first.astype(np.int32),
        second.astype(np.int32),
        rng.permutation(len(first)) / (len(first) + 1.0),
    )
