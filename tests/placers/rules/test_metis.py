"""METIS partitions where costs leave little to go by."""

from __future__ import annotations

import numpy as np
import pytest

from loadmaster.graph import layered
from loadmaster.hardware import accelerators
from loadmaster.placers import Budget
from loadmaster.placers.rules.metis import Metis
from loadmaster.problem import Concurrent, Pipeline, Problem
from loadmaster.problem._model import ExecutionModel


@pytest.mark.parametrize("model", [Concurrent(), Pipeline()])
def test_nothing_takes_time_on_a_device_that_is_left_out(model: ExecutionModel) -> None:
    """Two ops, three devices, of which the last is infinitely fast: there is no part for it."""
    time = np.array([[1.0, 2.0, 0.0], [3.0, 1.0, 0.0]])
    problem = Problem.make(layered(2, width=1), accelerators(3, 0), model, time=time)
    solution = Metis().place(problem, budget=Budget())
    assert np.isfinite(solution.cost)
