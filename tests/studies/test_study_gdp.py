"""The reproduction of GDP, on graphs small enough to run whole."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from loadmaster.studies import Scope, reproduce
from loadmaster.studies.gdp import page as gdp_page
from loadmaster.studies.gdp import study as gdp
from loadmaster.studies.gdp.models import MODELS, QUICK, Model


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    models = (
        Model("Small-A", "layered-24?seed=1", 2, "a", 1.0, 2.0, 1.5),
        Model("Small-B", "layered-30?seed=2", 3, "b", 1.0, 0.5, 1.5),
    )
    for module in (gdp, gdp_page):
        monkeypatch.setattr(module, "MODELS", models)
    monkeypatch.setattr(gdp, "QUICK", ("Small-A", "Small-B"))
    monkeypatch.setattr(gdp, "evaluations_of", lambda model, quick: 40)
    monkeypatch.setattr(gdp, "SECONDS", {False: 0.2, True: 0.2})
    monkeypatch.setattr(gdp, "TRAINING", {False: 40, True: 40})
    monkeypatch.setattr(gdp, "FINE_TUNING", 2)
    monkeypatch.setattr(gdp, "_auto", lambda model, seconds: gdp._placed(model, "local-search", "", 10, 0))


def test_every_part_runs_and_the_page_has_it(small: None, tmp_path: Path) -> None:
    outcome = reproduce("gdp", Scope(quick=True), out=tmp_path)
    assert outcome.done == outcome.cases
    page = outcome.page.read_text()
    assert "All seconds of ours are simulated" in page
    assert "time of the baseline / time of ours" in page
    for title in (
        "Time of a step",
        "Speed-up over experts",
        "Batch training",
        "Ablation",
        "search costs",
        "In short",
    ):
        assert title in page
    assert "| **geometric mean** | 1.000 | 1.500 |" in page  # of 2 and 1/2, and of twice 1.5
    searches = [row for row in outcome.rows if row["part"] == "one"]
    assert {row["method"] for row in searches} == set(gdp.SEARCHES)
    assert all(
        row["evaluations_made"] <= row["evaluations"] and row["cost"] >= row["bound"] for row in searches
    )
    held = [row for row in outcome.rows if row["part"] == "held out"]
    assert [list(row["zero"]) for row in held] == [["Small-A"], ["Small-B"]]
    assert all(r["evaluations_made"] <= 18 for row in held for r in row["zero"].values())
    again = reproduce("gdp", Scope(quick=True), out=tmp_path)
    assert [row["when"] for row in again.rows] == [row["when"] for row in outcome.rows]


def test_a_page_of_few_rows_leaves_the_rest_open(
    small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(model: Model) -> dict[str, object]:
        if model.title == "Small-B":
            raise KeyboardInterrupt
        return rules(model)

    rules = gdp._rules
    monkeypatch.setattr(gdp, "_rules", stop)
    outcome = reproduce("gdp", Scope(quick=True), out=tmp_path)
    assert outcome.done == 1
    page = outcome.page.read_text()
    assert "Partial" in page
    assert "Small-A" in page
    assert "Small-B" not in page


def test_the_published_table_is_that_of_the_paper() -> None:
    assert len(MODELS) == 12
    assert sum(m.gpus for m in MODELS) == 46
    over_hdp = [100 * (m.hdp / m.gdp - 1) for m in MODELS]
    printed = [4, 19.8, 24.9, 27.1, 6.8, 12.7, 7.1, 5.5, 3, 6.1, 11.7, 9.4]
    assert over_hdp == pytest.approx(printed, abs=0.35)
    assert math.isclose(math.prod(m.human / m.gdp for m in MODELS) ** (1 / 12), 1.15, abs_tol=0.01)
    assert {m.title for m in MODELS} > set(QUICK)
