"""Random small problems and placements for property tests.

All numbers are short binary fractions, so that sums are exact and things happen at the same instant often.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from loadmaster.graph import Graph, GraphBuilder
from loadmaster.hardware import Cluster, Device
from loadmaster.problem import Concurrent, ExecutionModel, Offload, Pipeline, Placement, Problem, Serial

__all__ = ["graphs", "models", "placements", "problems"]

MOMENTS = [0.0, 0.0, 0.5, 1.0, 1.0, 2.0]
SIZES = [0.0, 0.5, 1.0, 1.0, 2.0]


class _Dice:
    """Arrays of arbitrary values from a seed.

    Drawing every number from hypothesis would be slow, and its habit of trying many zeros makes graphs without
    edges. What matters for a small counterexample, the numbers of ops and devices, is drawn from it.
    """

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def __call__(self, shape: int | tuple[int, ...], values: Sequence[Any]) -> np.ndarray:
        return np.array(values)[self.rng.integers(0, len(values), shape)]


DICE = st.integers(0, 2**32 - 1).map(_Dice)


def models() -> st.SearchStrategy[ExecutionModel]:
    """Any execution model with any settings."""
    return st.one_of(
        st.builds(Serial),
        st.builds(Concurrent, st.sampled_from(["event", "static"]), st.sampled_from(["sum", "peak"])),
        st.builds(
            Pipeline,
            st.sampled_from(["none", "device", "chain"]),
            st.sampled_from(["sum", "overlap"]),
            st.sampled_from(["sum", "fw+bw"]),
        ),
        st.builds(Offload, st.integers(1, 3)),
    )


@st.composite
def graphs(draw: Any, *, min_ops: int = 1, max_ops: int = 8, backward: bool = False) -> Graph:
    """A DAG whose indices are not a topological order; ops have up to three outputs, some read by nobody."""
    n, dice = draw(st.integers(min_ops, max_ops)), draw(DICE)
    order = dice.rng.permutation(n).tolist()
    first_backward = draw(st.integers(0, n)) if backward else n
    builder = GraphBuilder("random")
    for v in range(n):
        its_bytes = float(dice(1, SIZES)[0])
        builder.op(f"op{v}", param_bytes=its_bytes, backward=order.index(v) >= first_backward)
    for v in dice.rng.permutation(n).tolist():
        later = order[order.index(v) + 1 :]
        for _ in range(int(dice(1, [1, 0, 1, 1, 2, 3])[0])):
            reads = dice(len(later), [False] * max(2, len(later) // 3) + [True])
            readers = [u for u, reads_it in zip(later, reads, strict=True) if reads_it]
            builder.tensor(v, bytes=float(dice(1, SIZES)[0]), consumers=readers)
    return builder.build()


@st.composite
def problems(
    draw: Any,
    model: ExecutionModel | st.SearchStrategy[ExecutionModel] | None = None,
    *,
    min_ops: int = 1,
    max_ops: int = 8,
    devices: st.SearchStrategy[int] | None = None,
    constrained: bool = True,
    backward: bool = False,
) -> Problem:
    """A problem under ``model`` (any if None), on one to five devices unless ``devices`` says otherwise.

    Every op is supported somewhere. With ``constrained`` there may be capacities, colocation, pins and
    forbidden devices, and then no placement at all may be feasible.
    """
    graph = draw(graphs(min_ops=min_ops, max_ops=max_ops, backward=backward))
    size = draw(devices if devices is not None else st.sampled_from([2, 3, 4, 5, 1]))
    dice, n, op, device = draw(DICE), graph.n, st.integers(0, max(graph.n - 1, 0)), st.integers(0, size - 1)
    limits = (
        draw(st.sets(st.sampled_from(["capacity", "colocation", "pins", "forbids"])))
        if constrained and n
        else ()
    )
    unsupported = dice((n, size), [False] * 15 + [True])
    unsupported[np.arange(n), dice(n, range(size))] = False
    return Problem.make(
        graph,
        Cluster(
            "random",
            tuple(Device(f"d{d}", kind) for d, kind in enumerate(dice(size, ["cpu", "acc"]).tolist())),
        ),
        draw(models()) if model is None else model if isinstance(model, ExecutionModel) else draw(model),
        time=np.where(unsupported, math.inf, dice((n, size), MOMENTS)),
        size=dice(graph.tensors, SIZES),
        latency=dice((size, size), MOMENTS),
        rate=dice((size, size), MOMENTS),
        send_latency=dice(size, MOMENTS),
        send_rate=dice(size, MOMENTS),
        recv_latency=dice(size, MOMENTS),
        recv_rate=dice(size, MOMENTS),
        memory=dice(n, SIZES),
        resident=dice(n, SIZES),
        capacity=dice(
            size, [math.inf, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0] if "capacity" in limits else [math.inf]
        ),
        colocation=draw(st.lists(st.lists(op, max_size=3), max_size=2)) if "colocation" in limits else (),
        pins=draw(st.dictionaries(op, device, max_size=2)) if "pins" in limits else {},
        forbids=draw(st.lists(st.tuples(op, device), max_size=2)) if "forbids" in limits else (),
    )


@st.composite
def placements(draw: Any, problem: Problem, *, orders: bool = False) -> Placement:
    """A placement: op by op, class by class, or only where each class may go (if it may go anywhere).

    With ``orders`` it brings an order: a topological one, or any, which may have ties and may deadlock.
    """
    n, size = problem.n, problem.devices
    dice = draw(DICE)
    device = dice(n, range(size))
    how = draw(st.sampled_from(["by op", "by class", "where allowed"]))
    if n and how != "by op":
        device = device[problem.members[1][problem.members[0][:-1]]][problem.class_of]
        if how == "where allowed":
            choices = [np.flatnonzero(row) if row.any() else np.arange(size) for row in problem.class_allowed]
            device = np.array(
                [
                    choices[problem.class_of[v]][device[v] % len(choices[problem.class_of[v]])]
                    for v in range(n)
                ]
            )
    order = None
    if orders:
        random = dice(n, range(2 * n + 1))
        order = draw(st.sampled_from([problem.graph.position, np.argsort(problem.priority_order), random]))
    return Placement(device.astype(np.int32), None if order is None else order.astype(np.int32))
