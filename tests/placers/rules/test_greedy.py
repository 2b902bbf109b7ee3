"""The constructed placements are what a careful person would try first."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from loadmaster.graph import GraphBuilder
from loadmaster.hardware import accelerators
from loadmaster.placers import PLACERS, Budget
from loadmaster.problem import Pipeline, Problem


def test_inputs_on_the_host_do_not_end_stretches() -> None:
    # A chain of eight equal ops whose first and last read from the host: two accelerators share it evenly.
    b = GraphBuilder("chain")
    chain = [b.op(f"op{i}") for i in range(8)]
    images, labels = b.op("images"), b.op("labels")
    for u, v in ((images, chain[0]), (labels, chain[7]), *pairwise(chain)):
        b.tensor(u, bytes=1.0, consumers=[v])
    time = np.ones((10, 3))
    time[:, 2] = 50.0
    time[[images, labels]] = 0.0
    cluster = accelerators(2, 1)
    for contiguity in ("none", "device", "chain"):
        problem = Problem.make(
            b.build(), cluster, Pipeline(contiguity), time=time, pins={images: 2, labels: 2},
            **{key: np.zeros(3) for key in ("send_latency", "send_rate", "recv_latency", "recv_rate")},
        )  # fmt: skip
        solution = PLACERS["greedy"].place(problem, budget=Budget(evaluations=200))
        assert solution.cost == 4.0
