"""What the master programs of both column generations have in common: rows to cover, a box, and a warm solver.

Every class is covered once by the columns in use; the duals of these rows are what the classes are worth. They are
held in a box by two further variables per class, which cover it for the upper side of the box and uncover it for
the lower one (the boxstep method). GLOP goes on from its last basis.

References
----------
R. Marsten, W. Hogan, J. Blankenship, "The boxstep method for large-scale optimization", Operations Research 1975.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from ortools.math_opt.python import mathopt

from loadmaster.arrays import FloatArray

__all__ = ["BoxedMaster"]


Column = TypeVar("Column")

FAR = 1000.0
"""Upper bound of the variables that stand for the box, so that the program is bounded whatever rounding
does to the box."""


class BoxedMaster(Generic[Column]):
    """A program over columns, which are only ever added.

    A subclass says what rows there are besides the cover (:meth:`_add_rows`) and what a column puts into
    them (:meth:`_enter`).
    """

    def __init__(self, classes: int) -> None:
        self._classes = classes
        self._columns: list[Column] = []
        self._start()

    def _start(self) -> None:
        """The model, anew."""
        model = self._model = mathopt.Model()
        model.objective.is_maximize = False
        self._cover = [model.add_linear_constraint(lb=1.0, ub=1.0) for _ in range(self._classes)]
        self._add_rows()
        self._above = [model.add_variable(lb=0.0, ub=FAR) for _ in range(self._classes)]
        self._below = [model.add_variable(lb=0.0, ub=FAR) for _ in range(self._classes)]
        for row, above, below in zip(self._cover, self._above, self._below, strict=True):
            row.set_coefficient(above, 1.0)
            row.set_coefficient(below, -1.0)
        self._use: list[mathopt.Variable] = []
        for column in self._columns:
            self._use.append(self._enter(column))
        self._solver = mathopt.IncrementalSolver(model, mathopt.SolverType.GLOP)

    def _add_rows(self) -> None:
        raise NotImplementedError

    def _enter(self, column: Column) -> mathopt.Variable:
        raise NotImplementedError

    def add(self, column: Column) -> None:
        """Tell the program of a column."""
        self._columns.append(column)
        self._use.append(self._enter(column))

    def close(self) -> None:
        """Give the solver's memory back."""
        self._solver.close()

    def _prepare(self) -> None:
        """What a subclass changes in the model before it is solved."""

    def _optimum(self, low: FloatArray, high: FloatArray) -> Any:
        """The solver's result with duals of the cover in the box ``low`` … ``high``; None if it gives up, even
        from scratch."""
        for attempt in range(2):
            objective = self._model.objective
            for above, below, least, most in zip(
                self._above, self._below, low.tolist(), high.tolist(), strict=True
            ):
                objective.set_linear_coefficient(above, most)
                objective.set_linear_coefficient(below, -least)
            self._prepare()
            try:
                result = self._solver.solve()
            except Exception:
                # What MathOpt raises when GLOP ends abnormally depends on the version.
                result = None
            if (
                result is not None
                and result.termination.reason == mathopt.TerminationReason.OPTIMAL
                and result.has_dual_feasible_solution()
            ):
                return result
            if attempt == 0:
                # A basis from which the solver cannot go on is forgotten together with the model.
                self._solver.close()
                self._start()
        return None
