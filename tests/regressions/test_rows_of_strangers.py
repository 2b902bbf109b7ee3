"""Rows from strangers: what ``plot`` and ``bench board`` refuse in a sentence, and what they leave as it is."""

import copy
import json

import pytest
from typer.testing import CliRunner

from campaigns._formats import BOARD, PLOT
from loadmaster.cli import app
from loadmaster.studies import Rows


def changed(base, *path, value):
    document = copy.deepcopy(base)
    inner = document
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return json.dumps(document)


def run(command, text, tmp_path):
    file = tmp_path / "rows.jsonl"
    file.write_text(text)
    return CliRunner().invoke(app, [*command.split(), str(file), "-o", str(tmp_path / "out.svg")])


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("row",), 3),
        (("row", "best"), 0),
        (("row", "best"), "x"),
        (("row", "best"), 1e-300),
        (("row", "best"), 5e-324),
        (("row", "10"), [1]),
        (("row", "10"), 0),
        (("row", "9" * 400), 1.0),
        (("key", "method"), {"a": 1}),
        (("row", "method"), [1]),
        (("when",), 10**400),
    ],
)
def test_a_row_that_cannot_be_plotted(tmp_path, path, value):
    done = run("plot", changed(PLOT, *path, value=value) + "\n", tmp_path)
    assert done.exit_code == 2, done.output
    assert "rows.jsonl:1" in done.stderr
    assert len(done.stderr) < 1000


def test_a_single_run_has_no_interval(tmp_path):
    """``--json`` ended as a bug: the error of one run is not a number."""
    (tmp_path / "rows.jsonl").write_text(json.dumps(PLOT) + "\n")
    words = ["plot", str(tmp_path / "rows.jsonl"), "-o", str(tmp_path / "out.svg"), "--json"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["curves"]["greedy"]["10"] == {"regret": 1.0, "error": None, "runs": 1}


def test_a_superscript_is_no_number_of_evaluations(tmp_path):
    done = run("plot", changed(PLOT, "row", "²", value=1.0) + "\n", tmp_path)
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("method", [r"$\frac$", "x" * 100_000, "\0\x1b[31m\n", "_hidden"])
def test_a_method_of_any_name_is_plotted(tmp_path, method):
    done = run("plot", changed(PLOT, "key", "method", value=method) + "\n", tmp_path)
    assert done.exit_code == 0, done.output
    assert (tmp_path / "out.svg").stat().st_size < 100_000


def test_a_thousand_methods_are_not_plotted(tmp_path):
    lines = [changed(PLOT, "key", "method", value=f"m{i}") for i in range(1_000)]
    done = run("plot", "\n".join(lines) + "\n", tmp_path)
    assert done.exit_code == 2, done.output
    assert "choose by --only" in done.stderr


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("key",), {}),
        (("key", "instance"), [1]),
        (("key", "seed"), "x"),
        (("key", "seconds"), "x"),
        (("row", "cost"), "cheap"),
        (("row", "history"), [[1]]),
        (("row", "history"), [3]),
        (("row", "machine"), {}),
        (("row", "seconds_taken"), "x"),
    ],
)
def test_a_row_that_a_board_cannot_show(tmp_path, path, value):
    done = run("bench board", changed(BOARD, *path, value=value) + "\n", tmp_path)
    assert done.exit_code == 2, done.output
    assert "rows.jsonl:1" in done.stderr


def test_who_reads_rows_does_not_change_the_file(tmp_path):
    """``bench board`` took away a last line without an end, and wrote the file anew for it."""
    text = json.dumps(BOARD) + "\n" + '{"key": {"a'
    assert run("bench board", text, tmp_path).exit_code == 0
    assert (tmp_path / "rows.jsonl").read_text() == text


def test_a_torn_line_is_cut_off_in_place(tmp_path):
    """Written anew, the file was empty for a moment: a kill then would have taken all rows."""
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(BOARD) + "\n" + '{"key": {"a')
    before = file.stat().st_ino
    assert len(Rows(file).all()) == 1
    assert file.read_text() == json.dumps(BOARD) + "\n"
    assert file.stat().st_ino == before
