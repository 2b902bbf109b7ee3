"""Problems for placing a model anew: without devices that are gone, with slow ones at their pace, with new ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from loadmaster.errors import InfeasibleError, UnsupportedError
from loadmaster.hardware import ORIGINS, Cluster, Link
from loadmaster.problem import Placement, Problem, Solution, evaluate
from loadmaster.runtime._link_costs import LinkFit
from loadmaster.runtime.openvino import DeviceSpec, ModelProfile

__all__ = ["Placing", "place_on", "slowed", "widened"]

Placing = Callable[[Problem], Solution]
"""What places a problem; a runtime knows no placer."""


def place_on(problem: Problem, left: Sequence[str], place: Placing) -> tuple[Problem, Solution]:
    """The best placement on some of the devices. Ops that were pinned to another one may go anywhere.

    Raises
    ------
    InfeasibleError : there is none.
    """
    gone = [d for d, name in enumerate(problem.cluster.names) if name not in left]
    forbidden = problem.forbidden.copy()
    forbidden[:, gone] = True
    pin = np.where(np.isin(problem.pin, gone), -1, problem.pin)
    rest = replace(problem, forbidden=forbidden, pin=pin.astype(problem.pin.dtype))
    if len(left) > 1:
        return rest, place(rest)
    only = Placement(np.full(rest.n, rest.cluster.index[left[0]], np.int32))
    found = evaluate(rest, only)
    if found.violations:
        raise InfeasibleError(f"the model cannot go on: {found.violations[0]}")
    return rest, Solution(only, found.cost, found.cost, "the only placement", "single")


def slowed(problem: Problem, factors: Mapping[str, float]) -> Problem:
    """The problem with ops on some devices taking so many times as long."""
    scale = np.array([factors.get(name, 1.0) for name in problem.cluster.names])
    return replace(problem, time=problem.time * scale)


def widened(
    problem: Problem,
    profile: ModelProfile,
    links: Mapping[tuple[str, str], LinkFit],
    specs: Sequence[DeviceSpec],
) -> Problem:
    """The problem with the devices of a profile behind those that it has.

    ``specs`` are all devices that are there, whose ``links`` were measured; to one that is not there is no way.

    Raises
    ------
    UnsupportedError : the problem counts other ops than a profile does.
    """
    if problem.graph.digest != profile.network.graph.digest:
        raise UnsupportedError(
            "the plan was not made from a profile of this model, so that no other device can join: profile and place it"
        )
    more = profile.problem(model=problem.model)
    places = {spec.name: spec.place for spec in specs}
    names = [*problem.cluster.names, *more.cluster.names]
    old, size = problem.devices, len(names)
    latency, rate = np.zeros((size, size)), np.zeros((size, size))
    table: list[list[Link | None]] = [[None] * size for _ in names]
    for a, row in enumerate(table):
        for b in range(size):
            if a == b:
                continue
            if a < old and b < old:
                row[b] = problem.cluster.links[a][b]
                latency[a, b], rate[a, b] = problem.latency[a, b], problem.rate[a, b]
                continue
            ends = sorted(places.get(names[at], "") for at in (a, b))
            fit = links.get((ends[0], ends[1]), LinkFit(0.0, 0.0, (), ()))
            row[b] = Link(fit.latency, 1 / fit.rate if fit.rate else np.inf)
            latency[a, b], rate[a, b] = fit.latency, fit.rate
    cluster = Cluster(
        problem.cluster.name,
        (*problem.cluster.devices, *more.cluster.devices),
        tuple(map(tuple, table)),
    )
    worst = {"latency": latency.max(axis=1)[old:], "rate": rate.max(axis=1)[old:]}

    def host(name: str) -> np.ndarray:
        return np.concatenate([getattr(problem, name), worst[name.partition("_")[2]]])

    count = size - old
    origin = problem.origin
    if origin is not None:
        fresh = np.full((problem.n, count), ORIGINS.index("measured"), np.uint8)
        origin = np.hstack([origin, fresh])
    return replace(
        problem,
        cluster=cluster,
        time=np.hstack([problem.time, more.time]),
        latency=latency,
        rate=rate,
        send_latency=host("send_latency"),
        send_rate=host("send_rate"),
        recv_latency=host("recv_latency"),
        recv_rate=host("recv_rate"),
        capacity=np.concatenate([problem.capacity, more.capacity]),
        forbidden=np.hstack([problem.forbidden, np.zeros((problem.n, count), np.bool_)]),
        origin=origin,
    )
