"""A tolerance in the user's terms: read, judged, and refused where it proves nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadmaster.errors import InputError, WrongOutputError
from loadmaster.runtime import Tolerance
from loadmaster.runtime._tolerance import agreement, judge


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3%", Tolerance(relative=0.03)),
        ("0.03", Tolerance(relative=0.03)),
        ("relative=3 %", Tolerance(relative=0.03)),
        ("cosine=0.999", Tolerance(cosine=0.999)),
        ("top1=99%", Tolerance(top1=0.99)),
        ("1%, cosine=0.99, top1=1", Tolerance(0.01, 0.99, 1.0)),
    ],
)
def test_it_is_written_as_people_write_it(text, expected):
    assert Tolerance.parse(text) == expected
    assert Tolerance.parse(expected.text) == expected


@pytest.mark.parametrize(
    "text", ["", "3", "much", "0", "cosine=2", "sine=0.5", "3%,4%", "nan", "-1%", "1e999"]
)
def test_other_texts_are_refused(text):
    with pytest.raises(InputError, match="--tolerance"):
        Tolerance.parse(text)


@given(
    st.floats(0.001, 0.9),
    st.one_of(st.none(), st.floats(0.1, 0.999)),
    st.one_of(st.none(), st.floats(0.1, 1)),
)
def test_its_text_reads_back(relative, cosine, top1):
    tolerance = Tolerance(relative, cosine, top1)
    again = Tolerance.parse(tolerance.text)
    assert again.relative == pytest.approx(relative)
    assert (again.cosine, again.top1) == (cosine, top1)


def runs(*rows):
    return [[np.array([row], np.float32)] for row in rows]


EXACT = runs([1.0, 0.0, 0.2], [0.0, 1.0, 0.2], [0.1, 0.2, 1.0])
OTHERS = EXACT[1:] + EXACT[:1]


def test_agreement_is_the_worst_error_and_cosine_and_the_share_of_equal_answers():
    found = agreement(runs([1.0, 0.0, 0.3], [1.1, 1.0, 0.2], [0.1, 0.2, 1.0]), EXACT)
    assert found.error.relative == pytest.approx(1.1)
    assert found.top1 == pytest.approx(2 / 3)
    one, two = np.array([1.1, 1.0, 0.2]), np.array([0.0, 1.0, 0.2])
    assert found.cosine == pytest.approx(one @ two / np.linalg.norm(one) / np.linalg.norm(two))


def test_each_measure_that_is_stated_must_hold():
    near = runs([1.0, 0.02, 0.2], [0.0, 1.0, 0.21], [0.1, 0.2, 1.01])
    control = agreement(near, OTHERS)
    for text in ("3%", "cosine=0.99", "top1=0.99", "3%,cosine=0.99,top1=0.99"):
        tolerance = Tolerance.parse(text)
        verified = judge(agreement(near, EXACT), control, tolerance, precision="bf16", what="it")
        assert verified.stated == tolerance.text
        assert verified.top1 == 1.0
    for text, name in (("1%", "relative error"), ("cosine=0.9999", "cosine")):
        with pytest.raises(WrongOutputError, match=f"too far from the f32 model: {name}"):
            judge(agreement(near, EXACT), control, Tolerance.parse(text), precision="bf16", what="it")
    wrong = agreement(runs([0.0, 1.0, 0.2], [0.0, 1.0, 0.2], [0.1, 0.2, 1.0]), EXACT)
    with pytest.raises(WrongOutputError, match=r"top1 0\.6667"):
        judge(wrong, control, Tolerance.parse("top1=0.99"), precision="bf16", what="it")


def test_what_another_input_would_pass_too_proves_nothing():
    same = runs([1.0, 0.01], [1.0, 0.02], [1.0, 0.0])
    found, control = agreement(same, same), agreement(same, same[1:] + same[:1])
    for text in ("3%", "cosine=0.9", "top1=0.99"):
        with pytest.raises(WrongOutputError, match="cannot be verified"):
            judge(found, control, Tolerance.parse(text), precision="bf16", what="it")
