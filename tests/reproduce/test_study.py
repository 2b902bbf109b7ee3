import json
import sys
from types import ModuleType

import pytest

from loadmaster.errors import InputError
from loadmaster.reproduce import Case, Scope, reproduce
from loadmaster.reproduce._page import Page, number
from loadmaster.reproduce._rows import Rows


@pytest.fixture
def study(monkeypatch):
    """Three cases whose runs are counted; the one named in ``stop_at`` is interrupted."""
    module = ModuleType("loadmaster.reproduce.exact")
    module.TITLE = "A study"
    module.ran = []
    module.stop_at = None

    def run(name):
        if name == module.stop_at:
            raise KeyboardInterrupt
        module.ran.append(name)
        return {"cost": len(module.ran)}

    def write(page, scope, rows):
        page.table(("case", "cost"), [(row["case"], row["cost"]) for row in rows])
        page.bars("costs", [row["case"] for row in rows], {"ours": [row["cost"] for row in rows]}, "cost")

    module.cases = lambda scope: [Case({"case": name}, lambda name=name: run(name)) for name in "abc"]
    module.write = write
    monkeypatch.setitem(sys.modules, "loadmaster.reproduce.exact", module)
    return module


def test_a_page_has_the_rows_the_plot_and_where_it_comes_from(study, tmp_path):
    outcome = reproduce("exact", out=tmp_path, command="loadmaster reproduce exact --seeds 3")
    text = outcome.page.read_text()
    assert (outcome.done, outcome.cases) == (3, 3)
    assert "| b | 2 |" in text
    assert "`loadmaster reproduce exact --seeds 3`" in text
    assert "Partial" not in text
    assert "![cost](exact-costs.svg)" in text
    assert (tmp_path / "exact-costs.svg").read_text().startswith("<?xml")


def test_finished_cases_are_not_run_again(study, tmp_path):
    study.stop_at = "c"
    stopped = reproduce("exact", out=tmp_path)
    assert (stopped.done, stopped.cases) == (2, 3)
    assert "Partial: 2 of 3 cases" in stopped.page.read_text()
    study.stop_at = None
    assert reproduce("exact", out=tmp_path).done == 3
    assert study.ran == ["a", "b", "c"]
    reproduce("exact", out=tmp_path, fresh=True)
    assert study.ran == ["a", "b", "c", "a", "b", "c"]


def test_a_quick_run_is_kept_apart(study, tmp_path):
    reproduce("exact", Scope(quick=True), out=tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "exact-quick-costs.svg",
        "exact-quick.jsonl",
        "exact-quick.md",
    ]


def test_an_unknown_study_is_named(tmp_path):
    with pytest.raises(InputError, match="'placeto': give one of hsdag, gdp, exact"):
        reproduce("placeto", out=tmp_path)


def test_a_line_that_a_kill_left_torn_is_dropped(tmp_path):
    file = tmp_path / "rows.jsonl"
    Rows(file).add({"case": "a"}, {"cost": 1.5})
    with file.open("a") as out:
        out.write('{"key": {"case": "b"}, "wh')
    rows = Rows(file)
    assert rows.get({"case": "b"}) is None
    rows.add({"case": "b"}, {"cost": 2.5})
    assert Rows(file).get({"case": "a"})["cost"] == 1.5
    assert Rows(file).get({"case": "b"})["cost"] == 2.5


def test_a_file_of_something_else_is_refused(tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps([1, 2]) + "\n")
    with pytest.raises(InputError, match=r"rows.jsonl:1: is not a row"):
        Rows(file)


@pytest.mark.parametrize(
    ("value", "text"), [(None, "-"), (True, "yes"), (1.23456, "1.235"), (123456.7, "123,457"), (7, "7")]
)
def test_numbers_are_written_with_four_digits(value, text):
    assert number(value) == text


def test_a_bar_may_be_missing(tmp_path):
    page = Page("T")
    page.bars("b", ["x", "y"], {"one": [1.0, None], "two": [None, 2.0]}, "time", line=1.0, log=True)
    assert "![time](t-b.svg)" in page.save(tmp_path, "t").read_text()


def test_a_part_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(InputError, match="--only 'nothing' leaves nothing of 'hsdag' to run"):
        reproduce("hsdag", Scope(options={"only": "nothing"}), out=tmp_path)
