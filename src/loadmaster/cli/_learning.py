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
    typer.Option(min=1, help="Threads; by default one per core. They change nothing but the time."),
]
LogDir = Annotated[
    str, typer.Option("--log-dir", metavar="DIR", help="Folder for scalars (TensorBoard event files).")
]


def pretrain(
    out: Annotated[
        str,
        typer.Option("--out", "-o", metavar="FILE", help="Where to write the weights.", show_default=False),
    ],
    minutes: Annotated[
        float | None, typer.Option(min=0.0, help="Training time, instead of generations.", show_default=False)
    ] = None,
    generations: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Generations; such a run repeats exactly for a seed. Default 200.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Makes a run repeat.")] = 0,
    leave_out: Annotated[
        list[str] | None,
        typer.Option(
            "--leave-out", metavar="FAMILY", help="A family not to train on; 'random' for random graphs."
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Go on from the state beside the weights (FILE.state), if there is one."
        ),
    ] = False,
    context: Annotated[bool, typer.Option(help="Train messages along the graph and attention, too.")] = True,
    log_dir: LogDir = "",
    workers: Workers = None,
    as_json: Json = False,
) -> None:
    """Train the policy of 'gdp' on random graphs and the zoo's families, on random clusters."""
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
        typer.echo(f"{out}: {document['generations']} generations, cost against untrained: {gain}")


def finetune(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="What to place: a model, graph or problem file, or zoo:NAME.",
            show_default=False,
        ),
    ],
    out: Annotated[
        str,
        typer.Option("--out", "-o", metavar="FILE", help="Where to write the weights.", show_default=False),
    ],
    cluster: Annotated[str | None, typer.Option(metavar="C", help="A preset or a TOML file.")] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="serial|concurrent|pipeline|offload", help="Execution model."),
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Generations of training.")] = 50,
    weights: Annotated[
        str, typer.Option(metavar="FILE", help="Weights to begin with; by default those of the package.")
    ] = "",
    seed: Annotated[int, typer.Option(min=0, help="Makes a run repeat.")] = 0,
    workers: Workers = None,
    as_json: Json = False,
) -> None:
    """Fine-tune the policy of 'gdp' on one problem; use it with 'place --method gdp --set weights=FILE'."""
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
