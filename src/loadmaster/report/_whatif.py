"""The same problem on other hardware, or with other costs: what would change?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from loadmaster.hardware import Cluster
from loadmaster.plan import finite
from loadmaster.problem import Placement, Problem, evaluate
from loadmaster.problem.bounds import lower_bound

__all__ = [
    "VARIATIONS",
    "faster_links",
    "more_memory",
    "noise_document",
    "one_more_device",
    "what_if_documents",
]

GIB = 2.0**30
NOISE = 0.2
SAMPLES = 50


def faster_links(problem: Problem) -> Problem:
    """Twice the bandwidth everywhere; latencies stay."""
    return replace(
        problem, rate=problem.rate / 2, send_rate=problem.send_rate / 2, recv_rate=problem.recv_rate / 2
    )


def more_memory(problem: Problem) -> Problem:
    """1 GiB more on every device."""
    return replace(problem, capacity=problem.capacity + GIB)


def one_more_device(problem: Problem) -> Problem:
    """A twin of the fastest device: the one that would run all ops together in the shortest time.

    It is linked to the others as its original is; between the two, data go through the host's memory.
    """
    total = np.where(np.isfinite(problem.time), problem.time, problem.mean_time[:, None] * 10).sum(axis=0)
    total[list(problem.surplus)] = np.inf
    best = int(np.argmin(total))
    device = problem.cluster.devices[best]
    name = next(name for i in range(2, 1000) if (name := f"{device.name}-{i}") not in problem.cluster.index)

    def square(table: np.ndarray[Any, Any], send: np.ndarray[Any, Any], recv: np.ndarray[Any, Any]) -> Any:
        wide = np.zeros((problem.devices + 1, problem.devices + 1))
        wide[:-1, :-1] = table
        wide[-1, :-1], wide[:-1, -1] = table[best], table[:, best]
        wide[-1, best] = wide[best, -1] = send[best] + recv[best]
        return wide

    def longer(values: np.ndarray[Any, Any]) -> Any:
        return np.append(values, values[best])

    forbidden = np.column_stack([problem.forbidden, problem.forbidden[:, best]])
    return replace(
        problem,
        cluster=Cluster(
            problem.cluster.name,
            (*problem.cluster.devices, replace(device, name=name)),
            host=problem.cluster.host,
        ),
        time=np.column_stack([problem.time, problem.time[:, best]]),
        latency=square(problem.latency, problem.send_latency, problem.recv_latency),
        rate=square(problem.rate, problem.send_rate, problem.recv_rate),
        send_latency=longer(problem.send_latency),
        send_rate=longer(problem.send_rate),
        recv_latency=longer(problem.recv_latency),
        recv_rate=longer(problem.recv_rate),
        capacity=longer(problem.capacity),
        forbidden=forbidden,
        origin=None,
    )


VARIATIONS: dict[str, Callable[[Problem], Problem]] = {
    "twice the bandwidth of every link": faster_links,
    "1 GiB more memory on every device": more_memory,
    "one more of the fastest device": one_more_device,
}
"""What is asked -> the problem that answers it."""


def what_if_documents(
    problem: Problem, placement: Placement, *, again: Callable[[Problem], float] | None = None
) -> list[dict[str, Any]]:
    """What the same placement would cost, what no placement could beat, and, where asked, what a new search finds.

    ``again`` is given a problem and returns the cost of a fresh placement.
    """
    documents = []
    for question, variation in VARIATIONS.items():
        varied = variation(problem)
        document = {
            "what_if": question,
            "cost": finite(evaluate(varied, placement).cost),
            "bound": finite(lower_bound(varied).value),
        }
        if again is not None:
            document["placed_again"] = finite(again(varied))
        documents.append(document)
    return documents


def noise_document(problem: Problem, placement: Placement, *, seed: int = 0) -> dict[str, Any]:
    """The cost if every op time is wrong by up to 20 % either way: mean, and what 90 % of draws stay between."""
    rng = np.random.default_rng(seed)
    costs = np.array(
        [
            evaluate(
                replace(problem, time=problem.time * rng.uniform(1 - NOISE, 1 + NOISE, problem.time.shape)),
                placement,
            ).cost
            for _ in range(SAMPLES)
        ]
    )
    low, high = np.quantile(costs, [0.05, 0.95]) if np.isfinite(costs).all() else (np.inf, np.inf)
    return {
        "noise": NOISE,
        "samples": SAMPLES,
        "mean": finite(costs.mean()),
        "low": finite(low),
        "high": finite(high),
    }
