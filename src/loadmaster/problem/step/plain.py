"""One step of a pipeline in plain Python: slow, obvious, and what the kernel is tested against.

Every rank is a list of instructions in words; they are worked off one by one, whichever rank can go on.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field

from loadmaster.problem._evaluation import Action, Message, Stage, Violation
from loadmaster.problem._model import Pipeline
from loadmaster.problem._placement import Placement
from loadmaster.problem._problem import Problem
from loadmaster.problem.contiguity import chain_arcs

__all__ = ["Step", "schedule", "step"]


@dataclass
class Step:
    """What a step of a placement is; nothing but violations where there is none."""

    cost: float = math.inf
    violations: list[Violation] = field(default_factory=list)
    stages: list[Stage] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    reduced: list[float] = field(default_factory=list)


def step(problem: Problem, placement: Placement) -> Step:
    """One step of the placement, by definition (``docs/execution-models.md``)."""
    model, graph, found = problem.model, problem.graph, Step()
    assert isinstance(model, Pipeline)
    every, training = model.microbatches, bool(graph.backward.any())
    work = [v for v in range(problem.n) if not graph.boundary[v]]
    device = placement.device.tolist()
    stage = _stages(problem, placement, work)
    if isinstance(stage, str):
        found.violations.append(Violation("stages", stage))
        return found
    count = max(stage.values(), default=-1) + 1
    if not count:
        found.cost = 0.0
        found.memory = problem.memory_of(placement.device).tolist()
        return found
    home = [next(device[v] for v in work if stage[v] == s) for s in range(count)]
    per_rank = model.stages_per_rank if count > 1 else 1
    ranks = count // per_rank
    if ranks > 1 and per_rank == 1 and model.schedule == "1f1b" and every < ranks:
        found.violations.append(Violation("stages", "1f1b needs as many microbatches as stages"))
        return found
    if per_rank > 1 and every % max(1, every // ranks):
        found.violations.append(Violation("stages", "interleaved stages need full rounds"))
        return found

    forward, backward, kept = [0.0] * count, [0.0] * count, [0.0] * count
    for v in work:
        if graph.backward[v]:
            backward[stage[v]] += float(problem.time[v, device[v]])
        else:
            forward[stage[v]] += float(problem.time[v, device[v]])
        if problem.kept is not None and training:
            kept[stage[v]] += float(problem.kept[v])

    # What crosses each boundary: tensors, forward and backward.
    down: list[set[int]] = [set() for _ in range(count)]
    up: list[set[int]] = [set() for _ in range(count)]
    for t in range(graph.tensors):
        producer = int(graph.tensor_producer[t])
        if graph.boundary[producer]:
            if graph.backward[producer] or len(_inputs(problem, producer)):
                continue
            origin = 0
        else:
            origin = stage[producer]
        for u in graph.consumers(t).tolist():
            if not graph.boundary[u]:
                goal = stage[u]
            elif graph.backward[producer] or graph.backward[u]:
                continue
            else:
                goal = count - 1
            for b in range(origin, goal):
                down[b].add(t)
            for b in range(goal, origin):
                up[b].add(t)

    lists = schedule(model.schedule, every, ranks, per_rank, training)
    found.memory = [
        sum(float(problem.memory[v]) for v in range(problem.n) if device[v] == d)
        for d in range(problem.devices)
    ]
    for tie in problem.ties:
        for d in {device[v] for v in tie.ops}:
            found.memory[d] += tie.memory
    for b in range(count - 1):
        found.memory[home[b + 1]] += every * sum(float(graph.tensor_bytes[t]) for t in sorted(down[b]))
        found.memory[home[b]] += every * sum(float(graph.tensor_bytes[t]) for t in sorted(up[b]))
    checked: set[int] = set()
    for r in range(ranks):
        mine = [s for s in range(count) if s % ranks == r]
        for s in mine if model.checkpoint == "auto" and training else ():
            if (
                kept[s] > 0
                and found.memory[home[r]] + _peak(lists[r], kept, checked) > problem.capacity[home[r]]
            ):
                checked.add(s)
        found.memory[home[r]] += _peak(lists[r], kept, checked)
    for s in checked:
        backward[s] += forward[s]

    def seconds(boundary: int, back: bool) -> float:
        tensors = up[boundary] if back else down[boundary]
        if not tensors:
            return 0.0
        source, target = home[boundary + back], home[boundary + 1 - back]
        size = sum(float(problem.size[t]) for t in sorted(tensors))
        return float(problem.latency[source, target]) + size * float(problem.rate[source, target])

    # Every rank does what is next in its list as soon as it can.
    now = [0.0] * ranks
    ready: dict[tuple[int, bool, int], list[float]] = defaultdict(list)
    line: dict[tuple[int, int], list[tuple[int, bool, int]]] = defaultdict(list)
    arrived: dict[tuple[int, bool, int], float] = {}
    free: dict[tuple[int, int], float] = defaultdict(float)
    left = [list(entries) for entries in lists]
    progress = True
    while progress:
        progress = False
        for r in range(ranks):
            while left[r]:
                what, s, m = left[r][0]
                if what in ("forward", "backward"):
                    begin = now[r]
                    now[r] += forward[s] if what == "forward" else backward[s]
                    found.actions.append(Action(home[s], s, m, what == "backward", begin, now[r]))
                else:
                    verb, _, back = what.partition(" ")
                    message = (s, back == "gradients", m)  # s: the boundary that it crosses
                    if verb == "wait" and message not in arrived:
                        break
                    if verb == "wait":
                        now[r] = max(now[r], arrived[message])
                    else:
                        ready[message].append(now[r])
                        if verb == "send":
                            other = s if back == "gradients" else s + 1
                            line[r, other % ranks].append(message)
                left[r].pop(0)
                progress = True
        for pair, waiting in line.items():
            while waiting and len(ready[waiting[0]]) == 2:
                message = waiting.pop(0)
                b, backwards, m = message
                begin = max(*ready[message], free[pair])
                arrived[message] = free[pair] = begin + seconds(b, backwards)
                source = b + backwards
                target = home[b + 1 - backwards]
                found.messages.append(
                    Message(source, m, backwards, home[source], target, begin, arrived[message])
                )
                progress = True
    assert not any(left), "the schedule waits for itself"

    for tie in problem.ties:
        ring = sorted({stage[v] % ranks for v in tie.ops if v in stage})
        found.reduced.append(math.nan)
        if len(ring) < 2:
            continue
        hops = zip(ring, [*ring[1:], ring[0]], strict=True)
        slowest = max(
            float(problem.latency[home[a], home[b]] + tie.size / len(ring) * problem.rate[home[a], home[b]])
            for a, b in hops
        )
        found.reduced[-1] = max(now[r] for r in ring) + 2 * (len(ring) - 1) * slowest
        for r in ring:
            now[r] = found.reduced[-1]
    found.cost = max(now)
    for s in range(count):
        flying, most = 0, 0
        for what, where, _ in lists[s % ranks]:
            flying += (where == s) * ((what == "forward") - (what == "backward"))
            most = max(most, flying)
        found.stages.append(
            Stage(
                home[s],
                tuple(v for v in work if stage[v] == s),
                forward[s],
                backward[s],
                most,
                kept[s],
                s in checked,
                sum(float(graph.tensor_bytes[t]) for t in sorted(down[s - 1])) if s else 0.0,
                sum(float(graph.tensor_bytes[t]) for t in sorted(up[s])) if s < count - 1 else 0.0,
            )
        )
    found.actions.sort(key=lambda action: (action.device, action.start))
    found.messages.sort(key=lambda m: (m.start, m.stage, m.microbatch, m.backward))
    return found


def _inputs(problem: Problem, op: int) -> list[int]:
    ptr, tensor = problem.graph.inputs
    return tensor[ptr[op] : ptr[op + 1]].tolist()


def _stages(problem: Problem, placement: Placement, work: list[int]) -> dict[int, int] | str:
    """The stage of every op that is work, or why there is none."""
    model, device = problem.model, placement.device.tolist()
    assert isinstance(model, Pipeline)
    tails, heads = chain_arcs(problem)
    of = problem.class_of.tolist()
    lead: dict[int, int] = {}
    for v in work:
        lead.setdefault(of[v], v)
    arcs = [
        (lead[a], lead[b])
        for a, b in zip(tails.tolist(), heads.tolist(), strict=True)
        if a in lead and b in lead
    ]
    if placement.call is not None:
        stage = {v: int(placement.call[v]) for v in work}
        count = max(stage.values(), default=-1) + 1
        per_rank = model.stages_per_rank if count > 1 else 1
        where = [sorted({device[v] for v in work if stage[v] == s}) for s in range(count)]
        if any(s < 0 for s in stage.values()) or any(len(its) != 1 for its in where):
            return "every stage is on one device"
        if count > problem.devices * model.stages_per_rank or count % per_rank or count == per_rank > 1:
            return "every rank has as many stages as the next"
        if any(stage[v] != stage[lead[of[v]]] for v in work):
            return "colocated ops are in one stage"
        ranks = count // per_rank
        if any(where[s] != where[s % ranks] for s in range(count)):
            return "stage s is on rank s modulo the ranks"
        if len({its[0] for its in where}) != ranks:
            return "a rank is a device"
        if any(stage[a] > stage[b] for a, b in arcs):
            return "data flows forward"
        return stage
    used = sorted({device[v] for v in work})
    if model.stages_per_rank > 1 and len(used) > 1:
        return "several stages per rank must be given"
    before = {e: {device[a] for a, b in arcs if device[b] == e} - {e} for e in used}
    line: list[int] = []
    while len(line) < len(used):
        free = [e for e in used if e not in line and before[e] <= set(line)]
        if not free:
            return "the devices wait for each other in a circle"
        line.append(free[0])
    return {v: line.index(device[v]) for v in work}


def _peak(entries: list[tuple[str, int, int]], kept: list[float], checked: set[int]) -> float:
    """Most bytes of activations that a rank keeps at once."""
    flying: dict[int, int] = defaultdict(int)
    peak = 0.0
    for what, s, _ in entries:
        if what not in ("forward", "backward"):
            continue
        if what == "forward" and s not in checked:
            flying[s] += 1
        here = sum(number * kept[stage] for stage, number in flying.items())
        peak = max(peak, here + (kept[s] if s in checked else 0.0))
        if what == "backward" and s not in checked:
            flying[s] -= 1
    return peak


def schedule(
    name: str, microbatches: int, ranks: int, per_rank: int, training: bool
) -> list[list[tuple[str, int, int]]]:
    """What each rank does: ``(what, stage, microbatch)`` to compute, ``("send activations", boundary, microbatch)`` and
    so on for messages; boundary b is between the stages b and b + 1."""
    stages = ranks * per_rank
    lists = []
    for r in range(ranks):
        if per_rank > 1:
            lists = _interleaved(microbatches, ranks, per_rank)
            break
        lists.append((_gpipe if name == "gpipe" else _one_f_one_b)(r, stages, microbatches))
    return [
        [
            (what, s, m)
            for what, s, m in entries
            if (what in ("forward", "backward") or 0 <= s < stages - 1)
            and (training or not ("gradients" in what or what == "backward"))
        ]
        for entries in lists
    ]


def _gpipe(s: int, stages: int, every: int) -> list[tuple[str, int, int]]:
    entries: list[tuple[str, int, int]] = []
    for m in range(every):
        entries += [("receive activations", s - 1, m), ("wait activations", s - 1, m), ("forward", s, m)]
        entries += [("send activations", s, m)]
    entries += [("wait activations", s, m) for m in range(every)]
    for m in range(every):
        entries += [("receive gradients", s, m), ("wait gradients", s, m), ("backward", s, m)]
        entries += [("send gradients", s - 1, m)]
    return entries + [("wait gradients", s - 1, m) for m in range(every)]


def _one_f_one_b(s: int, stages: int, every: int) -> list[tuple[str, int, int]]:
    ahead = min(every, stages - s)
    entries: list[tuple[str, int, int]] = []
    for m in range(ahead):
        entries += [("receive activations", s - 1, m), ("wait activations", s - 1, m), ("forward", s, m)]
        entries += [("wait activations", s, m - 1)] if m else []
        entries += [("send activations", s, m)] if m < ahead - 1 else []
    for m in range(every):
        sent = m + ahead - 1  # the forward pass that came last, if there still was one
        if sent < every:
            entries += [("send activations", s, sent), ("receive gradients", s, m)]
            entries += [("wait activations", s, sent), ("wait gradients", s, m), ("backward", s, m)]
        else:
            entries += [("receive gradients", s, m), ("wait gradients", s, m), ("backward", s, m)]
            entries += [("wait gradients", s - 1, m - 1)]
        entries += [("send gradients", s - 1, m)]
        coming = m + ahead
        if coming < every:
            entries += [("receive activations", s - 1, coming), ("wait gradients", s - 1, m)]
            entries += [("wait activations", s - 1, coming), ("forward", s, coming)]
    return [*entries, ("wait gradients", s - 1, every - 1)]


def _interleaved(every: int, ranks: int, per_rank: int) -> list[list[tuple[str, int, int]]]:
    """Megatron's order; a receive is announced where the receiver stands when the sender, all ranks in turn taking one
    step of their lists, gets to send."""
    together = every // max(1, every // ranks)
    stages = ranks * per_rank
    plans: list[list[tuple[str, int, int]]] = []
    for r in range(ranks):
        warm = min((per_rank - 1) * together + 2 * (ranks - 1 - r), every * per_rank)
        # The k-th forward pass of a rank, and its k-th backward pass.
        passes = [
            (block % per_rank, block // per_rank * together + i)
            for block in range(every // together * per_rank)
            for i in range(together)
        ]
        ahead = [("forward", local * ranks + r, m) for local, m in passes]
        back = [("backward", (per_rank - 1 - local) * ranks + r, m) for local, m in passes]
        turns = [entry for pair in zip(ahead[warm:], back, strict=False) for entry in pair]
        plans.append(_with_weights(ahead[:warm] + turns + back[len(ahead) - warm :], every))
    lists: list[list[tuple[str, int, int]]] = [[] for _ in range(ranks)]
    sends: list[list[tuple[str, int, int]]] = [[] for _ in range(ranks)]
    done: set[tuple[str, int, int]] = set()
    while any(plans):
        for r in range(ranks):
            if not plans[r]:
                continue
            what, s, m = plans[r][0]
            if what == "forward":
                if s > 0 and (what, s - 1, m) not in done:
                    continue
                lists[r] += [("wait activations", s - 1, m)] if s > 0 else []
                crossing, peer, there = ("activations", s, m), (s + 1) % ranks, s < stages - 1
            elif what == "backward":
                if s < stages - 1 and (what, s + 1, m) not in done:
                    continue
                lists[r] += [("wait gradients", s, m)] if s < stages - 1 else []
                crossing, peer, there = ("gradients", s - 1, m), (s - 1) % ranks, s > 0
            plans[r].pop(0)
            if what == "weights":
                continue
            done.add((what, s, m))
            lists[r].append((what, s, m))
            if there:
                name, boundary, _ = crossing
                lists[r].append((f"send {name}", boundary, m))
                sends[r].append((f"wait {name}", boundary, m))
                lists[peer].append((f"receive {name}", boundary, m))
    return [entries + waits for entries, waits in zip(lists, sends, strict=True)]


def _with_weights(plan: list[tuple[str, int, int]], every: int) -> list[tuple[str, int, int]]:
    """The steps at which the engine fetches and drops sharded weights, three stages at most at once, and reduces
    gradients: nothing happens, but they take a turn."""
    entries: list[tuple[str, int, int]] = []
    there: set[int] = set()
    last = {s: i for i, (what, s, _) in enumerate(plan) if what == "backward"}
    for i, entry in enumerate(plan):
        soon = list(dict.fromkeys(s for _, s, _ in plan[i:]))[:3]
        entries += [("weights", s, -1) for s in there.symmetric_difference(soon)]
        there = set(soon)
        entries.append(entry)
        if last.get(entry[1]) == i and entry[0] == "backward":
            entries.append(("weights", entry[1], -1))
    return entries + [("weights", s, -1) for s in there]
