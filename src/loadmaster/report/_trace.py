"""Schedules as traces that Perfetto (ui.perfetto.dev) and Chrome (chrome://tracing) open.

The format is Chrome's Trace Event Format as JSON: complete events (``X``) on one track per device and per link,
flow arrows (``s``, ``t``, ``f``) from the op that makes a tensor over its transfer to the first op that reads it,
and counters (``C``) of the memory in use. Times are microseconds.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from loadmaster.errors import InputError
from loadmaster.problem import Evaluation, Placement, Problem, evaluate
from loadmaster.report._critical import critical_path

__all__ = ["memory_over_time", "trace_document"]

PREDICTED, MEASURED = 1, 2
MICROSECONDS = 1e6

Event = dict[str, Any]


def trace_document(
    problem: Problem, placement: Placement, *, measured: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The trace of a placement; a measured schedule (op, start, end) becomes a process of its own.

    Raises
    ------
    InputError : there is no schedule: the model is ``pipeline``, or the placement has no cost.
    """
    evaluation = evaluate(problem, placement)
    if evaluation.start is None or evaluation.end is None:
        why = (
            "has no cost" if problem.model.name != "pipeline" else "says how much each device does, not when"
        )
        raise InputError(
            f"there is no schedule to trace: the placement under the {problem.model.name} model {why}"
        )
    tracks = _Tracks(PREDICTED, "predicted")
    critical = {(step.kind, step.index) for step in critical_path(problem, placement, evaluation)}
    _ops(tracks, problem, placement, evaluation, critical)
    _transfers(tracks, problem, placement, evaluation, critical)
    events = tracks.events + _counters(problem, placement, evaluation)
    schedule = (measured or {}).get("schedule")
    if isinstance(schedule, list):
        events += _measured(problem, placement, schedule)
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {
            "graph": problem.graph.name,
            "cluster": problem.cluster.name,
            "model": problem.model.name,
            "cost_seconds": evaluation.cost,
        },
    }


class _Tracks:
    """Events of one process; what overlaps on a track is put onto further lanes of it."""

    def __init__(self, process: int, name: str) -> None:
        self.process = process
        self.events: list[Event] = [
            {"ph": "M", "pid": process, "tid": 0, "name": "process_name", "args": {"name": name}}
        ]
        self.next = 1
        self.op_event: dict[int, Event] = {}

    def add(
        self, name: str, spans: Sequence[tuple[float, float, str, str, dict[str, Any]]]
    ) -> dict[int, Event]:
        """Put spans (start, end, name, category, arguments) onto a track; span number -> its event."""
        lanes: list[tuple[float, int]] = []  # end of the last span, and the lane
        found, count = {}, 0
        for i in sorted(range(len(spans)), key=lambda i: (spans[i][0], spans[i][1])):
            start, end, title, category, arguments = spans[i]
            if lanes and lanes[0][0] <= start:
                _, lane = heapq.heappop(lanes)
            else:
                lane, count = self.next, count + 1
                self.next += 1
                self._name(lane, name if count == 1 else f"{name} ({count})")
            heapq.heappush(lanes, (end, lane))
            found[i] = {
                "ph": "X",
                "pid": self.process,
                "tid": lane,
                "ts": start * MICROSECONDS,
                "dur": (end - start) * MICROSECONDS,
                "name": title,
                "cat": category,
                "args": arguments,
            }
            self.events.append(found[i])
        if not spans:
            self._name(self.next, name)
            self.next += 1
        return found

    def _name(self, lane: int, name: str) -> None:
        common = {"ph": "M", "pid": self.process, "tid": lane}
        self.events.append({**common, "name": "thread_name", "args": {"name": name}})
        self.events.append({**common, "name": "thread_sort_index", "args": {"sort_index": lane}})


def _ops(
    tracks: _Tracks,
    problem: Problem,
    placement: Placement,
    evaluation: Evaluation,
    critical: set[tuple[str, int]],
) -> None:
    """Ops on the tracks of their devices; under ``offload`` the calls of accelerators."""
    start, end = evaluation.start, evaluation.end
    assert start is not None
    assert end is not None
    graph = problem.graph
    for d, name in enumerate(problem.cluster.names):
        spans: list[tuple[float, float, str, str, dict[str, Any]]] = []
        ops: list[int] = []
        for c, call in enumerate(evaluation.calls):
            if call.device == d:
                arguments = {
                    "ops": len(call.ops),
                    "first": graph.names[call.ops[0]],
                    "critical": ("call", c) in critical,
                }
                spans.append((call.start, call.end, f"call of {len(call.ops)} ops", "call", arguments))
        if not spans:
            ops = np.flatnonzero(placement.device == d).tolist()
            spans = [
                (
                    float(start[v]),
                    float(end[v]),
                    graph.names[v],
                    "op",
                    {"type": graph.op_types[v], "critical": ("op", v) in critical},
                )
                for v in ops
            ]
        made = tracks.add(name, spans)
        tracks.op_event.update({ops[i]: event for i, event in made.items() if ops})


def _transfers(
    tracks: _Tracks,
    problem: Problem,
    placement: Placement,
    evaluation: Evaluation,
    critical: set[tuple[str, int]],
) -> None:
    """Transfers on one track per link, and arrows from the producer to the first reader."""
    graph, names = problem.graph, problem.cluster.names
    links: dict[tuple[int, int], list[int]] = {}
    for i, transfer in enumerate(evaluation.transfers):
        links.setdefault((transfer.source, transfer.target), []).append(i)
    op_event = tracks.op_event
    for (a, b), numbers in sorted(links.items()):
        spans = []
        for i in numbers:
            transfer = evaluation.transfers[i]
            producer = int(graph.tensor_producer[transfer.tensor])
            arguments = {
                "tensor": transfer.tensor,
                "bytes": float(graph.tensor_bytes[transfer.tensor]),
                "critical": ("transfer", i) in critical,
            }
            spans.append((transfer.start, transfer.end, graph.names[producer], "transfer", arguments))
        made = tracks.add(f"{names[a]} → {names[b]}", spans)
        for i, event in ((numbers[j], event) for j, event in made.items()):
            transfer = evaluation.transfers[i]
            readers = [u for u in graph.consumers(transfer.tensor).tolist() if placement.device[u] == b]
            first = min(readers, key=lambda u: op_event[u]["ts"])
            source = op_event[int(graph.tensor_producer[transfer.tensor])]
            common = {"pid": tracks.process, "cat": "flow", "name": "tensor", "id": i + 1}
            # An arrow leaves from the middle of the producer, which surely lies inside it.
            middle = source["ts"] + source["dur"] / 2
            tracks.events += [
                {**common, "ph": "s", "tid": source["tid"], "ts": middle},
                {**common, "ph": "t", "tid": event["tid"], "ts": event["ts"]},
                {**common, "ph": "f", "bp": "e", "tid": op_event[first]["tid"], "ts": op_event[first]["ts"]},
            ]


def memory_over_time(
    problem: Problem, placement: Placement, evaluation: Evaluation
) -> list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """Per device: moments in seconds and the bytes in use from then on.

    The rule is that of the peak memory (``memory="peak"``): resident bytes stay; a tensor lives on its
    producer's device until its last local reader and its last transfer end, elsewhere from the start of its
    transfer until the last reader there ends; a tensor that nobody reads stays.
    """
    start, end, device, graph = evaluation.start, evaluation.end, placement.device, problem.graph
    assert start is not None
    assert end is not None
    changes: list[list[tuple[float, float]]] = [[] for _ in range(problem.devices)]

    def alive(d: int, begin: float, until: float, size: float) -> None:
        if until > begin and size:
            changes[d].append((begin, size))
            if until < np.inf:
                changes[d].append((until, -size))

    arrivals: dict[int, list[int]] = {}
    for i, transfer in enumerate(evaluation.transfers):
        arrivals.setdefault(transfer.tensor, []).append(i)
    for t in range(graph.tensors):
        producer = int(graph.tensor_producer[t])
        readers = graph.consumers(t)
        size, home = float(graph.tensor_bytes[t]), int(device[producer])
        moved = [evaluation.transfers[i] for i in arrivals.get(t, [])]
        last = [*end[readers[device[readers] == home]].tolist(), *(transfer.end for transfer in moved)]
        alive(home, float(start[producer]), max(last) if len(readers) else np.inf, size)
        for transfer in moved:
            there = float(end[readers[device[readers] == transfer.target]].max())
            alive(transfer.target, transfer.start, there, size)
    series = []
    for d in range(problem.devices):
        resident = float(problem.resident[device == d].sum())
        moments = np.array(sorted({0.0, *(moment for moment, _ in changes[d])}))
        step = np.zeros(len(moments))
        if changes[d]:
            when, amount = np.array(changes[d]).T
            np.add.at(step, np.searchsorted(moments, when), amount)
        series.append((moments, np.maximum(resident + np.cumsum(step), 0.0)))
    return series


def _counters(problem: Problem, placement: Placement, evaluation: Evaluation) -> list[Event]:
    if problem.model.name == "offload":
        return []
    events = []
    for name, (moments, amount) in zip(
        problem.cluster.names, memory_over_time(problem, placement, evaluation), strict=True
    ):
        common = {"ph": "C", "pid": PREDICTED, "tid": 0, "name": f"memory of {name}"}
        for moment, used in zip(moments.tolist(), amount.tolist(), strict=True):
            events.append({**common, "ts": moment * MICROSECONDS, "args": {"bytes": used}})
    return events


def _measured(problem: Problem, placement: Placement, schedule: Sequence[Mapping[str, Any]]) -> list[Event]:
    """What a runtime measured, in a process of its own below the prediction."""
    tracks = _Tracks(MEASURED, "measured")
    names, index = problem.cluster.names, problem.graph.index
    spans: dict[str, list[tuple[float, float, str, str, dict[str, Any]]]] = {name: [] for name in names}
    for entry in schedule:
        op = str(entry["op"])
        known = names[placement.device[index[op]]] if op in index else "elsewhere"
        track = str(entry.get("device", known))
        spans.setdefault(track, []).append((float(entry["start"]), float(entry["end"]), op, "op", {}))
    for name, found in spans.items():
        tracks.add(name, found)
    return tracks.events
