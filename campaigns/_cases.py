"""A problem as a file that a finding is kept in: every bit of it, and what was run on it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from loadmaster.files import Record, read_json
from loadmaster.packed import pack_problem, unpack_problem
from loadmaster.problem import Problem, execution_model

__all__ = ["dump_case", "load_case"]


def dump_case(problem: Problem, **more: Any) -> bytes:
    """The problem packed as in a plan, with ``more`` beside it."""
    document = {
        "model": problem.model.name,
        "settings": problem.model.settings,
        "problem": pack_problem(problem),
        "run": more,
    }
    return json.dumps(document, indent=1).encode()


def load_case(path: Path) -> tuple[Problem, dict[str, Any]]:
    """What :func:`dump_case` has written."""
    document = read_json(path)
    model = execution_model(document["model"], **document["settings"])
    problem = unpack_problem(Record(document["problem"], str(path)), "case", model)
    return problem, document["run"]
