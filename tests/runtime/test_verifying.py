"""Outputs are compared in such a way that the comparison can fail."""

from __future__ import annotations

import numpy as np
import pytest

from loadmaster.errors import (
    WrongOutputError,
)
from loadmaster.runtime._verifying import check, difference


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
