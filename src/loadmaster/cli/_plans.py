"""Commands about plans: ``export``, ``report``, ``explain``, ``diff``, ``trace``, ``lint``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loadmaster.cli._options import Json, PlanFile, Shapes, Values, read_seconds
from loadmaster.cli._output import print_result, say
from loadmaster.errors import InputError, LoadmasterError

if TYPE_CHECKING:
    from loadmaster import Problem, Solution

__all__ = ["diff", "explain", "export", "lint", "report", "trace", "write_report"]


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
    from loadmaster.report import html_report

    text = html_report(problem, solutions, failures=failures, measured=measured, versions=versions())
    write_atomically(path, text.encode())
    say(f"report written to {path}")


def export(
    plan: PlanFile,
    format: Annotated[
        str,
        typer.Option(
            "--format",
            "-f",
            metavar="openvino|onnxruntime|device-map|huggingface|split-points|torchtitan|deepspeed|dot",
            help="Output format.",
        ),
    ] = "openvino",
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "--onnx",
            metavar="FILE",
            help="The model: copied to --output with the plan in it (openvino: as .xml; onnxruntime), "
            "or asked for its modules.",
        ),
    ] = None,
    shape: Shapes = None,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write to this file instead of standard output."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Export a plan to OpenVINO, ONNX Runtime, PyTorch, Hugging Face, torchtitan, DeepSpeed or Graphviz."""
    from loadmaster import api
    from loadmaster.files import write_atomically
    from loadmaster.plan import Plan
    from loadmaster.report import to_json

    loaded = Plan.load(plan)
    if model is not None and format in ("onnxruntime", "openvino"):
        if output is None:
            raise InputError(f"--model with --format {format} needs an --output to write the model to")
        if format == "onnxruntime":
            found = api.annotate_onnx(loaded, model, output)
            text = f"annotated {found:,} nodes in {output}"
        else:
            found = api.write_openvino(loaded, model, output, shape or ())
            text = f"the model is in {output}, the devices of its {found:,} nodes are in the .json beside it"
        if as_json:
            typer.echo(to_json({"format": format, "output": output, "annotated": found}))
        else:
            say(text)
        return
    text = api.export(loaded, format, model)
    if format == "split-points":
        _say_moved(text)
    if output is not None:
        write_atomically(output, text.encode())
    if as_json:
        written = {"output": output} if output is not None else {"text": text}
        typer.echo(to_json({"format": format, **written}))
    elif output is None:
        typer.echo(text, nl=False)


def _say_moved(split: str) -> None:
    """Stages that do not end with modules are split elsewhere than planned: never quietly."""
    import json

    from loadmaster.units import percent, seconds_text

    document = json.loads(split)
    moved, cost = document["moved"], document["cost"]
    if moved["ops"]:
        say(
            f"torch splits between modules alone: {moved['ops']:,} ops, {percent(moved['time'])} of the time, change "
            f"their stage, and {seconds_text(cost['placed'])} become {seconds_text(cost['split'])}"
        )


def report(
    plans: Annotated[
        list[str],
        typer.Argument(
            metavar="PLAN...",
            help="Plans for the same problem; the one with the lowest cost is shown.",
            show_default=False,
        ),
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="HTML", help="Write the report to this file.")
    ] = "report.html",
    as_json: Json = False,
) -> None:
    """Write an HTML report: graph, timeline, memory and placers."""
    from loadmaster.files import check_writable
    from loadmaster.plan import Plan

    check_writable(output)
    loaded = [Plan.load(path) for path in plans]
    problem = loaded[0].problem()
    for path, plan in zip(plans, loaded, strict=True):
        if plan.problem() != problem:
            raise InputError(
                f"{path}: is a plan for a different problem than {plans[0]}: give plans for the same problem"
            )
    best = min(loaded, key=lambda plan: plan.solution().cost)
    write_report(
        output, problem, [plan.solution() for plan in loaded], measured=best.document.get("measured")
    )
    if as_json:
        from loadmaster.report import to_json

        typer.echo(to_json({"output": output, "plan": best.source}))


def explain(
    plan: PlanFile,
    op: Annotated[
        str | None, typer.Argument(metavar="OP", help="Explain only this op.", show_default=False)
    ] = None,
    again: Annotated[
        str | None,
        typer.Option("--re-place", metavar="TIME", help="Search again for every what-if, this long each."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Explain a plan, or why an op is on its device.

    Shows the bottleneck, the critical path, the most expensive transfers, idle time and what-ifs.
    """
    from loadmaster import report
    from loadmaster.plan import Plan

    seconds = read_seconds(again, "--re-place")
    loaded = Plan.load(plan)
    problem, solution = loaded.problem(), loaded.solution()
    if op is not None:
        if op not in problem.graph.index:
            raise InputError(f"{plan}: there is no op {op!r}{_similar(op, problem.graph.names)}")
        one = report.op_document(problem, solution, problem.graph.index[op])
        print_result(one, as_json, lambda: report.op_tables(one))
        return
    search = None if seconds is None else _search_again(solution, seconds)
    document = report.explain_document(problem, solution, again=search)
    print_result(document, as_json, lambda: report.explain_tables(document))


def _search_again(solution: Solution, seconds: float) -> Callable[[Problem], float]:
    """Finds the cost of a fresh placement by the plan's method, or by the default one where that is not possible."""
    from loadmaster import api

    def cost(problem: Problem) -> float:
        able = solution.method in api.methods_for(problem)
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
    first: Annotated[str, typer.Argument(metavar="A", help="Plan file.", show_default=False)],
    second: Annotated[
        str, typer.Argument(metavar="B", help="Plan file to compare it with.", show_default=False)
    ],
    as_json: Json = False,
) -> None:
    """Compare two plans: cost, load per device, ops that moved."""
    from loadmaster import report
    from loadmaster.plan import Plan

    document = report.diff_document(Plan.load(first), Plan.load(second))
    print_result(document, as_json, lambda: report.diff_tables(document))


def trace(
    plan: PlanFile,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="JSON", help="Write the trace to this file.")
    ] = "trace.json",
    as_json: Json = False,
) -> None:
    """Write the schedule as a trace for Perfetto or chrome://tracing."""
    import json

    from loadmaster.files import write_atomically
    from loadmaster.plan import Plan
    from loadmaster.report import to_json, trace_document

    loaded = Plan.load(plan)
    document = trace_document(loaded.problem(), loaded.placement(), measured=loaded.document.get("measured"))
    write_atomically(output, json.dumps(document, allow_nan=False).encode())
    say(f"trace written to {output}: open it at ui.perfetto.dev")
    if as_json:
        typer.echo(to_json({"output": output, "events": len(document["traceEvents"])}))


def lint(
    plan: Annotated[str, typer.Argument(metavar="PLAN", help="Plan file.", show_default=False)],
    model: Annotated[
        str | None, typer.Option("--model", metavar="MODEL", help="Model to check the plan against.")
    ] = None,
    shape: Shapes = None,
    value: Values = None,
    as_json: Json = False,
) -> None:
    """Check a plan for errors and likely mistakes.

    The exit code is 1 if the plan must not be run.
    """
    from loadmaster import api
    from loadmaster.plan import Plan
    from loadmaster.report import to_json

    findings = api.lint(Plan.load(plan), model, shape or (), values=value or ())
    if as_json:
        typer.echo(to_json([finding.document() for finding in findings]))
    else:
        for finding in findings:
            typer.echo(f"{finding.level}: {finding.text} [{finding.rule}]")
        if not findings:
            typer.echo("no problems found")
    if any(finding.level == "error" for finding in findings):
        raise typer.Exit(1)
