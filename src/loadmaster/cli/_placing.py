"""Commands about a problem: ``inspect``, ``place``, ``evaluate``, ``compare``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from loadmaster.cli._options import (
    Asked,
    Coarsen,
    Evaluations,
    Json,
    On,
    ReportFile,
    Seed,
    Time,
    read_parameters,
    read_seconds,
    takes_problem,
)
from loadmaster.cli._output import print_result, say
from loadmaster.cli._plans import write_report
from loadmaster.errors import InputError, NoPlacementError

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["compare", "evaluate", "inspect", "place"]


@takes_problem
def inspect(
    asked: Asked,
    coarsen: Coarsen = None,
    as_json: Json = False,
) -> None:
    """Show what is in a file: ops, tensors, devices and lower bounds."""
    from dataclasses import replace

    from loadmaster import api, report

    if asked.file.lower().endswith(".pt2") and ":" not in asked.file:
        say(
            f"the ops are as PyTorch exported them; openvino:{asked.file} shows those that place and optimize take"
        )
        asked = replace(asked, file=f"torch:{asked.file}")
    problem = asked.problem()
    document = report.problem_document(problem)
    if coarsen is not None:
        document["coarse"] = report.coarsening_document(api.coarsened(problem, coarsen))
    print_result(document, as_json, lambda: report.problem_tables(document))


@takes_problem
def place(
    asked: Asked,
    method: Annotated[
        str, typer.Option(metavar="NAME", help="Placement method; see 'loadmaster methods'.")
    ] = "auto",
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="Set a parameter of the method.")
    ] = None,
    coarsen: Coarsen = None,
    budget: Time = None,
    evaluations: Evaluations = None,
    seed: Seed = 0,
    on: On = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1, max=10_000, help="Searches at a time with --on; default: one per core of the cluster."
        ),
    ] = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="PLAN", help="Write the plan to this file.")
    ] = None,
    report: ReportFile = None,
    as_json: Json = False,
) -> None:
    """Find a placement and prove how close to optimal it is."""
    seconds, parameters = read_seconds(budget), read_parameters(set_)
    from loadmaster import api
    from loadmaster.files import check_writable
    from loadmaster.plan import Plan, solution_document
    from loadmaster.report import LiveProgress, describe_search

    for path in (output, report):
        if path is not None:
            check_writable(path)
    problem = asked.problem()
    with LiveProgress(describe_search) as progress:
        solution = api.place(
            problem,
            method,
            budget=seconds,
            evaluations=evaluations,
            seed=seed,
            parameters=parameters,
            coarsen=coarsen,
            on_progress=progress,
            on=on,
            workers=workers,
        )
    if solution.stopped == "interrupted":
        say("interrupted: this is the best placement so far")
    lost: InputError | None = None
    if output is not None:
        try:
            Plan.from_solution(problem, solution, shapes=asked.shapes(), values=asked.values).save(output)
        except InputError as error:  # the result is still worth printing
            lost = error
    if report is not None:
        write_report(report, problem, [solution])
    document = solution_document(problem, solution)

    def tables() -> RenderableType:
        from loadmaster.report import evaluation_document, solution_tables

        evaluation = api.evaluate(problem, solution.placement)
        return solution_tables(
            document, evaluation_document(problem, solution.placement, evaluation, whole=False)
        )

    print_result(document, as_json, tables)
    if lost is not None:
        raise lost


@takes_problem
def evaluate(
    asked: Asked,
    placement: Annotated[
        str,
        typer.Option(
            "--placement",
            metavar="P",
            help='Plan file, {"placement": {op: device}}, or a published split.',
            show_default=False,
        ),
    ],
    as_json: Json = False,
) -> None:
    """Evaluate a given placement: cost, load, memory, violations."""
    from loadmaster import api, report

    problem, given = asked.placement(placement)
    document = report.evaluation_document(problem, given, api.evaluate(problem, given))
    print_result(document, as_json, lambda: report.evaluation_tables(document))


@takes_problem
def compare(
    asked: Asked,
    methods: Annotated[
        str | None,
        typer.Option(
            "--methods",
            metavar="A,B,C",
            help="Methods to compare; default: every method that supports the problem.",
        ),
    ] = None,
    coarsen: Coarsen = None,
    budget: Time = None,
    evaluations: Evaluations = None,
    seed: Seed = 0,
    on: On = None,
    report: ReportFile = None,
    as_json: Json = False,
) -> None:
    """Compare methods, each with the same search budget."""
    seconds = read_seconds(budget)
    from loadmaster import api
    from loadmaster.files import check_writable
    from loadmaster.plan import solution_document
    from loadmaster.report import LiveProgress, describe_search, failure_document

    if report is not None:
        check_writable(report)
    problem = asked.problem()
    groups = None if coarsen is None else api.coarsened(problem, coarsen)
    names = (
        api.methods_for(problem if groups is None else groups.coarse)
        if methods is None
        else [name.strip() for name in methods.split(",") if name.strip()]
    )
    with LiveProgress(describe_search) as progress:
        results = api.compare(
            problem,
            names,
            budget=seconds,
            evaluations=evaluations,
            seed=seed,
            coarsen=groups,
            on_progress=progress,
            on=on,
            on_done=lambda count: say(f"{count} of {len(names)} methods have ended"),
        )
    if len(results) < len(names) or getattr(results[-1], "stopped", "") == "interrupted":
        say("interrupted: these are the results so far")
    documents = [
        failure_document(problem, name, result, seed=seed)
        if isinstance(result, NoPlacementError)
        else solution_document(problem, result)
        for name, result in zip(names, results, strict=False)  # fewer results than names after an interrupt
    ]
    if report is not None:
        found = dict(zip(names, results, strict=False))
        write_report(
            report,
            problem,
            [result for result in results if not isinstance(result, NoPlacementError)],
            failures={
                name: str(result) for name, result in found.items() if isinstance(result, NoPlacementError)
            },
        )

    def tables() -> RenderableType:
        from loadmaster.report import comparison_table

        return comparison_table(documents)

    print_result(documents, as_json, tables)
