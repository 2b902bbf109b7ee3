"""Commands that show and explain plans: ``report``, ``explain``, ``diff``, ``trace``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loadmaster.cli._options import Json, PlanFile, read_seconds
from loadmaster.errors import InputError

if TYPE_CHECKING:
    from loadmaster.problem import Problem, Solution

__all__ = ["register", "write_report"]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for command in (report, explain, diff, trace):
        app.command()(command)


def write_report(
    path: str,
    problem: Problem,
    solutions: Sequence[Solution],
    *,
    failures: Mapping[str, str] | None = None,
    measured: Mapping[str, Any] | None = None,
) -> None:
    """Write the HTML report of the cheapest solution, and say where it is."""
    from loadmaster.files import write_atomically
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
    from loadmaster.files import check_writable
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


def explain(
    plan: PlanFile,
    op: Annotated[
        str | None, typer.Argument(metavar="[OP]", help="One op, by name.", show_default=False)
    ] = None,
    again: Annotated[
        str | None,
        typer.Option("--re-place", metavar="TIME", help="Search again for every what-if, for so long each."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Explain a plan: bottleneck, critical path, cuts, waits, what-ifs; or why one op is where it is."""
    from loadmaster.plan import Plan
    from loadmaster.report import _explain
    from loadmaster.report._documents import to_json
    from loadmaster.report._tables import show

    seconds = read_seconds(again, "--re-place")
    loaded = Plan.load(plan)
    problem, solution = loaded.problem(), loaded.solution()
    if op is not None:
        if op not in problem.graph.index:
            raise InputError(f"{plan}: there is no op {op!r}{_similar(op, problem.graph.names)}")
        document = _explain.op_document(problem, solution, problem.graph.index[op])
        tables = _explain.op_tables(document)
    else:
        search = None if seconds is None else _search_again(solution, seconds)
        document = _explain.explain_document(problem, solution, again=search)
        tables = _explain.explain_tables(document)
    if as_json:
        typer.echo(to_json(document))
    else:
        show(tables)


def _search_again(solution: Solution, seconds: float) -> Callable[[Problem], float]:
    """Finds the cost of a fresh placement by the plan's method, or by the default one where that is not possible."""
    from loadmaster import api
    from loadmaster.errors import InputError, LoadmasterError
    from loadmaster.placers import get_placer

    def cost(problem: Problem) -> float:
        try:
            able = get_placer(solution.method).supports(problem) is None
        except InputError:
            able = False
        method = solution.method if able else api.DEFAULT_METHOD
        try:
            return api.place(problem, method, budget=seconds, seed=solution.seed).cost
        except LoadmasterError:
            return float("inf")

    return cost


def _similar(op: str, names: Sequence[str]) -> str:
    import difflib

    close = difflib.get_close_matches(op, names, 3)
    return f": did you mean {', '.join(map(repr, close))}?" if close else ""


def diff(
    first: Annotated[str, typer.Argument(metavar="A", help="A plan.", show_default=False)],
    second: Annotated[str, typer.Argument(metavar="B", help="Another plan.", show_default=False)],
    as_json: Json = False,
) -> None:
    """Show what differs between two plans: cost, loads, and the ops that moved."""
    from loadmaster.plan import Plan
    from loadmaster.report._diff import diff_document, diff_tables
    from loadmaster.report._documents import to_json
    from loadmaster.report._tables import show

    document = diff_document(Plan.load(first), Plan.load(second))
    if as_json:
        typer.echo(to_json(document))
    else:
        show(diff_tables(document))


def trace(
    plan: PlanFile,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="JSON", help="Write the trace to this file.")
    ] = "trace.json",
) -> None:
    """Write the schedule as a trace for Perfetto or chrome://tracing."""
    import json

    from loadmaster.files import write_atomically
    from loadmaster.plan import Plan
    from loadmaster.report.trace import trace_document

    loaded = Plan.load(plan)
    document = trace_document(loaded.problem(), loaded.placement(), measured=loaded.document.get("measured"))
    write_atomically(output, json.dumps(document, allow_nan=False).encode())
    typer.echo(f"loadmaster: the trace is in {output}: open it at ui.perfetto.dev", err=True)
