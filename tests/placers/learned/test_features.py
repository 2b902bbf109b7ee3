"""Features of units: the fractal dimension, and parts that can be left out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from learned_problems import path, scored_graphs

from loadmaster import api
from loadmaster.errors import InputError
from loadmaster.placers.learned._features import FEATURES, features_of
from loadmaster.placers.learned._fractal import fractal_dimension
from loadmaster.placers.learned.hsdag import Hsdag
from loadmaster.placers.learned.units import units_of


def test_e_the_dimension_is_one_at_the_end_of_a_path_and_zero_without_neighbours() -> None:
    assert fractal_dimension(50, *path(50))[[0, 49]] == pytest.approx([1.0, 1.0], abs=1e-12)
    assert fractal_dimension(51, *path(50))[50] == 0.0
    assert fractal_dimension(2, *path(2)).tolist() == [0.0, 0.0]  # a single distance has no slope


def test_e_the_dimension_of_a_grid_tends_to_two() -> None:
    def middle(side: int) -> float:
        node = np.arange(side * side, dtype=np.int32).reshape(side, side)
        tail = np.concatenate([node[:-1].ravel(), node[:, :-1].ravel()])
        head = np.concatenate([node[1:].ravel(), node[:, 1:].ravel()])
        # As far as the nearest border, where the ball is still a whole one.
        return float(
            fractal_dimension(side * side, tail, head, ball=side * side // 2)[node[side // 2, side // 2]]
        )

    slopes = [middle(side) for side in (11, 41, 121)]
    assert slopes == sorted(slopes)
    assert 1.85 < slopes[-1] < 2.0


@given(scored_graphs(), st.integers(0, 2**32 - 1))
def test_e_the_dimension_is_the_slope_and_does_not_depend_on_names(graph, seed: int) -> None:  # type: ignore[no-untyped-def]
    n, first, second, _ = graph
    found = fractal_dimension(n, first, second)
    name = np.random.default_rng(seed).permutation(n).astype(np.int32)
    assert fractal_dimension(n, name[second], name[first])[name] == pytest.approx(found)
    link = np.zeros((n, n))
    link[first, second] = link[second, first] = 1
    hops = [np.linalg.matrix_power(link + np.eye(n), r) > 0 for r in range(n + 1)]
    for v in range(n):
        ball = [int(h[v].sum()) - 1 for h in hops]
        r = [k for k in range(1, n + 1) if ball[k] > ball[k - 1]]
        wanted = np.polyfit(np.log(r), np.log([ball[k] for k in r]), 1)[0] if len(r) > 1 else 0.0
        assert found[v] == pytest.approx(wanted, abs=1e-9)


def test_every_feature_can_be_left_out_and_none_is_infinite() -> None:
    problem = api.problem("zoo:bert-base?seq=8", "hsdag", "serial", forbids=["encoder/layer1/.*=gpu"])
    units = units_of(problem, "chain")
    whole = features_of(units, FEATURES)
    assert np.isfinite(whole).all()
    widths = [features_of(units, tuple(p for p in FEATURES if p != part)).shape[1] for part in FEATURES]
    assert sum(whole.shape[1] - width for width in widths) == whole.shape[1] - 1  # and a constant
    with pytest.raises(InputError, match="nonsense"):
        Hsdag(features=("nonsense",))
