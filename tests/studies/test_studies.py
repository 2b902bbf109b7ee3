import importlib
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

import loadmaster.studies.exact
from loadmaster.errors import InputError
from loadmaster.studies import Case, Page, Rows, Scope, Study, number, reproduce

DOCUMENTED = Path(__file__).parents[2] / "docs" / "reproduction"


@pytest.fixture
def study(monkeypatch):
    """Three cases whose runs are counted; the one named in ``stop_at`` is interrupted."""
    found = SimpleNamespace(ran=[], stop_at=None)

    def run(name):
        if name == found.stop_at:
            raise KeyboardInterrupt
        found.ran.append(name)
        return {"cost": len(found.ran)}

    def cases(scope):
        names = [name for name in "abc" if scope.only in name]
        return [Case({"case": name}, lambda name=name: run(name)) for name in names]

    def write(page, scope, rows):
        page.table(("case", "cost"), [(row["case"], row["cost"]) for row in rows])
        page.bars("costs", [row["case"] for row in rows], {"ours": [row["cost"] for row in rows]}, "cost")

    found.study = Study("exact", "A study", cases, write, lambda parser: parser.add_argument("--more"))
    monkeypatch.setattr(loadmaster.studies.exact, "STUDY", found.study)
    return found


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


def test_a_study_is_a_program_that_goes_on(study, tmp_path, capsys):
    file = tmp_path / "rows.jsonl"
    study.stop_at = "b"
    assert study.study.main(["--rows", str(file), "--more", "x"], prog="python -m it") == 130
    assert "Partial: 1 of 3" in capsys.readouterr().out
    study.stop_at = None
    assert study.study.main(["--rows", str(file)], prog="python -m it") == 0
    printed = capsys.readouterr()
    assert "| c | 3 |" in printed.out
    assert f"`python -m it --rows {file}`" in printed.out
    assert "svg" not in printed.out
    assert "Versions: loadmaster" in printed.out
    assert printed.err.splitlines() == ["2/3 b", "3/3 c"]
    assert study.ran == ["a", "b", "c"]
    assert study.study.main(["--rows", str(file), "--json"]) == 0
    assert [row["cost"] for row in json.loads(capsys.readouterr().out)] == [1, 2, 3]


def test_a_program_without_cases_says_so(study, capsys):
    assert study.study.main(["--only", "z"]) == 2
    assert "leave nothing to run" in capsys.readouterr().err


def test_kept_rows_make_a_page_without_running_anything(tmp_path, capsys):
    ran = []
    cases = [Case({"n": n}, lambda n=n: ran.append(n) or {"twice": 2 * n}) for n in (1, 2)]
    rows = str(tmp_path / "rows.jsonl")
    assert Study("t", "T", lambda scope: cases).main(["--rows", rows, "--kept"]) == 2
    assert "none of these cases is kept" in capsys.readouterr().err
    assert Study("t", "T", lambda scope: cases[:1]).main(["--rows", rows]) == 0
    assert Study("t", "T", lambda scope: cases).main(["--rows", rows, "--kept", "--json"]) == 0
    assert ran == [1]
    assert Study("t", "T", lambda scope: cases).main(["--kept"]) == 2


def test_a_study_without_a_page_has_a_table_for_each_part():
    cases = [Case({"part": part, "n": n}, lambda n=n: {"twice": 2 * n}) for part in "ab" for n in (1, 2)]
    page = Page("T")
    study = Study("t", "T", lambda scope: cases)
    study.fill(page, Scope(), [{**case.key, **case.run(), "when": "now"} for case in cases], 4)
    assert "## b\n\n| n | twice |\n|---|---|\n| 1 | 2 |\n| 2 | 4 |" in str(page)


@pytest.mark.parametrize(
    ("name", "stem", "scope"),
    [
        ("hsdag", "hsdag", Scope()),
        ("gdp", "gdp", Scope(seeds=1)),
        ("exact", "exact-quick", Scope(quick=True)),
    ],
)
def test_rows_of_earlier_versions_still_make_their_page(name, stem, scope, tmp_path, request):
    if name == "exact":
        scope = Scope(quick=True, workloads=request.getfixturevalue("workloads"))
    file = tmp_path / f"{stem}.jsonl"
    file.write_bytes((DOCUMENTED / file.name).read_bytes())
    kept = Rows(file)
    study = importlib.import_module(f"loadmaster.studies.{name}").STUDY
    cases = study.cases(scope)
    rows = [row for case in cases if (row := kept.get(case.key)) is not None]
    assert len(rows) == len(cases)
    page = Page(study.title)
    study.fill(page, scope, rows, len(cases))
    assert "Partial" not in str(page)
