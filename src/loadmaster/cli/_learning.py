"""The commands that train the policy of ``gdp``, added to :mod:`loadmaster.cli`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from loadmaster.placers.learned.gdp.pretraining import Report

__all__ = ["register"]

GENERATIONS = 200
"""Of a training run where nothing is said; what the weights of the package were trained with."""

Workers = Annotated[
    int | None,
    typer.Option(min=1, help="Threads; by default one per core. They change nothing but the time."),
]
LogDir = Annotated[
    str, typer.Option("--log-dir", metavar="DIR", help="Folder for scalars (TensorBoard event files).")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    for command in (pretrain, finetune):
        app.command()(command)


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
    from loadmaster.files import check_writable
    from loadmaster.placers.learned.gdp import pretraining, save_weights
    from loadmaster.report._documents import to_json

    check_writable(out)
    state = f"{out}.state"
    check_writable(state)
    if minutes is None and generations is None:
        generations = GENERATIONS
    with _Line() as line:
        weights = pretraining.pretrain(
            minutes=minutes,
            generations=generations,
            seed=seed,
            settings=pretraining.Evolution(context=context),
            left_out=leave_out or (),
            state=state,
            resume=resume,
            log_dir=log_dir,
            workers=workers,
            on_report=line.tell,
        )
    save_weights(out, weights)
    if as_json:
        typer.echo(to_json({"weights": out, "sha256": weights.digest, **weights.recipe}))
    else:
        gain = ", ".join(
            f"{kind} {100 * value:+.2f} %" for kind, value in weights.recipe["validation"].items()
        )
        typer.echo(f"{out}: {weights.recipe['generations']} generations, cost against untrained: {gain}")


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
    from loadmaster.placers import Budget
    from loadmaster.placers.learned.gdp import Gdp, pretraining, save_weights
    from loadmaster.report._documents import to_json
    from loadmaster.report._units import seconds_text

    check_writable(out)
    problem = api.problem(file, cluster, model)
    before = Gdp(weights=weights, samples=0, guard=False)
    first = before.place(problem, budget=Budget())
    with _Line() as line:
        tuned, cost = pretraining.finetune(
            problem, before.read(), steps=steps, seed=seed, workers=workers, on_report=line.tell
        )
    save_weights(out, tuned)
    if as_json:
        typer.echo(to_json({"weights": out, "sha256": tuned.digest, "zero_shot": first.cost, "cost": cost}))
    else:
        typer.echo(
            f"{out}: {seconds_text(first.cost)} zero-shot, {seconds_text(min(cost, first.cost))} fine-tuned"
        )


class _Line:
    """A line on the terminal while a training run lasts."""

    def __enter__(self) -> _Line:
        from rich.console import Console

        self._console = Console(stderr=True)
        self._status = self._console.status("compiling kernels and drawing problems …")
        if self._console.is_terminal:
            self._status.start()
        return self

    def tell(self, report: Report) -> None:
        """Show where the run stands."""
        gain = ", ".join(f"{kind} {100 * value:+.2f} %" for kind, value in report.gain.items())
        self._status.update(
            f"generation {report.generation:,}  {report.seconds:.0f} s  cost against the beginning: {gain}"
        )

    def __exit__(self, *details: object) -> None:
        self._status.stop()
