"""The line on the terminal says where a search stands."""

from __future__ import annotations

import math

from loadmaster.placers import Progress
from loadmaster.report import describe_search


def test_progress_shows_incumbent_bound_and_gap():
    assert describe_search(None) == "compiling kernels (first run only) …"
    assert describe_search(Progress("heft", 2.0, 0, math.inf, 1.0)) == "compiling kernels (first run only) …"
    assert "no feasible placement yet" in describe_search(Progress("heft", 2.0, 5, math.inf, 1.0))
    line = describe_search(Progress("heft", 3.14, 1234, 0.004, 0.003))
    assert line == "heft  3.10 s  1,234 evaluations  cost 4.00 ms  bound 3.00 ms  gap 25.00 %"
