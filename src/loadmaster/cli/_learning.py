"""Commands that train the policy of ``gdp``: ``pretrain``, ``finetune``."""

from __future__ import annotations

from typing import Annotated

import typer

from loadmaster.cli._options import Json

__all__ = ["finetune", "pretrain"]

GENERATIONS = 200
"""Of a training run where nothing is said; what the weights of the package were trained with."""

Workers = Annotated[
    int | None,
    typer.Option(min=1, help="Number of threads; default: one per core. Results do not depend on it."),
]
LogDir = Annotated[str, typer.Option("--log-dir", metavar="DIR", help="Folder for TensorBoard event files.")]


def pretrain(
    out: Annotated[
        str,
        typer.Option("--out", "-o", metavar="FILE", help="File to write the weights to.", show_default=False),
    ],
    minutes: Annotated[
        float | None,
        typer.Option(min=0.0, help="Training time in minutes, instead of --generations.", show_default=False),
    ] = None,
    generations: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of generations; such a run repeats exactly for a seed. Default: 200.",
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
    context: Annotated[bool, typer.Option(help="Also train message passing and attention.")] = True,
    log_dir: LogDir = "",
    workers: Workers = None,
    as_json: Json = False,
) -> None:
    """Train the policy of 'gdp' on random graphs and zoo models."""
    from loadmaster import api
    from loadmaster.report import LiveProgress, describe_training, to_json

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
        typer.Option(metavar="FILE", help="Weights to start from; default: those shipped with the package."),
    ] = "",
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
