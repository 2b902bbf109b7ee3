"""Proofs that are checked again: bounds recomputed from a problem's arrays in exact fractions, and nothing else.

None of this shares code with what proves bounds (:mod:`loadmaster.problem.bounds`, the placers): it follows the
definitions of the execution models, as :mod:`loadmaster.problem.reference` does for costs, which it uses.

- ``enumeration``: every placement of a tiny problem is tried, with every order and every division into calls.
- ``path``: no schedule ends before the longest path does, each op and each transfer where they take least.
- ``prices``: numbers that anybody may have found. Whatever they are, if not negative they prove a bound:
  a *weight* per device (the largest load is at least a weighted mean of the loads; under ``serial`` every weight is
  1), a price per byte of each device's *memory*, and a price for each tensor, class of ops that reads it and device:
  what that class pays for needing the tensor there; of all that is paid for a tensor on a device, the producer gets
  what exceeds the cost of bringing it. (A Lagrangian relaxation; with the best prices it is the linear one.)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from loadmaster.bench._placements import unpack_array
from loadmaster.errors import InputError
from loadmaster.files import Record
from loadmaster.problem import Concurrent, Offload, Pipeline, Placement, Problem, Serial
from loadmaster.problem.reference import evaluate

__all__ = ["KINDS", "checked_bound", "path_bound", "price_bound", "readers_of", "tried_all"]

KINDS = ("enumeration", "path", "prices")
MOST = 100_000
"""Placements that are tried at most."""
LARGEST = 1e100
"""Prices beyond this prove nothing that a float can hold."""


def checked_bound(problem: Problem, certificate: Any, where: str) -> Fraction:
    """What a certificate proves, computed anew.

    Raises
    ------
    InputError : it is none, or does not fit the problem.
    """
    record = Record(certificate, where)
    match record.text("kind"):
        case "enumeration":
            least = tried_all(problem)
            if math.isinf(least):
                raise InputError(f"{where}: there is no feasible placement")
            return Fraction(least)
        case "path":
            return path_bound(problem)
        case "prices":
            pairs = len(readers_of(problem))
            parts = {
                name: unpack_array(record.get(name), length, f"{where}: {name}").astype(np.float64)
                for name, length in (
                    ("weights", problem.devices), ("memory", problem.devices),
                    ("tensors", pairs * problem.devices if "tensors" in record else 0),
                )
                if name in record
            }  # fmt: skip
            return price_bound(problem, **parts)
    raise InputError(
        f"{where}: there is no kind of certificate {record.text('kind')!r}: give {', '.join(KINDS)}"
    )


def _choices(problem: Problem) -> list[list[int]]:
    """Where each class may go: allowed, and not too large by itself."""
    whole = _sums_memory(problem)
    return [
        [
            d
            for d in range(problem.devices)
            if problem.class_allowed[c, d]
            and not (whole and problem.class_memory[c] > problem.capacity[d] * (1 + 1e-9))
        ]
        for c in range(problem.classes)
    ]


def _sums_memory(problem: Problem) -> bool:
    """Whether what must fit is the plain sum of all ops of a device."""
    model = problem.model
    if isinstance(model, Concurrent) and model.memory == "peak":
        return False
    return not (isinstance(model, Pipeline) and model.microbatches)


# -- prices --------------------------------------------------------------------------------------------------


def readers_of(problem: Problem) -> list[tuple[int, int, int]]:
    """(tensor, class of its producer, class that reads it), other classes than the producer's only, in order."""
    graph, found = problem.graph, []
    for t in range(graph.tensors):
        own = int(problem.class_of[graph.tensor_producer[t]])
        for reader in sorted({int(problem.class_of[u]) for u in graph.consumers(t).tolist()} - {own}):
            found.append((t, own, reader))
    return found


def price_bound(
    problem: Problem,
    *,
    weights: Sequence[float] | Any = (),
    memory: Sequence[float] | Any = (),
    tensors: Sequence[float] | Any = (),
) -> Fraction:
    """The bound that prices prove, exactly; see the module.

    weights, memory : (devices,); tensors : (readers x devices,) in the order of :func:`readers_of`.
    """
    model, size = problem.model, problem.devices
    if isinstance(model, Pipeline) and model.microbatches:
        raise InputError("prices prove nothing about a step of microbatches")
    carries = isinstance(model, Serial) or (isinstance(model, Pipeline) and model.comm == "sum")
    if not all(
        (np.abs(np.asarray(prices, np.float64)) <= LARGEST).all() for prices in (weights, memory, tensors)
    ):
        raise InputError(f"a price must be a number of at most {LARGEST:g}")
    weight = [Fraction(1)] * size if isinstance(model, Serial) else _shares(weights, size)
    if isinstance(model, Offload) and any(weight[d] for d in range(size) if problem.pool[d]):
        raise InputError("under offload the CPUs are an unlimited pool: their weight must be 0")
    byte = [Fraction(float(x)) for x in memory] if len(memory) else [Fraction(0)] * size
    price = [Fraction(float(x)) for x in tensors]
    if any(x < 0 for x in (*byte, *price)):
        raise InputError("a price must not be negative")
    if price and not carries:
        raise InputError(f"prices of tensors prove nothing under the {model.name} model")
    if any(byte) and not _sums_memory(problem):
        raise InputError("prices of memory need the sum of all ops to fit")
    if any(byte[d] and math.isinf(problem.capacity[d]) for d in range(size)):
        raise InputError("the price of unlimited memory must be 0")
    choices = _choices(problem)
    cost: list[dict[int, Fraction]] = []
    for c, devices in enumerate(choices):
        held = Fraction(float(problem.class_memory[c]))
        cost.append(
            {d: weight[d] * Fraction(float(problem.class_time[c, d])) + byte[d] * held for d in devices}
        )
    if price:
        _trade(problem, weight, price, cost)
    total = sum((min(entry.values()) for entry in cost if entry), Fraction(0))
    return total - sum(
        (byte[d] * Fraction(float(problem.capacity[d])) for d in range(size) if byte[d]), Fraction(0)
    )


def _shares(weights: Sequence[float], size: int) -> list[Fraction]:
    found = [Fraction(float(x)) for x in weights]
    if len(found) != size or any(x < 0 for x in found) or not any(found):
        raise InputError(f"weights must be {size} numbers >= 0, not all 0")
    return [x / sum(found) for x in found]


def _trade(
    problem: Problem, weight: list[Fraction], price: list[Fraction], cost: list[dict[int, Fraction]]
) -> None:
    """Readers pay for tensors, producers collect what exceeds the transfer."""
    size = problem.devices
    pairs = readers_of(problem)
    if len(price) != len(pairs) * size:
        raise InputError(f"there must be {len(pairs) * size} prices of tensors, not {len(price)}")
    demand: dict[int, list[Fraction]] = {}
    owner: dict[int, int] = {}
    count: dict[int, int] = {}
    for i, (t, own, reader) in enumerate(pairs):
        mine = price[i * size : (i + 1) * size]
        for d in cost[reader]:
            cost[reader][d] += mine[d]
        kept = [x if d in cost[reader] else Fraction(0) for d, x in enumerate(mine)]
        demand[t] = [a + b for a, b in zip(demand.get(t, [Fraction(0)] * size), kept, strict=True)]
        owner[t], count[t] = own, count.get(t, 0) + 1
    for t, wanted in demand.items():
        for a in cost[owner[t]]:
            for d in range(size):
                over = wanted[d] - _carried(problem, weight, t, a, d, count[t])
                if over > 0:
                    cost[owner[t]][a] -= over


def _carried(
    problem: Problem, weight: list[Fraction], t: int, source: int, target: int, readers: int
) -> Fraction:
    """What bringing a tensor adds; a send is shared by all devices that may receive it."""
    if source == target:
        return Fraction(0)
    size = Fraction(float(problem.size[t]))

    def seconds(latency: Any, rate: Any) -> Fraction:
        return Fraction(float(latency)) + size * Fraction(float(rate))

    if isinstance(problem.model, Serial):
        return seconds(problem.latency[source, target], problem.rate[source, target])
    most = min(readers, problem.devices - 1)
    send = weight[source] * seconds(problem.send_latency[source], problem.send_rate[source])
    return send / most + weight[target] * seconds(problem.recv_latency[target], problem.recv_rate[target])


# -- paths ---------------------------------------------------------------------------------------------------


def path_bound(problem: Problem) -> Fraction:
    """The longest path of ``concurrent`` or ``offload``, every op and transfer where they take least."""
    model, graph, size = problem.model, problem.graph, problem.devices
    if not isinstance(model, Concurrent | Offload):
        raise InputError(f"a path proves nothing under the {model.name} model")
    choices = _choices(problem)
    ptr, tensor = graph.inputs
    done: dict[int, dict[int, Fraction]] = {}
    longest = Fraction(0)
    for v in graph.topological_order.tolist():
        mine = choices[problem.class_of[v]]
        ends = {}
        for d in mine:
            begin = Fraction(0)
            for t in tensor[ptr[v] : ptr[v + 1]].tolist():
                u = int(graph.tensor_producer[t])
                if problem.class_of[u] == problem.class_of[v]:
                    begin = max(begin, done[u][d])
                elif done[u]:
                    begin = max(begin, min(end + _wait(problem, t, a, d) for a, end in done[u].items()))
            ends[d] = begin + Fraction(float(problem.time[v, d]))
        done[v] = ends
        if ends:
            longest = max(longest, min(ends.values()))
    assert size
    return longest


def _wait(problem: Problem, t: int, source: int, target: int) -> Fraction:
    if source == target:
        return Fraction(0)
    size = Fraction(float(problem.size[t]))
    if isinstance(problem.model, Concurrent):
        return Fraction(float(problem.latency[source, target])) + size * Fraction(
            float(problem.rate[source, target])
        )
    total = Fraction(0)
    if not problem.pool[source]:
        total += Fraction(float(problem.send_latency[source])) + size * Fraction(
            float(problem.send_rate[source])
        )
    if not problem.pool[target]:
        total += Fraction(float(problem.recv_latency[target])) + size * Fraction(
            float(problem.recv_rate[target])
        )
    return total


# -- enumeration ---------------------------------------------------------------------------------------------


def tried_all(problem: Problem) -> float:
    """The least cost of all feasible placements, orders and calls included, by the plain reference.

    What a placement takes at least whatever its order (its longest path, its busiest device) spares most orders.

    Raises
    ------
    InputError : there are more than 100,000 placements of classes, or it is a step of microbatches.
    """
    choices = _choices(problem)
    count = math.prod(len(devices) for devices in choices)
    if count > MOST:
        raise InputError(f"the problem has {count:.3g} placements: at most {MOST:,} are tried")
    if isinstance(problem.model, Pipeline) and problem.model.microbatches:
        raise InputError("steps of microbatches are not tried one by one")
    best = math.inf
    for at in itertools.product(*choices):
        device = np.array(at, np.int32)[problem.class_of]
        found = evaluate(problem, Placement(device))
        if found.feasible:
            best = min(best, found.cost)
        if _more(problem) and _least(problem, device.tolist()) < best:
            for extra in _variants(problem, device):
                found = evaluate(problem, Placement(device, **extra))
                if found.feasible:
                    best = min(best, found.cost)
    return best


def _more(problem: Problem) -> bool:
    """Whether a placement is more than its devices."""
    model = problem.model
    return isinstance(model, Concurrent) or (isinstance(model, Offload) and model.max_calls > 1)


def _least(problem: Problem, device: list[int]) -> float:
    """What a placement takes at least: its busiest device, and its longest path with transfers."""
    graph = problem.graph
    ptr, tensor = graph.inputs
    busy = [0.0] * problem.devices
    end = [0.0] * problem.n
    for v in graph.topological_order.tolist():
        d = device[v]
        begin = 0.0
        for t in tensor[ptr[v] : ptr[v + 1]].tolist():
            u = int(graph.tensor_producer[t])
            begin = max(begin, end[u] + float(_wait(problem, t, device[u], d)))
        end[v] = begin + float(problem.time[v, d])
        if not (isinstance(problem.model, Offload) and problem.pool[d]):
            busy[d] += float(problem.time[v, d])
    return max(*end, *busy) * (1 - 1e-12)


def _variants(problem: Problem, device: Any) -> Iterator[Mapping[str, Any]]:
    """Every order of each device's ops that some order of all ops has; or every division into calls."""
    model = problem.model
    if isinstance(model, Offload):
        mine = [v for v in range(problem.n) if not problem.pool[device[v]]]
        for number in itertools.product(range(model.max_calls), repeat=len(mine)):
            call = np.zeros(problem.n, np.int32)
            call[mine] = number
            yield {"call": call}
        return
    seen: set[tuple[tuple[int, ...], ...]] = set()
    for sequence in _topological_orders(problem):
        per_device = tuple(tuple(v for v in sequence if device[v] == d) for d in range(problem.devices))
        if per_device not in seen:
            seen.add(per_device)
            order = np.empty(problem.n, np.int32)
            order[list(sequence)] = np.arange(problem.n)
            yield {"order": order}


def _topological_orders(problem: Problem) -> list[tuple[int, ...]]:
    return problem.derived(_all_orders)


def _all_orders(problem: Problem) -> list[tuple[int, ...]]:
    graph = problem.graph
    ptr, other = graph.predecessors
    before = [set(other[ptr[v] : ptr[v + 1]].tolist()) for v in range(problem.n)]
    found: list[tuple[int, ...]] = []

    def extend(sequence: list[int], done: set[int]) -> None:
        if len(sequence) == problem.n:
            found.append(tuple(sequence))
        for v in range(problem.n):
            if v not in done and before[v] <= done:
                extend([*sequence, v], done | {v})

    extend([], set())
    return found
