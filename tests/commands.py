"""Commands as tests give them: what they print, and what they say when something is wrong."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from loadmaster.cli import app


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def strict_json(text):
    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def result(*arguments):
    """The JSON that a command prints."""
    outcome = run(*arguments, "--json")
    assert outcome.exit_code == 0, outcome.output
    return strict_json(outcome.stdout)


def error(*arguments, code=2):
    """The one sentence that a command prints when it fails."""
    outcome = run(*arguments)
    assert outcome.exit_code == code, outcome.output
    assert outcome.stdout == ""
    lines = outcome.stderr.splitlines()
    assert len(lines) == 1, outcome.stderr
    assert lines[0].startswith("loadmaster: error: ")
    return lines[0]


def write(path, data):
    path.write_text(json.dumps(data))
    return path
