"""What a link costs is found again from measured splits."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from loadmaster.runtime._link_costs import fit_link, split_features, splits


@given(st.floats(0, 1e-3), st.floats(0, 1e-8), st.integers(0, 2**31))
def test_a_link_is_found_again(latency, rate, seed):
    generator = np.random.default_rng(seed)
    cuts, size = generator.integers(1, 50, 9).astype(float), generator.uniform(1e3, 1e7, 9)
    computed = generator.uniform(0.05, 0.1, 9)
    measured = computed + cuts * latency + size * rate
    found = fit_link(computed, measured, cuts, size)
    np.testing.assert_allclose(computed + cuts * found[0] + size * found[1], measured, rtol=1e-6)


def test_splits_keep_groups_whole_and_go_from_one_cut_to_many(graph, profile):
    found = splits(graph, profile.groups)
    for split in found:
        assert all(len(set(split[group].tolist())) == 1 for group in profile.groups)
    counts = [split_features(graph, split)[0] for split in found]
    assert min(counts) >= 1
    assert max(counts) > min(counts)
