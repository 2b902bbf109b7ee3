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

__all__ = ["CallMaster", "Column", "MasterSolution"]


FAR = 1000.0
"""Upper bound of the variables that stand for the box, so that the program is bounded whatever rounding does
to the box."""


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


class CallMaster:
    """The master program; columns are only ever added."""

    def __init__(self, stay: FloatArray, counts: list[int]) -> None:
        self._stay = stay
        self._counts = counts
        self._columns: list[Column] = []
        self._start()

    def _start(self) -> None:
        model = self._model = mathopt.Model()
        model.objective.is_maximize = False
        self._cover = [model.add_linear_constraint(lb=1.0, ub=1.0) for _ in self._stay]
        self._number = [model.add_linear_constraint(ub=float(count)) for count in self._counts]
        self._left = [model.add_variable(lb=0.0, ub=FAR) for _ in self._stay]
        self._more = [model.add_variable(lb=0.0, ub=FAR) for _ in self._stay]
        for row, left, more in zip(self._cover, self._left, self._more, strict=True):
            row.set_coefficient(left, 1.0)
            row.set_coefficient(more, -1.0)
        self._use: list[mathopt.Variable] = []
        for column in self._columns:
            self._enter(column)
        self._solver = mathopt.IncrementalSolver(model, mathopt.SolverType.GLOP)

    def _enter(self, column: Column) -> None:
        use = self._model.add_variable(lb=0.0)
        times = column.inside.sum(axis=0)
        for c in np.flatnonzero(times).tolist():
            self._cover[c].set_coefficient(use, float(times[c]))
        self._number[column.kind].set_coefficient(use, 1.0)
        self._model.objective.set_linear_coefficient(use, column.seconds)
        self._use.append(use)

    def add(self, column: Column) -> None:
        """Tell the program of a column."""
        self._columns.append(column)
        self._enter(column)

    def close(self) -> None:
        """Give the solver's memory back."""
        self._solver.close()

    def solve(self, low: FloatArray, high: FloatArray) -> MasterSolution | None:
        """The optimum over the columns known, with worths in the box; None if the solver gives up, even from
        scratch."""
        high = np.minimum(high, self._stay)
        low = np.minimum(low, high)
        for _ in range(2):
            objective = self._model.objective
            for left, more, most, least in zip(
                self._left, self._more, high.tolist(), low.tolist(), strict=True
            ):
                objective.set_linear_coefficient(left, most)
                objective.set_linear_coefficient(more, -least)
            try:
                result = self._solver.solve()
            except Exception:
                result = None
            if (
                result is not None
                and result.termination.reason == mathopt.TerminationReason.OPTIMAL
                and result.has_dual_feasible_solution()
            ):
                left = np.array(result.variable_values(self._left))
                more = np.array(result.variable_values(self._more))
                return MasterSolution(
                    value=result.objective_value(),
                    worth=np.clip(np.array(result.dual_values(self._cover)), low, high),
                    weight=np.array(result.variable_values(self._use)),
                    boxed=bool((left[high < self._stay] > 1e-9).any() or (more > 1e-9).any()),
                )
            self._solver.close()
            self._start()
        return None
