"""Everything that is kept, looked at again: hashes, placements, certificates."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadmaster.bench._instances import Instance, content_hash
from loadmaster.bench._known import FOLDER, Known, read_known
from loadmaster.bench._proofs import checked_bound
from loadmaster.errors import InputError
from loadmaster.problem import Concurrent, Offload, Placement, Problem, evaluate, reference

__all__ = ["CLOSE", "Check", "independent_cost", "verify"]

CLOSE = 1e-9
"""Relative: costs are sums of floating point numbers, which are added in another order elsewhere."""
PLAIN = 20_000
"""Ops up to which the plain reference looks at a placement, and"""
PLAIN_EVENTS = 4_000
"""those under ``concurrent`` and ``offload``, where it takes quadratic time."""


@dataclass(frozen=True)
class Check:
    """What was found about an instance: what was looked at, and what is wrong (nothing, if empty)."""

    instance: str
    looked_at: tuple[str, ...]
    wrong: tuple[str, ...]


def independent_cost(problem: Problem, placement: Placement) -> tuple[float, str]:
    """The cost by the plain reference, and why the placement is not feasible (empty if it is).

    Where that would take hours, by the compiled kernel, and then the schedule that it reports is checked op by op.
    """
    events = isinstance(problem.model, Concurrent | Offload)
    if problem.n <= (PLAIN_EVENTS if events else PLAIN):
        found = reference.evaluate(problem, placement)
        return found.cost, "" if found.feasible else "; ".join(found.why) or "it has no cost"
    found = evaluate(problem, placement)
    why = "; ".join(found.why) if not found.feasible else _schedule_error(problem, placement, found)
    return found.cost, why


def _schedule_error(problem: Problem, placement: Placement, found: Any) -> str:
    """What is wrong with the schedule of a large placement: no op before its inputs, none beside another one."""
    if found.start is None:
        return _load_error(problem, placement, found)
    graph, device = problem.graph, placement.device
    slack = CLOSE * max(found.cost, 1e-12)
    ends: dict[int, float] = {}
    spans = sorted(zip(found.start.tolist(), found.end.tolist(), range(problem.n), strict=True))
    for start, end, v in spans:
        d = int(device[v])
        if abs(end - start - float(problem.time[v, d])) > slack:
            return f"op {v} does not take the time that it takes"
        if isinstance(problem.model, Concurrent) and start < ends.get(d, 0.0) - slack:
            return f"op {v} starts before its device is free"
        ends[d] = max(end, ends.get(d, 0.0))
    for t in range(graph.tensors):
        u = int(graph.tensor_producer[t])
        for v in graph.consumers(t).tolist():
            a, b = int(device[u]), int(device[v])
            link = 0.0 if a == b else float(problem.latency[a, b] + problem.size[t] * problem.rate[a, b])
            if found.start[v] < found.end[u] + link - slack:
                return f"op {v} starts before its input {t} is there"
    if abs(max(ends.values(), default=0.0) - found.cost) > slack:
        return "the cost is not the end of the last op"
    return ""


def _load_error(problem: Problem, placement: Placement, found: Any) -> str:
    """Loads of a large pipeline, added up again."""
    busy = [0.0] * problem.devices
    for v, d in enumerate(placement.device.tolist()):
        busy[d] += float(problem.time[v, d])
    worst = max(abs(a - b) for a, b in zip(busy, found.busy.tolist(), strict=True))
    return "" if worst <= CLOSE * max(*busy, 1e-12) else "the work of a device is not the sum of its ops"


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
