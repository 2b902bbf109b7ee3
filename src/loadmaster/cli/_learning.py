"""Commands that train policies on many problems or on one: ``pretrain``, ``finetune``."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from loadmaster.cli._options import Json, On

__all__ = ["finetune", "pretrain"]

GENERATIONS = 200
"""Of a training run where nothing is said; what the weights of the package were trained with."""

Workers = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=1024,
        help="gdp: threads, or workers with --on; default: one per core. Results do not depend on it.",
    ),
]
LogDir = Annotated[str, typer.Option("--log-dir", metavar="DIR", help="Folder for TensorBoard event files.")]


def pretrain(
    out: Annotated[
        str,
        typer.Option("--out", "-o", metavar="FILE", help="File to write the weights to.", show_default=False),
    ],
    method: Annotated[
        Literal["gdp", "hsdag"], typer.Argument(metavar="[gdp|hsdag]", help="Whose policy.")
    ] = "gdp",
    minutes: Annotated[
        float | None,
        typer.Option(
            min=0.0, help="gdp: training time in minutes, instead of --generations.", show_default=False
        ),
    ] = None,
    generations: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="gdp: number of generations; such a run repeats exactly for a seed. Default: 200.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
    leave_out: Annotated[
        list[str] | None,
        typer.Option(
            "--leave-out",
            metavar="FAMILY",
            help="Model family to leave out of training; 'random' for random graphs.",
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Continue from the saved state next to the weights (FILE.state), if any."
        ),
    ] = False,
    context: Annotated[bool, typer.Option(help="gdp: also train message passing and attention.")] = True,
    problems: Annotated[
        int | None,
        typer.Option(min=1, help="hsdag: number of problems to train on. Default: 100.", show_default=False),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="hsdag: steps of imitation, and a tenth as many of reinforcement. Default: 800.",
            show_default=False,
        ),
    ] = None,
    log_dir: LogDir = "",
    workers: Workers = None,
    on: On = None,
    as_json: Json = False,
) -> None:
    """Train the policy of 'gdp' or 'hsdag' on random graphs and zoo models.

    Such a run repeats exactly for a seed. Use the result with 'place --method METHOD --set weights=FILE'.
    """
    from loadmaster import api
    from loadmaster.errors import InputError
    from loadmaster.report import LiveProgress, describe_lessons, describe_training, to_json

    gdp_only = {"--minutes": minutes, "--generations": generations, "--workers": workers}
    wrong = gdp_only if method == "hsdag" else {"--problems": problems, "--steps": steps}
    for option, value in wrong.items():
        if value is not None:
            raise InputError(f"{option} {value:g}: the training of {method} has no such option")
    if method == "hsdag":
        with LiveProgress(describe_lessons) as progress:
            document = api.pretrain_hsdag(
                out,
                problems=problems,
                steps=steps,
                seed=seed,
                left_out=leave_out or (),
                resume=resume,
                log_dir=log_dir,
                on=on,
                on_report=progress,
            )
        if as_json:
            typer.echo(to_json(document))
        else:
            gap = ", ".join(f"{kind} {100 * value:.2f} %" for kind, value in document["validation"].items())
            typer.echo(
                f"{out}: {document['generations']} steps; likeliest placement above the best known: {gap}"
            )
        return
    if minutes is None and generations is None:
        generations = GENERATIONS
    with LiveProgress(describe_training) as progress:
        document = api.pretrain(
            out,
            minutes=minutes,
            generations=generations,
            seed=seed,
            left_out=leave_out or (),
            resume=resume,
            context=context,
            log_dir=log_dir,
            workers=workers,
            on=on,
            on_report=progress,
        )
    if as_json:
        typer.echo(to_json(document))
    else:
        gain = ", ".join(f"{kind} {100 * value:+.2f} %" for kind, value in document["validation"].items())
        typer.echo(
            f"{out}: {document['generations']} generations; cost compared with the untrained policy: {gain}"
        )


def finetune(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Model, graph or problem file, or zoo:NAME.",
            show_default=False,
        ),
    ],
    out: Annotated[
        str,
        typer.Option("--out", "-o", metavar="FILE", help="File to write the weights to.", show_default=False),
    ],
    cluster: Annotated[str | None, typer.Option(metavar="C", help="Preset or TOML file.")] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="serial|concurrent|pipeline|offload", help="Execution model."),
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Number of training generations.")] = 50,
    weights: Annotated[
        str,
        typer.Option(metavar="FILE", help="Weights to start from; 'shipped' for those of the package."),
    ] = "none",
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
    workers: Workers = None,
    as_json: Json = False,
) -> None:
    """Fine-tune the policy of 'gdp' on one problem.

    Use the result with 'place --method gdp --set weights=FILE'.
    """
    from loadmaster import api
    from loadmaster.files import check_writable
    from loadmaster.report import LiveProgress, describe_training, to_json
    from loadmaster.units import seconds_text

    check_writable(out)
    problem = api.problem(file, cluster, model)
    with LiveProgress(describe_training) as progress:
        document = api.finetune(
            problem, out, weights=weights, steps=steps, seed=seed, workers=workers, on_report=progress
        )
    if as_json:
        typer.echo(to_json(document))
    else:
        first, cost = document["zero_shot"], min(document["cost"], document["zero_shot"])
        typer.echo(f"{out}: {seconds_text(first)} zero-shot, {seconds_text(cost)} fine-tuned")
