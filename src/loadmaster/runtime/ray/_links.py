"""What it takes to bring bytes from node to node: measured by sending arrays to and fro, as a running plan does."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from loadmaster.runtime._cache import Cache
from loadmaster.runtime._link_costs import LinkFit
from loadmaster.runtime.ray._actors import Actors

__all__ = ["fit_hops", "measure_links"]

SIZES = (1_000, 200_000, 1_000_000, 4_000_000)
"""Bytes of the arrays; below 100 KB Ray sends them along with the call."""
HOPS = 4
ROUNDS = 4


def fit_hops(sizes: Any, seconds: Any) -> tuple[float, float, list[float]]:
    """Latency and rate >= 0 of ``seconds = latency + rate * bytes`` by least squares in relative terms, and what each
    is off by."""
    from scipy.optimize import nnls

    size, taken = np.asarray(sizes, float), np.asarray(seconds, float)
    columns = np.stack([np.ones(len(size)), size], axis=1) / taken[:, None]
    scale = columns.max(axis=0)
    found, _ = nnls(columns / scale, np.ones(len(size)))
    latency, rate = (found / scale).tolist()
    return latency, rate, ((latency + rate * size - taken) / taken).tolist()


def _hop(actors: Actors, first: str, second: str, size: int) -> float:
    """Seconds from one device to the other and through a call there; the quickest of some rounds, since other work
    can only add to them."""
    import ray

    ends = [actors.handles[second], actors.handles[first]]
    best = np.inf
    for _ in range(ROUNDS + 1):
        there = actors.handles[first].echo.remote(ray.put(np.zeros(size, np.uint8)))
        ray.wait([there], fetch_local=False)
        began = time.perf_counter()
        for at in range(HOPS):
            there = ends[at % 2].echo.remote(there)
        ray.wait([there], fetch_local=False)
        best = min(best, (time.perf_counter() - began) / HOPS)
    actors.get(there)
    return float(best)


def measure_links(
    actors: Actors,
    *,
    cache: Cache | None = None,
    refresh: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> dict[tuple[str, str], LinkFit]:
    """The links between all places (a plugin of a node), both ends in alphabetical order.

    Between two devices of one node there is a call, and shared memory.
    """
    import ray

    places: dict[str, str] = {}
    twins: dict[str, tuple[str, str]] = {}
    for name, spec in actors.specs.items():
        if spec.place in places:
            twins.setdefault(spec.place, (places[spec.place], name))
        places.setdefault(spec.place, name)
    pairs: dict[tuple[str, str], tuple[str, str]] = {(p, p): ends for p, ends in twins.items()}
    ordered = sorted(places)
    for at, a in enumerate(ordered):
        pairs |= {(a, b): (places[a], places[b]) for b in ordered[at + 1 :]}
    found: dict[tuple[str, str], LinkFit] = {}
    for kinds, (first, second) in pairs.items():
        ids = [actors.machines.node(actors.specs[name].node).id for name in (first, second)]
        about: Mapping[str, Any] = {"format": 1, "places": kinds, "nodes": ids, "ray": ray.__version__}
        known = None if cache is None or refresh else cache.get_as("ray link", about, LinkFit)
        if known is None:
            say(f"measuring the link between {kinds[0]} and {kinds[1]}")
            taken = [_hop(actors, first, second, size) for size in SIZES]
            latency, rate, residuals = fit_hops(SIZES, taken)
            known = LinkFit(latency, rate, residuals, [HOPS] * len(SIZES), 1.0, time.time())
            if cache is not None:
                cache.put("ray link", about, known.document())
        found[kinds] = known
    return found
