"""The bound of ``frontier`` never exceeds the optimum, and closes the gap on published workloads."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from brute_force import least_cost
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array
from strategies import problems

from loadmaster import api
from loadmaster.placers import Budget
from loadmaster.placers.columns._nets import Bundles, Kind, bundles_of, loads_of
from loadmaster.placers.columns._order import costly_nets, narrow_order
from loadmaster.placers.columns.frontier import Frontier, all_states
from loadmaster.placers.columns.frontier._ascent import Ascent
from loadmaster.placers.columns.frontier._prover import Certificate, Pricer
from loadmaster.problem import Pipeline, Problem


@given(
    problems(
        st.builds(Pipeline, st.sampled_from(["none", "none", "device", "chain"])),
        max_ops=6,
        devices=st.integers(1, 3),
        backward=True,
    )
)
@settings(max_examples=60)
def test_the_bound_never_exceeds_the_optimum(problem: Problem) -> None:
    best = least_cost(problem)
    if np.isinf(best):
        return
    solution = Frontier().place(problem, budget=Budget(seconds=0.3))
    assert solution.bound <= best * (1 + 1e-12)
    assert solution.cost >= best * (1 - 1e-12)


@pytest.mark.parametrize(
    ("name", "best", "gap"),
    [("layers/bert24_inference", 17.714719, 0.01), ("layers/gnmt_inference", 31.687311, 0.01)],
)
def test_published_workloads_are_nearly_closed(workloads: Path, name: str, best: float, gap: float) -> None:
    problem = api.problem(workloads / "msr" / "throughput" / f"{name}.json", model="pipeline")
    solution = api.place(problem, "frontier", budget=30.0)
    assert 1e3 * solution.cost <= best * 1.002
    assert 1e3 * solution.bound <= best * (1 + 1e-6)
    assert solution.gap <= gap


def certificate_of(problem: Problem, seconds: float) -> tuple[Certificate, Bundles]:
    """Prices for a problem, and what they price."""
    solution = Frontier().place(problem, budget=Budget(seconds=seconds))
    if solution.cost == 0.0:  # nothing to prove, and no limit for the states
        return Certificate(0.0, np.zeros(problem.classes), np.zeros(0)), bundles_of(problem)
    bundles = bundles_of(problem)
    order = narrow_order(bundles, costly_nets(bundles), 0)
    states = all_states(bundles, order.order, solution.cost, 400_000)
    assert states is not None
    pricer = Pricer(bundles, states, solution.cost)
    nothing = Certificate(0.0, np.zeros(problem.classes), np.zeros(len(bundles.kinds)))
    ascent = Ascent(pricer, nothing, lambda certificate: None)
    ascent.suggest(solution.placement.device, problem.class_of)
    return ascent.run(60), bundles


@given(
    problems(Pipeline(), min_ops=2, max_ops=7, devices=st.integers(2, 4), constrained=False, backward=True)
)
@settings(max_examples=25)
def test_the_prices_prove_the_bound_if_every_bundle_is_looked_at(problem: Problem) -> None:
    certificate, bundles = certificate_of(problem, 0.2)
    target = certificate.value * (1 - 1e-9)
    if not certificate.prices.any() or target <= 0:
        return
    subsets = np.array(list(itertools.product([False, True], repeat=problem.classes)))
    worth = np.where(subsets, certificate.prices, 0.0).sum(axis=1)
    fetched = 0.0
    for kind in bundles.kinds:
        within = loads_of(bundles, kind, subsets) <= target
        fetched += kind.number * worth[within].max()
    # Never fetched by bundles within the target: what all classes are worth together.
    assert fetched <= certificate.prices.sum() + 1e-9 * np.abs(certificate.prices).sum()


def test_the_prices_prove_the_bound_by_another_solver(workloads: Path) -> None:
    """HiGHS prices bundles by its own mixed-integer program, which knows nothing of frontiers and grids."""
    problem = api.problem(workloads / "msr" / "throughput" / "operators" / "bert_l-3_inference.json")
    certificate, bundles = certificate_of(problem, 20.0)
    target = certificate.value * (1 - 1e-6)
    assert 1e3 * target > 0.99 * 21.908376
    fetched = sum(
        kind.number * worth_by_highs(bundles, kind, certificate.prices, target) for kind in bundles.kinds
    )
    assert fetched < certificate.prices.sum()


def worth_by_highs(bundles: Bundles, kind: Kind, prices: np.ndarray, target: float) -> float:
    """An upper bound of what a bundle with at most this load is worth, from HiGHS' branch and bound."""
    n, nets = bundles.classes, len(bundles.producer)
    rows, columns, values = [], [], []
    row = 0
    for e in range(nets):
        pins = bundles.pin[bundles.pin_ptr[e] : bundles.pin_ptr[e + 1]].tolist()
        home = int(bundles.producer[e])
        for other in pins:
            for first, second, paid in ((home, other, n + e), (other, home, n + nets + e)):
                if other != home:  # first inside and second outside: the net is paid
                    rows += [row] * 3
                    columns += [first, second, paid]
                    values += [1.0, -1.0, -1.0]
                    row += 1
    size = n + 2 * nets
    less = coo_array((values, (rows, columns)), shape=(row, size))
    time = np.where(np.isfinite(kind.time), kind.time, 0.0)
    load = np.concatenate([time, kind.send, kind.recv])[None] / target
    upper = np.concatenate([np.isfinite(kind.time), np.ones(2 * nets)])
    solve: Any = milp
    solved = solve(
        -np.concatenate([prices, np.zeros(2 * nets)]),
        constraints=[LinearConstraint(less.tocsr(), -np.inf, 0.0), LinearConstraint(load, -np.inf, 1.0)],
        integrality=np.ones(size),
        bounds=Bounds(0.0, upper),
        options={"mip_rel_gap": 1e-6},
    )
    assert solved.status == 0
    return float(-solved.mip_dual_bound)
