"""What a learned placer decides about: units of ops that go together, and how a decision becomes a cost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from loadmaster.arrays import BoolArray, FloatArray, IntArray
from loadmaster.graph.order import csr_from_pairs, sum_by, topological_order
from loadmaster.placers.frame.feasible import atoms_of, repair
from loadmaster.placers.frame.search import Search
from loadmaster.problem import Offload, Pipeline, Placement, Problem, chain_arcs
from loadmaster.problem.coarsening import coarsen

__all__ = ["Units", "learn_costs", "units_of"]


@dataclass(frozen=True, eq=False)
class Units:
    """Ops that go together: co-located by a coarsening rule, by colocation classes, or by both.

    Attributes
    ----------
    of_op : (ops,) unit of each op.
    tail, head : (arcs,) the distinct arcs between units, in the direction of the data.
    allowed : (units, devices).
    position : (units,) mean topological position of the members, by which units are also numbered.
    first, second : (edges,) pairs of neighbours that may share a group, each once. Units that may go to
        different devices never share one: a group would take choices away from its members.
    memory : (units,) bytes.
    sequence : None, or what :func:`_monotone` needs where the execution model asks for contiguity.
    """

    problem: Problem
    of_op: IntArray
    count: int
    tail: IntArray
    head: IntArray
    allowed: BoolArray
    position: FloatArray
    first: IntArray
    second: IntArray
    memory: FloatArray
    sequence: tuple[IntArray, IntArray, IntArray, IntArray] | None


def units_of(problem: Problem, colocate: str) -> Units:
    """The units of a problem; ``colocate`` are coarsening rules, empty for none."""
    if problem.n and colocate:
        coarsening = coarsen(problem, colocate)
        atoms = atoms_of(coarsening.coarse)
        of_op = atoms.of_op[coarsening.group_of]
    else:
        atoms = atoms_of(problem)
        of_op = atoms.of_op
    count = atoms.count
    size = np.maximum(np.bincount(of_op, minlength=count), 1)
    position = np.bincount(of_op, problem.graph.position, count) / size
    order = np.argsort(position, kind="stable")
    number = np.empty(count, np.int32)
    number[order] = np.arange(count, dtype=np.int32)
    of_op = number[of_op]
    allowed, position = atoms.allowed[order], position[order]
    tail, head = _distinct(of_op[problem.graph.arcs[0]], of_op[problem.graph.arcs[1]], count)
    first, second = _distinct(np.minimum(tail, head), np.maximum(tail, head), count)
    alike = (allowed[first] == allowed[second]).all(axis=1) & (allowed[first].sum(axis=1) > 1)
    return Units(
        problem=problem,
        of_op=of_op,
        count=count,
        tail=tail,
        head=head,
        allowed=allowed,
        position=position,
        first=first[alike],
        second=second[alike],
        memory=sum_by(of_op, problem.memory, count),
        sequence=_sequence(problem, of_op, count, allowed, position, (tail, head)),
    )


def learn_costs(search: Search, units: Units, choice: IntArray, *, repaired: bool = True) -> FloatArray:
    """(k,) costs of the (k, units) device choices, infinite where infeasible; the best is kept.

    Where memory is short or stages must be contiguous, the nearest placement that a plain rule finds is
    costed in place of the one that was chosen, unless ``repaired`` is off.
    """
    problem = units.problem
    if repaired and units.sequence is not None:
        choice = _monotone(*units.sequence, units.allowed, choice)
    device = choice[:, units.of_op]
    if repaired and units.memory.sum() > problem.capacity.min():
        for row in np.flatnonzero(_overfull(units, choice)).tolist():
            device[row] = repair(problem, device[row])
    cost, feasible = search.evaluator.evaluate_batch(device)
    value = np.where(feasible, cost, np.inf)
    best = int(value.argmin())
    if value[best] < search.cost:
        search.offer(Placement(device[best]), float(value[best]))
    return value


def _distinct(tail: IntArray, head: IntArray, count: int) -> tuple[IntArray, IntArray]:
    apart = tail != head
    key = np.unique(tail[apart].astype(np.int64) * max(count, 1) + head[apart])
    return (key // max(count, 1)).astype(np.int32), (key % max(count, 1)).astype(np.int32)


def _overfull(units: Units, choice: IntArray) -> BoolArray:
    over = np.zeros(len(choice), np.bool_)
    for d in range(units.problem.devices):
        over |= (choice == d) @ units.memory > units.problem.capacity[d]
    return over


def _sequence(
    problem: Problem,
    of_op: IntArray,
    count: int,
    allowed: BoolArray,
    position: FloatArray,
    arcs: tuple[IntArray, IntArray],
) -> tuple[IntArray, IntArray, IntArray, IntArray] | None:
    """An order of the units, their predecessors (ptr, unit), and the devices in the order of their stages.

    Devices that some units need come where these units are.
    """
    model = problem.model
    if isinstance(model, Pipeline) and model.contiguity != "none":
        of_class = np.empty(problem.classes, np.int32)
        of_class[problem.class_of] = of_op
        tail, head = chain_arcs(problem)
        tail, head = _distinct(of_class[tail], of_class[head], count)
    elif isinstance(model, Offload):
        tail, head = arcs
    else:
        return None
    order = topological_order(count, tail, head)
    if len(order) < count:  # colocated units that wait for each other
        order = np.arange(count, dtype=np.int32)
    ptr, before = csr_from_pairs(head, tail, count)
    lone = allowed.sum(axis=1) == 1
    key = np.arange(problem.devices) * (position.max(initial=1.0) / max(problem.devices, 1))
    for d in range(problem.devices):
        needed = lone & allowed[:, d]
        if needed.any():
            key[d] = position[needed].mean()
    return order, ptr, before, np.argsort(key, kind="stable").astype(np.int32)


@njit(cache=True, nogil=True)
def _monotone(order, ptr, before, stages, allowed, choice):  # type: ignore[no-untyped-def]
    """Each unit at the stage it chose or, if later, that of its last predecessor, or the next that may take it.

    Data so flows from earlier to later stages only, which is contiguous in every sense. A unit that no later
    stage may take stays where it wants to be.
    """
    stage_of = np.empty(len(stages), np.int32)
    for s in range(len(stages)):
        stage_of[stages[s]] = s
    result = choice.copy()
    for row in range(len(choice)):
        for v in order:
            stage = stage_of[choice[row, v]]
            for i in range(ptr[v], ptr[v + 1]):
                stage = max(stage, stage_of[result[row, before[i]]])
            while stage < len(stages) and not allowed[v, stages[stage]]:
                stage += 1
            if stage < len(stages):
                result[row, v] = stages[stage]
    return result
