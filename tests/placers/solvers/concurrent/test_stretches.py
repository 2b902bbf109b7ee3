"""How far two ops are apart: never more than in any schedule, and of use for what lies far apart."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from brute_force import least_cost, least_cost_with_orders
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import problems
from test_dividing import CONCURRENT, like

from loadmaster import api
from loadmaster.placers.solvers.concurrent import stretches
from loadmaster.placers.solvers.concurrent.dividing import dividing_bounds
from loadmaster.placers.solvers.concurrent.stretches import Stretches, stretch_bounds
from loadmaster.problem import Placement, evaluate
from loadmaster.problem.bounds import NOWHERE, Apart, Glances, linear_bound, lower_bound
from loadmaster.problem.bounds._view import least_memory

LEVELS = ((4, 0.5), (6, 1.0))


def never(*_):
    return False


def placements(problem):
    """All that is allowed, whether or not it fits."""
    choices = [np.flatnonzero(row) for row in problem.class_allowed]
    for at in itertools.product(*choices):
        yield np.array(at, np.int32)[problem.class_of]


def roomy(problem):
    """Everything fits together, but nothing is where it does not fit alone."""
    alone = np.bincount(problem.class_of, least_memory(problem), problem.classes)[problem.class_of]
    forbidden = problem.forbidden | (alone[:, None] > problem.capacity)
    return replace(problem, capacity=np.full(problem.devices, 1e30), forbidden=forbidden)


def assert_no_schedule_is_closer(problem, apart):
    problem = roomy(problem)
    for device in placements(problem):
        found = evaluate(problem, Placement(device))
        if not found.feasible:
            continue
        for first, second, seconds in zip(*apart, strict=True):
            begin = 0.0 if first < 0 else found.end[first]
            finish = found.cost if second < 0 else found.start[second]
            assert finish - begin >= seconds - 1e-9 * found.cost


@given(
    problems(CONCURRENT, min_ops=3, max_ops=6, devices=st.integers(1, 4), backward=True),
    st.integers(0, 2),
    st.integers(3, 8),
)
@settings(max_examples=200, deadline=None)
def test_ends_are_as_far_apart_in_every_schedule(problem, first, most):
    problem = like(problem, min(first, problem.devices - 1))
    if math.isinf(least_cost(problem)):
        return
    short = Stretches(problem, most)
    short.solve(never, 300.0)
    long = Stretches(problem, 8, short.apart())
    long.solve(never, 300.0)
    assert_no_schedule_is_closer(problem, short.apart().joined(long.apart()))


def proved(problem, target, work, nodes):
    """What stretches prove, and what divided heavy classes add."""
    found = [(0.0, NOWHERE), *stretch_bounds(problem, 0.0, lambda: target, never, work)]
    known, apart = found[-1]
    assert known <= target
    assert linear_bound(problem, known=target, apart=apart).value <= target
    return [known, *dividing_bounds(problem, known, lambda: target, never, nodes, apart)][-1]


@given(
    problems(CONCURRENT, min_ops=3, max_ops=6, devices=st.integers(1, 4), backward=True),
    st.integers(0, 2),
    st.sampled_from([1.0, 1.2, 2.0]),
)
@settings(max_examples=200, deadline=None)
def test_they_are_below_every_placement(problem, first, factor):
    problem = like(problem, min(first, problem.devices - 1))
    best = least_cost(problem)
    if math.isinf(best):
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stretches, "LEVELS", LEVELS)
        patch.setattr(stretches, "GAIN", -1.0)
        assert proved(problem, factor * best, 300.0, 60) <= best


@given(problems(CONCURRENT, min_ops=2, max_ops=4, devices=st.integers(1, 3)), st.sampled_from([1.0, 1.3]))
@settings(max_examples=60, deadline=None)
def test_they_are_below_every_placement_with_an_order(problem, factor):
    best = least_cost_with_orders(problem)
    if math.isinf(best):
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stretches, "LEVELS", LEVELS)
        patch.setattr(stretches, "GAIN", -1.0)
        assert proved(problem, factor * best, 300.0, 100) <= best


@given(problems(CONCURRENT, min_ops=3, max_ops=5, devices=st.integers(1, 3)), st.data())
@settings(max_examples=100, deadline=None)
def test_what_is_apart_in_all_schedules_may_be_told(problem, data):
    """Any two ops, one after the other: the least distance of all placements."""
    best = least_cost(problem)
    tail, head = problem.graph.arcs
    if math.isinf(best) or not len(tail):
        return
    arc = data.draw(st.integers(0, len(tail) - 1))
    least, free = math.inf, roomy(problem)
    for device in placements(free):
        found = evaluate(free, Placement(device))
        if found.feasible:
            least = min(least, found.start[head[arc]] - found.end[tail[arc]])
    apart = Apart(tail[arc : arc + 1], head[arc : arc + 1], np.array([max(least, 0.0)]))
    nothing = np.full(problem.classes, -1, np.int32)
    assert Glances(problem, apart)(nothing, math.inf) <= best * (1 + 1e-11)
    assert linear_bound(problem, apart=apart).value <= best * (1 + 1e-11)


def test_what_is_apart_counts_on_the_way_there_and_back():
    problem = api.problem("zoo:transformer-xl-2", "p100-2", model="concurrent")
    nothing = np.full(problem.classes, -1, np.int32)
    order = problem.graph.topological_order
    apart = Apart(
        np.array([-1, order[-1]], np.int32), np.array([order[0], -1], np.int32), np.array([2.0, 3.0])
    )
    assert 5.0 <= Glances(problem, apart)(nothing, math.inf) <= 5.0 + 2 * problem.time.sum()


def test_amoebanet_repeats_itself():
    problem = api.problem("zoo:amoebanet", "p100-4", model="concurrent")
    made = Stretches(problem, 40)
    pairs = made.apart()
    assert len(pairs.seconds) > 2 * len(made.kinds)
    known = lower_bound(problem).value
    assert known < 0.204
    assert 0.225 <= proved(problem, 0.297, 3e4, 1) <= 0.297
