"""Outputs are compared in such a way that the comparison can fail."""

from __future__ import annotations

import json

import numpy as np
import pytest

from loadmaster.errors import (
    WrongOutputError,
)
from loadmaster.runtime._host import ModelHost
from loadmaster.runtime._verifying import check, difference, nudged


def test_an_output_that_does_not_follow_the_input_cannot_be_verified():
    same = difference([np.ones(4)], [np.ones(4)])
    with pytest.raises(WrongOutputError, match="cannot be verified"):
        check(same, difference([np.ones(4)], [np.ones(4) + 1e-5]), "f32", rounding=0.0, what="it")


def test_lower_precision_is_given_what_it_costs_itself():
    error = difference([np.ones(4) * 1.01], [np.ones(4)])
    control = difference([np.ones(4) * 3], [np.ones(4)])
    with pytest.raises(WrongOutputError):
        check(error, control, "f32", rounding=0.0, what="it")
    assert check(error, control, "bf16", rounding=0.008, what="it").tolerance == pytest.approx(0.016)


def test_not_finite_on_one_side_is_infinitely_wrong():
    assert difference([np.array([np.nan, 1])], [np.array([1.0, 1])]).relative == np.inf
    assert difference([np.array([np.inf, 1])], [np.array([np.inf, 1])]).relative == 0


def test_a_model_that_amplifies_rounding_is_given_what_rounding_changes():
    error = difference([np.ones(4) * 1.0008], [np.ones(4)])
    control = difference([np.ones(3)], [np.ones(4)])
    with pytest.raises(WrongOutputError, match="wrong results"):
        check(error, control, "f32", rounding=1e-6, what="it")
    found = check(error, control, "f32", rounding=2e-3, what="it")
    assert found.tolerance == pytest.approx(4e-3)
    with pytest.raises(WrongOutputError, match=r"more than the tolerance 0\.01"):
        check(difference([np.ones(4) * 1.02], [np.ones(4)]), control, "f32", rounding=np.inf, what="it")
    # Another input gives another shape: no number, and none that JSON does not have.
    assert json.loads(json.dumps(found.document(), allow_nan=False))["control"] is None


class Squaring(ModelHost):
    """Amplifies what two inputs differ by, a thousand times."""

    def open(self, path, shapes, devices):
        return {}

    def executor(self, how, options):
        return None

    def inputs(self, seed):
        return [np.full(4, 1.5, np.float32), np.arange(4)]

    def run(self, key, inputs):
        return [inputs[0].astype(np.float64) ** 1024 / 1.5**1024]


def test_rounding_is_seen_by_nudging_the_inputs():
    assert 1e-4 < Squaring().amplified("it", 1).relative < 0.1
    moved, same = nudged(Squaring().inputs(0), 0)
    assert moved.dtype == np.float32
    assert 0 < np.abs(moved - 1.5).max() < 1e-5
    assert same.tolist() == [0, 1, 2, 3]
