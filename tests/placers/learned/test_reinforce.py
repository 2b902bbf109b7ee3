"""REINFORCE: rewards and their baseline."""

from __future__ import annotations

import numpy as np
import pytest

from loadmaster.placers.learned._reinforce import Baseline, rewards


def test_the_baseline_begins_at_the_first_rewards_and_follows_slowly() -> None:
    baseline = Baseline(0.9)
    assert baseline.advantages(np.array([-3.0, -1.0])).tolist() == [-1.0, 1.0]
    assert baseline.value == -2.0
    gain = baseline.advantages(np.array([-1.0, -1.0]))
    assert gain[0] == gain[1] > 0
    assert baseline.value == pytest.approx(-1.9)


def test_a_faster_placement_has_the_larger_reward_and_an_infeasible_one_the_failing_one() -> None:
    value = rewards(np.array([1.0, 4.0, np.inf]), 1.0, 9.0)
    assert value.tolist() == [-1.0, -2.0, -3.0]
