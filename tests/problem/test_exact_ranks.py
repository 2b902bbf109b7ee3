"""Priorities under ``concurrent``: ranks that are equal in exact arithmetic tie."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from strategies import graphs, placements, problems

from loadmaster.graph import Graph, GraphBuilder
from loadmaster.hardware import Cluster, Device
from loadmaster.problem import Concurrent, Problem
from loadmaster.problem._evaluator import evaluate
from loadmaster.problem._exact_ranks import exact_ranks
from loadmaster.testing import reference

FINE = st.floats(0, 2**20) | st.sampled_from([0.1, 0.2, 0.3, 1 / 3, 5e-324, 1e-300, 1e-30, 1.0, 1e30, 1e90])
"""Numbers of all sizes, many of which lose bits when they are added."""


def by_fractions(problem: Problem) -> list[int]:
    place = reference._priorities(problem)
    return sorted(place, key=place.__getitem__)


@given(problems(Concurrent(), max_ops=10))
def test_priorities_are_those_of_fractions(problem: Problem) -> None:
    assert problem.priority_order.tolist() == by_fractions(problem)


@given(st.data(), graphs(max_ops=7))
def test_numbers_of_all_sizes(data: st.DataObject, graph: Graph) -> None:
    devices = data.draw(st.integers(1, 4))

    def array(*shape: int) -> np.ndarray:
        count = int(np.prod(shape))
        return np.array(data.draw(st.lists(FINE, min_size=count, max_size=count))).reshape(shape)

    problem = Problem.make(
        graph,
        Cluster("c", tuple(Device(f"d{d}", "acc") for d in range(devices))),
        Concurrent(),
        time=array(graph.n, devices),
        size=np.minimum(array(graph.tensors), 1e9),
        latency=array(devices, devices),
        rate=np.minimum(array(devices, devices), 1e9),
    )
    assert problem.priority_order.tolist() == by_fractions(problem)


@given(problems(Concurrent(), devices=st.just(3)), st.sampled_from([0.1, 1 / 3, 1e-9]))
def test_ranks_tie_after_scaling_as_before(problem: Problem, unit: float) -> None:
    """Thirds and tenths are no binary fractions: paths of equal length get other last bits unless sums are exact."""
    scaled = replace(
        problem, time=problem.time * unit, latency=problem.latency * unit, rate=problem.rate * unit
    )
    assert scaled.priority_order.tolist() == by_fractions(scaled)


@given(st.data(), problems(Concurrent("static"), devices=st.just(3)))
def test_the_kernel_and_the_reference_agree_where_ranks_tie(data: st.DataObject, problem: Problem) -> None:
    placement = data.draw(placements(problem))
    assert evaluate(problem, placement).cost == reference.evaluate(problem, placement).cost


def test_two_paths_of_equal_length_tie() -> None:
    """Ops 1 and 3 have rank 7/3, as different sums of thirds; as doubles the second one is larger."""
    builder = GraphBuilder("tie")
    for v in range(6):
        builder.op(f"op{v}")
    for producer, consumers in ((1, [5]), (3, []), (5, []), (4, [3]), (0, [5]), (2, [])):
        builder.tensor(producer, bytes=0.0, consumers=consumers)
    problem = Problem.make(
        builder.build(),
        Cluster("c", tuple(Device(f"d{d}", "acc") for d in range(3))),
        Concurrent("static"),
        time=[[3, 8, 2], [1, 0, 0.5], [0.25, 2, 1], [0, 2, 5], [1.25, 0, 4], [1.5, 0.25, 1.25]],
        size=[0.5, 0, 2, 2, 2, 2],
        latency=[[0, 0.25, 0.25], [0.25, 0, 0], [0.25, 0, 0]],
        rate=[[0, 2, 0], [2, 0, 2], [0, 2, 0]],
    )
    rank = exact_ranks(problem)
    assert rank[1] == rank[3]
    order = problem.priority_order.tolist()
    assert order.index(1) < order.index(3)
