"""Compiled evaluation of ``pipeline`` with microbatches: one step of the schedule."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from loadmaster.arrays import BoolArray, FloatArray, IntArray
from loadmaster.problem._evaluation import Action, Evaluation, Message, Stage, Violation
from loadmaster.problem._model import Pipeline
from loadmaster.problem._placement import Placement, plain_devices
from loadmaster.problem._problem import Problem
from loadmaster.problem.contiguity import contiguity_violations
from loadmaster.problem.step import _kernel as kernel
from loadmaster.problem.step._program import BACKWARD, FORWARD, MOVE, refusal
from loadmaster.problem.step._tables import WORK, step_tables

__all__ = ["StepSimulator", "stage_violations"]


class StepSimulator:
    """The time of one step.

    Complexity: O(ops + edges + tensors * stages + microbatches * stages) per placement.
    """

    def __init__(self, problem: Problem) -> None:
        assert isinstance(problem.model, Pipeline)
        self.problem = problem
        self.model = problem.model
        self.tables = step_tables(problem)

    def costs(self, device: IntArray) -> tuple[FloatArray, BoolArray]:
        """(k,) costs of the (k, n) placements, and whether they are chains that fit into memory."""
        return self._costs(device, np.zeros((len(device), 0), np.int32))

    def staged_costs(self, device: IntArray, stage: IntArray) -> tuple[FloatArray, BoolArray]:
        """Likewise, with the (k, n) stages."""
        return self._costs(device, stage)

    def _costs(self, device: IntArray, stage: IntArray) -> tuple[FloatArray, BoolArray]:
        cost, fine = np.empty(len(device)), np.empty(len(device), np.bool_)
        kernel.step_costs(*self.tables, plain_devices(device), plain_devices(stage), cost, fine)
        return cost, fine

    def cost(self, placement: Placement) -> tuple[float, bool]:
        """Cost of one placement, and whether it is a chain that fits into memory."""
        cost, fine = self._costs(placement.device[None], _given(placement)[None])
        return float(cost[0]), bool(fine[0])

    def evaluate(self, placement: Placement) -> Evaluation:
        """The step in detail."""
        problem, tables, model = self.problem, self.tables, self.model
        devices, microbatches = problem.devices, model.microbatches
        width = max(devices * model.stages_per_rank, 1)
        stage, at = np.empty(problem.n, np.int32), np.empty(width, np.int32)
        wrong, stages, ranks = kernel.stages_of(
            tables.settings, tables.tail, tables.head, tables.first, tables.role, tables.program,
            plain_devices(placement.device), plain_devices(_given(placement)), devices, stage, at,
        )  # fmt: skip
        busy, comm = np.zeros(devices), np.zeros(devices)
        if wrong != kernel.FINE or stages == 0:
            return Evaluation(
                cost=math.inf if wrong != kernel.FINE else 0.0,
                violations=tuple(stage_violations(problem, placement)),
                busy=busy,
                comm=comm,
                load=busy,
                memory=problem.memory_of(placement.device),
            )
        sums, cut, memory = np.empty((width, 4)), np.empty((width, 4)), np.empty(devices)
        kernel.weigh(
            tables.role, tables.time, tables.held, tables.tensor, tables.reader, tables.weight, stage, at,
            stages, sums, cut,
        )  # fmt: skip
        begin, stop, first, _ = tables.program[ranks].tolist()
        code = tables.code[begin:stop]
        kernel.memory_of(
            tables.settings, tables.role, tables.held, tables.capacity, tables.tie_ptr, tables.tie_op,
            tables.tie_weight, placement.device, stage, at, stages, ranks, code, sums, cut, memory,
        )  # fmt: skip
        before = tables.before[first : first + 2 * (stages - 1) * microbatches]
        now, arrived = np.empty(max(devices, 1)), np.empty(2 * width * microbatches)
        start, end = np.empty(len(code)), np.empty(len(code))
        kernel.walk(
            code, before, tables.link, at, stages, ranks, microbatches, sums, cut, now, arrived, start, end
        )
        reduced = np.empty(len(problem.ties))
        kernel.reduce_ties(
            tables.link, tables.tie_ptr, tables.tie_op, tables.tie_weight, stage, at, ranks, now, reduced
        )
        cost = float(now[:ranks].max())
        actions, messages = _recorded(code, start, end, at, stages, microbatches)
        flying = _in_flight(code, stages, microbatches)
        for s in range(stages):
            busy[at[s]] += microbatches * (sums[s, 0] + sums[s, 1])
        defined = math.isfinite(cost)
        for message in messages if defined else ():
            comm[message.target] += message.end - message.start
        return Evaluation(
            cost=cost,
            violations=(),
            busy=busy,
            comm=comm,
            load=busy.copy(),
            memory=memory,
            stages=tuple(
                Stage(
                    device=int(at[s]),
                    ops=tuple(np.flatnonzero(stage == s).tolist()),
                    forward=float(sums[s, 0]),
                    backward=float(sums[s, 1]),
                    in_flight=flying[s],
                    kept=float(sums[s, 2]),
                    checkpoint=bool(sums[s, 3]),
                    receives=float(cut[s - 1, 1]) if s else 0.0,
                    returns=float(cut[s, 3]) if s < stages - 1 else 0.0,
                )
                for s in range(stages)
            ),
            actions=actions if defined else (),
            messages=messages if defined else (),
            reduced=tuple(reduced.tolist()) if defined else (),
        )


def _given(placement: Placement) -> IntArray:
    return np.zeros(0, np.int32) if placement.call is None else placement.call


def _recorded(
    code: IntArray, start: FloatArray, end: FloatArray, at: IntArray, stages: int, microbatches: int
) -> tuple[tuple[Action, ...], tuple[Message, ...]]:
    actions, messages = [], []
    for i, (what, _, number) in enumerate(code.tolist()):
        if what in (FORWARD, BACKWARD):
            s, m = divmod(number, microbatches)
            actions.append(Action(int(at[s]), s, m, what == BACKWARD, float(start[i]), float(end[i])))
        elif what == MOVE:
            b, m = divmod(number, microbatches)
            back = b >= stages - 1
            b -= (stages - 1) * back
            source, target = (b + 1, b) if back else (b, b + 1)
            messages.append(
                Message(source, m, back, int(at[source]), int(at[target]), float(start[i]), float(end[i]))
            )
    # Within a rank the code is in order, and actions that take no time keep it.
    actions.sort(key=lambda action: (action.device, action.start))
    messages.sort(key=lambda message: (message.start, message.stage, message.microbatch, message.backward))
    return tuple(actions), tuple(messages)


def _in_flight(code: IntArray, stages: int, microbatches: int) -> list[int]:
    """Most microbatches between their forward and their backward pass at once, per stage."""
    now, most = [0] * stages, [0] * stages
    for what, _, number in code.tolist():
        if what in (FORWARD, BACKWARD):
            s = number // microbatches
            now[s] += 1 if what == FORWARD else -1
            most[s] = max(most[s], now[s])
    return most


def stage_violations(problem: Problem, placement: Placement) -> Iterator[Violation]:
    """Why a placement has no schedule, in words."""
    model, device, names = problem.model, placement.device, problem.cluster.names
    assert isinstance(model, Pipeline)
    tables = step_tables(problem)
    width = max(problem.devices * model.stages_per_rank, 1)
    stage, at = np.empty(problem.n, np.int32), np.empty(width, np.int32)
    wrong, _, ranks = kernel.stages_of(
        tables.settings, tables.tail, tables.head, tables.first, tables.role, tables.program, device,
        _given(placement), problem.devices, stage, at,
    )  # fmt: skip
    if wrong == kernel.NO_SCHEDULE:
        why = refusal(model.schedule, model.microbatches, ranks, model.stages_per_rank)
        yield Violation("stages", why or f"the schedule of {ranks} ranks waits for itself")
    elif wrong == kernel.CIRCLE:
        found = list(contiguity_violations(problem, device)) if placement.call is None else []
        if found:
            yield from found
            return
        back = stage[tables.tail] > stage[tables.head]
        if not back.any():
            yield Violation("contiguity", "the devices wait for each other in a circle")
            return
        i = int(back.argmax())
        a, b = int(tables.tail[i]), int(tables.head[i])
        text = (
            f"op {problem.graph.names[a]!r} is in stage {stage[a]}, after stage {stage[b]}, where op "
            f"{problem.graph.names[b]!r} needs it"
        )
        yield Violation("stages", text, (a, b))
    elif wrong == kernel.BAD_STAGES:
        yield Violation("stages", _bad_stages(problem, placement, names))


def _bad_stages(problem: Problem, placement: Placement, names: tuple[str, ...]) -> str:
    model = problem.model
    assert isinstance(model, Pipeline)
    if placement.call is None:
        return (
            f"with stages_per_rank={model.stages_per_rank} a placement must bring the stage of every op, as those of "
            "the method 'stages' do"
        )
    work = step_tables(problem).role[:, 0] == WORK
    given, device = placement.call[work], placement.device[work]
    most = problem.devices * model.stages_per_rank
    if given.min() < 0 or given.max() >= most:
        return f"stages are numbered from 0 to at most {most - 1}, but one is {given[(given < 0) | (given >= most)][0]}"
    stages = int(given.max()) + 1
    first = step_tables(problem).first
    for v in np.flatnonzero(work & (placement.call != placement.call[first])).tolist():
        one, other = problem.graph.names[first[v]], problem.graph.names[v]
        stages_of = f"{placement.call[first[v]]} and {placement.call[v]}"
        return f"the colocated ops {one!r} and {other!r} are in the stages {stages_of}"
    for s in range(stages):
        where = np.unique(device[given == s])
        if not len(where):
            return f"stage {s} of {stages} has no op"
        if len(where) > 1:
            return f"stage {s} is both on device {names[where[0]]!r} and on {names[where[1]]!r}"
    per_rank = model.stages_per_rank if stages > 1 else 1
    if stages % per_rank or stages == per_rank > 1:
        return f"{stages} stages are not {per_rank} on each of several ranks"
    ranks = stages // per_rank
    order = ", ".join(names[device[given == s][0]] for s in range(stages))
    return (
        f"stage s of {stages} must be on rank s modulo {ranks}, each rank a device of its own, but they are on "
        f"{order}"
    )
