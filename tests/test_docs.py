"""The documentation: the commands of tutorial and how-to run, and print what the pages say."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from loadmaster.cli import app

DOCS = Path(__file__).parents[1] / "docs"
PAGES = [DOCS / "tutorial.md", *sorted((DOCS / "how-to").glob("*.md")), DOCS / "serial.md"]
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```', re.M | re.S)


def matches(shown, printed):
    """Every line of a page is printed, in that order; … stands for anything, and spaces at the ends do not count."""
    rest = [line.strip() for line in printed.splitlines()]
    for line in shown.splitlines():
        if line.strip() in ("", "…"):
            continue
        pattern = r"\s+".join(".*".join(map(re.escape, word.split("…"))) for word in line.split())
        while rest and not re.fullmatch(pattern, rest[0]):
            rest.pop(0)
        assert rest, f"not printed: {line!r}\n\nprinted:\n{printed}"
        rest.pop(0)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_of_a_page_run_and_print_what_it_says(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    printed, commands = "", 0
    for language, title, body in BLOCK.findall(page.read_text(encoding="utf-8")):
        if title:
            Path(title).write_text(body, encoding="utf-8")
            sys.modules.pop(Path(title).stem, None)  # of a page of another test
        elif language == "sh":
            printed = ""
            for line in body.splitlines():
                words = shlex.split(line, comments=True)
                if words:
                    printed += run(words)
                    commands += 1
        elif language == "text":
            matches(body, printed)
    assert commands


def run(words):
    if words[0] == "python":
        found = subprocess.run([sys.executable, *words[1:]], capture_output=True, text=True, check=False)
        assert found.returncode == 0, found.stderr
        return found.stdout
    if words[0] == "pip":
        return install(Path.cwd())
    assert words[0] == "loadmaster"
    result = CliRunner().invoke(app, words[1:], env={**os.environ, "COLUMNS": "100"})
    assert result.exit_code == 0, result.output
    return result.stdout


def install(folder):
    """What ``pip install -e .`` leaves behind, for a package of one module."""
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    lines = []
    for group, entries in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return ""


def test_every_page_is_in_the_navigation_and_every_picture_is_there():
    config = (DOCS.parent / "mkdocs.yml").read_text(encoding="utf-8")
    for page in DOCS.rglob("*.md"):
        assert page.relative_to(DOCS).as_posix() in config, f"{page} is not in the navigation of mkdocs.yml"
        for picture in re.findall(r"!\[[^]]*\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / picture).is_file(), f"{page}: there is no {picture}"


def test_a_page_that_says_something_else_fails():
    matches("cost    8.25 ms\n…\nmethod …", "x\ncost 8.25 ms  \nbound 7\nmethod heft, seed 0\n")
    with pytest.raises(AssertionError, match="not printed"):
        matches("cost 8.26 ms", "cost 8.25 ms")
