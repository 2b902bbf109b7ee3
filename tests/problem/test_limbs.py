"""Exact ranks in compiled code: the same order as with Python's integers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from strategies import problems

from loadmaster.problem import Concurrent, Problem
from loadmaster.problem._exact_ranks import exact_ranks
from loadmaster.problem._limbs import exact_order
from loadmaster.problem._ranks import priority_order


@given(problems(Concurrent(), max_ops=10), st.integers(0, 2**32 - 1), st.sampled_from([0, 3, 30, 90]))
def test_the_order_is_that_of_exact_integers(problem: Problem, seed: int, decades: int) -> None:
    """Short fractions, where ranks tie often; and numbers many decades apart, where sums of doubles round."""
    rng = np.random.default_rng(seed)

    def spread(values: np.ndarray) -> np.ndarray:
        if decades == 0:
            return values
        factor = rng.random(values.shape) * 10.0 ** rng.integers(-decades, decades // 2 + 1, values.shape)
        return np.asarray(values * factor)

    problem = replace(
        problem, time=spread(problem.time), size=spread(problem.size), latency=spread(problem.latency)
    )
    found = exact_order(problem)
    expected = priority_order(problem.graph, exact_ranks(problem))
    if found is None:
        assert problem.n == 0 or decades >= 90
    else:
        assert found.tolist() == expected.tolist()
    assert problem.priority_order.tolist() == expected.tolist()
