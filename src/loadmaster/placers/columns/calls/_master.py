"""The master program of the column generation over calls: how much each class is worth to a call.

With columns j (calls of one accelerator that cost s_j seconds and contain class c a_cj times), accelerators of
kind k in number n_k, and f_c seconds if class c stays on the CPU, it solves (GLOP, warm from the last solution)

    min Σ_j s_j x_j + Σ_c f_c y_c   subject to   Σ_j a_cj x_j + y_c = 1,   Σ_{j of kind k} x_j <= n_k,   x, y >= 0.

The duals of its first rows are the worths w, with w_c <= f_c. They may be held in a box: then another cost than
f_c is put on y_c, and variables are added by which a class may be covered more than once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from ortools.math_opt.python import mathopt

from loadmaster.arrays import BoolArray, FloatArray
from loadmaster.placers.columns._master import BoxedMaster

__all__ = ["CallMaster", "Column", "MasterSolution"]


class Column(NamedTuple):
    """Calls of one accelerator: its kind, (calls, classes) what is inside, and the seconds that count."""

    kind: int
    inside: BoolArray
    seconds: float


class MasterSolution(NamedTuple):
    """An optimum.

    value : seconds.
    worth : (classes,).
    weight : (columns,) how much of each column is used.
    boxed : the box holds the worths back.
    """

    value: float
    worth: FloatArray
    weight: FloatArray
    boxed: bool


class CallMaster(BoxedMaster[Column]):
    """The master program: ``stay`` (classes,) is f, and ``counts`` are the accelerators of each kind.

    A class is left on the CPU by the variable that holds its worth below the box.
    """

    def __init__(self, stay: FloatArray, counts: list[int]) -> None:
        self._stay = stay
        self._counts = counts
        super().__init__(len(stay))

    def _add_rows(self) -> None:
        self._number = [self._model.add_linear_constraint(ub=float(count)) for count in self._counts]

    def _enter(self, column: Column) -> mathopt.Variable:
        use = self._model.add_variable(lb=0.0)
        times = column.inside.sum(axis=0)
        for c in np.flatnonzero(times).tolist():
            self._cover[c].set_coefficient(use, float(times[c]))
        self._number[column.kind].set_coefficient(use, 1.0)
        self._model.objective.set_linear_coefficient(use, column.seconds)
        return use

    def solve(self, low: FloatArray, high: FloatArray) -> MasterSolution | None:
        """The optimum over the columns known, with worths in the box; None if the solver gives up."""
        high = np.minimum(high, self._stay)
        low = np.minimum(low, high)
        result = self._optimum(low, high)
        if result is None:
            return None
        left = np.array(result.variable_values(self._above))
        more = np.array(result.variable_values(self._below))
        return MasterSolution(
            value=result.objective_value(),
            worth=np.clip(np.array(result.dual_values(self._cover)), low, high),
            weight=np.array(result.variable_values(self._use)),
            boxed=bool((left[high < self._stay] > 1e-9).any() or (more > 1e-9).any()),
        )
