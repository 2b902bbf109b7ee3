"""The four execution models in plain Python: slow, obvious, and what every fast kernel is tested against.

Nothing here is used to place anything. Each function follows the definition word by word (see
``docs/execution-models.md``) and looks at one placement.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection
from fractions import Fraction

import numpy as np

from loadmaster.problem._constraints import capacity_violations, placement_violations
from loadmaster.problem._evaluation import Call, Evaluation, Transfer, Violation
from loadmaster.problem._model import Concurrent, Offload, Pipeline, Serial
from loadmaster.problem._placement import Placement
from loadmaster.problem._problem import Problem
from loadmaster.problem.contiguity import contiguity_violations
from loadmaster.problem.step.plain import step

__all__ = ["evaluate", "subgraph_seconds"]


def evaluate(problem: Problem, placement: Placement) -> Evaluation:
    """Cost, violations and schedule of one placement, by definition."""
    device = placement.device.tolist()
    violations = list(placement_violations(problem, placement.device))
    size = problem.devices
    memory = [sum(problem.memory[v] for v in range(problem.n) if device[v] == d) for d in range(size)]
    busy = [sum(problem.time[v, d] for v in range(problem.n) if device[v] == d) for d in range(size)]
    match problem.model:
        case Serial():
            run = _serial(problem, device)
        case Pipeline(microbatches=microbatches) if microbatches:
            return _step(problem, placement, violations)
        case Pipeline():
            violations += contiguity_violations(problem, placement.device)
            run = _pipeline(problem, device)
        case Concurrent():
            run = _concurrent(problem, placement)
        case Offload():
            run = _offload(problem, placement)
    violations += run.violations
    weighed = memory
    if isinstance(problem.model, Concurrent) and problem.model.memory == "peak":
        weighed = run.peak or [math.inf] * size
        if not math.isfinite(run.cost):
            weighed = [0.0] * size
    violations += capacity_violations(problem, np.array(weighed))
    load = run.load or [b + c for b, c in zip(busy, run.comm, strict=True)]
    defined = math.isfinite(run.cost)
    return Evaluation(
        cost=run.cost,
        violations=tuple(violations),
        busy=np.array(busy),
        comm=np.array(run.comm),
        load=np.array(load),
        memory=np.array(memory, np.float64),
        peak=np.array(run.peak) if run.peak and defined else None,
        start=np.array(run.start) if run.start is not None and defined else None,
        end=np.array(run.end) if run.end is not None and defined else None,
        transfers=tuple(run.transfers) if defined else (),
        calls=tuple(run.calls),
    )


class _Run:
    """What a model's definition yields; filled in step by step."""

    def __init__(self, problem: Problem) -> None:
        self.cost = math.inf
        self.comm = [0.0] * problem.devices
        self.load: list[float] | None = None
        self.peak: list[float] | None = None
        self.start: list[float] | None = None
        self.end: list[float] | None = None
        self.transfers: list[Transfer] = []
        self.calls: list[Call] = []
        self.violations: list[Violation] = []


def link(problem: Problem, tensor: int, source: int, target: int) -> float:
    """Seconds to bring ``tensor`` from ``source`` to ``target``."""
    if source == target:
        return 0.0
    return float(problem.latency[source, target] + problem.size[tensor] * problem.rate[source, target])


def send(problem: Problem, tensor: int, device: int) -> float:
    """Seconds for ``device`` to put ``tensor`` into host memory."""
    return float(problem.send_latency[device] + problem.size[tensor] * problem.send_rate[device])


def recv(problem: Problem, tensor: int, device: int) -> float:
    """Seconds for ``device`` to take ``tensor`` from host memory."""
    return float(problem.recv_latency[device] + problem.size[tensor] * problem.recv_rate[device])


def subgraph_seconds(problem: Problem, ops: Collection[int], device: int) -> tuple[float, float]:
    """(computing, communicating) seconds of a device of ``pipeline``, or of a call of ``offload``, that runs these
    ops: what it sends and receives depends on nothing else."""
    graph = problem.graph
    computing = sum(float(problem.time[v, device]) for v in ops)
    communicating = 0.0
    for t in range(graph.tensors):
        readers = set(graph.consumers(t).tolist())
        if int(graph.tensor_producer[t]) in ops:
            communicating += send(problem, t, device) if readers - set(ops) else 0.0
        else:
            communicating += recv(problem, t, device) if readers & set(ops) else 0.0
    return computing, communicating


def _serial(problem: Problem, device: list[int]) -> _Run:
    """One thing at a time, in topological order; a tensor is fetched when first needed on a device."""
    graph, run = problem.graph, _Run(problem)
    in_ptr, in_tensor = graph.inputs
    run.start, run.end = [0.0] * problem.n, [0.0] * problem.n
    now, there = 0.0, set()
    for v in graph.topological_order.tolist():
        d = device[v]
        for t in in_tensor[in_ptr[v] : in_ptr[v + 1]].tolist():
            source = device[graph.tensor_producer[t]]
            if source != d and (t, d) not in there:
                there.add((t, d))
                seconds = link(problem, t, source, d)
                run.transfers.append(Transfer(t, source, d, now, now + seconds))
                run.comm[d] += seconds
                now += seconds
        run.start[v] = now
        now += float(problem.time[v, d])
        run.end[v] = now
    run.cost = now
    return run


def _pipeline(problem: Problem, device: list[int]) -> _Run:
    """Loads per device, forward and backward apart; a transfer is booked on the side of its producer."""
    graph, run, model = problem.graph, _Run(problem), problem.model
    assert isinstance(model, Pipeline)
    compute = [[0.0] * problem.devices for _ in range(2)]
    comm = [[0.0] * problem.devices for _ in range(2)]
    for v in range(problem.n):
        compute[int(graph.backward[v])][device[v]] += float(problem.time[v, device[v]])
    for t in range(graph.tensors):
        producer = int(graph.tensor_producer[t])
        home, side = device[producer], int(graph.backward[producer])
        readers = {device[u] for u in graph.consumers(t).tolist()} - {home}
        if readers:
            comm[side][home] += send(problem, t, home)
        for reader in sorted(readers):
            comm[side][reader] += recv(problem, t, reader)
    run.comm = [comm[0][d] + comm[1][d] for d in range(problem.devices)]

    def load(compute: float, comm: float) -> float:
        return compute + comm if model.comm == "sum" else max(compute, comm)

    run.load = [load(compute[0][d] + compute[1][d], run.comm[d]) for d in range(problem.devices)]
    if model.objective == "sum":
        run.cost = max(run.load)
    else:
        run.cost = sum(max(load(compute[s][d], comm[s][d]) for d in range(problem.devices)) for s in range(2))
    return run


def _step(problem: Problem, placement: Placement, violations: list[Violation]) -> Evaluation:
    """One step of microbatches: see :mod:`.step.plain`."""
    found, model = step(problem, placement), problem.model
    assert isinstance(model, Pipeline)
    busy, comm = [0.0] * problem.devices, [0.0] * problem.devices
    for stage in found.stages:
        busy[stage.device] += model.microbatches * (stage.forward + stage.backward)
    defined = math.isfinite(found.cost)
    for message in found.messages if defined else ():
        comm[message.target] += message.end - message.start
    memory = np.array(found.memory or problem.memory_of(placement.device), np.float64)
    violations += [*found.violations, *capacity_violations(problem, memory)]
    return Evaluation(
        cost=found.cost,
        violations=tuple(violations),
        busy=np.array(busy),
        comm=np.array(comm),
        load=np.array(busy),
        memory=memory,
        stages=tuple(found.stages),
        actions=tuple(found.actions) if defined else (),
        messages=tuple(found.messages) if defined else (),
        reduced=tuple(found.reduced) if defined else (),
    )


def _priorities(problem: Problem) -> dict[int, int]:
    """Place of each op by falling upward rank, a sum of fractions, so that nothing is rounded; 0 comes first."""
    graph, devices = problem.graph, range(problem.devices)
    pairs = [(d, e) for d in devices for e in devices if d != e]
    latency = sum((Fraction(problem.latency[p]) for p in pairs), Fraction(0))
    rate = sum((Fraction(problem.rate[p]) for p in pairs), Fraction(0))
    rank: dict[int, Fraction] = {}
    for v in reversed(graph.topological_order.tolist()):
        times = [Fraction(problem.time[v, d]) for d in devices if not math.isinf(problem.time[v, d])]
        below = Fraction(0)
        for t in np.flatnonzero(graph.tensor_producer == v).tolist():
            link = (latency + Fraction(problem.size[t]) * rate) / max(len(pairs), 1)
            for u in graph.consumer_op[graph.consumer_ptr[t] : graph.consumer_ptr[t + 1]].tolist():
                below = max(below, link + rank[u])
        rank[v] = sum(times, Fraction(0)) / max(len(times), 1) + below
    first = sorted(range(problem.n), key=lambda v: (-rank[v], int(graph.position[v])))
    return {v: place for place, v in enumerate(first)}


def _concurrent(problem: Problem, placement: Placement) -> _Run:
    """A discrete-event simulation, one instant after another."""
    graph, run, model = problem.graph, _Run(problem), problem.model
    assert isinstance(model, Concurrent)
    device = placement.device.tolist()
    if any(math.isinf(problem.time[v, device[v]]) for v in range(problem.n)):
        return run
    ops = range(problem.n)
    priority = problem.derived(_priorities)
    strict = placement.order is not None or model.schedule == "static"
    key = {v: (0, priority[v]) for v in ops}
    if placement.order is not None:
        key = {v: (int(placement.order[v]), int(graph.position[v])) for v in ops}
    queue = {
        d: sorted((v for v in ops if device[v] == d), key=key.__getitem__) for d in range(problem.devices)
    }
    in_ptr, in_tensor = graph.inputs
    missing = {v: set(in_tensor[in_ptr[v] : in_ptr[v + 1]].tolist()) for v in range(problem.n)}
    out_ptr, out_tensor = graph.outputs
    start, end = [math.nan] * problem.n, [math.nan] * problem.n
    running: dict[int, int] = {}
    link_free: dict[tuple[int, int], float] = defaultdict(float)
    flying: list[Transfer] = []
    now = 0.0
    while True:
        # Everything that is complete at this instant, zero-length transfers included.
        changed = True
        while changed:
            changed = False
            for d, v in sorted(running.items()):
                if end[v] <= now:
                    changed = True
                    del running[d]
                    for t in out_tensor[out_ptr[v] : out_ptr[v + 1]].tolist():
                        readers = graph.consumers(t).tolist()
                        for u in readers:
                            if device[u] == d:
                                missing[u].discard(t)
                        for e in sorted({device[u] for u in readers} - {d}):
                            begin = max(now, link_free[d, e])
                            finish = begin + link(problem, t, d, e)
                            link_free[d, e] = finish
                            flying.append(Transfer(t, d, e, begin, finish))
                            run.transfers.append(flying[-1])
            for transfer in list(flying):
                if transfer.end <= now:
                    changed = True
                    flying.remove(transfer)
                    for u in graph.consumers(transfer.tensor).tolist():
                        if device[u] == transfer.target:
                            missing[u].discard(transfer.tensor)
        # Then every idle device starts its best ready op (the first of its queue if it must follow the
        # order).
        for d in range(problem.devices):
            if d in running:
                continue
            choices = queue[d][:1] if strict else queue[d]
            best = next((v for v in choices if not missing[v]), None)
            if best is not None:
                queue[d].remove(best)
                running[d] = best
                start[best], end[best] = now, now + float(problem.time[best, d])
        upcoming = [end[v] for v in running.values()] + [transfer.end for transfer in flying]
        if not upcoming:
            break
        now = min(upcoming)
    if any(queue.values()):
        waiting = next(q[0] for q in queue.values() if q)
        text = f"the given order deadlocks: op {graph.names[waiting]!r} waits for ever"
        run.violations.append(Violation("deadlock", text, (waiting,)))
        return run
    run.cost = max(end, default=0.0)
    run.start, run.end = start, end
    for transfer in run.transfers:
        run.comm[transfer.target] += transfer.end - transfer.start
    run.peak = peak_memory(problem, device, start, end, run.transfers)
    return run


def peak_memory(
    problem: Problem, device: list[int], start: list[float], end: list[float], transfers: list[Transfer]
) -> list[float]:
    """Largest number of bytes alive at once per device.

    Resident bytes stay throughout. A tensor is alive on its producer's device from the start of the producer
    until its last local reader and its last outgoing transfer end, and on another device from the start of
    the transfer until the last reader there ends; a tensor that nobody reads is a result and stays. Intervals
    are closed on the left and open on the right: what ends at an instant makes room for what starts then, and
    what lasts no time takes no room.
    """
    graph = problem.graph
    makespan = max(end, default=0.0)
    intervals: list[tuple[int, float, float, float]] = []
    arrivals: dict[int, list[Transfer]] = defaultdict(list)
    for transfer in transfers:
        arrivals[transfer.tensor].append(transfer)
    for t in range(graph.tensors):
        producer = int(graph.tensor_producer[t])
        readers = graph.consumers(t).tolist()
        home = device[producer]
        last = [end[u] for u in readers if device[u] == home] + [transfer.end for transfer in arrivals[t]]
        until = max(last) if readers else math.inf
        intervals.append((home, start[producer], until, float(graph.tensor_bytes[t])))
        for transfer in arrivals[t]:
            there = max(end[u] for u in readers if device[u] == transfer.target)
            intervals.append((transfer.target, transfer.start, there, float(graph.tensor_bytes[t])))
    peak = []
    for d in range(problem.devices):
        resident = sum(float(problem.resident[v]) for v in range(problem.n) if device[v] == d)
        mine = [i for i in intervals if i[0] == d and i[1] < i[2] and i[1] <= makespan]
        moments = {begin for _, begin, _, _ in mine}
        live = [sum(size for _, begin, stop, size in mine if begin <= moment < stop) for moment in moments]
        peak.append(resident + max(live, default=0.0))
    return peak


def split_calls(problem: Problem, placement: Placement) -> list[tuple[int, list[int]]]:
    """The calls of each accelerator, by device, in the order in which the device makes them.

    A device's ops are scanned by (level, topological position); a new call opens when adding the op would
    make the current one non-convex.
    """
    graph, device = problem.graph, placement.device.tolist()
    scan = sorted(range(problem.n), key=lambda v: (graph.levels[v], graph.position[v]))
    calls: list[tuple[int, list[int]]] = []
    for d in range(problem.devices):
        if problem.pool[d]:
            continue
        mine = [v for v in scan if device[v] == d]
        if placement.call is not None:
            for number in sorted({int(placement.call[v]) for v in mine}):
                calls.append((d, [v for v in mine if placement.call[v] == number]))
            continue
        current: list[int] = []
        for v in mine:
            if current and not _convex(problem, {*current, v}):
                calls.append((d, current))
                current = []
            current = [*current, v]
        if current:
            calls.append((d, current))
    return calls


def _convex(problem: Problem, ops: set[int]) -> bool:
    """No path leaves ``ops`` and comes back."""
    ptr, successor = problem.graph.successors
    left: set[int] = set()
    for v in problem.graph.topological_order.tolist():
        if v in ops and v in left:
            return False
        if v in ops or v in left:
            left.update(u for u in successor[ptr[v] : ptr[v + 1]].tolist() if u not in ops or v in left)
    return True


def _offload(problem: Problem, placement: Placement) -> _Run:
    """Calls and CPU ops as units that wait for each other; see Tarnawski et al., NeurIPS 2020, latency."""
    graph, run, model = problem.graph, _Run(problem), problem.model
    assert isinstance(model, Offload)
    device = placement.device.tolist()
    calls = split_calls(problem, placement)
    names = problem.cluster.names
    for d in range(problem.devices):
        made = sum(1 for where, _ in calls if where == d)
        if made > model.max_calls:
            text = f"device {names[d]!r} needs {made} calls, but max_calls is {model.max_calls}"
            run.violations.append(Violation("calls", text, device=d))
    if placement.call is not None:
        for d, ops in calls:
            if not _convex(problem, set(ops)):
                text = f"a call of device {names[d]!r} is not convex"
                run.violations.append(Violation("calls", text, tuple(ops), d))
    # A unit is a call, or one op on a CPU.
    unit_of = {}
    units: list[tuple[int, list[int]]] = list(calls)
    for number, (_, ops) in enumerate(calls):
        for v in ops:
            unit_of[v] = number
    for v in range(problem.n):
        if v not in unit_of:
            unit_of[v] = len(units)
            units.append((device[v], [v]))
    duration = [sum(float(problem.time[v, d]) for v in ops) for d, ops in units]
    waits: list[set[int]] = [set() for _ in units]
    for t in range(graph.tensors):
        home = unit_of[int(graph.tensor_producer[t])]
        readers = {unit_of[u] for u in graph.consumers(t).tolist()} - {home}
        if readers and home < len(calls):
            duration[home] += send(problem, t, units[home][0])
            run.comm[units[home][0]] += send(problem, t, units[home][0])
        for reader in readers:
            waits[reader].add(home)
            if reader < len(calls):
                duration[reader] += recv(problem, t, units[reader][0])
                run.comm[units[reader][0]] += recv(problem, t, units[reader][0])
    for number in range(1, len(calls)):
        if calls[number][0] == calls[number - 1][0]:
            waits[number].add(number - 1)
    begin: dict[int, float] = {}
    finish: dict[int, float] = {}
    progress = True
    while progress:
        progress = False
        for unit in range(len(units)):
            if unit not in finish and all(other in finish for other in waits[unit]):
                begin[unit] = max((finish[other] for other in waits[unit]), default=0.0)
                finish[unit] = begin[unit] + duration[unit]
                progress = True
    done = len(finish) == len(units)
    for number, (d, ops) in enumerate(calls):
        run.calls.append(Call(d, tuple(ops), begin.get(number, math.nan), finish.get(number, math.nan)))
    if not done:
        stuck = next(unit for unit in range(len(units)) if unit not in finish)
        run.violations.append(Violation("deadlock", "calls wait for each other", tuple(units[stuck][1])))
        return run
    run.cost = max(finish.values(), default=0.0)
    run.start = [begin[unit_of[v]] for v in range(problem.n)]
    run.end = [finish[unit_of[v]] for v in range(problem.n)]
    return run
