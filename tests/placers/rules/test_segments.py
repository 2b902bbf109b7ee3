"""Segments: stretches of a topological order that fit, the best of all where no transfer is in the way."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from loadmaster.graph import GraphBuilder
from loadmaster.hardware import accelerators
from loadmaster.placers import Budget
from loadmaster.placers.rules.segments import Segments
from loadmaster.problem import Pipeline, Problem

TIMES = st.lists(st.integers(1, 9), min_size=1, max_size=7)


def chain_of(times: list[int], memory: list[int], capacity: float) -> Problem:
    """A chain on three equal accelerators, whose tensors cost nothing to move."""
    builder = GraphBuilder("chain")
    for i in range(len(times)):
        builder.op(f"op{i}", "X")
        if i:
            builder.tensor(i - 1, consumers=[i])
    cluster = accelerators(3, cpus=0)
    zero = np.zeros((3, 3))
    return Problem.make(
        builder.build(),
        cluster,
        Pipeline(),
        time=np.repeat(np.array(times, float)[:, None], 3, axis=1),
        latency=zero,
        rate=zero,
        send_latency=zero[0],
        recv_latency=zero[0],
        send_rate=zero[0],
        recv_rate=zero[0],
        memory=np.array(memory, float),
        capacity=np.full(3, capacity),
    )


@given(st.data(), TIMES)
def test_the_cuts_of_a_chain_are_the_best_that_fit(data, times: list[int]) -> None:
    memory = data.draw(st.lists(st.integers(1, 4), min_size=len(times), max_size=len(times)))
    capacity = float(data.draw(st.integers(4, 12)))
    n = len(times)
    best = min(
        (
            max(sum(times[a:b]) for a, b in parts)
            for i, j in itertools.combinations_with_replacement(range(n + 1), 2)
            for parts in [[(0, i), (i, j), (j, n)]]
            if all(sum(memory[a:b]) <= capacity for a, b in parts)
        ),
        default=None,
    )
    if best is not None:
        problem = chain_of(times, memory, capacity)
        assert Segments().place(problem, budget=Budget(evaluations=10)).cost <= best
