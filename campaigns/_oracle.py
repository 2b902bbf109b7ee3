"""What a placement may not do, checked with sets and loops: a second opinion that shares no code with Loadmaster."""

from __future__ import annotations

import itertools
import math

import numpy as np

from loadmaster.problem import Concurrent, Offload, Pipeline, Placement, Problem, SimulatedEvaluator

__all__ = ["allowed", "fits", "optimum"]

MOST_PLACEMENTS = 3000
MOST_SCHEDULES = 4000


def allowed(problem: Problem, placement: Placement) -> bool:
    """Support, pins, forbids, surplus devices, colocation, contiguity: all but memory, calls and orders."""
    device = placement.device.tolist()
    for v, d in enumerate(device):
        if math.isinf(problem.time[v, d]) or problem.forbidden[v, d] or d in problem.surplus:
            return False
        if problem.pin[v] >= 0 and problem.pin[v] != d:
            return False
    home: dict[int, int] = {}
    for v, d in enumerate(device):
        if home.setdefault(int(problem.class_of[v]), d) != d:
            return False
    if getattr(problem.model, "microbatches", 0):
        return True  # its stages are looked at by the reference alone
    if isinstance(problem.model, Pipeline) and problem.model.contiguity == "device":
        return _each_convex(problem, device)
    if isinstance(problem.model, Pipeline) and problem.model.contiguity == "chain":
        return _no_circle(problem, device)
    return True


def _work(problem: Problem, *, backward: bool) -> set[int]:
    graph = problem.graph
    return {
        v for v in range(problem.n) if bool(graph.backward[v]) == backward and not bool(graph.boundary[v])
    }


def _pairs(problem: Problem, ops: set[int]) -> set[tuple[int, int]]:
    graph = problem.graph
    return {
        (int(graph.tensor_producer[t]), u)
        for t in range(graph.tensors)
        for u in graph.consumers(t).tolist()
        if u in ops and int(graph.tensor_producer[t]) in ops
    }


def _each_convex(problem: Problem, device: list[int]) -> bool:
    """Walk from every op over others' ops: none may come back."""
    pairs = _pairs(problem, _work(problem, backward=False))
    after: dict[int, list[int]] = {}
    for u, v in pairs:
        after.setdefault(u, []).append(v)
    for start in after:
        todo = [v for v in after[start] if device[v] != device[start]]
        while todo:
            v = todo.pop()
            for w in after.get(v, ()):
                if device[w] == device[start]:
                    return False
                todo.append(w)
    return True


def _no_circle(problem: Problem, device: list[int]) -> bool:
    of = problem.class_of.tolist()
    forward, backward = _work(problem, backward=False), _work(problem, backward=True)
    with_forward = {of[v] for v in forward}
    waits = {(device[u], device[v]) for u, v in _pairs(problem, forward)}
    for u, v in _pairs(problem, backward):
        if of[u] not in with_forward or of[v] not in with_forward:
            waits.add((device[v], device[u]))
    waits = {(d, e) for d, e in waits if d != e}
    left = set(range(problem.devices))
    while left:
        free = {d for d in left if not any(e == d and s in left for s, e in waits)}
        if not free:
            return False
        left -= free
    return True


def fits(problem: Problem, placement: Placement) -> bool | None:
    """Whether the bytes placed on every device fit; None where rounding or the peak decides."""
    if getattr(problem.model, "memory", "sum") == "peak" or getattr(problem.model, "microbatches", 0):
        return None
    for d in range(problem.devices):
        held = math.fsum(problem.memory[v] for v in range(problem.n) if placement.device[v] == d)
        room = float(problem.capacity[d])
        if math.isfinite(room) and abs(held - room) <= 1e-9 * room and held != room:
            return None
        if held > room:
            return False
    return True


def optimum(problem: Problem) -> tuple[float, bool] | None:
    """The least cost of any feasible placement, infinite where there is none, and whether orders and calls were tried
    too; None where there are too many placements."""
    choices = [np.flatnonzero(row).tolist() for row in problem.class_allowed]
    count = math.prod(len(devices) for devices in choices)
    if count > MOST_PLACEMENTS:
        return None
    rows = np.array(list(itertools.product(*choices)), np.int32).reshape(count, problem.classes)
    evaluator = SimulatedEvaluator(problem)
    device = rows[:, problem.class_of] if problem.n else np.zeros((count, 0), np.int32)
    cost, feasible = evaluator.evaluate_batch(device)
    best = float(cost[feasible].min(initial=math.inf))
    # Stages may come in an order of their own, which is not tried here.
    whole = not getattr(problem.model, "microbatches", 0)
    if isinstance(problem.model, Offload) and problem.model.max_calls > 1:
        whole = count * problem.model.max_calls**problem.n <= MOST_SCHEDULES
        for row in device if whole else ():
            numbers = [range(1 if problem.pool[d] else problem.model.max_calls) for d in row]
            for call in itertools.product(*numbers):
                best = min(best, evaluator.evaluate(Placement(row, call=np.array(call, np.int32))).value)
    if isinstance(problem.model, Concurrent):
        whole = problem.n <= 5
        orders = _orders(problem) if whole else []
        whole = whole and len(orders) * count <= MOST_SCHEDULES
        for row in device if whole else ():
            for order in orders:
                best = min(best, evaluator.evaluate(Placement(row, order=order)).value)
    return best, whole


def _orders(problem: Problem) -> list[np.ndarray]:
    tail, head = problem.graph.arcs
    orders = [np.argsort(p).astype(np.int32) for p in itertools.permutations(range(problem.n))]
    return [order for order in orders if (order[tail] < order[head]).all()]
