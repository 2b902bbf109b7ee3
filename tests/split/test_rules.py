"""What the usual rules give: equal layers, equal parameters, torchtitan's."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadmaster.graph import GraphBuilder
from loadmaster.hardware import Cluster, Device
from loadmaster.problem import Pipeline, Problem, evaluate
from loadmaster.split import RULES, RuleError, Unit, block_parts, chain_of_units, place_by_rule


def units_of(parameters, blocks=None):
    blocks = blocks or [True] * len(parameters)
    return [
        Unit(f"layers.{i}" if block else f"other{i}", (i,), block, float(size))
        for i, (size, block) in enumerate(zip(parameters, blocks, strict=True))
    ]


def test_torchtitan_counts_what_is_before_and_behind_as_a_block_each():
    """As torchtitan 0.3.0's own function does; a test with torchtitan itself compares more sizes."""
    assert block_parts(12, 3, 1, 1) == [4, 5, 3]
    assert block_parts(6, 4, 1, 1) == [1, 2, 2, 1]
    assert block_parts(9, 2, 2, 1) == [4, 5]
    assert block_parts(32, 4, 1, 3) == [8, 9, 9, 6]


def test_a_rule_with_too_few_blocks_says_so():
    with pytest.raises(RuleError, match=r"too few blocks \(3\) for 4 stages"):
        block_parts(3, 4)
    with pytest.raises(RuleError, match="too few"):
        block_parts(1, 4, 1, 1)


def test_what_is_around_the_blocks_goes_with_them():
    units = units_of([1] * 7, [False, True, True, False, True, True, False])
    assert RULES["equal layers"](units, 2) == [0, 0, 0, 0, 1, 1, 1]
    assert RULES["torchtitan"](units, 2) == [0, 0, 0, 0, 1, 1, 1]
    assert RULES["equal layers"](units, 4) == [0, 0, 1, 1, 2, 3, 3]


def test_without_enough_blocks_every_layer_counts():
    units = units_of([1] * 6, [False] * 6)
    assert RULES["equal layers"](units, 3) == [0, 0, 1, 1, 2, 2]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.integers(1, 5))
@settings(max_examples=200)
def test_equal_parameters_has_the_smallest_largest_stage(sizes, stages):
    units = units_of(sizes)
    if len(sizes) < stages:
        with pytest.raises(RuleError):
            RULES["equal parameters"](units, stages)
        return
    found = RULES["equal parameters"](units, stages)
    assert found == sorted(found)
    assert set(found) == set(range(stages))

    def largest(cuts):
        ends = [0, *cuts, len(sizes)]
        return max(sum(sizes[a:b]) for a, b in pairwise(ends))

    best = min(largest(cuts) for cuts in combinations(range(1, len(sizes)), stages - 1))
    assert largest([found.index(s) for s in range(1, stages)]) == best


def test_units_are_in_an_order_in_which_data_flows_forward():
    """Layers of a model with a skip: the op that feeds the skip comes early, its reader late."""
    builder = GraphBuilder("skip")
    for name in ("x", "c", "a0", "b", "a1", "d"):
        builder.op(name, param_bytes=10.0)
    for producer, readers in ((0, [2]), (2, [3, 4]), (3, [4]), (4, [5]), (1, [5])):
        builder.tensor(producer, bytes=1.0, consumers=readers)
    graph = builder.build()
    problem = Problem.make(
        graph,
        Cluster("two", (Device("r0", "rank"), Device("r1", "rank"))),
        Pipeline(microbatches=4),
        time=np.ones((6, 2)),
        latency=np.zeros((2, 2)),
        rate=np.zeros((2, 2)),
    )
    units = chain_of_units(problem, ["", "c", "layers.0", "layers.1", "layers.2", "d"])
    place = {v: i for i, unit in enumerate(units) for v in unit.ops}
    tail, head = graph.arcs
    assert all(place[u] < place[v] for u, v in zip(tail.tolist(), head.tolist(), strict=True))
    assert [unit.block for unit in units if unit.name] == [False, True, True, True, False]
    for rule in RULES:
        assert evaluate(problem, place_by_rule(problem, units, rule)).feasible
