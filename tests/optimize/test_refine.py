"""Placements are improved by what their pieces would take."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from small_networks import problem_of
from strategies import problems

from loadmaster.optimize import chains, refine
from loadmaster.problem import Placement
from loadmaster.runtime import cut
from loadmaster.runtime._piece_costs import OverlapFit, predict


@settings(max_examples=40, deadline=None)
@given(problem=problems(), data=st.data())
def test_chains_hold_every_class_once_and_nothing_reads_from_their_middle(problem, data):
    found = chains(problem)
    assert sorted(c for chain in found for c in chain) == list(range(problem.classes))
    place = {c: (number, at) for number, chain in enumerate(found) for at, c in enumerate(chain)}
    for u, v in zip(*problem.graph.arcs, strict=True):
        (one, i), (two, j) = place[int(problem.class_of[u])], place[int(problem.class_of[v])]
        if one != two:
            assert i == len(found[one]) - 1
            assert j == 0


def test_refining_finds_the_overlap_and_never_makes_it_worse(model_file):
    problem = problem_of(model_file)
    fit = OverlapFit()

    def cost(placement):
        return predict(problem, cut(problem, placement), fit)

    alone = Placement(np.zeros(problem.n, np.int32))
    assert cost(refine(problem, alone, fit, seconds=20.0)) < 0.8 * cost(alone)
    for seed in range(3):
        start = Placement(np.random.default_rng(seed).integers(2, size=problem.n))
        assert cost(refine(problem, start, fit, seconds=0.5)) <= cost(start)
        assert refine(problem, start, fit, seconds=0.0) == start
