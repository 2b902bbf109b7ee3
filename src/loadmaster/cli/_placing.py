"""The command line: a thin layer over :mod:`loadmaster.api`.

Standard output holds the result and nothing else. Exit codes: 0 done, 1 'lint' found an error, 2 wrong input, 3
infeasible, 4 a run failed, 70 a mistake of Loadmaster's own, 130 interrupted. Everything heavy is imported inside
the commands, so that ``--help`` is instant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from loadmaster import __version__
from loadmaster.cli import _learning as cli_learn
from loadmaster.cli import _reports as cli_report
from loadmaster.cli import _running as cli_runtime
from loadmaster.cli import _studies as cli_reproduce
from loadmaster.cli._failures import (
    UNEXPECTED,
    is_for_click,
    one_sentence,
    silence_warnings,
    unexpected,
)
from loadmaster.cli._options import (
    Asked,
    Coarsen,
    Evaluations,
    Json,
    PlanFile,
    ReportFile,
    Seed,
    Time,
    read_parameters,
    read_seconds,
    takes_problem,
)
from loadmaster.errors import InfeasibleError, InputError, LoadmasterError, RunError

if TYPE_CHECKING:
    from loadmaster.problem import Problem

__all__ = ["app", "main"]


class _Commands(TyperGroup):
    """Commands in the order of their definition; errors of ours as one sentence and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except LoadmasterError as error:
            _say(f"error: {one_sentence(error)}")
            raise typer.Exit(_exit_code(error)) from None
        except KeyboardInterrupt:
            _say("interrupted before there was a result")
            raise typer.Exit(130) from None
        except Exception as error:
            if is_for_click(error):
                raise
            _say(unexpected(error))
            raise typer.Exit(UNEXPECTED) from None


app = typer.Typer(
    name="loadmaster",
    cls=_Commands,
    help="Decide on which device every operator of a neural network runs.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # rich takes longer to import than all the rest of --help
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Entry point of the ``loadmaster`` command."""
    silence_warnings()
    app()


def _exit_code(error: LoadmasterError) -> int:
    if isinstance(error, InfeasibleError):
        return 3
    return 4 if isinstance(error, RunError) else 2


def _say(text: str) -> None:
    typer.echo(f"loadmaster: {text}", err=True)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"loadmaster {__version__}")
        raise typer.Exit


@app.callback()
def _loadmaster(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass


# -- commands ------------------------------------------------------------------------------------------------


@app.command()
@takes_problem
def inspect(
    asked: Asked,
    coarsen: Coarsen = None,
    as_json: Json = False,
) -> None:
    """Show what is in a file: ops, tensors, devices, lower bounds."""
    from loadmaster.report._documents import problem_document, to_json

    problem = asked.problem()
    document = problem_document(problem)
    if coarsen is not None:
        from loadmaster.problem.coarsening import coarsen as coarsened
        from loadmaster.report._documents import coarsening_document

        document["coarse"] = coarsening_document(coarsened(problem, coarsen))
    if as_json:
        typer.echo(to_json(document))
    else:
        from loadmaster.report._tables import problem_tables, show

        show(problem_tables(document))


@app.command()
@takes_problem
def place(
    asked: Asked,
    method: Annotated[
        str, typer.Option(metavar="NAME", help="How to search; see 'loadmaster methods'.")
    ] = "auto",
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A parameter of the method.")
    ] = None,
    coarsen: Coarsen = None,
    budget: Time = None,
    evaluations: Evaluations = None,
    seed: Seed = 0,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="PLAN", help="Write the plan to this file.")
    ] = None,
    report: ReportFile = None,
    as_json: Json = False,
) -> None:
    """Place a model: find a placement and prove how good it is."""
    seconds, parameters = read_seconds(budget), read_parameters(set_)
    from loadmaster import api
    from loadmaster.files import check_writable
    from loadmaster.plan import Plan, solution_document
    from loadmaster.report._live import LiveProgress

    for path in filter(None, (output, report)):
        check_writable(path)
    problem = asked.problem()
    with LiveProgress() as progress:
        solution = api.place(
            problem,
            method,
            budget=seconds,
            evaluations=evaluations,
            seed=seed,
            parameters=parameters,
            coarsen=coarsen,
            on_progress=progress,
        )
    if solution.stopped == "interrupted":
        _say("interrupted: this is the best so far")
    lost: InputError | None = None
    if output is not None:
        try:
            Plan.from_solution(problem, solution).save(output)
        except InputError as error:  # the result is still worth printing
            lost = error
    if report is not None:
        cli_report.write_report(report, problem, [solution])
    document = solution_document(problem, solution)
    if as_json:
        from loadmaster.report._documents import to_json

        typer.echo(to_json(document))
    else:
        from loadmaster.report._documents import evaluation_document
        from loadmaster.report._tables import show, solution_tables

        evaluation = api.evaluate(problem, solution.placement)
        show(solution_tables(document, evaluation_document(problem, solution.placement, evaluation)))
    if lost is not None:
        raise lost


@app.command()
@takes_problem
def evaluate(
    asked: Asked,
    placement: Annotated[
        str,
        typer.Option(
            "--placement",
            metavar="P",
            help='A plan, {"placement": {op: device}}, or a split.',
            show_default=False,
        ),
    ],
    as_json: Json = False,
) -> None:
    """Evaluate a given placement: cost, loads, memory, violations."""
    from loadmaster import api
    from loadmaster.report._documents import evaluation_document, to_json

    problem, given = asked.placement(placement)
    document = evaluation_document(problem, given, api.evaluate(problem, given))
    if as_json:
        typer.echo(to_json(document))
    else:
        from loadmaster.report._tables import evaluation_tables, show

        show(evaluation_tables(document))


@app.command()
@takes_problem
def compare(
    asked: Asked,
    methods: Annotated[
        str | None,
        typer.Option("--methods", metavar="A,B,C", help="Methods to compare; by default all that can."),
    ] = None,
    coarsen: Coarsen = None,
    budget: Time = None,
    evaluations: Evaluations = None,
    seed: Seed = 0,
    report: ReportFile = None,
    as_json: Json = False,
) -> None:
    """Compare methods, each with the same budget."""
    seconds = read_seconds(budget)
    from loadmaster import api
    from loadmaster.files import check_writable
    from loadmaster.plan import solution_document
    from loadmaster.problem.coarsening import coarsen as coarsened
    from loadmaster.report._documents import failure_document, to_json
    from loadmaster.report._live import LiveProgress

    if report is not None:
        check_writable(report)
    problem = asked.problem()
    groups = None if coarsen is None else coarsened(problem, coarsen)
    names = (
        _supported(problem if groups is None else groups.coarse)
        if methods is None
        else [name.strip() for name in methods.split(",") if name.strip()]
    )
    with LiveProgress() as progress:
        results = api.compare(
            problem,
            names,
            budget=seconds,
            evaluations=evaluations,
            seed=seed,
            coarsen=groups,
            on_progress=progress,
        )
    if len(results) < len(names) or getattr(results[-1], "stopped", "") == "interrupted":
        _say("interrupted: this is what was found so far")
    documents = [
        failure_document(problem, name, result, seed=seed)
        if isinstance(result, InfeasibleError)
        else solution_document(problem, result)
        for name, result in zip(names, results, strict=False)  # fewer results than names after an interrupt
    ]
    if report is not None:
        found = dict(zip(names, results, strict=False))
        cli_report.write_report(
            report,
            problem,
            [result for result in results if not isinstance(result, InfeasibleError)],
            failures={
                name: str(result) for name, result in found.items() if isinstance(result, InfeasibleError)
            },
        )
    if as_json:
        typer.echo(to_json(documents))
    else:
        from loadmaster.report._tables import comparison_table, show

        show(comparison_table(documents))


def _supported(problem: Problem) -> list[str]:
    from loadmaster.placers import PLACERS

    return [name for name, placer in PLACERS.items() if placer.supports(problem) is None]


@app.command()
def methods(as_json: Json = False) -> None:
    """List the methods, and the execution models they support."""
    from loadmaster import api
    from loadmaster.placers import PLACERS, parameters
    from loadmaster.problem import MODELS
    from loadmaster.report._documents import to_json

    examples = {name: api.problem("zoo:layered-4", model=name) for name in MODELS}
    documents = []
    for name, placer in PLACERS.items():
        reasons = {model: placer.supports(problem) for model, problem in examples.items()}
        documents.append(
            {
                "name": name,
                "summary": placer.summary,
                "models": [model for model, reason in reasons.items() if reason is None],
                "unsupported": {model: reason for model, reason in reasons.items() if reason is not None},
                "parameters": parameters(placer),
            }
        )
    if as_json:
        typer.echo(to_json(documents))
    else:
        from loadmaster.report._tables import methods_table, show

        show(methods_table(documents))


@app.command()
def clusters(
    cluster: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="A preset or a TOML file.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """List the clusters, or show the devices, links and sources of one."""
    from loadmaster.hardware import load_cluster, preset, preset_names
    from loadmaster.report._clusters import cluster_document, cluster_tables, clusters_table
    from loadmaster.report._documents import to_json
    from loadmaster.report._tables import show

    if cluster is not None:
        document = cluster_document(load_cluster(cluster))
        if as_json:
            typer.echo(to_json(document))
        else:
            show(cluster_tables(document))
        return
    documents = [cluster_document(preset(name)) for name in preset_names()]
    if as_json:
        typer.echo(to_json(documents))
    else:
        show(clusters_table(documents))


@app.command()
def export(
    plan: PlanFile,
    format: Annotated[
        str,
        typer.Option(
            "--format",
            "-f",
            metavar="openvino|onnxruntime|device-map|split-points|dot",
            help="Format to write.",
        ),
    ] = "openvino",
    onnx: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="onnxruntime: copy this model to --output with annotations in it."),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write to this file instead of standard output."),
    ] = None,
) -> None:
    """Write a plan for another program: OpenVINO, ONNX Runtime, PyTorch or Graphviz."""
    from loadmaster import export as exporters
    from loadmaster.files import write_atomically
    from loadmaster.plan import Plan

    if onnx is not None:
        if format != "onnxruntime" or output is None:
            raise InputError(
                "--onnx needs --format onnxruntime and an --output to write the annotated model to"
            )
        found = exporters.write_annotated(Plan.load(plan), onnx, output)
        _say(f"{found:,} nodes are annotated in {output}")
        return
    text = exporters.export(Plan.load(plan), format)
    if output is None:
        typer.echo(text, nl=False)
    else:
        write_atomically(output, text.encode())


cli_report.register(app)
cli_runtime.register(app)
cli_reproduce.register(app)
cli_learn.register(app)


if __name__ == "__main__":
    main()
