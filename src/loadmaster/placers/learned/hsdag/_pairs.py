"""What a pre-trained policy sees of a problem: numbers per (unit, device), per unit, per edge, free of units of time.

Nothing depends on how many devices there are, on their order or on op types, so that weights serve any problem.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from loadmaster.arrays import FloatArray, IntArray
from loadmaster.placers.frame.search import Budget
from loadmaster.placers.learned.gdp import Gdp
from loadmaster.placers.learned.hsdag._messages import arc_costs, beliefs, unit_times
from loadmaster.placers.learned.units import Units
from loadmaster.placers.rules.heft import list_schedule
from loadmaster.problem import Concurrent

__all__ = ["EDGE", "PAIR", "UNIT", "Seen", "guesses", "seen_of"]

PRICES = (0.3, 1.0, 3.0)
"""Prices of a transfer at which messages are passed: what is sure at all of them is sure."""
SWEEPS = 6
DECODED = 36
"""Evaluations of the model by the untrained ``gdp``, for one guess."""

PAIR = 11 + 2 * len(PRICES)
UNIT = 8
EDGE = 3


class Seen(NamedTuple):
    """The inputs of the network."""

    pair: FloatArray
    """(units, devices, PAIR)."""
    unit: FloatArray
    """(units, UNIT)."""
    edge: FloatArray
    """(edges, EDGE) of the pairs of neighbours that may share a group."""


def seen_of(units: Units, prior: IntArray | None = None) -> Seen:
    """The inputs for a problem; ``prior`` is a placement of its ops that is thought to be good."""
    problem, count, devices = units.problem, units.count, units.problem.devices
    time = unit_times(units)
    known = np.isfinite(time)
    fastest = np.where(known, time, np.inf).min(axis=1, keepdims=True, initial=np.inf)
    fastest = np.where(np.isfinite(fastest), fastest, 0.0)
    scale = max(float(fastest.mean()), 1e-30)
    time = np.where(known, time, fastest)
    total = time.sum(axis=0)
    off = ~np.eye(devices, dtype=np.bool_)
    size = float(problem.size.mean()) if len(problem.size) else 0.0
    link = problem.latency + problem.rate * size
    reach = np.array([link[d][off[d]].mean() if devices > 1 else 0.0 for d in range(devices)])
    concurrent = float(isinstance(problem.model, Concurrent))
    schedule = list_schedule(problem) if concurrent else None
    one = np.ones((count, 1))
    pair = [
        np.clip(np.log(np.maximum(time, 1e-12 * scale) / scale), -6, 6) / 3,
        np.log1p((time - fastest) / scale),
        known * 1.0,
        one * np.log(np.maximum(total, 1e-30) / max(float(total.min(initial=np.inf)), 1e-30)),
        one * np.log1p(reach / scale),
        np.full((count, devices), concurrent),
        _marked(units, None if schedule is None else schedule[0]),
        np.full((count, devices), float(schedule is not None)),
        _marked(units, prior),
        np.full((count, devices), float(prior is not None)),
        (time <= fastest) * 1.0,
    ]
    for price in PRICES:
        cost = beliefs(units, price, SWEEPS)
        other = np.stack(
            [np.delete(cost, d, axis=1).min(axis=1, initial=np.inf) for d in range(devices)], axis=1
        )
        other = np.where(np.isfinite(other), other, 0.0)
        pair += [np.arcsinh(np.clip((other - cost) / scale, -1e4, 1e4)), (cost <= 0.0) * 1.0]
    transfers, bytes_ = arc_costs(units)
    mean_latency = problem.latency[off].mean() if devices > 1 else 0.0
    mean_rate = problem.rate[off].mean() if devices > 1 else 0.0
    weight = transfers * mean_latency + bytes_ * mean_rate
    arrives, leaves = (np.bincount(end, weight, count) for end in (units.head, units.tail))
    degrees = [np.log1p(np.bincount(end, minlength=count)) for end in (units.head, units.tail)]
    size_of = np.maximum(np.bincount(units.of_op, minlength=count), 1)
    rank = np.bincount(units.of_op, problem.upward_rank, count) / size_of
    unit = [
        units.position / max(problem.n, 1), rank / max(float(rank.max(initial=0.0)), 1e-30), *degrees,
        np.log1p(arrives / scale), np.log1p(leaves / scale), np.full(count, np.log1p(devices)),
        np.full(count, np.log1p(count) / 5),
    ]  # fmt: skip
    return Seen(np.stack(pair, axis=2), np.stack(unit, axis=1), _edges(units, weight, scale))


def guesses(units: Units, start: IntArray | None = None, *, decoded: bool = True) -> IntArray:
    """(k, units) placements that need no learning: ``start``, what HEFT and (``decoded``) the untrained ``gdp`` have
    under ``concurrent``, what the messages say at every price, and every device that all units may go to."""
    problem = units.problem
    found = [beliefs(units, price, SWEEPS).argmin(axis=1) for price in PRICES]
    whole = [] if start is None else [start]
    if isinstance(problem.model, Concurrent):
        schedule = list_schedule(problem)
        whole += [] if schedule is None else [schedule[0]]
        if decoded:
            limit = Budget(evaluations=DECODED)
            whole.append(Gdp(samples=0, guard=False).place(problem, budget=limit).placement.device)
    for device in whole:
        choice = np.zeros(units.count, np.int64)
        choice[units.of_op] = device
        found.append(choice)
    fastest = np.where(units.allowed, unit_times(units), np.inf).argmin(axis=1)
    found += [np.where(units.allowed[:, d], d, fastest) for d in range(problem.devices)]
    return np.unique(np.array(found, np.int32), axis=0)


def _marked(units: Units, device: IntArray | None) -> FloatArray:
    """(units, devices) the share of a unit's ops that are on the device; 0 without a placement."""
    share = np.zeros((units.count, units.problem.devices))
    if device is not None:
        np.add.at(share, (units.of_op, device), 1.0)
    return share / np.maximum(share.sum(axis=1, keepdims=True), 1.0)


def _edges(units: Units, weight: FloatArray, scale: float) -> FloatArray:
    """What a cut of the edge costs, absolutely and as a share of all cuts around either end."""
    count = max(units.count, 1)
    key = np.minimum(units.tail, units.head).astype(np.int64) * count + np.maximum(units.tail, units.head)
    total = np.bincount(units.tail, weight, count) + np.bincount(units.head, weight, count)
    arc = np.zeros(len(units.first))
    wanted = units.first.astype(np.int64) * count + units.second
    at = np.searchsorted(wanted, key) if len(wanted) else np.zeros(len(key), np.int64)
    hit = (
        (at < len(wanted)) & (wanted[np.minimum(at, max(len(wanted) - 1, 0))] == key)
        if len(wanted)
        else at < 0
    )
    np.add.at(arc, at[hit], weight[hit])
    ends = [arc / np.maximum(total[end], 1e-30) for end in (units.first, units.second)]
    return np.stack([np.log1p(arc / scale), *ends], axis=1)
