"""The problems of the conformance suite, each under any execution model. They are made once."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from loadmaster.graph import Graph, GraphBuilder, layered
from loadmaster.hardware import accelerators, roofline
from loadmaster.problem import Concurrent, ExecutionModel, Offload, Pipeline, Problem, Serial

__all__ = [
    "IMPOSSIBLE",
    "MODELS",
    "ODD",
    "constrained",
    "free_of_cost",
    "impossible",
    "label",
    "odd",
    "on_one_device",
    "plain",
    "small",
    "training",
]

MODELS: tuple[ExecutionModel, ...] = (
    Serial(),
    Concurrent(),
    Concurrent(schedule="static"),
    Concurrent(memory="peak"),
    Pipeline(),
    Pipeline(contiguity="device"),
    Pipeline(contiguity="chain"),
    Pipeline(comm="overlap"),
    Pipeline(objective="fw+bw"),
    Pipeline(microbatches=4),
    Offload(),
    Offload(max_calls=2),
)


def label(model: ExecutionModel) -> str:
    """An execution model with its settings, in a few words."""
    return " ".join([model.name, *(f"{value}" for value in model.settings.values())])


def _made(graph: Graph, model: ExecutionModel, devices: int = 2, **more: Any) -> Problem:
    cluster = accelerators(devices, 1)
    return Problem.make(graph, cluster, model, time=roofline(graph, cluster), **more)


@cache
def plain(model: ExecutionModel, ops: int, *, width: int = 8, seed: int = 0, devices: int = 2) -> Problem:
    """Accelerators and a CPU, and no constraint."""
    return _made(layered(ops, width=width, seed=seed), model, devices)


@cache
def small(model: ExecutionModel) -> Problem:
    """Few enough ops to try all placements; a pin, colocation and memory."""
    graph = layered(8, width=3, seed=14)
    # At the peak tensors count too, which are larger by far.
    capacity = np.full(3, np.inf if getattr(model, "memory", "sum") == "peak" else 6.0) * _unit(model)
    memory = np.full(8, _unit(model))
    return _made(graph, model, colocation=[[2, 3]], pins={0: 2}, memory=memory, capacity=capacity)


def _unit(model: ExecutionModel) -> float:
    """Bytes of an op: so many that buffers for microbatches, where there are some, hardly matter."""
    return 1e15 if isinstance(model, Pipeline) and model.microbatches else 1.0


@cache
def constrained(model: ExecutionModel) -> Problem:
    """Memory that no device has enough of alone, a pin, a forbidden op, an unsupported op, colocation."""
    graph = layered(24, width=3, seed=5)
    cluster = accelerators(3, 1)
    time = roofline(graph, cluster)
    time[3, 0] = np.inf
    memory = np.full(graph.n, _unit(model))
    capacity = np.array([10.0, 10.0, 10.0, 12.0]) * _unit(model)
    if isinstance(model, Offload) or (isinstance(model, Concurrent) and model.memory == "peak"):
        capacity[3] = np.inf
    first, second = graph.topological_order[[0, 1]].tolist()
    last = int(graph.topological_order[-1])
    return Problem.make(
        graph, cluster, model, time=time, memory=memory, capacity=capacity, colocation=[[first, second]],
        pins={last: 3}, forbids=[(10, 0)],
    )  # fmt: skip


@cache
def training(model: ExecutionModel, ops: int = 12) -> Problem:
    """A chain with skips and its mirror image as the backward pass, on the same device op by op."""
    b = GraphBuilder("training")
    forward = [b.op(f"f{i}", flops=1e9 * (1 + i % 3), bytes_written=1e6, param_bytes=1e6) for i in range(ops)]
    backward = [b.op(f"b{i}", flops=2e9 * (1 + i % 3), bytes_written=1e6, backward=True) for i in range(ops)]
    for i in range(ops):
        readers = [forward[j] for j in (i + 1, i + 3) if j < ops] + [backward[i]]
        b.tensor(forward[i], bytes=1e6, consumers=readers)
        if i:
            b.tensor(backward[i], bytes=1e6, consumers=[backward[i - 1]])
    return _made(b.build(), model, colocation=[[i, ops + i] for i in range(ops)])


ODD = ("empty", "one op", "disconnected", "small")


@cache
def odd(model: ExecutionModel, shape: str) -> Problem:
    """A graph of an odd shape, one of ``ODD``."""
    graph = {
        "empty": lambda: GraphBuilder("empty").build(),
        "one op": lambda: layered(1),
        "disconnected": lambda: layered(12, width=12, degree=0.0, seed=7),
        "small": lambda: layered(8, width=2, seed=8),
    }[shape]()
    return _made(graph, model)


@cache
def free_of_cost(model: ExecutionModel) -> Problem:
    """Nothing takes any time."""
    none, nothing = np.zeros((3, 3)), np.zeros(3)
    return Problem.make(
        layered(10, width=2, seed=9), accelerators(2, 1), model, time=np.zeros((10, 3)), latency=none, rate=none,
        send_latency=nothing, send_rate=nothing, recv_latency=nothing, recv_rate=nothing,
    )  # fmt: skip


@cache
def on_one_device(model: ExecutionModel) -> Problem:
    """A CPU and nothing else."""
    graph, cluster = layered(10, width=2, seed=10), accelerators(0, 1)
    return Problem.make(graph, cluster, model, time=roofline(graph, cluster))


IMPOSSIBLE = {
    "unsupported": "op2",
    "pin": "acc0",
    "forbidden": "op4",
    "colocation": "op5",
    "one op too large": "memory",
    "all too large": "memory",
    "pinned too large": "acc1",
}
"""What makes a problem infeasible, and a word of the error that says so."""


@cache
def impossible(model: ExecutionModel, change: str) -> Problem:
    """A problem without a feasible placement, by one of ``IMPOSSIBLE``."""
    graph, cluster = layered(8, width=2, seed=12), accelerators(2, 1)
    time = roofline(graph, cluster)
    memory, capacity = np.ones(8), np.full(3, np.inf)
    more: dict[str, Any] = {}
    if change == "unsupported":
        time[2] = np.inf
    elif change == "pin":
        time[3, 0] = np.inf
        more["pins"] = {3: 0}
    elif change == "forbidden":
        more["forbids"] = [(4, d) for d in range(3)]
    elif change == "colocation":
        time[5, :2] = np.inf
        more["colocation"] = [[5, 6]]
        more["forbids"] = [(6, 2)]
    elif change == "one op too large":
        memory[1], capacity = 9.0, np.full(3, 8.0)
    elif change == "all too large":
        capacity = np.full(3, 2.0)
    elif change == "pinned too large":
        capacity = np.array([9.0, 2.0, 9.0])
        more["pins"] = {v: 1 for v in range(3)}
    return Problem.make(graph, cluster, model, time=time, memory=memory, capacity=capacity, **more)
