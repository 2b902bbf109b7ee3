"""Expressions of sizes in a ``.pt2`` file: arithmetic is taken, a number that nobody can hold is not."""

import pytest

from loadmaster.graph._program import _is_arithmetic


@pytest.mark.parametrize(
    "text",
    [
        "9**9**9",
        "9**9**9**9",
        "9**(1 + 9**9)",
        "(((9**9)**9)**9)**9",
        "Pow(Integer(9), Pow(Integer(9), Integer(9)))",
        "LShift(Integer(1), Pow(Integer(9), Integer(9)))",
        "9**" * 500 + "9",
        "2**100",
    ],
)
def test_towers_are_refused(text):
    assert not _is_arithmetic(text)


@pytest.mark.parametrize(
    "text",
    [
        "s0**2",
        "2*s0**2 + (s1 + 1)**2",
        "Mul(Integer(2), Pow(Symbol('s0', integer=True), Integer(2)))",
        "s0 + 1",
    ],
)
def test_powers_of_sizes_are_taken(text):
    assert _is_arithmetic(text)
