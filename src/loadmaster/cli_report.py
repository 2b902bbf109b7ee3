"""Commands that show and explain plans: ``report``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loadmaster.errors import InputError

if TYPE_CHECKING:
    from loadmaster.problem import Problem, Solution

__all__ = ["ReportFile", "register", "write_report"]

PlanFile = Annotated[
    str, typer.Argument(metavar="PLAN", help="A plan that 'place -o' wrote.", show_default=False)
]
ReportFile = Annotated[
    str | None, typer.Option("--report", metavar="HTML", help="Write a report to look at to this file.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command()(report)


def write_report(
    path: str,
    problem: Problem,
    solutions: Sequence[Solution],
    *,
    failures: Mapping[str, str] | None = None,
    measured: Mapping[str, Any] | None = None,
) -> None:
    """Write the HTML report of the cheapest solution, and say where it is."""
    from loadmaster._atomic import write_atomically
    from loadmaster.plan import versions
    from loadmaster.report.html import html_report

    text = html_report(problem, solutions, failures=failures, measured=measured, versions=versions())
    write_atomically(path, text.encode())
    typer.echo(f"loadmaster: the report is in {path}", err=True)


def report(
    plans: Annotated[
        list[str],
        typer.Argument(
            metavar="PLAN...", help="Plans of one problem: the cheapest is shown.", show_default=False
        ),
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="HTML", help="Write the report to this file.")
    ] = "report.html",
) -> None:
    """Show plans in a browser: graph, timeline, placers, memory, in one HTML file."""
    from loadmaster._atomic import check_writable
    from loadmaster.plan import Plan

    check_writable(output)
    loaded = [Plan.load(path) for path in plans]
    problem = loaded[0].problem()
    for path, plan in zip(plans, loaded, strict=True):
        if plan.problem() != problem:
            raise InputError(
                f"{path}: is a plan of another problem than {plans[0]}: give plans of one problem"
            )
    best = min(loaded, key=lambda plan: plan.solution().cost)
    write_report(
        output, problem, [plan.solution() for plan in loaded], measured=best.document.get("measured")
    )
