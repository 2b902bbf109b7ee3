"""What a study is: cases, each a row once it has run, and a page made of the rows."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loadmaster import api
from loadmaster.errors import InputError, LoadmasterError
from loadmaster.studies.harness.page import Page
from loadmaster.studies.harness.rows import Rows

__all__ = ["Case", "Outcome", "Row", "Scope", "Study", "run_cases"]

Row = dict[str, Any]
"""What a case was (its key) and what came out of it: plain JSON values."""

SHARED = Path("../shared/workloads")
"""Where the published workloads are beside a checkout (see CONTRIBUTING)."""

OnCase = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Scope:
    """How much is run."""

    quick: bool = False
    seeds: int = 3
    workloads: Path | None = None
    """The folder of published workloads, for the studies that need it."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Settings of one study, e.g. ``{"only": "bert"}``."""

    def __getitem__(self, option: str) -> Any:
        """An option that the study has declared."""
        return self.options[option]

    @property
    def only(self) -> str:
        """A part of the names of what is asked for; empty for everything."""
        return str(self.options.get("only", ""))


@dataclass(frozen=True)
class Case:
    """One thing to run. Its key holds every setting that its result depends on."""

    key: Mapping[str, Any]
    run: Callable[[], Mapping[str, Any]]
    """It may run in another process, on another machine."""
    here: bool = False
    """It measures this machine, and must not run elsewhere or beside others."""
    finish: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    """Makes the row of what came out, in the process that owns the files."""

    @property
    def title(self) -> str:
        """What is shown while it runs."""
        return " ".join(str(value) for value in self.key.values() if value not in (None, "", {}))


@dataclass(frozen=True)
class Outcome:
    """What a run leaves behind."""

    page: Path
    data: Path
    done: int
    cases: int
    rows: Sequence[Row]


def write_tables(page: Page, scope: Scope, rows: Sequence[Row]) -> None:
    """The page of a study that says nothing about it: a table for each ``part``, a column for each value."""
    for part in dict.fromkeys(row.get("part") for row in rows):
        chosen = [row for row in rows if row.get("part") == part]
        columns = [key for key in dict.fromkeys(key for row in chosen for key in row)]
        columns = [key for key in columns if key not in ("part", "when")]
        if part is not None:
            page.section(str(part))
        page.table(columns, [[row.get(key) for key in columns] for row in chosen])


@dataclass(frozen=True)
class Study:
    """Something to find out: the cases to run, and the page that their rows make.

    Attributes
    ----------
    name : short; names the files of a reproduction.
    title : of the page.
    cases : everything to run within a scope, the cheap and telling first.
    write : fills the page; rows of cases that have not run yet are not there.
    options : adds the study's own options to the parser of :meth:`main`; they end up in ``Scope.options``.
    here : all cases measure this machine, so that there is no ``--on``.
    """

    name: str
    title: str
    cases: Callable[[Scope], Sequence[Case]]
    write: Callable[[Page, Scope, Sequence[Row]], None] = write_tables
    options: Callable[[argparse.ArgumentParser], None] | None = None
    here: bool = False

    def fill(self, page: Page, scope: Scope, rows: Sequence[Row], cases: int) -> Page:
        """Write these rows on a page, which says so if they are not all."""
        if len(rows) < cases:
            page.text(f"**Partial: {len(rows)} of {cases} cases have run.** The same command goes on.")
        self.write(page, scope, rows)
        return page

    def main(self, arguments: Sequence[str] | None = None, *, prog: str = "") -> int:
        """The study as a program: run what is missing, print the page. Returns the exit code."""
        words = list(sys.argv[1:] if arguments is None else arguments)
        prog = prog or f"python -m benchmarks.{self.name}"
        given = vars(self._parser(prog).parse_args(words))
        names = (
            "quick",
            "seeds",
            "workloads",
            "rows",
            "fresh",
            "json",
            "list",
            "kept",
            *(() if self.here else ("on",)),
        )
        common = {name: given.pop(name) for name in names}
        scope = Scope(common["quick"], common["seeds"], common["workloads"], given)
        named = self._by_name() if common.get("on") else None
        if named is not None:
            return named.main(words, prog=prog)
        try:
            cases = self.cases(scope)
            if not cases:
                raise InputError(f"{prog}: the options leave nothing to run")
            if common["list"]:
                print("\n".join(case.title for case in cases))
                return 0
            if common["kept"] and (common["rows"] is None or common["fresh"]):
                raise InputError(f"{prog}: --kept needs --rows FILE, and nothing may discard them")
            kept = Rows(common["rows"], fresh=common["fresh"])
            if common["kept"]:
                cases = [case for case in cases if kept.get(case.key) is not None]
                if not cases:
                    raise InputError(f"{common['rows']}: none of these cases is kept there")
            rows = run_cases(cases, kept, on_case=_say, on=common.get("on"))
        except LoadmasterError as error:
            print(f"{prog}: {error}", file=sys.stderr)
            return 2
        if common["json"]:
            print(json.dumps(rows, indent=2))
        else:
            page = self.fill(Page(self.title, plots=False), scope, rows, len(cases))
            page.origin(shlex.join([*prog.split(), *words]), rows)
            print(page)
        return 0 if len(rows) == len(cases) else 130

    def _by_name(self) -> Study | None:
        """The same study in a module that has a name, which other processes can import, where this is ``__main__``."""
        main = sys.modules["__main__"]
        if main.__spec__ is None or getattr(main, "STUDY", None) is not self:
            return None
        found: Study = importlib.import_module(main.__spec__.name).STUDY
        return found

    def _parser(self, prog: str) -> argparse.ArgumentParser:
        parser = argparse.ArgumentParser(prog=prog, description=self.title)
        if self.options is not None:
            self.options(parser)
        default = os.environ.get("LOADMASTER_WORKLOADS") or (str(SHARED) if SHARED.is_dir() else "")
        parser.add_argument("--quick", action="store_true", help="a smaller run")
        parser.add_argument("--only", default="", metavar="TEXT", help="only cases whose name contains this")
        parser.add_argument("--seeds", type=int, default=3, help="number of random seeds (3)")
        parser.add_argument(
            "--workloads",
            type=Path,
            default=Path(default) if default else None,
            metavar="FOLDER",
            help="the published workloads (default: LOADMASTER_WORKLOADS, or ../shared/workloads)",
        )
        parser.add_argument("--rows", type=Path, metavar="FILE", help="keep finished cases in this file")
        parser.add_argument("--fresh", action="store_true", help="discard the rows of an earlier run")
        parser.add_argument("--list", action="store_true", help="print the cases and run none")
        parser.add_argument("--kept", action="store_true", help="run nothing: the page of the rows in --rows")
        parser.add_argument("--json", action="store_true", help="print the rows as JSON")
        if not self.here:
            parser.add_argument(
                "--on", metavar="HOST:PORT|local", help="run the cases on the cores of a Ray cluster"
            )
        return parser


def run_cases(
    cases: Iterable[Case], kept: Rows, *, on_case: OnCase | None = None, on: str | None = None
) -> list[Row]:
    """Rows of the cases, in their order: those that are kept already, and the others run now.

    After Ctrl-C the rows so far come back; what was cut short is not kept.

    Parameters
    ----------
    on_case : called before each case that has to run, with its number, their number and its title.
    on : a Ray cluster: as many cases at a time as it has cores, each kept when it has ended; those that measure this
        machine run after all others, here.
    """
    cases = list(cases)
    missing = [number for number, case in enumerate(cases) if kept.get(case.key) is None]

    def begin(number: int) -> None:
        if on_case is not None:
            on_case(number + 1, len(cases), cases[number].title)

    def keep(number: int, found: Mapping[str, Any]) -> None:
        case = cases[number]
        kept.add(case.key, found if case.finish is None else case.finish(found))

    try:
        if on is not None:
            away = [number for number in missing if not cases[number].here]
            if not _sent(on, cases, away, begin, keep):
                raise KeyboardInterrupt
        for number in missing:
            if kept.get(cases[number].key) is None:
                begin(number)
                keep(number, cases[number].run())
    except KeyboardInterrupt:
        pass
    return [row for case in cases if (row := kept.get(case.key)) is not None]


def _sent(
    on: str,
    cases: Sequence[Case],
    away: Sequence[int],
    begin: Callable[[int], None],
    keep: Callable[[int, Mapping[str, Any]], None],
) -> bool:
    """Run these cases on a cluster; whether all have ended."""
    if not away:
        return True

    def ended(task: int, result: Any) -> None:
        if isinstance(result, LoadmasterError):
            raise result
        keep(away[task], result)

    with api.machines(on) as by:
        found = by.run_tasks(
            _run,
            [(cases[number].run,) for number in away],
            started=lambda task: begin(away[task]),
            ended=ended,
        )
    return len(found) == len(away)


def _run(run: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
    return run()


def _say(number: int, cases: int, title: str) -> None:
    print(f"{number}/{cases} {title}", file=sys.stderr, flush=True)
