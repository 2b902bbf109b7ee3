"""Graph parsing: from edges to groups, chosen by scores or drawn; and drawing devices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from learned_problems import scored_graphs
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from loadmaster.placers.learned._parsing import choices_of, dominant_edges, groups_of_edges, sample_groups
from loadmaster.placers.learned._sampling import sample_devices


@given(scored_graphs())
def test_c_groups_are_the_components_of_the_dominant_edges_and_halve_every_component(graph) -> None:  # type: ignore[no-untyped-def]
    n, first, second, score = graph
    keep = dominant_edges(first, second, score)
    best = {}
    for e in np.argsort(score).tolist():  # the last one seen is the best
        best[int(first[e])] = best[int(second[e])] = e
    assert set(np.flatnonzero(keep).tolist()) == set(best.values())
    group = groups_of_edges(n, first[keep], second[keep])
    _, wanted = connected_components(
        coo_array((np.ones(keep.sum()), (first[keep], second[keep])), shape=(n, n))
    )
    assert (
        len(set(zip(group.tolist(), wanted.tolist(), strict=True)))
        == len(set(group.tolist()))
        == wanted.max() + 1
    )
    _, whole = connected_components(coo_array((np.ones(len(first)), (first, second)), shape=(n, n)))
    for component in range(whole.max() + 1):
        nodes = whole == component
        if nodes.sum() > 1:
            assert len(set(group[nodes].tolist())) <= nodes.sum() // 2


@given(scored_graphs(), st.integers(0, 2**32 - 1))
def test_drawn_groups_are_the_components_of_the_drawn_edges(graph, seed: int) -> None:  # type: ignore[no-untyped-def]
    n, first, second, _ = graph
    ptr, edge, other = choices_of(n, first, second)
    rng = np.random.default_rng(seed)
    node = np.repeat(np.arange(n), np.diff(ptr))
    weight = rng.random(len(edge)) * (rng.random(len(edge)) < 0.7)
    weight[ptr[:-1]] += 0.1
    weight /= np.bincount(node, weight, n)[node]
    chosen, group, count = sample_groups(weight, ptr, other, rng.random((3, n)))
    assert (node[chosen] == np.arange(n)).all()
    assert (weight[chosen] > 0).all()
    assert np.unique(group).tolist() == list(range(count))
    for row in range(3):
        _, wanted = connected_components(
            coo_array((np.ones(n), (np.arange(n), other[chosen[row]])), shape=(n, n)), directed=False
        )
        pairs = set(zip(group[row].tolist(), wanted.tolist(), strict=True))
        assert len(pairs) == len(set(group[row].tolist())) == wanted.max() + 1


def test_devices_are_drawn_as_often_as_their_probability_says_and_never_at_zero() -> None:
    q = np.tile([0.0, 0.3, 0.0, 0.7, 0.0], (20_000, 1))
    share = np.bincount(sample_devices(q, np.random.default_rng(0).random(len(q))), minlength=5) / len(q)
    assert share == pytest.approx([0, 0.3, 0, 0.7, 0], abs=0.02)
    assert sample_devices(q[:1], np.array([np.nextafter(1.0, 0.0)])).tolist() == [3]
