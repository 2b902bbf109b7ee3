"""The tables of the papers, made again: a study is run and its page written beside its rows."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path

from loadmaster.errors import InputError
from loadmaster.studies.harness.page import Page
from loadmaster.studies.harness.rows import Rows
from loadmaster.studies.harness.study import Outcome, Scope, Study, run_cases

__all__ = ["STUDIES", "reproduce"]

STUDIES = ("hsdag", "gdp", "exact")
"""The folders of this package that hold a ``STUDY``."""

NOTE = "rows of finished cases are kept beside this page"


def reproduce(
    name: str,
    scope: Scope | None = None,
    *,
    out: str | Path = "docs/reproduction",
    fresh: bool = False,
    command: str = "",
    on_case: Callable[[int, int, str], None] | None = None,
    on: str | None = None,
) -> Outcome:
    """Run what is missing of a study and write its page.

    Rows are kept in ``OUT/NAME.jsonl`` as they come, so that a run that was killed goes on where it was;
    ``fresh`` begins again. After Ctrl-C the page is written from the rows so far and says that it is partial.

    Parameters
    ----------
    on_case : called before each case that has to run, with its number, their number and its title.
    on : a Ray cluster on whose cores cases run, except those that measure this machine.

    Raises
    ------
    InputError : there is no such study, or nothing of it is asked for.
    """
    if name not in STUDIES:
        raise InputError(f"there is nothing to reproduce for '{name}': give one of {', '.join(STUDIES)}")
    scope = scope or Scope()
    study: Study = importlib.import_module(f"loadmaster.studies.{name}").STUDY
    stem = f"{name}-quick" if scope.quick else name
    folder = Path(out)
    cases = study.cases(scope)
    if not cases:
        raise InputError(f"--only {scope.only!r} leaves nothing of '{name}' to run")
    kept = Rows(folder / f"{stem}.jsonl", fresh=fresh)
    rows = run_cases(cases, kept, on_case=on_case, on=on)
    page = study.fill(Page(study.title), scope, rows, len(cases))
    page.origin(command or f"loadmaster reproduce {name}", rows, NOTE)
    return Outcome(page.save(folder, stem), folder / f"{stem}.jsonl", len(rows), len(cases), rows)
