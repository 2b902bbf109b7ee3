"""What pieces cost while devices overlap, fitted to traces: ops while other devices are busy, one more submodel, a
byte over a cut, and what reads it there: pooling in the layout that submodels exchange takes several times as long."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from loadmaster.arrays import FloatArray
from loadmaster.problem import Problem, Serial
from loadmaster.runtime._pieces import JOINS, PIECE, WAIT, Piece, simulate

__all__ = ["OverlapFit", "Traced", "corrected", "fit_overlap", "paces", "piece_features", "predict"]

RATE = 1.5e-10
"""Seconds per byte that enters or leaves a submodel, before anything is known: a change of layout."""

FAR = 1.5
"""How far a piece may be off, as a factor, for its ops to be corrected by all of it."""
EVIDENCE = 6
"""Submodels that a fit needs for every number in it."""

Traced = tuple[Sequence[Piece], Mapping[int, float]]
"""Pieces, and the seconds that every one of them took on its core."""


@dataclass(frozen=True)
class Features:
    """What the cost of pieces is made of."""

    seconds: FloatArray
    """Of the ops of every piece, alone."""
    moved: FloatArray
    """Bytes that enter or leave it."""
    waits: list[set[int]]
    """The pieces that it waits for."""
    read: list[dict[str, float]]
    """Type of op -> bytes that ops of this type read in the layout that submodels exchange: from another piece, or from
    a join that reads from one."""
    pace: FloatArray
    """How slow its device is, against the fastest: what happens at its ends takes as much longer as its ops."""


@dataclass(frozen=True)
class OverlapFit:
    """``slowdown * seconds of ops + pace * (piece + bytes * rate + bytes read * readers)`` for every submodel.

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
    readers: Mapping[str, float] = field(default_factory=dict)
    """Type of op -> further seconds per byte that it reads at the beginning of a submodel."""
    call: float = 0.0
    """Seconds of its core that a device of another machine loses to the call of a submodel,"""
    byte: float = 0.0
    """to each byte that it sends or receives,"""
    request: float = 0.0
    """and to the process that submits requests, for each of them, where that one has no core to itself."""

    def taken(self, features: Features) -> FloatArray:
        """Seconds that every piece is predicted to take."""
        ends = self.piece + self.rate * features.moved
        for kind, rate in self.readers.items():
            ends += rate * np.array([read.get(kind, 0.0) for read in features.read])
        return self.slowdown * features.seconds + features.pace * ends

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
            size=problem.size if self.links else problem.size * self._dearer(problem),
            latency=price * latency,
            rate=price * rate,
        )

    def _dearer(self, problem: Problem) -> FloatArray:
        """How much more a tensor costs than its bytes, because of what reads it."""
        graph = problem.graph
        found = np.ones(len(graph.tensor_producer))
        if self.rate > 0 and self.readers:
            rates = np.array([self.readers.get(kind, 0.0) for kind in graph.op_types])
            np.add.at(found, graph.edge_tensor, rates[graph.consumer_op] / (2 * self.rate))
        return found


def piece_features(problem: Problem, pieces: Sequence[Piece]) -> Features:
    """What the cost of pieces is made of."""
    graph = problem.graph
    inside: list[list[int]] = [[] for _ in range(graph.n)]
    """Of every op, the pieces that it is in: more than one for a join."""
    seconds, moved = np.zeros(len(pieces)), np.zeros(len(pieces))
    waits: list[set[int]] = [set() for _ in pieces]
    read: list[dict[str, float]] = [{} for _ in pieces]
    for number, piece in enumerate(pieces):
        d = problem.cluster.index[piece.device]
        ops = [graph.index[op] for op in piece.ops]
        seconds[number] = problem.time[ops, d].sum()
        for v in ops:
            inside[v].append(number)
    readers, first = graph.consumer_op.tolist(), graph.consumer_ptr.tolist()
    size, types = graph.tensor_bytes.tolist(), graph.op_types
    exchanged: set[tuple[int, int]] = set()
    """(join, piece): made there of what other pieces gave."""
    producers = graph.tensor_producer.tolist()
    for t in np.argsort(graph.position[graph.tensor_producer], kind="stable").tolist():
        producer = producers[t]
        makers = inside[producer]
        if not makers:
            continue
        sources = set()
        for v in readers[first[t] : first[t + 1]]:
            for number in inside[v]:
                if number not in makers or (producer, number) in exchanged:
                    read[number][types[v]] = read[number].get(types[v], 0.0) + size[t]
                    if types[v] in JOINS:
                        exchanged.add((v, number))
        outside = {n for v in readers[first[t] : first[t + 1]] for n in inside[v]}.difference(makers)
        for number in outside:
            own = (maker for maker in makers if pieces[maker].device == pieces[number].device)
            source = next(own, makers[0])
            sources.add(source)
            waits[number].add(source)
            moved[number] += size[t]
        for source in sources:
            moved[source] += size[t]
    devices = [problem.cluster.index[piece.device] for piece in pieces]
    return Features(seconds, moved, waits, read, _paces(problem)[devices])


def _paces(problem: Problem) -> FloatArray:
    """How slow every device is, against the fastest, at all that each of them can run."""
    known = problem.time[np.isfinite(problem.time).all(axis=1)].sum(axis=0)
    if len(known) == 0 or known.min() <= 0:
        return np.ones(problem.devices)
    found: FloatArray = known / known.min()
    return found


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
    features = [piece_features(problem, pieces) for pieces, _ in traced]
    measured = np.array(
        [taken[n] for (_, taken), f in zip(traced, features, strict=True) for n in range(len(f.seconds))]
    )
    if len(measured) < EVIDENCE or max(f.seconds.max(initial=0.0) for f in features) <= 0:
        return start
    seen = Counter(kind for f in features for read in f.read for kind in read)
    kinds = [kind for kind, count in seen.most_common(len(measured) // EVIDENCE - 3) if count >= EVIDENCE]
    matrix = np.vstack([_columns(f, kinds) for f in features])
    weight = 1 / np.sqrt(np.maximum(measured, 1e-6))  # between absolute and relative error
    scale = np.maximum((matrix * weight[:, None]).max(axis=0), 1e-300)
    from scipy.optimize import nnls

    found, _ = nnls(matrix * weight[:, None] / scale, measured * weight)
    found /= scale
    slowdown, piece, rate, *readers = found.tolist()
    if slowdown <= 0:
        return start
    predicted = matrix @ found
    return replace(
        start,
        slowdown=slowdown,
        piece=piece,
        rate=rate,
        submodels=len(measured),
        median_residual=float(np.median(np.abs(predicted - measured) / np.maximum(measured, 1e-9))),
        total_residual=float(abs(predicted.sum() - measured.sum()) / measured.sum()),
        readers={kind: rate for kind, rate in zip(kinds, readers, strict=True) if rate > 0},
    )


def _columns(features: Features, kinds: Sequence[str]) -> FloatArray:
    """What a fit weighs, a row per piece."""
    read = [[each.get(kind, 0.0) for each in features.read] for kind in kinds]
    ends = np.array([np.ones_like(features.seconds), features.moved, *read]).T
    return np.hstack([features.seconds[:, None], features.pace[:, None] * ends])


def corrected(problem: Problem, traced: Sequence[Traced], fit: OverlapFit) -> Problem:
    """The problem with the times of ops as their pieces took them: what the fit leaves over, spread over a piece's ops.

    Ops side by side share their caches and layouts, so that whole pieces are off in one direction; of several
    traces an op gets the mean, by logarithms. At most :data:`FAR` either way, so that one odd piece spoils little.
    """
    logs, count = np.zeros(problem.n), np.zeros(problem.n)
    for pieces, taken in traced:
        expected = fit.taken(piece_features(problem, pieces))
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
    features = piece_features(problem, pieces)
    taken = (fit.taken(features) + fit.call + features.moved * fit.byte).tolist()
    device = [problem.cluster.index[piece.device] for piece in pieces]
    if len(set(device)) == 1:
        return float(features.seconds.sum())
    if isinstance(problem.model, Serial):
        return float(sum(taken))
    sequence: list[list[int]] = [[] for _ in range(problem.devices)]
    for number, d in enumerate(device):
        sequence[d].append(number)
    links = delays(problem, pieces) if fit.links else {}
    first = simulate(sequence, taken, features.waits, device, piece=0.0, wait=fit.wait, delay=links)[0]
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
    expected = piece_features(problem, pieces).seconds
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
