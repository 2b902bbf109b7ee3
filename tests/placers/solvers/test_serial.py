"""HiGHS under ``serial`` where memory is short: the same optimum as by trying all placements."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from brute_force import least_cost
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import problems

from loadmaster import api, bench
from loadmaster.placers import PLACERS
from loadmaster.placers._lineup import lineup_of
from loadmaster.placers.frame.feasible import first_feasible
from loadmaster.placers.frame.search import Budget, Search
from loadmaster.placers.solvers.milp import Milp
from loadmaster.placers.solvers.serial import solve_serial, unsuited
from loadmaster.problem import Serial


@given(problems(st.just(Serial()), max_ops=6, devices=st.integers(2, 3)), st.floats(0.2, 1.0))
@settings(max_examples=12)
def test_it_finds_and_proves_the_optimum(problem, share):
    problem = replace(problem, capacity=np.minimum(problem.capacity, share * problem.memory.sum()))
    best = least_cost(problem)
    if math.isinf(best) or best <= 0:
        return
    with Search(problem, Budget(seconds=20), "milp") as search:
        search.try_placement(first_feasible(problem))
        solve_serial(search, 0)
    assert search.cost == pytest.approx(best, rel=1e-9)
    assert best * (1 - 2e-6) <= search.bound.value <= best * (1 + 1e-11)


def test_only_where_memory_is_short():
    roomy = api.problem("zoo:resnet-50", "hsdag", model="serial")
    assert "min-cut" in (unsuited(roomy) or "")
    assert PLACERS["milp"].supports(roomy)
    tight = bench.instances()["memory-resnet-50-serial"].problem()
    assert PLACERS["milp"].supports(tight) is None
    assert any(isinstance(prover, Milp) for prover in lineup_of(tight).provers)


def test_large_programs_are_not_built():
    problem = api.problem("zoo:gnmt-2", "p100-2", model="serial")
    short = replace(problem, capacity=np.full(problem.devices, 0.7 * float(problem.memory.sum())))
    assert "variables" in (unsuited(short) or "")
