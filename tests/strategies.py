"""Random small problems and placements for property tests.

All numbers are short binary fractions, so that sums are exact and things happen at the same instant often.
"""

from __future__ import annotations

import math
from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
from hypothesis import strategies as st

from loadmaster.graph import Graph, GraphBuilder
from loadmaster.hardware import Cluster, Device
from loadmaster.problem import Concurrent, ExecutionModel, Offload, Pipeline, Placement, Problem, Serial

__all__ = ["graphs", "models", "placements", "problems"]

MOMENTS = [0.0, 0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0]
SIZES = [0.0, 0.25, 0.5, 1.0, 2.0, 4.0]


def _array(shape: int | tuple[int, ...], values: list[float]) -> st.SearchStrategy[np.ndarray]:
    return hnp.arrays(np.float64, shape, elements=st.sampled_from(values), fill=st.sampled_from(values))


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
    n = draw(st.integers(min_ops, max_ops))
    order = draw(st.permutations(range(n)))
    first_backward = draw(st.integers(0, n)) if backward else n
    builder = GraphBuilder("random")
    later = {v: order[i + 1 :] for i, v in enumerate(order)}
    for v in range(n):
        builder.op(
            f"op{v}", param_bytes=draw(st.sampled_from(SIZES)), backward=order.index(v) >= first_backward
        )
    for v in draw(st.permutations(range(n))):
        for _ in range(draw(st.sampled_from([0, 1, 1, 1, 2, 3]))):
            readers = draw(st.lists(st.sampled_from(later[v]), max_size=4, unique=True)) if later[v] else []
            builder.tensor(v, bytes=draw(st.sampled_from(SIZES)), consumers=readers)
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
    size = draw(devices if devices is not None else st.integers(1, 5))
    n, some = graph.n, st.booleans() if constrained else st.just(False)
    kinds = draw(st.lists(st.sampled_from(["cpu", "acc"]), min_size=size, max_size=size))
    capacity = (
        draw(_array(size, [*(2 * SIZES[2:]), 8.0, 16.0, math.inf])) if draw(some) else np.full(size, math.inf)
    )
    time = draw(_array((n, size), MOMENTS))
    unsupported = draw(hnp.arrays(np.bool_, (n, size), elements=st.sampled_from([False, False, False, True])))
    unsupported[np.arange(n), draw(hnp.arrays(np.int64, n, elements=st.integers(0, size - 1)))] = False
    ops = st.integers(0, max(n - 1, 0))
    return Problem.make(
        graph,
        Cluster("random", tuple(Device(f"d{d}", kind) for d, kind in enumerate(kinds))),
        draw(models()) if model is None else model if isinstance(model, ExecutionModel) else draw(model),
        time=np.where(unsupported, math.inf, time),
        size=draw(_array(graph.tensors, SIZES)),
        latency=draw(_array((size, size), MOMENTS)),
        rate=draw(_array((size, size), MOMENTS)),
        send_latency=draw(_array(size, MOMENTS)),
        send_rate=draw(_array(size, MOMENTS)),
        recv_latency=draw(_array(size, MOMENTS)),
        recv_rate=draw(_array(size, MOMENTS)),
        memory=draw(_array(n, SIZES)),
        resident=draw(_array(n, SIZES)),
        capacity=capacity,
        colocation=draw(st.lists(st.lists(ops, max_size=3), max_size=2)) if n and draw(some) else (),
        pins=draw(st.dictionaries(ops, st.integers(0, size - 1), max_size=2)) if n and draw(some) else {},
        forbids=draw(st.lists(st.tuples(ops, st.integers(0, size - 1)), max_size=2))
        if n and draw(some)
        else (),
    )


@st.composite
def placements(draw: Any, problem: Problem, *, orders: bool = False) -> Placement:
    """A placement: op by op, class by class, or only where each class may go (if it may go anywhere).

    With ``orders`` it brings an order: a topological one, or any, which may have ties and may deadlock.
    """
    n, size = problem.n, problem.devices
    device = draw(hnp.arrays(np.int32, n, elements=st.integers(0, size - 1), fill=st.nothing()))
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
        random = hnp.arrays(np.int32, n, elements=st.integers(0, 2 * n), fill=st.nothing())
        order = draw(
            st.one_of(st.just(problem.graph.position), st.just(np.argsort(problem.priority_order)), random)
        )
    return Placement(device.astype(np.int32), None if order is None else order.astype(np.int32))
