"""HiGHS on the 0/1 program of pipelined throughput (``program.py``)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from loadmaster.arrays import BoolArray
from loadmaster.placers.solvers._highs import Arrays, HighsSolver
from loadmaster.placers.solvers.pipeline.program import Program
from loadmaster.problem import Placement, Problem

__all__ = ["HighsLoads"]


class HighsLoads(HighsSolver):
    """The loads of a pipeline: terms of the objective are columns after the 0/1 variables."""

    def __init__(self, problem: Problem, program: Program, seed: int) -> None:
        super().__init__(seed)
        self.problem, self.program = problem, program

    @property
    def binaries(self) -> int:
        """See :class:`HighsSolver`."""
        return self.program.variables

    def arrays(self, unit: float, cost: float) -> Arrays:
        """Rows: choices, clauses, loads, memories."""
        return _arrays(self.program, unit, cost)

    def placement(self, values: BoolArray) -> Placement:
        """See :class:`HighsSolver`."""
        return Placement(self.program.placement(values)[self.problem.class_of])

    def columns(self, placement: Placement) -> npt.NDArray[np.float64]:
        """All columns of a placement: what is left open HiGHS would complete by a program of its own."""
        ptr, member = self.problem.members
        values = self.program.assignment(placement.device[member[ptr[:-1]]]).astype(np.float64)
        part = values[self.program.load_var] * self.program.load_cost / self._unit
        load = np.add.reduceat(part, self.program.load_ptr[:-1]) if len(part) else np.zeros(0)
        terms = np.zeros(self.program.terms)
        np.maximum.at(terms, self.program.load_term, load)
        return np.concatenate([values, terms])


def _arrays(program: Program, unit: float, upper: float) -> Arrays:
    """Rows of the mixed-integer program: choices, clauses, loads, memories."""
    n, terms = program.variables, program.terms
    literal = program.clause
    negative = (literal < 0).astype(np.float64)
    clauses = len(program.clause_ptr) - 1
    row_of = np.repeat(np.arange(clauses), np.diff(program.clause_ptr))
    negated = np.bincount(row_of, negative, clauses) if clauses else np.zeros(0)
    loads = len(program.load_term)
    # A load row is its sum minus its term: the term goes to the end of the row.
    ends = program.load_ptr[1:]
    load_index = np.insert(program.load_var, ends, n + program.load_term)
    load_value = np.insert(program.load_cost / unit, ends, -1.0)
    most = np.maximum(program.memory_limit, 1e-300)
    memories = np.diff(program.memory_ptr)
    sizes = [
        np.diff(program.choice_ptr),
        np.diff(program.clause_ptr),
        np.diff(program.load_ptr) + 1,
        memories,
    ]
    infinite = np.inf
    choices = len(program.choice_ptr) - 1
    return {
        "binaries": np.array(n),
        "cost": np.concatenate([np.zeros(n), np.ones(terms)]),
        "upper": np.concatenate([np.ones(n), np.full(terms, upper / unit * (1.0 + 1e-9))]),
        "ptr": np.concatenate([[0], np.cumsum(np.concatenate(sizes))]).astype(np.int32),
        "index": np.concatenate(
            [program.choice, np.where(literal < 0, ~literal, literal), load_index, program.memory_var]
        ).astype(np.int32),
        "value": np.concatenate(
            [
                np.ones(len(program.choice)),
                1.0 - 2.0 * negative,
                load_value,
                program.memory_size / np.repeat(most, memories),
            ]
        ),
        "row_lower": np.concatenate(
            [np.ones(choices), 1.0 - negated, np.full(loads + len(memories), -infinite)]
        ),
        "row_upper": np.concatenate(
            [
                np.ones(choices),
                np.full(clauses, infinite),
                np.zeros(loads),
                np.full(len(memories), 1.0 + 1e-9),
            ]
        ),
    }
