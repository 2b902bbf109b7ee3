"""The examples in docstrings give what they say."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
EXAMPLES = [
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
    for path in sorted(SOURCE.rglob("*.py"))
    if re.search(r"^ *>>> (?!#)", path.read_text(encoding="utf-8"), re.MULTILINE)
]


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_of_a_module_hold(name: str) -> None:
    found = doctest.testmod(importlib.import_module(name))
    assert found.attempted
    assert not found.failed
