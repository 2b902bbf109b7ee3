"""The command that makes the papers' tables again: a thin layer over :mod:`loadmaster.studies`."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from loadmaster.cli._options import Json

__all__ = ["reproduce"]


def reproduce(
    name: Annotated[
        str, typer.Argument(metavar="hsdag|gdp|exact", help="Paper to reproduce.", show_default=False)
    ],
    quick: Annotated[bool, typer.Option("--quick", help="A smaller run that takes minutes.")] = False,
    seeds: Annotated[int, typer.Option(help="Number of random seeds.", min=1)] = 3,
    workloads: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="exact: folder of the published workloads; default: $LOADMASTER_WORKLOADS.",
        ),
    ] = None,
    only: Annotated[str, typer.Option(metavar="TEXT", help="Only models whose name contains this.")] = "",
    out: Annotated[
        str, typer.Option(metavar="FOLDER", help="Folder for the page, its plots and its data.")
    ] = "docs/reproduction",
    fresh: Annotated[bool, typer.Option("--fresh", help="Discard the results of an earlier run.")] = False,
    as_json: Json = False,
) -> None:
    """Reproduce the tables of a paper next to the published ones.

    An interrupted run resumes where it stopped.
    """
    from loadmaster.report import to_json
    from loadmaster.studies import Scope, require_plots
    from loadmaster.studies import reproduce as run

    require_plots()
    folder = workloads or os.environ.get("LOADMASTER_WORKLOADS")
    scope = Scope(
        quick=quick,
        seeds=seeds,
        workloads=Path(folder) if folder else None,
        options={"only": only} if only else {},
    )
    words = [word for word in sys.argv[1:] if word not in ("--fresh", "--json")]
    command = shlex.join(["loadmaster", *(words if words[:1] == ["reproduce"] else ["reproduce", name])])

    def say(number: int, cases: int, title: str) -> None:
        typer.echo(f"{number}/{cases} {title}", err=True)

    outcome = run(name, scope, out=out, fresh=fresh, command=command, on_case=say)
    if as_json:
        typer.echo(to_json({"page": str(outcome.page), "cases": outcome.cases, "rows": list(outcome.rows)}))
    else:
        typer.echo(f"{outcome.page}: {outcome.done} of {outcome.cases} cases; rows in {outcome.data}")
    if outcome.done < outcome.cases:
        raise typer.Exit(130)
