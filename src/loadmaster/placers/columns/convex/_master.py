"""The master program: prices of the classes that the sets known so far allow.

For a target T, with n_k devices of kind k, it solves (GLOP, warm from the last solution)

    max Σ_c π_c   subject to   π(S) <= μ_k   for every known set S of kind k with a load below T,
                               Σ_k n_k μ_k = 1,   μ >= 0,   and π within a box.

A value above 1, with all sets known, means that the devices cannot take all classes within T.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from ortools.math_opt.python import mathopt

from loadmaster.arrays import FloatArray, IntArray
from loadmaster.placers.columns._master import BoxedMaster

__all__ = ["Column", "Duals", "Master"]


class Column(NamedTuple):
    """A set on a kind of device."""

    kind: int
    atoms: IntArray
    load: float


class Duals(NamedTuple):
    """An optimal solution of the master: its value, the prices, and whether the box holds them back."""

    value: float
    prices: FloatArray
    boxed: bool


class Master(BoxedMaster[Column]):
    """The master program; columns are only ever added, or switched off and on by the target."""

    def __init__(self, atoms: int, counts: FloatArray) -> None:
        self._counts = counts
        self._target = np.inf
        super().__init__(atoms)

    def _add_rows(self) -> None:
        self._number = [self._model.add_linear_constraint(lb=0.0) for _ in self._counts]
        multiple = self._model.add_variable(lb=0.0)
        for row, count in zip(self._number, self._counts.tolist(), strict=True):
            row.set_coefficient(multiple, count)
        self._model.objective.set_linear_coefficient(multiple, 1.0)

    def _enter(self, column: Column) -> mathopt.Variable:
        use = self._model.add_variable(lb=0.0)
        for c in column.atoms.tolist():
            self._cover[c].set_coefficient(use, 1.0)
        self._number[column.kind].set_coefficient(use, -1.0)
        return use

    def _prepare(self) -> None:
        for column, use in zip(self._columns, self._use, strict=True):
            most = np.inf if column.load < self._target else 0.0
            if use.upper_bound != most:
                use.upper_bound = most

    def solve(self, low: FloatArray, high: FloatArray, target: float) -> Duals | None:
        """Prices in the box ``low`` … ``high`` for the target; None if the solver gives up."""
        self._target = target
        result = self._optimum(low, high)
        if result is None:
            return None
        box = np.array(result.variable_values([*self._above, *self._below]))
        return Duals(
            result.objective_value(),
            np.array(result.dual_values(self._cover)),
            bool(box.max(initial=0.0) > 1e-9),
        )
