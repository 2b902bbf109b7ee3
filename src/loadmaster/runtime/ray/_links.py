"""What it takes to bring bytes from node to node: measured by sending arrays to and fro, as a running plan does."""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from loadmaster.runtime._cache import Cache
from loadmaster.runtime._link_costs import LinkFit
from loadmaster.runtime._piece_costs import OverlapFit
from loadmaster.runtime.ray._actors import Actors

__all__ = ["Calls", "fit_hops", "measure_calls", "measure_links"]

SIZES = (1_000, 200_000, 1_000_000, 4_000_000)
"""Bytes of the arrays."""
FORMAT = 2
"""Of what is kept in the cache."""
HOPS = 4
ROUNDS = 4
FEWEST = 2
"""Rounds where the time is over: the first one warms up."""
_keys = itertools.count()


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


@dataclass(frozen=True)
class Calls:
    """CPU seconds of calls, fitted to arrays that were sent by way of two devices."""

    call: float
    """Of a device: a submodel that is called, and sends something on."""
    byte: float
    """Of a device: a byte that it sends or receives."""
    submit: float
    """Of the process that submits requests: a call,"""
    given: float
    """and a byte that it gives along."""
    made: float = 0.0

    def document(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)

    def fit(self, calls: int, given: float, sharing: int) -> OverlapFit:
        """For requests of so many ``calls``, to which ``given`` bytes are given.

        ``sharing`` are the devices on whose cores the submitting process runs, too; 0 where it has one to itself.
        """
        submitting = self.submit * calls + self.given * given
        return OverlapFit(
            links=True,
            call=self.call,
            byte=self.byte,
            request=(submitting / sharing if sharing else 0.0) + self.byte * given / max(1, calls),
        )


@dataclass(frozen=True)
class _Hop:
    """Of one size."""

    seconds: float
    """From one device to the other and through a call there; the quickest round, since other work can only add."""
    spent: float
    """CPU seconds of both devices for a hop; the median."""
    submitted: float
    """CPU seconds of this process for a call; the median."""
    gave: float
    """CPU seconds of this process to give the array along with a call; the median."""


def _hop(actors: Actors, first: str, second: str, size: int, until: float) -> _Hop:
    """To and fro, as the tensors of a plan go; in as few rounds as will do after ``until``."""
    ends, key = (first, second), f"hops{next(_keys)}"
    devices = [actors.handles[name] for name in ends]
    actors.get([device.expect.remote(key) for device in devices])
    array = np.zeros(size, np.uint8)
    seconds, spent, submitted, gave = [], [], [], []
    for number in range(2 * (ROUNDS + 1)):
        if number >= 2 * FEWEST and time.monotonic() > until:
            break
        cold = number % 2 == 1
        own = time.process_time()
        last = devices[0].relay.remote(key, 0, second, cold, array)
        actors.get(last)
        given = time.process_time() - own
        before = sum(actors.get([device.spent.remote() for device in devices]))
        began, own = time.perf_counter(), time.process_time()
        for at in range(1, HOPS + 1):
            to = "" if at == HOPS else ends[(at + 1) % 2]
            last = devices[at % 2].relay.remote(key, at, to, cold, None, last)
        actors.get(last)
        if cold:  # what is in caches makes calls look cheap
            gave.append(given)
            submitted.append((time.process_time() - own) / HOPS)
            spent.append((sum(actors.get([device.spent.remote() for device in devices])) - before) / HOPS)
        else:
            seconds.append((time.perf_counter() - began) / HOPS)
    actors.get([device.drop.remote(key) for device in devices])
    median = [statistics.median(values[1:]) for values in (spent, submitted, gave)]
    return _Hop(min(seconds), median[0], median[1], max(0.0, median[2] - median[1]))


def _fit_calls(hops: Sequence[_Hop]) -> Calls:
    """A hop is a call, and its bytes leave one device and enter another."""
    call, both, _ = fit_hops(SIZES, [hop.spent for hop in hops])
    gave = np.polyfit(SIZES, [hop.gave for hop in hops], 1)
    submit = float(np.median([hop.submitted for hop in hops]))
    return Calls(call, both / 2, submit, max(0.0, float(gave[0])), time.time())


def measure_calls(
    actors: Actors,
    *,
    cache: Cache | None = None,
    refresh: bool = False,
    until: float = math.inf,
    say: Callable[[str], None] = lambda _: None,
) -> Calls | None:
    """What calls cost, by the first two devices of different nodes; None where there is one node.

    After the time ``until`` of ``time.monotonic`` it is measured in as few rounds as will do.
    """
    import ray

    nodes: dict[str, str] = {}
    for name, spec in actors.specs.items():
        nodes.setdefault(spec.node, name)
    if len(nodes) < 2:
        return None
    first, second = list(nodes.values())[:2]
    ids = [actors.machines.node(actors.specs[name].node).id for name in (first, second)]
    about: Mapping[str, Any] = {"format": FORMAT, "nodes": ids, "ray": ray.__version__}
    known = None if cache is None or refresh else cache.get_as("ray calls", about, Calls)
    if known is None:
        say("measuring what calls cost")
        known = _fit_calls([_hop(actors, first, second, size, until) for size in SIZES])
        if cache is not None:
            cache.put("ray calls", about, known.document())
    return known


def measure_links(
    actors: Actors,
    *,
    cache: Cache | None = None,
    refresh: bool = False,
    until: float = math.inf,
    say: Callable[[str], None] = lambda _: None,
) -> dict[tuple[str, str], LinkFit]:
    """The links between all places (a plugin of a node), both ends in alphabetical order.

    Between two devices of one node there is a call, and shared memory. After the time ``until`` of
    ``time.monotonic`` each is measured in as few rounds as will do.
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
        about: Mapping[str, Any] = {"format": FORMAT, "places": kinds, "nodes": ids, "ray": ray.__version__}
        known = None if cache is None or refresh else cache.get_as("ray link", about, LinkFit)
        if known is None:
            say(f"measuring the link between {kinds[0]} and {kinds[1]}")
            taken = [_hop(actors, first, second, size, until).seconds for size in SIZES]
            latency, rate, residuals = fit_hops(SIZES, taken)
            known = LinkFit(latency, rate, residuals, [HOPS] * len(SIZES), 1.0, time.time())
            if cache is not None:
                cache.put("ray link", about, known.document())
        found[kinds] = known
    return found
