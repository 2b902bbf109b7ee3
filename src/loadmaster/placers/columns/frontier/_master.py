"""The master program of the column generation: prices that the bundles known so far allow.

For a target T, with k kinds of n_k devices and classes c, it solves (GLOP, warm from the last solution)

    max Σ_c π_c   subject to   π(S) <= μ_k + λ_k · load_k(S) / T   for every known bundle S of kind k,
                               Σ_k n_k (μ_k + λ_k) = C,   λ, μ >= 0,   and π within a box,

where C is the number of classes (so that prices are about 1). A value above C, with all bundles known, means
that the devices cannot take all classes within T. As a program over bundles: the least multiple of the
devices that suffices, where the bundles of a kind have an average load of at most T; so bundles slightly
above T may be told to it as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from ortools.math_opt.python import mathopt

from loadmaster.arrays import BoolArray, FloatArray, IntArray

__all__ = ["Column", "Duals", "Master"]


FAR = 1000.0
"""Upper bound of the variables that stand for the box, so that the program is bounded whatever rounding
does to the box."""


class Column(NamedTuple):
    """A bundle: its kind, its classes, its exact load in seconds, and its arcs in the states of the kind."""

    kind: int
    inside: BoolArray
    load: float
    path: IntArray


class Duals(NamedTuple):
    """An optimal solution of the master.

    value : Σπ / C.
    prices, load_prices : π, and λ (per T seconds).
    weight : (columns,) how much of each column the program over bundles uses.
    boxed : the box holds the prices back.
    """

    value: float
    prices: FloatArray
    load_prices: FloatArray
    weight: FloatArray
    boxed: bool


class Master:
    """The master program; columns are only ever added, or switched off and on."""

    def __init__(self, classes: int, counts: FloatArray, target: float) -> None:
        self._classes = classes
        self._counts = counts
        self._target = target
        self._columns: list[Column] = []
        self._start()

    def _start(self) -> None:
        """The model, anew."""
        model = mathopt.Model()
        self._model = model
        self._cover = [model.add_linear_constraint(lb=1.0, ub=1.0) for _ in range(self._classes)]
        self._number = [model.add_linear_constraint(lb=0.0) for _ in self._counts]
        self._load = [model.add_linear_constraint(lb=0.0) for _ in self._counts]
        multiple = model.add_variable(lb=0.0)
        for k, count in enumerate(self._counts.tolist()):
            self._number[k].set_coefficient(multiple, count)
            self._load[k].set_coefficient(multiple, count)
        model.objective.is_maximize = False
        model.objective.set_linear_coefficient(multiple, float(self._classes))
        self._above = [model.add_variable(lb=0.0, ub=FAR) for _ in range(self._classes)]
        self._below = [model.add_variable(lb=0.0, ub=FAR) for _ in range(self._classes)]
        for row, above, below in zip(self._cover, self._above, self._below, strict=True):
            row.set_coefficient(above, 1.0)
            row.set_coefficient(below, -1.0)
        self._use: list[mathopt.Variable] = []
        for column in self._columns:
            self._enter(column)
        self._solver = mathopt.IncrementalSolver(model, mathopt.SolverType.GLOP)

    def _enter(self, column: Column) -> None:
        use = self._model.add_variable(lb=0.0)
        for c in np.flatnonzero(column.inside).tolist():
            self._cover[c].set_coefficient(use, 1.0)
        self._number[column.kind].set_coefficient(use, -1.0)
        self._load[column.kind].set_coefficient(use, -column.load / self._target)
        self._use.append(use)

    def close(self) -> None:
        """Give the solver's memory back."""
        self._solver.close()

    def add(self, columns: Sequence[Column]) -> None:
        """Tell the program more bundles."""
        for column in columns:
            self._columns.append(column)
            self._enter(column)

    def retarget(self, target: float) -> None:
        """Change T."""
        self._target = target
        for column, use in zip(self._columns, self._use, strict=True):
            self._load[column.kind].set_coefficient(use, -column.load / target)

    def solve(self, low: FloatArray, high: FloatArray, live: BoolArray) -> Duals | None:
        """Prices in the box ``low`` … ``high`` under the columns that are ``live``; None if the solver
        gives up."""
        for attempt in range(2):
            objective = self._model.objective
            for above, below, least, most in zip(
                self._above, self._below, low.tolist(), high.tolist(), strict=True
            ):
                objective.set_linear_coefficient(above, most)
                objective.set_linear_coefficient(below, -least)
            for use, on in zip(self._use, live.tolist(), strict=True):
                most = np.inf if on else 0.0
                if use.upper_bound != most:
                    use.upper_bound = most
            found = self._attempt()
            if found is not None or attempt:
                return found
            # A basis from which the solver cannot go on is forgotten together with the model.
            self._solver.close()
            self._start()
        return None

    def _attempt(self) -> Duals | None:
        try:
            result = self._solver.solve()
        except Exception:
            # What MathOpt raises when GLOP ends abnormally depends on the version.
            return None
        if (
            result.termination.reason != mathopt.TerminationReason.OPTIMAL
            or not result.has_dual_feasible_solution()
        ):
            return None
        prices = np.array(result.dual_values(self._cover))
        box = np.array(result.variable_values([*self._above, *self._below]))
        return Duals(
            value=result.objective_value() / self._classes,
            prices=prices,
            load_prices=np.array(result.dual_values(self._load)),
            weight=np.array(result.variable_values(self._use)),
            boxed=bool(box.max(initial=0.0) > 1e-9),
        )
