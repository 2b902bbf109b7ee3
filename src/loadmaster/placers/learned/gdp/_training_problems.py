"""Problems to train ``gdp`` on: random graphs and small members of the zoo's families, on random clusters."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from loadmaster import zoo
from loadmaster.errors import InfeasibleError
from loadmaster.graph import Graph, Network, layered
from loadmaster.hardware import Cluster, Device, Link, roofline
from loadmaster.placers.frame.feasible import prove_infeasible
from loadmaster.problem import Concurrent, ExecutionModel, Pipeline, Problem, Serial

__all__ = ["FAMILIES", "random_network", "training_problem"]

Rng = np.random.Generator


def _pick(rng: Rng, *choices: int) -> int:
    return int(choices[int(rng.integers(len(choices)))])


def _random_graph(rng: Rng) -> Graph:
    n = int(rng.integers(40, 400))
    return layered(
        n,
        width=int(rng.integers(1, max(3, n // 12))),
        degree=float(rng.uniform(1.0, 3.5)),
        skip=float(rng.uniform(0.0, 0.5)),
        spread=float(rng.uniform(0.0, 1.5)),
        intensity=float(10.0 ** rng.uniform(1.0, 3.5)),
        seed=int(rng.integers(2**31)),
    )


FAMILIES: dict[str, Callable[[Rng], str]] = {
    "random": lambda rng: "",
    "rnnlm": lambda rng: (
        f"rnnlm-{_pick(rng, 1, 2, 3, 4)}?seq={_pick(rng, 3, 4, 5, 6)}&training={_pick(rng, 0, 1)}"
        f"&width={_pick(rng, 512, 1024, 2048)}&batch={_pick(rng, 16, 64)}"
    ),
    "gnmt": lambda rng: (
        f"gnmt-{_pick(rng, 2, 3, 4)}?seq={_pick(rng, 2, 3)}&training={_pick(rng, 0, 0, 1)}"
        f"&width={_pick(rng, 512, 1024)}&batch={_pick(rng, 16, 64)}"
    ),
    "transformer-xl": lambda rng: (
        f"transformer-xl-{_pick(rng, 1, 2, 3, 4)}?training={_pick(rng, 0, 1)}"
        f"&batch={_pick(rng, 2, 8)}&seq={_pick(rng, 64, 256, 512)}"
    ),
    "bert": lambda rng: (
        f"bert-base?layers={_pick(rng, 1, 2, 4, 6)}&training={_pick(rng, 0, 0, 1)}"
        f"&seq={_pick(rng, 16, 64, 128, 384)}&batch={_pick(rng, 1, 8)}"
    ),
    "gpt2": lambda rng: (
        f"gpt2?layers={_pick(rng, 1, 2, 4, 6)}&training={_pick(rng, 0, 0, 1)}"
        f"&seq={_pick(rng, 64, 256, 1024)}&batch={_pick(rng, 1, 4)}"
    ),
    "gpt2-decode": lambda rng: f"gpt2-decode?layers={_pick(rng, 2, 4, 8)}&batch={_pick(rng, 1, 16)}",
    "inception": lambda rng: f"inception-v3?batch={_pick(rng, 1, 8, 32)}&size={_pick(rng, 139, 299)}",
    "resnet": lambda rng: (
        f"resnet-{_pick(rng, 50, 101)}?batch={_pick(rng, 1, 8, 32)}&size={_pick(rng, 112, 224)}"
    ),
    "two-tower": lambda rng: f"two-tower?batch={_pick(rng, 1, 8, 32)}&size={_pick(rng, 112, 224)}",
    "amoebanet": lambda rng: (
        f"amoebanet?layers=3&training=0&filters={_pick(rng, 64, 208)}&batch={_pick(rng, 1, 8, 32)}"
    ),
    "unet": lambda rng: (
        f"unet?batch={_pick(rng, 1, 4)}&training={_pick(rng, 0, 1)}&size={_pick(rng, 284, 572)}"
    ),
    "wavenet": lambda rng: (
        f"wavenet-{_pick(rng, 9, 18)}?training={_pick(rng, 0, 1)}&seq={_pick(rng, 4000, 16000)}"
        f"&residual={_pick(rng, 64, 256)}"
    ),
    "switch": lambda rng: f"switch-base-{_pick(rng, 2, 4)}?batch={_pick(rng, 1, 8)}",
}
"""Family -> the name in the zoo of a random small member; ``random`` is no member of the zoo."""

RANDOM_SHARE = 0.5
"""Share of the problems whose graph is random."""


def random_network(rng: Rng, families: Sequence[str]) -> Network:
    """A small member of one of the families; half of the time a random graph, where that is one of them."""
    name = families[int(rng.integers(len(families)))]
    if "random" in families and rng.random() < RANDOM_SHARE:
        name = "random"
    known = FAMILIES[name](rng)
    return zoo.model(known) if known else Network(_random_graph(rng))


def training_problem(seed: Sequence[int], kind: str, families: Sequence[str]) -> Problem:
    """A problem of the kind ``time`` or ``load``; the same for the same seed."""
    rng = np.random.default_rng(list(seed))
    while True:
        model = random_network(rng, families)
        problem = _on_cluster(rng, model, _execution(rng, kind))
        try:
            prove_infeasible(problem)
        except InfeasibleError:
            continue
        if (problem.class_allowed.sum(axis=1) > 1).any():
            return problem


def _execution(rng: Rng, kind: str) -> ExecutionModel:
    draw = rng.random()
    if kind == "time":
        return Concurrent() if draw < 0.85 else Concurrent(schedule="static")
    if draw < 0.15:
        return Serial()
    if draw < 0.75:
        return Pipeline()
    return Pipeline(comm="overlap") if draw < 0.85 else Pipeline(contiguity="chain")


def _on_cluster(rng: Rng, model: Network, execution: ExecutionModel) -> Problem:
    """The model on two to eight devices: some alike, some not, with fast or slow links; half of the time memory
    is short."""
    graph = model.graph
    accelerators = int(rng.integers(1, 8))
    host = Device(
        "cpu", "cpu", flops=10 ** rng.uniform(11.5, 12.5), bandwidth=10 ** rng.uniform(10.5, 11.2),
        launch=10 ** rng.uniform(-6.3, -5.5), efficiency={"default": 0.5},
    )  # fmt: skip
    alike = rng.random() < 0.6
    flops, bandwidth, launch = (
        10 ** rng.uniform(12.3, 13.5),
        10 ** rng.uniform(11.2, 12.2),
        10 ** rng.uniform(-5.8, -5),
    )
    total = float((graph.param_bytes + graph.bytes_written).sum())
    short = rng.random() < 0.3
    devices = [host]
    for i in range(accelerators):
        factor = 1.0 if alike else 10 ** rng.uniform(-0.6, 0.0)
        capacity = total * float(rng.uniform(0.4, 1.2)) if short else np.inf
        devices.append(
            Device(
                f"acc{i}", "acc", flops=flops * factor, bandwidth=bandwidth * factor, launch=launch,
                capacity=capacity, efficiency={"default": 0.5}, saturation={"default": 10 ** rng.uniform(3, 5)},
            )
        )  # fmt: skip
    pcie, wire = 10 ** rng.uniform(9.5, 10.8), 10 ** rng.uniform(9.5, 11.3)
    latency = 10 ** rng.uniform(-5.7, -4.3)
    size = len(devices)
    links = tuple(
        tuple(None if d == e else Link(latency, pcie if 0 in (d, e) else wire) for e in range(size))
        for d in range(size)
    )
    cluster = Cluster("random", tuple(devices), links)
    return Problem.make(
        graph,
        cluster,
        execution,
        time=roofline(graph, cluster),
        colocation=model.colocation,
        pins=dict.fromkeys((*model.inputs, *model.outputs), 0),
    )
