"""What overlapping costs is found again from traces."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from small_networks import problem_of, random_pieces

from loadmaster.problem import Pipeline, Placement
from loadmaster.runtime import cut
from loadmaster.runtime._piece_costs import OverlapFit, corrected, fit_overlap, piece_features, predict


def test_a_long_stream_goes_at_the_pace_of_the_busiest_device(model_file):
    problem = problem_of(model_file).with_model(Pipeline())
    device = (problem.graph.position >= problem.n // 2).astype(np.int32)
    pieces = cut(problem, Placement(device))
    fit = OverlapFit(1.0, 0.0, 0.0, 0.0)
    loads = np.bincount([" AB".index(p.device) - 1 for p in pieces], [1e-3 * len(p.ops) for p in pieces])
    assert predict(problem, pieces, fit) == pytest.approx(loads.sum())
    assert predict(problem, pieces, fit, items=10**9) == pytest.approx(loads.max())


def test_costs_of_overlapping_are_found_again_from_traces(model_file):
    problem = problem_of(model_file)
    rng = np.random.default_rng(1)
    problem = replace(problem, time=rng.uniform(1e-4, 1e-3, problem.n)[:, None] * np.ones((1, 2)))
    true = OverlapFit(1.07, 60e-6, 25e-6, 3e-10)
    traced = []
    for seed in range(4):
        pieces = random_pieces(problem, seed)
        seconds, moved, _ = piece_features(problem, pieces)
        taken = seconds * true.slowdown + true.piece + moved * true.rate
        traced.append((pieces, dict(enumerate(taken.tolist()))))
    found = fit_overlap(problem, traced, OverlapFit())
    assert found.slowdown == pytest.approx(true.slowdown)
    assert found.piece == pytest.approx(true.piece)
    assert found.rate == pytest.approx(true.rate)
    assert found.median_residual < 1e-6


def test_times_of_ops_are_corrected_by_what_their_pieces_took(model_file):
    problem = problem_of(model_file)
    pieces = random_pieces(problem, 1, joins=False)
    seconds, moved, _ = piece_features(problem, pieces)
    fit = OverlapFit(slowdown=1.2)
    expected = fit.slowdown * seconds + fit.piece + fit.rate * moved
    factor = np.linspace(0.8, 2.0, len(pieces))
    found = corrected(problem, [(pieces, dict(enumerate(factor * expected)))], fit)
    for number, piece in enumerate(pieces):
        ops = [problem.graph.index[op] for op in piece.ops]
        np.testing.assert_allclose(found.time[ops], problem.time[ops] * min(factor[number], 1.5))
