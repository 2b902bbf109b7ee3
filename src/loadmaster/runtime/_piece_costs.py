"""What pieces cost while devices overlap, fitted to traces: ops while other devices are busy, one more submodel, a
byte over a cut."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from loadmaster.arrays import FloatArray
from loadmaster.problem import Problem, Serial
from loadmaster.runtime._pieces import PIECE, WAIT, Piece, simulate

__all__ = ["OverlapFit", "Traced", "corrected", "fit_overlap", "paces", "piece_features", "predict"]

RATE = 1.5e-10
"""Seconds per byte that enters or leaves a submodel, before anything is known: a change of layout."""

FAR = 1.5
"""How far a piece may be off, as a factor, for its ops to be corrected by all of it."""

Traced = tuple[Sequence[Piece], Mapping[int, float]]
"""Pieces, and the seconds that every one of them took on its core."""


@dataclass(frozen=True)
class OverlapFit:
    """``slowdown * seconds of ops + piece + bytes * rate`` for every submodel.

    ``residuals`` are (predicted - measured) / measured of the submodels that it was fitted to, weighted by nothing.
    """

    slowdown: float = 1.0
    """Ops while the other devices work, against ops alone: caches and memory are shared."""
    piece: float = PIECE
    wait: float = WAIT
    rate: float = RATE
    submodels: int = 0
    """How many it was fitted to; 0 where nothing was measured."""
    median_residual: float = 0.0
    total_residual: float = 0.0
    """Of all submodels added up."""
    links: bool = False
    """Whether the links of the problem come on top: between machines they do, within one they are in the rest."""
    call: float = 0.0
    """Seconds of its core that a device of another machine loses to the call of a submodel,"""
    byte: float = 0.0
    """to each byte that it sends or receives,"""
    request: float = 0.0
    """and to the process that submits requests, for each of them, where that one has no core to itself."""

    def document(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)

    def applied(self, problem: Problem, *, price: float = 1.0) -> Problem:
        """The problem with these costs: a tensor that is moved is taken to end one submodel and begin another.

        ``price`` multiplies what a cut costs, to look for plans with fewer of them.
        """
        apart = ~np.eye(problem.devices, dtype=bool) * 1.0
        latency = apart * (self.piece + self.wait + self.call)
        rate = apart * 2 * (self.rate + self.byte)
        if self.links:
            latency, rate = latency + problem.latency, rate + problem.rate
        return replace(
            problem,
            time=problem.time * self.slowdown,
            latency=price * latency,
            rate=price * rate,
        )


def piece_features(
    problem: Problem, pieces: Sequence[Piece]
) -> tuple[FloatArray, FloatArray, list[set[int]]]:
    """Seconds of the ops of every piece, bytes that enter or leave it, and the pieces that it waits for."""
    graph = problem.graph
    inside: list[list[int]] = [[] for _ in range(graph.n)]
    """Of every op, the pieces that it is in: more than one for a join."""
    seconds, moved = np.zeros(len(pieces)), np.zeros(len(pieces))
    waits: list[set[int]] = [set() for _ in pieces]
    for number, piece in enumerate(pieces):
        d = problem.cluster.index[piece.device]
        ops = [graph.index[op] for op in piece.ops]
        seconds[number] = problem.time[ops, d].sum()
        for v in ops:
            inside[v].append(number)
    readers, first = graph.consumer_op.tolist(), graph.consumer_ptr.tolist()
    size = graph.tensor_bytes.tolist()
    for t, producer in enumerate(graph.tensor_producer.tolist()):
        makers = inside[producer]
        if not makers:
            continue
        outside = {n for v in readers[first[t] : first[t + 1]] for n in inside[v]}.difference(makers)
        sources = set()
        for number in outside:
            own = (maker for maker in makers if pieces[maker].device == pieces[number].device)
            source = next(own, makers[0])
            sources.add(source)
            waits[number].add(source)
            moved[number] += size[t]
        for source in sources:
            moved[source] += size[t]
    return seconds, moved, waits


def delays(problem: Problem, pieces: Sequence[Piece]) -> dict[tuple[int, int], float]:
    """(piece, one that reads it) -> seconds on the link between their devices."""
    graph = problem.graph
    found: dict[tuple[int, int], float] = {}
    inside: list[list[int]] = [[] for _ in range(graph.n)]
    for number, piece in enumerate(pieces):
        for op in piece.ops:
            inside[graph.index[op]].append(number)
    readers, first = graph.consumer_op.tolist(), graph.consumer_ptr.tolist()
    for t, producer in enumerate(graph.tensor_producer.tolist()):
        makers = inside[producer]
        outside = {n for v in readers[first[t] : first[t + 1]] for n in inside[v]}.difference(makers)
        for number in outside if makers else ():
            e = problem.cluster.index[pieces[number].device]
            own = (maker for maker in makers if pieces[maker].device == pieces[number].device)
            source = next(own, makers[0])
            d = problem.cluster.index[pieces[source].device]
            if d != e:
                taken = float(problem.latency[d, e] + problem.size[t] * problem.rate[d, e])
                found[source, number] = max(found.get((source, number), 0.0), taken)
    return found


def fit_overlap(problem: Problem, traced: Sequence[Traced], start: OverlapFit) -> OverlapFit:
    """Fit to traces.

    The seconds that a cut takes are at least 0, so that a fit to noise does not reward cuts.
    """
    columns, target = [], []
    for pieces, taken in traced:
        seconds, moved, _ = piece_features(problem, pieces)
        for number in range(len(pieces)):
            columns.append([seconds[number], 1.0, moved[number]])
            target.append(taken[number])
    matrix, measured = np.array(columns), np.array(target)
    if len(measured) < 6 or matrix[:, 0].max(initial=0.0) <= 0:
        return start
    weight = 1 / np.sqrt(np.maximum(measured, 1e-6))  # between absolute and relative error
    scale = np.maximum((matrix * weight[:, None]).max(axis=0), 1e-300)
    from scipy.optimize import nnls

    found, _ = nnls(matrix * weight[:, None] / scale, measured * weight)
    slowdown, piece, rate = (found / scale).tolist()
    if slowdown <= 0:
        return start
    predicted = matrix @ np.array([slowdown, piece, rate])
    return replace(
        start,
        slowdown=slowdown,
        piece=piece,
        rate=rate,
        submodels=len(measured),
        median_residual=float(np.median(np.abs(predicted - measured) / np.maximum(measured, 1e-9))),
        total_residual=float(abs(predicted.sum() - measured.sum()) / measured.sum()),
    )


def corrected(problem: Problem, traced: Sequence[Traced], fit: OverlapFit) -> Problem:
    """The problem with the times of ops as their pieces took them: what the fit leaves over, spread over a piece's ops.

    Ops side by side share their caches and layouts, so that whole pieces are off in one direction; of several
    traces an op gets the mean, by logarithms. At most :data:`FAR` either way, so that one odd piece spoils little.
    """
    logs, count = np.zeros(problem.n), np.zeros(problem.n)
    for pieces, taken in traced:
        seconds, moved, _ = piece_features(problem, pieces)
        expected = fit.slowdown * seconds + fit.piece + fit.rate * moved
        for number, piece in enumerate(pieces):
            if expected[number] > 0 and taken[number] > 0:
                ops = [problem.graph.index[op] for op in piece.ops]
                logs[ops] += np.clip(np.log(taken[number] / expected[number]), -np.log(FAR), np.log(FAR))
                count[ops] += 1
    return replace(problem, time=problem.time * np.exp(logs / np.maximum(count, 1))[:, None])


def predict(problem: Problem, pieces: Sequence[Piece], fit: OverlapFit, *, items: int = 1) -> float:
    """Seconds per request of a run of so many ``items``: one alone, or a stream that fills the devices.

    After the first request of a stream has gone through, there is another one whenever the busiest device has done
    its part. Under ``serial`` pieces run one after another. ``problem`` has the seconds of ops alone, as they were
    profiled.
    """
    seconds, moved, waits = piece_features(problem, pieces)
    taken = (seconds * fit.slowdown + fit.piece + fit.call + moved * (fit.rate + fit.byte)).tolist()
    device = [problem.cluster.index[piece.device] for piece in pieces]
    if len(set(device)) == 1:
        return float(seconds.sum())
    if isinstance(problem.model, Serial):
        return float(sum(taken))
    sequence: list[list[int]] = [[] for _ in range(problem.devices)]
    for number, d in enumerate(device):
        sequence[d].append(number)
    links = delays(problem, pieces) if fit.links else {}
    first = simulate(sequence, taken, waits, device, piece=0.0, wait=fit.wait, delay=links)[0]
    load = float(np.bincount(device, taken).max())
    if links:  # a link brings one tensor at a time, while the devices compute
        busy: dict[tuple[int, int], float] = {}
        for (source, reader), spent in links.items():
            ends = device[source], device[reader]
            busy[ends] = busy.get(ends, 0.0) + spent
        load = max(load, *busy.values())
    return load + (first - load) / items + fit.request


def paces(
    problem: Problem, pieces: Sequence[Piece], spans: Sequence[Mapping[str, Any]]
) -> dict[str, tuple[float, float]]:
    """Device -> seconds that its submodels took for one request, and what they were predicted to take.

    A device's share of a request is the sum of its submodels, of several requests the median.
    """
    expected, _, _ = piece_features(problem, pieces)
    predicted: dict[str, float] = {}
    for piece, seconds in zip(pieces, expected.tolist(), strict=True):
        predicted[piece.device] = predicted.get(piece.device, 0.0) + seconds
    taken: dict[str, dict[int, float]] = {}
    for span in spans:
        requests = taken.setdefault(span["device"], {})
        requests[span["request"]] = requests.get(span["request"], 0.0) + span["end"] - span["start"]
    return {
        name: (statistics.median(requests.values()), predicted[name])
        for name, requests in taken.items()
        if predicted.get(name, 0.0) > 0
    }
