"""One level of a multilevel search: the problem in which groups of atoms move as one.

The groups are *tied*: a colocation class each, and every placement is costed on all ops, because a group that ran as
one op would start too late under ``concurrent`` or ``offload``. Where costs add up (``serial``, ``pipeline``), the walk
itself sees only the nets between groups, so that a move takes a fraction of the time. Where stages must be contiguous,
the groups are *contracted*, as far as that makes no circles: then the graph of the groups tells what is contiguous.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from loadmaster.arrays import IntArray
from loadmaster.placers.frame.feasible import atoms_of, repair
from loadmaster.placers.search._chains import BatchChain, Chain, new_chain
from loadmaster.placers.search._critical import critical_ops
from loadmaster.problem import Evaluator, Pipeline, Problem, Serial, SimulatedEvaluator
from loadmaster.problem.coarsening import coarsen
from loadmaster.problem.concurrent import ConcurrentSimulator

__all__ = ["Level", "make_level"]


@dataclass(frozen=True, eq=False)
class Level:
    """A problem whose atoms are groups of atoms of the full one.

    fine, coarse : the full problem, and the one that moves are drawn from.
    group_of : (ops of ``fine``,) the op of ``coarse`` that an op belongs to; None where both have the same ops.
    """

    fine: Problem
    coarse: Problem
    group_of: IntArray | None

    def expand(self, device: IntArray) -> IntArray:
        """(ops of ``fine``,) devices of a placement of the groups."""
        return device if self.group_of is None else device[self.group_of]

    def restrict(self, device: IntArray, check: SimulatedEvaluator) -> IntArray | None:
        """The placement of the groups that is nearest to one of the ops; None if that is not feasible.

        A group goes where most of its time is; one whose ops are on one device stays there. ``check`` is of the full
        problem.
        """
        coarse = self.coarse
        together = coarse.class_of if self.group_of is None else coarse.class_of[self.group_of]
        votes = np.zeros((coarse.classes, coarse.devices))
        np.add.at(votes, (together, device), self.fine.mean_time + 1e-12)
        votes[~coarse.class_allowed] = -1.0
        at = votes.argmax(axis=1).astype(np.int32)[coarse.class_of]
        for candidate in (at, repair(coarse, at)):
            if check.evaluate_batch(self.expand(candidate))[1][0]:
                return candidate
        return None

    def chain(self, seed: int, evaluator: Evaluator) -> Chain:
        """A walk over placements of the groups, costed on all ops."""
        adds_up = isinstance(self.coarse.model, Serial | Pipeline) and isinstance(
            evaluator, SimulatedEvaluator
        )
        if adds_up or self.coarse is self.fine:
            return new_chain(self.coarse, seed, evaluator)
        if not isinstance(evaluator, SimulatedEvaluator):
            return BatchChain(self.coarse, seed, evaluator.evaluate_batch)
        simulator = evaluator.simulator
        if not isinstance(simulator, ConcurrentSimulator):
            return BatchChain(self.coarse, seed, simulator.costs)

        def focus(device: IntArray) -> IntArray:
            return critical_ops(self.fine, device, *simulator.schedule(device))

        return BatchChain(self.coarse, seed, simulator.costs, focus)


def make_level(problem: Problem, group: IntArray, evaluator: Evaluator) -> Level:
    """The level of these (atoms,) groups."""
    atoms = atoms_of(problem)
    if int(group.max(initial=-1)) + 1 >= atoms.count:
        return Level(problem, problem, None)
    tied = replace(problem, class_of=group[atoms.of_op].astype(np.int32))
    stages = isinstance(problem.model, Pipeline) and problem.model.contiguity != "none"
    if stages and isinstance(evaluator, SimulatedEvaluator):
        contracted = coarsen(tied, "colour")
        return Level(problem, contracted.coarse, contracted.group_of)
    return Level(problem, tied, None)
