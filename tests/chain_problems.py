"""Problems with everything that a chain of stages has to respect: random small ones, longer ones, published ones."""

from __future__ import annotations

import itertools
import json
from functools import cache

import numpy as np
from hypothesis import strategies as st
from workload_files import WORKLOADS

from loadmaster.graph import GraphBuilder
from loadmaster.hardware import Cluster, Device
from loadmaster.problem import Pipeline, Problem

__all__ = ["MODELS", "SEEDS", "ladder", "random_problem", "small_enough", "throughput"]

MODELS = [Pipeline("chain", comm, objective) for comm in ("sum", "overlap") for objective in ("sum", "fw+bw")]
SEEDS = st.integers(0, 2**32 - 1)


def random_problem(seed: int, model: Pipeline, ops: int = 6, devices: int = 4) -> Problem:
    """A small problem of everything that a chain has to respect.

    Devices of one to three kinds; half of the graphs have a backward pass, with twins, orphans and lone forward
    ops; ops may be idle, tensors free, devices without communication; there may be memory, pins, forbidden and
    unsupported ops, and colocation that makes the class graph cyclic.
    """
    rng = np.random.default_rng(seed)
    training = rng.random() < 0.5
    forward = int(rng.integers(1, ops + 1 if not training else ops // 2 + 2))
    b = GraphBuilder("random")
    twins, together = [], []
    for i in range(forward):
        b.op(f"f{i}")
    for i in range(forward if training else 0):
        if rng.random() < 0.8:
            twins.append((i, b.op(f"b{i}", backward=True)))
            if rng.random() < 0.8:
                together.append([i, twins[-1][1]])
    dense = rng.choice([0.2, 0.4, 0.7])
    edges: dict[int, set[int]] = {}
    for i, j in itertools.combinations(range(forward), 2):
        if rng.random() < dense:
            edges.setdefault(i, set()).add(j)
    for i, back in twins:
        for j, other in twins:
            if j < i and rng.random() < dense:
                edges.setdefault(back, set()).add(other)
        for j in range(forward):
            if rng.random() < 0.3:
                edges.setdefault(j, set()).add(back)
    size = []
    for u in sorted(edges):
        readers = sorted(edges[u])
        for part in [readers, readers[:1]][: int(rng.integers(1, 3))]:
            b.tensor(u, bytes=1.0, consumers=part)
            size.append(rng.choice([0.0, 0.25, 0.5, 1.0, 3.0]))
    graph = b.build()
    n = graph.n
    if rng.random() < 0.3 and n > 2:
        together.append(rng.choice(n, 2, replace=False).tolist())
    kinds, count = int(rng.integers(1, 4)), int(rng.integers(1, devices + 1))
    kind = rng.integers(0, kinds, count)
    time = rng.choice([0.0] if rng.random() < 0.2 else [0.0, 0.0, 0.5, 1.0, 2.0, 3.25], (n, kinds))
    if rng.random() < 0.4:
        unsupported = rng.random((n, kinds)) < 0.1
        unsupported[np.arange(n), rng.integers(0, kinds, n)] = False
        time = np.where(unsupported, np.inf, time)
    rates = rng.choice([0.0, 0.0, 1.0, 2.0], (4, kinds))
    if rng.random() < 0.5:
        rates[2:] = rates[:2]
    limited = rng.random() < 0.5
    capacity = rng.choice([2.0, 4.0, 6.0, np.inf] if limited else [np.inf], kinds)
    nothing = np.zeros((count, count))
    return Problem.make(
        graph,
        Cluster("random", tuple(Device(f"d{d}", "acc") for d in range(count))),
        model,
        time=time[:, kind],
        size=np.array(size),
        latency=nothing,
        rate=nothing,
        send_latency=rates[0, kind] / 2,
        send_rate=rates[1, kind],
        recv_latency=rates[2, kind] / 2,
        recv_rate=rates[3, kind],
        memory=rng.choice([0.0, 1.0, 1.5, 2.0], n) if rng.random() < 0.7 else np.zeros(n),
        capacity=capacity[kind],
        colocation=together,
        pins={int(rng.integers(n)): int(rng.integers(count))} if rng.random() < 0.3 else {},
        forbids=[(int(rng.integers(n)), int(rng.integers(count)))] if rng.random() < 0.3 else [],
    )


def small_enough(problem: Problem) -> bool:
    return problem.devices**problem.classes <= 20_000


def ladder(seed: int, model: Pipeline) -> Problem:
    """A longer graph with parallel branches and long skips, too large for brute force."""
    rng = np.random.default_rng(seed)
    n, training = int(rng.integers(10, 26)), rng.random() < 0.5
    b = GraphBuilder("ladder")
    for i in range(n):
        b.op(f"f{i}")
    backward = [b.op(f"b{i}", backward=True) for i in range(n)] if training else []
    edges: dict[int, set[int]] = {}
    width = int(rng.integers(1, 4))
    for j in range(1, n):
        for i in {max(0, j - 1 - int(back)) for back in rng.integers(0, width + 1, 2)}:
            edges.setdefault(i, set()).add(j)
            if training and rng.random() < 0.8:
                edges.setdefault(backward[j], set()).add(backward[i])
        if rng.random() < 0.15:
            edges.setdefault(int(rng.integers(0, j)), set()).add(j)
    for i, back in enumerate(backward):
        edges.setdefault(i, set()).add(back)
    for u, readers in edges.items():
        b.tensor(u, bytes=1.0, consumers=sorted(readers))
    graph = b.build()
    kinds, count = int(rng.integers(1, 4)), int(rng.integers(2, 6))
    kind = rng.integers(0, kinds, count)
    rates = rng.choice([0.0, 1.0, 2.0], (4, kinds)) * rng.random()
    memory = rng.choice([0.0, 1.0, 2.0], graph.n)
    capacity = rng.choice([0.4, 0.6, 1.2, np.inf], kinds) * memory.sum()
    nothing = np.zeros((count, count))
    return Problem.make(
        graph,
        Cluster("ladder", tuple(Device(f"d{d}", "acc") for d in range(count))),
        model,
        time=(rng.random((graph.n, kinds)) * rng.choice([0, 1, 1, 3], (graph.n, 1)))[:, kind],
        size=rng.random(graph.tensors) * rng.choice([0.0, 0.1, 1.0, 3.0], graph.tensors),
        latency=nothing,
        rate=nothing,
        send_latency=rates[0, kind],
        send_rate=rates[1, kind],
        recv_latency=rates[2, kind],
        recv_rate=rates[3, kind],
        memory=memory,
        capacity=capacity[kind],
        colocation=[[i, back] for i, back in enumerate(backward) if rng.random() < 0.9],
    )


@cache
def throughput() -> dict[str, dict[str, float]]:
    path = WORKLOADS / "reference.json"
    return json.loads(path.read_text())["throughput"] if path.is_file() else {"none": {}}
