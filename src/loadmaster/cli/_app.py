"""The application: its commands in order, its errors as sentences and exit codes.

Standard output holds the result and nothing else. Exit codes: 0 done, 2 wrong input, 3 infeasible, 4 a run
failed, 5 no feasible placement was found in time, 70 a mistake of Loadmaster's own, 130 interrupted before there was
a result.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from loadmaster import __version__
from loadmaster.cli import _bench, _catalogue, _learning, _placing, _plans, _running, _splitting, _studies
from loadmaster.cli._failures import (
    UNEXPECTED,
    flushed,
    is_for_click,
    is_full,
    missing_package,
    one_sentence,
    silence_warnings,
    unexpected,
)
from loadmaster.cli._output import say
from loadmaster.cli._startup import (
    calm_collector,
    keep_interrupts,
    keep_output_clean,
    leave_threads,
    note_start,
)
from loadmaster.errors import InfeasibleError, LoadmasterError, RunError, UndecidedError

__all__ = ["app", "main"]


class _Commands(TyperGroup):
    """Commands in the order of their definition; errors of ours as one sentence and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except LoadmasterError as error:
            say(f"error: {one_sentence(error)}")
            raise typer.Exit(_exit_code(error)) from None
        except KeyboardInterrupt:
            say("interrupted before there was a result")
            raise typer.Exit(130) from None
        except ModuleNotFoundError as error:
            say(missing_package(error) or unexpected(error))
            raise typer.Exit(2 if missing_package(error) else UNEXPECTED) from None
        except Exception as error:
            if is_for_click(error):
                raise
            if is_full(error):
                say(f"error: there is no room to write ({error})")
                raise typer.Exit(2) from None
            say(unexpected(error))
            raise typer.Exit(UNEXPECTED) from None


app = typer.Typer(
    name="loadmaster",
    cls=_Commands,
    help="Decide which device runs each operator of a neural network.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # rich takes longer to import than all the rest of --help
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Entry point of the ``loadmaster`` command."""
    note_start()
    keep_interrupts()
    keep_output_clean()
    silence_warnings()
    calm_collector()
    try:
        app()
    except SystemExit as end:
        code = flushed(end.code)
        leave_threads(code)
        raise SystemExit(code) from None
    except OSError as error:  # of what is printed before there is a command: help
        if not is_full(error):
            raise
        raise SystemExit(flushed(0) or 2) from None


def _exit_code(error: LoadmasterError) -> int:
    if isinstance(error, InfeasibleError):
        return 3
    if isinstance(error, UndecidedError):
        return 5
    return 4 if isinstance(error, RunError) else 2


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"loadmaster {__version__}")
        raise typer.Exit


@app.callback()
def _loadmaster(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True),
    ] = False,
    limits: Annotated[
        list[str] | None,
        typer.Option(
            "--limit",
            metavar="NAME=NUMBER",
            help="Raise a limit on what a file may cost, e.g. devices=4096 (LOADMASTER_LIMITS does the same).",
        ),
    ] = None,
) -> None:
    if limits:
        from loadmaster.files import add_limits

        add_limits(limits)


for _command in (
    _placing.inspect,
    _placing.place,
    _placing.evaluate,
    _placing.compare,
    _catalogue.methods,
    _catalogue.clusters,
    _catalogue.warm,
    _plans.export,
    _plans.report,
    _plans.explain,
    _plans.diff,
    _plans.trace,
    _running.devices,
    _running.profile,
    _running.run,
    _plans.lint,
    _running.optimize,
    _splitting.split,
    _studies.reproduce,
    _studies.plot,
    _learning.pretrain,
    _learning.finetune,
):
    app.command()(_command)
app.add_typer(_catalogue.zoo_commands, name="zoo")
app.add_typer(_bench.bench_commands, name="bench")
