"""The load of all that follows an op: against the definition."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import problems

from loadmaster import api
from loadmaster.problem import Concurrent
from loadmaster.problem.bounds import linear_bound, lower_bound
from loadmaster.problem.bounds._around import Following
from loadmaster.problem.bounds._paths import op_arcs


@given(problems(st.just(Concurrent()), min_ops=1, max_ops=8), st.integers(0, 2**32 - 1), st.booleans())
@settings(max_examples=100, deadline=None)
def test_the_longest_stretch_after_each_op(problem, seed, reverse):
    n, random = problem.n, np.random.default_rng(seed)
    tail, amount = random.integers(0, 4, n).astype(float), random.integers(0, 4, n).astype(float)
    arcs = op_arcs(problem).reversed() if reverse else op_arcs(problem)
    below = np.zeros((n, n), bool)
    below[arcs.tail, arcs.head] = True
    for k in range(n):
        below |= below[:, k, None] & below[None, k]
    following = Following(n, arcs, tail, np.zeros(n))
    value, rest = following.longest(amount)
    for op, best, b in zip(following.ops.tolist(), value, rest, strict=True):
        ends = [a + amount[below[op] & (tail >= a)].sum() for a in tail[below[op]]]
        assert best == max(ends, default=-np.inf)
        if ends:
            ops = following.stretch(op, b).ops
            assert (ops == np.flatnonzero(below[op] & (tail >= b))).all()
            assert b + amount[ops].sum() == best


def test_the_relaxation_knows_what_the_cpu_delays():
    problem = api.problem("zoo:inception-v3?batch=32&training=1", "p100-2", model="concurrent")
    assert lower_bound(problem).value < 0.175
    assert 0.195 < linear_bound(problem, known=0.226).value < 0.226
