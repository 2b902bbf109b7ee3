"""Problems to pre-train ``hsdag`` on: graphs of many families on two to four unlike devices, and what is best there.

Of half of them the policy sees a model that is wrong, as models of machines are, and what is best is best on the
machine: it learns what can be told from a wrong model, and what cannot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from loadmaster.arrays import FloatArray, IntArray
from loadmaster.errors import InfeasibleError
from loadmaster.graph import Graph, Network
from loadmaster.hardware import Cluster, Device, Link, roofline
from loadmaster.placers.cuts.min_cut import MinCut
from loadmaster.placers.frame.feasible import prove_infeasible
from loadmaster.placers.frame.search import Budget
from loadmaster.placers.learned.gdp import Gdp
from loadmaster.placers.learned.gdp._training_problems import random_network
from loadmaster.placers.learned.hsdag._pairs import guesses
from loadmaster.placers.learned.units import units_of
from loadmaster.placers.search.local_search import LocalSearch
from loadmaster.problem import Concurrent, ExecutionModel, Problem, Serial, SimulatedEvaluator

__all__ = ["Material", "best_known", "distorted", "material", "training_problem", "unlike"]

Rng = np.random.Generator

ATTEMPTS = 8
"""To draw a problem where more than one device is of use."""
MOST = 500
"""Ops of a problem that is trained on: smaller ones teach more for the time they take."""
GUESSING = 400
"""Evaluations of ``gdp`` that local search begins with: alone it can end 20 % above what it finds from there."""


def training_problem(seed: Sequence[int], families: Sequence[str]) -> Problem:
    """A problem of ``serial`` or ``concurrent``; the same for the same seed."""
    rng = np.random.default_rng(list(seed))
    while True:
        network = random_network(rng, families)
        if network.graph.n > MOST:
            continue
        problem = unlike(rng, network, Serial() if rng.random() < 0.4 else Concurrent())
        try:
            prove_infeasible(problem)
        except InfeasibleError:
            continue
        if (problem.class_allowed.sum(axis=1) > 1).any():
            return problem


def unlike(rng: Rng, network: Network, model: ExecutionModel) -> Problem:
    """The network on a CPU and one to three others: integrated, discrete, or a CPU that is slower or less exact.

    Devices differ by how fast they are at small and at large ops, by launch times and by links; times are scaled by
    a factor per op type and device, because no device is equally good at everything.
    """
    graph = network.graph
    fast = 10 ** rng.uniform(11.5, 12.5)
    devices = [Device("cpu", "cpu", flops=fast, bandwidth=10 ** rng.uniform(10.5, 11.3), launch=2e-6)]
    reach = [(0.0, 1.0)]
    for number in range(int(rng.choice([1, 1, 2, 3]))):
        kind = rng.choice(["dgpu", "igpu", "cpu"], p=[0.5, 0.3, 0.2])
        if kind == "dgpu":
            device = Device(
                f"{kind}{number}", "gpu", flops=fast * 10 ** rng.uniform(0.3, 1.5),
                bandwidth=10 ** rng.uniform(11.2, 12.0), launch=10 ** rng.uniform(-5.3, -4.6),
                efficiency={"default": 0.4}, saturation={"default": 10 ** rng.uniform(3.5, 5.7)},
            )  # fmt: skip
            reach.append((10 ** rng.uniform(-5.3, -4.5), 10 ** rng.uniform(9.7, 10.6)))
        elif kind == "igpu":
            device = Device(
                f"{kind}{number}", "gpu", flops=fast * 10 ** rng.uniform(-0.4, 0.5),
                bandwidth=10 ** rng.uniform(10.4, 11.0), launch=10 ** rng.uniform(-5.5, -4.8),
                saturation={"default": 10 ** rng.uniform(3, 5)},
            )  # fmt: skip
            reach.append((10 ** rng.uniform(-5.5, -4.8), 10 ** rng.uniform(10.0, 10.8)))
        else:  # bf16, or another clock
            device = replace(devices[0], name=f"{kind}{number}", flops=fast * float(rng.choice([0.5, 2.0])))
            reach.append((10 ** rng.uniform(-6.0, -5.0), 10 ** rng.uniform(10.0, 10.8)))
        devices.append(device)
    cluster = Cluster("unlike", tuple(devices), _links(reach))
    time = roofline(graph, cluster) * _by_type(rng, graph, len(devices), rng.uniform(0.0, 0.4))
    pins = {v: 0 for v in (*network.inputs, *network.outputs)} if rng.random() < 0.8 else {}
    return Problem.make(graph, cluster, model, time=time, colocation=network.colocation, pins=pins)


def _links(reach: Sequence[tuple[float, float]]) -> tuple[tuple[Link | None, ...], ...]:
    """From every device to the host and on, by (latency, bandwidth) of each."""
    return tuple(
        tuple(
            None
            if d == e
            else Link(reach[d][0] + reach[e][0], min(b for a, b in (reach[d], reach[e]) if a > 0.0))
            for e in range(len(reach))
        )
        for d in range(len(reach))
    )


def _by_type(rng: Rng, graph: Graph, devices: int, spread: float) -> FloatArray:
    """(ops, devices) a lognormal factor per op type and device."""
    names, code = np.unique(np.array(graph.op_types, np.str_), return_inverse=True)
    return np.exp(spread * rng.standard_normal((len(names), devices)))[code]


def distorted(rng: Rng, problem: Problem, strength: float) -> Problem:
    """The same problem on a machine that is not as the model says; ``strength`` 0 is as it says.

    Op times are off by factors per type and device, links by factors, every transfer has a price that was not
    known, and a cut behind an op whose only reader would be fused with it costs a part of that op.
    """
    graph, devices = problem.graph, problem.devices
    time = problem.time * _by_type(rng, graph, devices, 0.6 * strength * rng.random())
    off = 1.0 - np.eye(devices)
    typical = float(np.median(problem.time[np.isfinite(problem.time)])) if problem.n else 0.0
    latency = problem.latency + off * typical * strength * rng.exponential(1.0)
    rate = problem.rate * np.exp(strength * rng.standard_normal())
    readers = np.bincount(graph.edge_tensor, minlength=graph.tensors)
    producer = graph.tensor_producer
    slowest = np.where(np.isfinite(problem.time), problem.time, 0.0).mean(axis=1)[producer]
    lost = (readers == 1) * (rng.random(graph.tensors) < 0.4) * slowest * strength * rng.random()
    mean_rate = rate[off > 0].mean() if devices > 1 else 0.0
    size = problem.size + (lost / mean_rate if mean_rate > 0 else 0.0)
    return replace(problem, time=time, latency=latency, rate=rate, size=size)


def best_known(problem: Problem, evaluations: int, seed: int = 0) -> IntArray:
    """(ops,) a placement that is optimal (``serial`` with two devices), or the best of what local search finds by
    itself and from what the untrained ``gdp`` finds."""
    limit = Budget(evaluations=evaluations)
    if isinstance(problem.model, Serial):
        return MinCut().place(problem, budget=limit, seed=seed).placement.device
    guessed = Gdp().place(problem, budget=Budget(evaluations=min(GUESSING, evaluations)), seed=seed)
    found = [LocalSearch().place(problem, budget=limit, seed=seed, start=start)
             for start in (guessed.placement, None)]  # fmt: skip
    return min(found, key=lambda one: one.cost).placement.device


class Material(NamedTuple):
    """A problem to learn from: as it is seen, as it is, what is best there, and what is best by what is seen."""

    seen: Problem
    true: Problem
    best: IntArray
    prior: IntArray


def material(seed: Sequence[int], families: Sequence[str], evaluations: int) -> Material:
    """Of half of the problems the policy sees a wrong model.

    It is told what is best by the model among the guesses, or in half of the problems with a wrong model what is best
    by it at all. Most problems of ``serial`` where one device is best are left out: they teach little.
    """
    for attempt in range(ATTEMPTS):
        rng = np.random.default_rng([*seed, attempt, 1])
        seen = training_problem([*seed, attempt], families)
        true = distorted(rng, seen, 10 ** rng.uniform(-1.3, 0.0)) if rng.random() < 0.5 else seen
        units = units_of(seen, "")
        quick = guesses(units)[:, units.of_op]
        cost, feasible = SimulatedEvaluator(seen).evaluate_batch(quick)
        prior = quick[np.where(feasible, cost, np.inf).argmin()]
        if true is not seen and rng.random() < 0.5:
            prior = best_known(seen, evaluations)
        best = best_known(true, evaluations)
        free = best[true.pin < 0]
        if len(np.unique(free)) > 1 or not isinstance(true.model, Serial) or rng.random() < 0.2:
            break
    return Material(seen, true, best, prior)
