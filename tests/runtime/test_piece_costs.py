"""What overlapping costs is found again from traces."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from small_networks import problem_of, random_pieces

from loadmaster.graph import GraphBuilder
from loadmaster.hardware import Cluster, Device, Link
from loadmaster.problem import Concurrent, Pipeline, Placement, Problem
from loadmaster.runtime import Piece, cut
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
        features = piece_features(problem, pieces)
        taken = features.seconds * true.slowdown + true.piece + features.moved * true.rate
        traced.append((pieces, dict(enumerate(taken.tolist()))))
    found = fit_overlap(problem, traced, OverlapFit())
    assert found.slowdown == pytest.approx(true.slowdown)
    assert found.piece == pytest.approx(true.piece)
    assert found.rate == pytest.approx(true.rate)
    assert found.median_residual < 1e-6


def test_what_reads_at_a_cut_and_the_pace_of_a_device_are_found_again(model_file):
    """Here multiplications are dear in the layout of a cut, and B takes twice as long for what happens at its ends."""
    problem = problem_of(model_file)
    rng = np.random.default_rng(1)
    problem = replace(problem, time=rng.uniform(1e-4, 1e-3, problem.n)[:, None] * np.array([[1.0, 2.0]]))
    kind = max(
        set(problem.graph.op_types) - {"Constant", "Parameter", "Result"}, key=problem.graph.op_types.count
    )
    true = OverlapFit(1.07, 60e-6, 25e-6, 3e-10, readers={kind: 2e-7})
    traced, paces = [], set()
    for seed in range(8):
        pieces = random_pieces(problem, seed)
        features = piece_features(problem, pieces)
        paces |= {(piece.device, pace) for piece, pace in zip(pieces, features.pace, strict=True)}
        ends = np.array([read.get(kind, 0.0) for read in features.read]) * 2e-7
        assert ends.any()
        taken = 1.07 * features.seconds + features.pace * (60e-6 + 3e-10 * features.moved + ends)
        np.testing.assert_allclose(true.taken(features), taken)
        traced.append((pieces, dict(enumerate(taken.tolist()))))
    assert paces == {("A", 1.0), ("B", 2.0)}
    found = fit_overlap(problem, traced, OverlapFit())
    assert found.readers[kind] == pytest.approx(2e-7)
    assert sum(found.readers.values()) == pytest.approx(2e-7)
    assert found.rate == pytest.approx(true.rate, rel=1e-3)
    dearer = found.applied(problem).size / problem.size
    read_by = {int(t) for t, v in zip(problem.graph.edge_tensor, problem.graph.consumer_op, strict=True)
               if problem.graph.op_types[v] == kind}  # fmt: skip
    assert {t for t in range(len(dearer)) if dearer[t] > 1.001} <= read_by


def test_a_join_passes_on_the_layout_of_what_it_reads():
    """A concatenation of another piece's outputs gives what its readers must change first; one of its own does not."""
    builder = GraphBuilder("join")
    for name, kind in (("a", "Convolution"), ("b", "Convolution"), ("join", "Concat"), ("pool", "AvgPool")):
        builder.op(name, kind)
    for source, reader in (("a", "join"), ("b", "join"), ("join", "pool")):
        builder.tensor(source, bytes=100.0, consumers=[reader])
    link = Link(1e-6, 1e9)
    cluster = Cluster("two", (Device("A", "cpu"), Device("B", "cpu")), ((None, link), (link, None)))
    problem = Problem.make(builder.build(), cluster, Concurrent(), time=np.ones((4, 2)))
    apart = piece_features(problem, [Piece("A", ("a", "b")), Piece("B", ("join", "pool"))])
    assert apart.read == [{}, {"Concat": 200.0, "AvgPool": 100.0}]
    together = piece_features(problem, [Piece("A", ("a", "b", "join")), Piece("B", ("pool",))])
    assert together.read == [{}, {"AvgPool": 100.0}]
    assert piece_features(problem, [Piece("A", ("a", "b", "join", "pool"))]).read == [{}]


def test_times_of_ops_are_corrected_by_what_their_pieces_took(model_file):
    problem = problem_of(model_file)
    pieces = random_pieces(problem, 1, joins=False)
    features = piece_features(problem, pieces)
    fit = OverlapFit(slowdown=1.2)
    expected = fit.slowdown * features.seconds + fit.piece + fit.rate * features.moved
    factor = np.linspace(0.8, 2.0, len(pieces))
    found = corrected(problem, [(pieces, dict(enumerate(factor * expected)))], fit)
    for number, piece in enumerate(pieces):
        ops = [problem.graph.index[op] for op in piece.ops]
        np.testing.assert_allclose(found.time[ops], problem.time[ops] * min(factor[number], 1.5))
