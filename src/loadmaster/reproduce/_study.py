"""What a reproduction is: cases, each a row once it has run, and a page made of the rows."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast

from loadmaster.errors import InputError
from loadmaster.reproduce._page import Page
from loadmaster.reproduce._rows import Rows

__all__ = ["STUDIES", "Case", "Outcome", "Row", "Scope", "Study", "reproduce"]

STUDIES = ("hsdag", "gdp", "exact")
"""The modules of this package that hold a :class:`Study`."""

Row = dict[str, Any]
"""What a case was (its key) and what came out of it: plain JSON values."""


@dataclass(frozen=True)
class Scope:
    """How much is run."""

    quick: bool = False
    seeds: int = 3
    workloads: Path | None = None
    """The folder of published workloads; only ``exact`` needs it."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Settings of one study, e.g. ``{"only": "bert"}``."""


@dataclass(frozen=True)
class Case:
    """One thing to run. Its key holds every setting that its result depends on."""

    key: Mapping[str, Any]
    run: Callable[[], Mapping[str, Any]]

    @property
    def title(self) -> str:
        """What is shown while it runs."""
        return " ".join(str(value) for value in self.key.values())


class Study(Protocol):
    """One module per system."""

    TITLE: str

    def cases(self, scope: Scope) -> Sequence[Case]:
        """Everything to run, the cheap and telling first."""

    def write(self, page: Page, scope: Scope, rows: Sequence[Row]) -> None:
        """Fill the page; rows of cases that have not run yet are not there."""


@dataclass(frozen=True)
class Outcome:
    """What :func:`reproduce` leaves behind."""

    page: Path
    data: Path
    done: int
    cases: int
    rows: Sequence[Row]


def reproduce(
    name: str,
    scope: Scope | None = None,
    *,
    out: str | Path = "docs/reproduction",
    fresh: bool = False,
    command: str = "",
    on_case: Callable[[int, int, str], None] | None = None,
) -> Outcome:
    """Run what is missing of a study and write its page.

    Rows are kept in ``OUT/NAME.jsonl`` as they come, so that a run that was killed goes on where it was;
    ``fresh`` begins again. After Ctrl-C the page is written from the rows so far and says that it is partial.

    Parameters
    ----------
    on_case : called before each case that has to run, with its number, their number and its title.

    Raises
    ------
    InputError : there is no such study, or nothing of it is asked for.
    """
    if name not in STUDIES:
        raise InputError(f"there is nothing to reproduce for '{name}': give one of {', '.join(STUDIES)}")
    scope = scope or Scope()
    study = cast(Study, importlib.import_module(f"loadmaster.reproduce.{name}"))
    stem = f"{name}-quick" if scope.quick else name
    folder = Path(out)
    cases = study.cases(scope)
    if not cases:
        raise InputError(f"--only {scope.options.get('only', '')!r} leaves nothing of '{name}' to run")
    kept = Rows(folder / f"{stem}.jsonl", fresh=fresh)
    rows: list[Row] = []
    try:
        for number, case in enumerate(cases, 1):
            row = kept.get(case.key)
            if row is None:
                if on_case is not None:
                    on_case(number, len(cases), case.title)
                row = kept.add(case.key, case.run())
            rows.append(row)
    except KeyboardInterrupt:
        rows = [row for case in cases if (row := kept.get(case.key)) is not None]
    page = Page(study.TITLE)
    if len(rows) < len(cases):
        page.text(f"**Partial: {len(rows)} of {len(cases)} cases have run.** The same command goes on.")
    study.write(page, scope, rows)
    page.origin(command or f"loadmaster reproduce {name}", rows)
    return Outcome(page.save(folder, stem), kept.path, len(rows), len(cases), rows)
