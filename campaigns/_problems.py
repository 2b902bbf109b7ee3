"""Problems of all kinds, drawn from a seed: every setting of every model, ties, zeros, and both ends of the scale."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from loadmaster.errors import InputError
from loadmaster.graph import Graph, GraphBuilder
from loadmaster.hardware import Cluster, Device
from loadmaster.problem import Concurrent, ExecutionModel, Offload, Pipeline, Placement, Problem, Serial

__all__ = ["random_model", "random_placement", "random_problem"]

Rng = np.random.Generator

SCALES = (1.0, 1.0, 1.0, 2.0**-60, 2.0**60, 2.0**-1000, 2.0**250, 1e-6, 3.7)
"""What all seconds, or all bytes, of a problem are multiplied by."""
NUMBERS: tuple[tuple[float, ...], ...] = (
    (0.0, 0.0, 0.5, 1.0, 1.0, 2.0),
    (1.0,),
    (0.0,),
    (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0),
    (0.0, 1.0, 1e9),
    (0.1, 0.2, 0.3, 0.7),
    (1.0, 1.0 + 2.0**-50, 1.0 - 2.0**-51),
    (5e-324, 0.0, 1e-300, 1.0),
)
"""Where the numbers of one kind come from: ties, zeros, decimals that round, almost equal, denormal."""


def random_model(rng: Rng) -> ExecutionModel:
    """Any model with any settings."""
    which = int(rng.integers(4))
    if which == 0:
        return Serial()
    if which == 1:
        return Concurrent(_of(rng, ("event", "static")), _of(rng, ("sum", "peak")))
    if which == 2 and rng.random() < 0.4:
        interleaved = int(rng.choice([1, 1, 1, 2]))
        schedule = "1f1b" if interleaved > 1 else _of(rng, ("1f1b", "gpipe"))
        return Pipeline(
            microbatches=int(rng.choice([1, 2, 3, 4, 8])),
            schedule=schedule,
            stages_per_rank=interleaved,
            checkpoint=_of(rng, ("never", "auto")),
        )
    if which == 2:
        return Pipeline(
            _of(rng, ("none", "device", "chain")), _of(rng, ("sum", "overlap")), _of(rng, ("sum", "fw+bw"))
        )
    return Offload(int(rng.choice([1, 1, 2, 3, 7])))


def random_problem(rng: Rng, *, ops: int = 8, model: ExecutionModel | None = None) -> Problem | None:
    """A problem of at most so many ops; None where its numbers were refused, as some must be."""
    model = model or random_model(rng)
    graph = _random_graph(rng, int(rng.integers(0 if rng.random() < 0.05 else 1, ops + 1)), model)
    n, size = graph.n, int(rng.choice([1, 2, 2, 3, 3, 4, 5]))
    kinds = rng.choice(["cpu", "acc"], size).tolist()
    if isinstance(model, Offload) and rng.random() < 0.8:
        kinds = ["acc"] * (size - 1) + ["cpu"]
    cluster = Cluster("random", tuple(Device(f"d{d}", kind) for d, kind in enumerate(kinds)))
    seconds, its_bytes = float(rng.choice(SCALES)), float(rng.choice([1.0, 1.0, 2.0**40, 2.0**-40]))
    same = rng.random() < 0.3  # devices of a kind are interchangeable, as on a real machine
    of = np.array([kinds.index(kind) if same else d for d, kind in enumerate(kinds)])
    time = (_numbers(rng, (n, size)) * seconds)[:, of]
    if rng.random() < 0.3 and n:
        unsupported = rng.random((n, size)) < 0.2
        unsupported[np.arange(n), rng.integers(0, size, n)] = rng.random() < 0.02
        time = np.where(unsupported, math.inf, time)
    free = rng.random() < 0.1
    links: dict[str, Any] = {}
    for name, shape in (("latency", (size, size)), ("send_latency", (size,)), ("recv_latency", (size,))):
        links[name] = np.zeros(shape) if free else _numbers(rng, shape) * seconds
    for name, shape in (("rate", (size, size)), ("send_rate", (size,)), ("recv_rate", (size,))):
        links[name] = np.zeros(shape) if free else _numbers(rng, shape) * seconds / its_bytes
    if rng.random() < 0.5:
        links["recv_latency"], links["recv_rate"] = links["send_latency"], links["send_rate"]
    memory = _numbers(rng, n) * its_bytes
    capacity = np.full(size, math.inf)
    if rng.random() < 0.4:
        room = float(memory.sum()) * float(rng.choice([0.0, 0.3, 0.5, 0.6, 1.0, 1.5]))
        capacity = rng.choice([math.inf, room, room / 2, room], size)
    constraints: dict[str, Any] = {}
    if n and rng.random() < 0.3:
        constraints["colocation"] = [
            rng.integers(0, n, int(rng.integers(0, 4))).tolist() for _ in range(int(rng.integers(1, 4)))
        ]
    if n and rng.random() < 0.25:
        constraints["pins"] = {
            int(rng.integers(n)): int(rng.integers(size)) for _ in range(rng.integers(1, 3))
        }
    if n and rng.random() < 0.25:
        constraints["forbids"] = [
            (int(rng.integers(n)), int(rng.integers(size))) for _ in range(rng.integers(1, 4))
        ]
    if size > 1 and rng.random() < 0.05:
        constraints["surplus"] = (int(rng.integers(size)),)
    try:
        return Problem.make(
            graph,
            cluster,
            model,
            time=time,
            size=_numbers(rng, graph.tensors) * its_bytes,
            memory=memory,
            resident=_numbers(rng, n) * its_bytes if rng.random() < 0.5 else memory,
            capacity=capacity,
            kept=_numbers(rng, n) * its_bytes
            if getattr(model, "microbatches", 0) and rng.random() < 0.5
            else None,
            **links,
            **constraints,
        )
    except InputError:
        return None


def random_placement(rng: Rng, problem: Problem) -> Placement:
    """Any devices; class by class; where allowed; with an order or calls, which may be wrong."""
    n, size = problem.n, problem.devices
    device = rng.integers(0, size, n).astype(np.int32)
    how = rng.random()
    if n and how < 0.8:
        first = problem.members[1][problem.members[0][:-1]]
        device = device[first][problem.class_of]
        if how < 0.5:
            row = problem.class_allowed
            choice = np.array([rng.choice(np.flatnonzero(r)) if r.any() else 0 for r in row], np.int32)
            device = choice[problem.class_of]
    order = call = None
    if isinstance(problem.model, Concurrent) and rng.random() < 0.4:
        kind = int(rng.integers(3))
        orders = (
            problem.graph.position,
            np.argsort(problem.priority_order),
            rng.integers(0, 2 * n + 1, n),
        )
        order = np.asarray(orders[kind], np.int32)
    if getattr(problem.model, "stages_per_rank", 1) > 1 and rng.random() < 0.7:
        call = rng.integers(0, 3, n).astype(np.int32)
    if isinstance(problem.model, Offload) and rng.random() < 0.4:
        call = rng.integers(0, int(rng.choice([1, 2, 3])) + 1, n).astype(np.int32)
    return Placement(device, order=order, call=call)


def _random_graph(rng: Rng, n: int, model: ExecutionModel) -> Graph:
    """A DAG whose indices are no topological order; ops may have several outputs, or outputs that nobody reads."""
    order = rng.permutation(n).tolist()
    training = rng.random() < 0.35 and not isinstance(model, Offload)
    first_backward = int(rng.integers(0, n + 1)) if training else n
    dense = float(rng.choice([0.1, 0.3, 0.6, 0.95]))
    shape = rng.random()
    ends = rng.random() < 0.15
    builder = GraphBuilder("random")
    for v in range(n):
        place = order.index(v)
        builder.op(
            f"op{v}",
            param_bytes=float(rng.integers(0, 3)),
            backward=place >= first_backward,
            boundary=ends and place in (0, n - 1),
        )
    for v in rng.permutation(n).tolist():
        place = order.index(v)
        later = order[place + 1 :]
        if shape < 0.2:
            later = later[:1]  # a chain
        elif shape < 0.3:
            later = later[-1:]  # everything meets at the end
        for _ in range(int(rng.choice([0, 1, 1, 1, 2, 3]))):
            readers = [u for u in later if shape < 0.3 or rng.random() < dense]
            builder.tensor(v, bytes=float(rng.choice([0.0, 1.0, 2.0])), consumers=readers)
    return builder.build()


def _numbers(rng: Rng, shape: Any) -> Any:
    source = NUMBERS[int(rng.choice(len(NUMBERS), p=[0.4, 0.08, 0.05, 0.2, 0.07, 0.1, 0.05, 0.05]))]
    return np.array(source)[rng.integers(0, len(source), shape)]


def _of(rng: Rng, choices: tuple[Any, ...]) -> Any:
    return choices[int(rng.integers(len(choices)))]
