"""Everything that is kept, looked at again: hashes, placements, certificates."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from loadmaster.bench._instances import Instance, content_hash
from loadmaster.bench._known import FOLDER, Known, read_known
from loadmaster.bench._proofs import checked_bound
from loadmaster.errors import InputError
from loadmaster.problem import Concurrent, Evaluation, Placement, Problem, evaluate, reference

__all__ = ["CLOSE", "Check", "independent_cost", "schedule_error", "verify"]

CLOSE = 1e-9
"""Relative: costs are sums of floating point numbers, which are added in another order elsewhere."""
PLAIN_EVENTS = 4_000
"""Ops up to which the plain reference looks at a placement under ``concurrent``, where it takes quadratic time."""


@dataclass(frozen=True)
class Check:
    """What was found about an instance: what was looked at, and what is wrong (nothing, if empty)."""

    instance: str
    looked_at: tuple[str, ...]
    wrong: tuple[str, ...]


def independent_cost(problem: Problem, placement: Placement) -> tuple[float, str]:
    """The cost by the plain reference, and why the placement is not feasible (empty if it is).

    Where that would take hours, by the compiled kernel, and then the schedule that it reports is checked op by op and
    transfer by transfer: it can be kept, so the placement can be run in that time.
    """
    events = isinstance(problem.model, Concurrent)
    found = (evaluate if events and problem.n > PLAIN_EVENTS else reference.evaluate)(problem, placement)
    if not found.feasible:
        return found.cost, "; ".join(found.why) or "it has no cost"
    return found.cost, schedule_error(problem, placement, found) if events else ""


def schedule_error(problem: Problem, placement: Placement, found: Evaluation) -> str:
    """What is wrong with a schedule of ``concurrent`` (empty: nothing).

    No op before its inputs, none beside another one on its device, no transfer before its tensor, none beside another
    one on its link; each takes what it takes, and the last op ends at the cost.
    """
    if found.start is None or found.end is None:
        return "it has no schedule"
    graph, device = problem.graph, placement.device.tolist()
    start, end = found.start.tolist(), found.end.tolist()
    slack = CLOSE * max(found.cost, 1e-12)
    free = [0.0] * problem.devices
    for v in sorted(range(problem.n), key=lambda v: (start[v], end[v])):
        d = device[v]
        if abs(end[v] - start[v] - float(problem.time[v, d])) > slack:
            return f"op {v} does not take the time that it takes"
        if start[v] < free[d] - slack:
            return f"op {v} starts before its device is free"
        free[d] = max(free[d], end[v])
    if abs(max(free, default=0.0) - found.cost) > slack:
        return "the cost is not the end of the last op"
    link_free: dict[tuple[int, int], float] = {}
    arrival: dict[tuple[int, int], float] = {}
    for move in sorted(found.transfers, key=lambda move: (move.start, move.end)):
        t, link = move.tensor, (move.source, move.target)
        producer = int(graph.tensor_producer[t])
        if device[producer] != move.source or move.start < end[producer] - slack:
            return f"tensor {t} is sent before it is there"
        if move.start < link_free.get(link, 0.0) - slack:
            return f"tensor {t} is sent before its link is free"
        needed = float(problem.latency[link] + problem.size[t] * problem.rate[link])
        if abs(move.end - move.start - needed) > slack:
            return f"the transfer of tensor {t} does not take the time that it takes"
        link_free[link] = max(link_free.get(link, 0.0), move.end)
        arrival[t, move.target] = move.end
    for t in range(graph.tensors):
        u = int(graph.tensor_producer[t])
        for v in graph.consumers(t).tolist():
            there = end[u] if device[u] == device[v] else arrival.get((t, device[v]), math.inf)
            if start[v] < there - slack:
                return f"op {v} starts before its input {t} is there"
    return ""


def verify(
    entries: Iterable[Instance],
    *,
    folder: Path = FOLDER,
    workloads: str | Path | None = None,
    only_hashes: bool = False,
    on_instance: Callable[[Instance], None] | None = None,
) -> list[Check]:
    """Look at instances again: the hash; the placement's cost; every certificate."""
    found = []
    for instance in entries:
        if on_instance is not None:
            on_instance(instance)
        looked, wrong = ["hash"], []
        try:
            problem = instance.problem(workloads)
            if content_hash(problem) != instance.hash:
                wrong.append("the instance has another hash than it should")
            known = None if only_hashes else read_known(instance.name, folder)
            if known is not None and not wrong:
                _look(problem, known, instance, looked, wrong)
        except InputError as error:
            wrong.append(str(error))
        found.append(Check(instance.name, tuple(looked), tuple(wrong)))
    return found


def _look(problem: Problem, known: Known, instance: Instance, looked: list[str], wrong: list[str]) -> None:
    if known.hash != instance.hash:
        wrong.append("the best known value is for another version of the instance")
        return
    looked.append("placement")
    cost, why = independent_cost(problem, known.unpacked(problem))
    if why:
        wrong.append(f"the placement is not feasible: {why}")
    elif abs(cost - known.cost) > CLOSE * known.cost:
        wrong.append(f"the placement costs {cost:.12g} s, not {known.cost:.12g} s")
    if max(known.bound, known.checked) > known.cost * (1 + CLOSE):
        wrong.append(f"the bound {known.bound:.12g} s is above the cost {known.cost:.12g} s")
    if known.certificate is not None:
        looked.append(f"certificate ({known.certificate.get('kind')})")
        proved = float(checked_bound(problem, known.certificate, f"known/{known.instance}.json"))
        if proved < known.checked * (1 - CLOSE):
            wrong.append(f"the certificate proves {proved:.12g} s, not {known.checked:.12g} s")
