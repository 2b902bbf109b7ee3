"""The commands that make the papers' tables again and plot rows: a thin layer over :mod:`loadmaster.studies`."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from loadmaster.cli._options import Json, On

__all__ = ["plot", "reproduce"]


def reproduce(
    name: Annotated[
        str, typer.Argument(metavar="hsdag|gdp|exact", help="Paper to reproduce.", show_default=False)
    ],
    quick: Annotated[bool, typer.Option("--quick", help="A smaller run that takes minutes.")] = False,
    seeds: Annotated[int, typer.Option(help="Number of random seeds.", min=1, max=1000)] = 3,
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
    on: On = None,
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

    outcome = run(name, scope, out=out, fresh=fresh, command=command, on_case=say, on=on)
    if as_json:
        typer.echo(to_json({"page": str(outcome.page), "cases": outcome.cases, "rows": list(outcome.rows)}))
    else:
        typer.echo(f"{outcome.page}: {outcome.done} of {outcome.cases} cases; rows in {outcome.data}")
    if outcome.done < outcome.cases:
        raise typer.Exit(130)


def plot(
    rows: Annotated[
        list[str], typer.Argument(metavar="ROWS...", help="Files of rows of a study.", show_default=False)
    ],
    out: Annotated[
        str, typer.Option("--out", "-o", metavar="FILE", help="Plot to write: .svg, .png or .pdf.")
    ] = "regret.svg",
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="NAME=VALUE", help="Only rows with this value, e.g. model=serial."),
    ] = None,
    methods: Annotated[
        str, typer.Option("--methods", metavar="NAMES", help="Curves to draw, by commas; default: all.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Plot regret over evaluations, with intervals, from result rows.

    Rows are of 'python -m benchmarks.metal_gap --rows FILE', or of any study whose rows have a method, the best cost
    and the cost after so many evaluations. Intervals are two standard errors over graphs: runs of one graph that differ
    in seed or kind count as one.
    """
    from loadmaster.errors import InputError
    from loadmaster.files import write_atomically
    from loadmaster.report import to_json
    from loadmaster.studies import draw_curves, read_regrets, regret_curves, require_plots

    kind = Path(out).suffix[1:].lower()
    if kind not in ("svg", "png", "pdf"):
        raise InputError(f"--out {out}: a plot ends in .svg, .png or .pdf")
    require_plots()
    runs = read_regrets(rows)
    for text in only or ():
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"--only {text}: give NAME=VALUE")
        runs = [run for run in runs if str(run.get(name)) == value]
        if not runs:
            raise InputError(f"--only {text}: no row is left")
    curves = regret_curves(runs)
    if methods:
        wanted = methods.split(",")
        for name in wanted:
            if name not in curves:
                raise InputError(f"--methods {name}: no row is of it; there are {', '.join(curves)}")
        curves = {name: curves[name] for name in wanted}
        runs = [run for run in runs if run["method"] in curves]
    write_atomically(out, draw_curves(curves, kind))
    if as_json:
        document = {
            method: {
                str(at): {"regret": mean, "error": error if count > 1 else None, "runs": count}
                for at, (mean, error, count) in c.items()
            }
            for method, c in curves.items()
        }
        typer.echo(to_json({"plot": out, "curves": document}))
        return
    typer.echo(f"{out}: {len(runs)} runs of {len(curves)} methods; mean regret and two standard errors")
    for method, curve in curves.items():
        cells = ", ".join(
            f"{at}: {100 * m:.2f}{f' ± {100 * e:.2f}' if n > 1 else ''} %" for at, (m, e, n) in curve.items()
        )
        typer.echo(f"  {method}: {cells}")
