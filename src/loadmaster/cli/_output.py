"""What commands print: the result on standard output, all else on standard error."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["print_result", "say"]


def say(text: str) -> None:
    """One line for people, on standard error; where that is a file on a full disk, the exit code must do."""
    with contextlib.suppress(OSError):
        typer.echo(f"loadmaster: {text}", err=True)


def print_result(document: Any, as_json: bool, tables: Callable[[], RenderableType]) -> None:
    """The document as JSON, or the tables that are made of it; those are not even imported for JSON."""
    from loadmaster import report

    if as_json:
        typer.echo(report.to_json(document))
    else:
        report.show(tables())
