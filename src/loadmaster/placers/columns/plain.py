"""Column generation on one page, with pricing by enumeration: what ``frontier`` and ``calls`` have in common.

Given are columns j (bundles of classes, or calls) with a cost s_j and the device that each would be on, and for each
class c what it costs to stay uncovered, f_c. Wanted is the value of

    min Σ_j s_j x_j + Σ_c f_c y_c   subject to   Σ_{j with c} x_j + y_c = 1,   Σ_{j of device d} x_j <= 1,   x, y >= 0.

The *master* is this program over the few columns met so far. Its duals are worths w_c of the classes and prices
u_d <= 0 of the devices. *Pricing* looks for the column of each device with the least reduced cost s_j - w(j) - u_d.
A negative one is told to the master; if there is none, the master's optimum is the optimum over all columns.

The fast versions price by dynamic programming over a narrow order of the classes (``_states.py``, ``_pricing.py``),
and hold the worths in a box (``_master.py``). Neither changes what the result is.

References
----------
P. Gilmore, R. Gomory, "A linear programming approach to the cutting-stock problem", Operations Research 1961.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linprog

from loadmaster.arrays import FloatArray

__all__ = ["Column", "least_cover", "subsets"]

EXACT = 1e-11
"""Reduced costs above minus this, relative to the largest cost, are rounding."""


class Column(NamedTuple):
    """Classes that one device takes, and what they cost together."""

    device: int
    classes: frozenset[int]
    cost: float


def subsets(classes: int) -> Iterator[frozenset[int]]:
    """All sets of classes but the empty one."""
    for size in range(1, classes + 1):
        yield from map(frozenset, combinations(range(classes), size))


def least_cover(columns: list[Column], stay: FloatArray, devices: int) -> float:
    """The optimum of the program above; ``stay`` (classes,) is f."""
    scale = max(float(stay.max(initial=0.0)), max((column.cost for column in columns), default=0.0))
    met: list[Column] = []
    while True:
        value, worth, price = _master(met, stay, devices)
        best: dict[int, tuple[float, Column]] = {}
        for column in columns:  # pricing
            reduced = column.cost - sum(worth[c] for c in column.classes) - price[column.device]
            if reduced < best.get(column.device, (-EXACT * scale,))[0]:
                best[column.device] = reduced, column
        fresh = [column for _, column in best.values() if column not in met]
        if not fresh:
            return value
        met += fresh


def _master(met: list[Column], stay: FloatArray, devices: int) -> tuple[float, FloatArray, FloatArray]:
    """(optimum, worths of the classes, prices of the devices) over the columns met so far."""
    classes = len(stay)
    cover = np.hstack([np.zeros((classes, len(met))), np.eye(classes)])
    number = np.zeros((devices, len(met) + classes))
    for j, column in enumerate(met):
        cover[sorted(column.classes), j] = 1.0
        number[column.device, j] = 1.0
    cost = np.concatenate([[column.cost for column in met], stay])
    solve: Any = linprog  # its stubs want lists
    solved = solve(cost, A_ub=number, b_ub=np.ones(devices), A_eq=cover, b_eq=np.ones(classes))
    assert solved.status == 0, solved.message
    return float(solved.fun), solved.eqlin.marginals, solved.ineqlin.marginals
