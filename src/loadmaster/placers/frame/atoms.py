"""What moves as one: colocation classes, united where a chain of stages would not let them apart."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from loadmaster.arrays import BoolArray, FloatArray, IntArray
from loadmaster.graph.order import csr_from_pairs, distinct_pairs, sum_by, topological_order
from loadmaster.problem import Concurrent, Pipeline, Problem, chain_arcs

__all__ = ["Atoms", "atoms_of", "judges_peak", "make_atoms"]


@dataclass(frozen=True, eq=False)
class Atoms:
    """What moves as one: the colocation classes; under contiguity ``chain`` classes that wait for each other
    are united.

    ``component`` numbers groups of atoms that wait for each other (each atom its own, mostly); their graph is
    acyclic, and a topological order of the atoms is one of the components.
    """

    of_op: IntArray
    """(n,) atom of each op."""
    count: int
    allowed: BoolArray
    """(atoms, D)."""
    memory: FloatArray
    """(atoms,) bytes that count against the capacity."""
    time: FloatArray
    """(atoms, D) seconds, infinite where unsupported."""
    component: IntArray
    """(atoms,)."""
    successor_ptr: IntArray
    successor: IntArray
    waiting: IntArray
    """(components,) number of predecessors."""

    @cached_property
    def order(self) -> IntArray:
        """A topological order of the atoms."""
        tail = np.repeat(np.arange(len(self.waiting), dtype=np.int32), np.diff(self.successor_ptr))
        parts = topological_order(len(self.waiting), tail, self.successor)
        place = np.empty(len(parts), np.int32)
        place[parts] = np.arange(len(parts), dtype=np.int32)
        return np.argsort(place[self.component], kind="stable").astype(np.int32)


def atoms_of(problem: Problem) -> Atoms:
    """The atoms of a problem, kept on it."""
    return problem.derived(_atoms)


def _atoms(problem: Problem) -> Atoms:
    unite = isinstance(problem.model, Pipeline) and problem.model.contiguity == "chain"
    return make_atoms(problem, unite=unite)


def make_atoms(problem: Problem, *, unite: bool) -> Atoms:
    """The atoms; ``unite`` puts classes together that wait for each other."""
    of = problem.class_of
    if isinstance(problem.model, Pipeline):
        tail, head = chain_arcs(problem)
    else:
        a, b = problem.graph.arcs
        tail, head = of[a], of[b]
    keep = tail != head
    tail, head = tail[keep], head[keep]
    classes = problem.classes
    parts, part = classes, np.arange(classes, dtype=np.int32)
    if classes < problem.n:
        # Imported here, because most problems have no classes and scipy would be half of their start.
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        graph = coo_array((np.ones(len(tail)), (tail, head)), shape=(classes, classes))
        parts, part = connected_components(graph, connection="strong")
    apart = part[tail] != part[head]
    arcs = distinct_pairs(part[tail[apart]], part[head[apart]])
    ptr, successor = csr_from_pairs(arcs[0], arcs[1], parts)
    count, label = (parts, part) if unite else (classes, np.arange(classes, dtype=np.int32))
    component = np.arange(count, dtype=np.int32) if unite else part.astype(np.int32)
    if unite:
        allowed = np.ones((count, problem.devices), np.bool_)
        np.logical_and.at(allowed, label, problem.class_allowed)
        time = np.zeros((count, problem.devices))
        np.add.at(time, label, problem.class_time)
    else:
        allowed, time = problem.class_allowed.copy(), problem.class_time.copy()
    weighed = problem.resident if judges_peak(problem) else problem.memory
    if keeps_whole_stages(problem):
        assert problem.kept is not None
        weighed = weighed + problem.kept
    of_op = label[of].astype(np.int32)
    return Atoms(
        of_op=of_op,
        count=int(count),
        allowed=allowed,
        memory=sum_by(of_op, weighed, count),
        time=time,
        component=component,
        successor_ptr=ptr,
        successor=successor,
        waiting=np.bincount(arcs[1], minlength=parts).astype(np.int32),
    )


def keeps_whole_stages(problem: Problem) -> bool:
    """Whether a device must hold, besides the memory of its ops, all that they keep for one microbatch at least."""
    model = problem.model
    return (
        problem.kept is not None
        and isinstance(model, Pipeline)
        and model.microbatches > 0
        and model.stages_per_rank == 1
        and bool(problem.graph.backward.any())
    )


def judges_peak(problem: Problem) -> bool:
    """Whether the constraint is the peak of memory: then only resident bytes are certain to add up."""
    return isinstance(problem.model, Concurrent) and problem.model.memory == "peak"
