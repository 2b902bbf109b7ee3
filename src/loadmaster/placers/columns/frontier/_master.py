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

from typing import NamedTuple

import numpy as np
from ortools.math_opt.python import mathopt

from loadmaster.arrays import BoolArray, FloatArray, IntArray
from loadmaster.placers.columns._master import BoxedMaster

__all__ = ["Column", "Duals", "Master"]


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


class Master(BoxedMaster[Column]):
    """The master program; columns are only ever added, or switched off and on."""

    def __init__(self, classes: int, counts: FloatArray, target: float) -> None:
        self._counts = counts
        self._target = target
        self._live = np.zeros(0, np.bool_)
        super().__init__(classes)

    def _add_rows(self) -> None:
        model = self._model
        self._number = [model.add_linear_constraint(lb=0.0) for _ in self._counts]
        self._load = [model.add_linear_constraint(lb=0.0) for _ in self._counts]
        multiple = model.add_variable(lb=0.0)
        for k, count in enumerate(self._counts.tolist()):
            self._number[k].set_coefficient(multiple, count)
            self._load[k].set_coefficient(multiple, count)
        model.objective.set_linear_coefficient(multiple, float(self._classes))

    def _enter(self, column: Column) -> mathopt.Variable:
        use = self._model.add_variable(lb=0.0)
        for c in np.flatnonzero(column.inside).tolist():
            self._cover[c].set_coefficient(use, 1.0)
        self._number[column.kind].set_coefficient(use, -1.0)
        self._load[column.kind].set_coefficient(use, -column.load / self._target)
        return use

    def retarget(self, target: float) -> None:
        """Change T."""
        self._target = target
        for column, use in zip(self._columns, self._use, strict=True):
            self._load[column.kind].set_coefficient(use, -column.load / target)

    def _prepare(self) -> None:
        for use, on in zip(self._use, self._live.tolist(), strict=True):
            most = np.inf if on else 0.0
            if use.upper_bound != most:
                use.upper_bound = most

    def solve(self, low: FloatArray, high: FloatArray, live: BoolArray) -> Duals | None:
        """Prices in the box ``low`` … ``high`` under the columns that are ``live``; None if the solver
        gives up."""
        self._live = live
        result = self._optimum(low, high)
        if result is None:
            return None
        box = np.array(result.variable_values([*self._above, *self._below]))
        return Duals(
            value=result.objective_value() / self._classes,
            prices=np.array(result.dual_values(self._cover)),
            load_prices=np.array(result.dual_values(self._load)),
            weight=np.array(result.variable_values(self._use)),
            boxed=bool(box.max(initial=0.0) > 1e-9),
        )
