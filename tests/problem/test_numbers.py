"""Numbers at both ends of the scale: what cannot be added up safely is refused, what is tiny does no harm."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import problems

from loadmaster import api
from loadmaster.errors import InputError
from loadmaster.graph import GraphBuilder
from loadmaster.hardware import Cluster, Device, estimate
from loadmaster.problem import Placement, Problem, Serial
from loadmaster.problem._evaluator import evaluate
from loadmaster.problem._numbers import MOST

SECONDS = ("time", "latency", "rate", "send_latency", "send_rate", "recv_latency", "recv_rate")


def scaled(problem: Problem, factor: float) -> Problem:
    """The same problem in another unit of time."""
    return replace(problem, **{key: getattr(problem, key) * factor for key in SECONDS})


def pair(**changes) -> Problem:
    builder = GraphBuilder("pair")
    builder.op("a", param_bytes=1.0)
    builder.op("b", param_bytes=1.0)
    builder.tensor("a", bytes=1.0, consumers=["b"])
    cluster = Cluster("two", (Device("gpu", "acc"), Device("cpu")))
    given = {"time": [[1.0, 2.0], [1.0, np.inf]], "rate": [[0.0, 1.0], [1.0, 0.0]], **changes}
    return Problem.make(builder.build(), cluster, Serial(), **given)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"time": [[1e308, 1.0], [1e308, 1.0]]}, "op 'a': time is 1e+308"),
        ({"time": [[1.0, 1.0], [1.0, 2 * MOST]]}, "op 'b': time is 2e+100"),
        ({"time": [[0.6 * MOST, 1.0], [0.6 * MOST, 1.0]]}, "op 'a': time is 6e+99"),
        ({"memory": [1e308, 1e308]}, "op 'a': memory"),
        ({"resident": [0.0, 1e200]}, "op 'b': resident"),
        ({"size": [1e101]}, "a tensor of op 'a': size"),
        ({"size": [1e60], "rate": [[0.0, 1e60], [0.0, 0.0]]}, "a tensor of op 'a': the time of all its transfers"),
        ({"latency": [[0.0, 1e300], [0.0, 0.0]]}, "'gpu' -> 'cpu': latency"),
        ({"recv_rate": [1e300, 0.0]}, "'gpu': recv_rate"),
        ({"capacity": [1e308, np.inf]}, "device 'gpu': capacity"),
    ],
)  # fmt: skip
def test_what_cannot_be_added_up_is_refused_by_name(changes, named):
    with pytest.raises(InputError) as caught:
        pair(**changes)
    assert str(caught.value).startswith(named)
    assert f"at most {MOST:g}" in str(caught.value)


def test_what_can_be_added_up_is_taken():
    problem = pair(time=[[0.4 * MOST, 1.0], [0.4 * MOST, 5e-324]], memory=[MOST / 4, MOST / 4])
    cost = evaluate(problem, Placement(np.array([0, 0], np.int32))).cost
    assert cost == 0.8 * MOST


def test_numbers_of_a_graph_are_refused_when_they_become_times():
    builder = GraphBuilder("large")
    builder.op("a", "MatMul", flops=1.7e308, bytes_read=1.7e308, bytes_written=1.7e308)
    graph = builder.build()
    slow = Cluster("slow", (Device("cpu", flops=1e-300, bandwidth=1.0),))
    with pytest.raises(InputError, match="op 'a' on device 'cpu': its estimated time overflows"):
        estimate(graph, slow)


@given(problems(), st.integers(-1074, 1020))
def test_another_unit_of_time_changes_nothing_or_is_refused(problem, exponent):
    factor = 2.0**exponent
    placement = Placement(np.zeros(problem.n, np.int32))
    expected = evaluate(problem, placement)
    try:
        same = scaled(problem, factor)
    except InputError:
        if exponent <= 300:
            raise
        return
    found = evaluate(same, placement)
    assert found.feasible == expected.feasible
    assert not np.isnan(found.cost)
    if exponent >= -1000:
        assert found.cost == expected.cost * factor


@pytest.mark.parametrize("exponent", [-1066, -1030, -600, 310])
@pytest.mark.parametrize("model", ["serial", "concurrent", "pipeline", "offload"])
def test_searches_and_bounds_bear_any_unit_of_time(model, exponent):
    problem = api.problem("zoo:layered-12", model=model)
    usual = scaled(problem, 2.0**10)
    odd = scaled(problem, 2.0**exponent)
    for method in ("greedy", "local-search"):
        cost = api.place(usual, method, evaluations=50).cost * 2.0**-10
        found = api.place(odd, method, evaluations=50)
        assert found.bound <= found.cost
        if exponent > -1000:
            assert found.cost == pytest.approx(cost * 2.0**exponent, rel=1e-9, abs=0.0)
