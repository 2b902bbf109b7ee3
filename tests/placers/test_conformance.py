"""Every placer of the table passes the published suite, without a special case."""

from __future__ import annotations

import pytest

from loadmaster.placers import PLACERS
from loadmaster.testing import PlacerConformance, assert_runs_repeat

# A class for each, one after another: what a placer compiles is compiled by one worker of pytest-xdist. Whether
# runs repeat is asked for several at once below, for a process takes longer to start than to answer.
for _name, _placer in PLACERS.items():
    globals()[f"Test {_name}"] = type(
        f"Test {_name}",
        (PlacerConformance,),
        {"placer": _placer, "test_a_run_repeats_in_another_process": None},
    )

BATCHES = [list(PLACERS)[i::6] for i in range(6)]


@pytest.mark.parametrize("names", BATCHES, ids=[", ".join(names) for names in BATCHES])
def test_runs_repeat_in_another_process(names: list[str]) -> None:
    assert_runs_repeat([PLACERS[name] for name in names])
