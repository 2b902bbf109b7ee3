"""The last resort of the command line: whatever went wrong is one sentence, and never a traceback."""

from __future__ import annotations

import errno
import os
import platform
import sys
import tempfile
import traceback
import warnings

import typer

from loadmaster import __version__
from loadmaster.cli._output import say
from loadmaster.errors import LoadmasterError

__all__ = [
    "UNEXPECTED",
    "flushed",
    "is_for_click",
    "is_full",
    "missing_package",
    "one_sentence",
    "silence_warnings",
    "unexpected",
]

UNEXPECTED = 70
"""The exit code of a mistake in Loadmaster itself (``EX_SOFTWARE`` of sysexits.h)."""
USAGE_ERROR = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
"""What the option parser raises. Typer brings a parser of its own along or uses click's, as the version has it."""
EXTRAS = {"matplotlib": "reproduce", "onnx": "onnx", "openvino": "openvino", "torch": "learn"}
"""Package -> the extra of Loadmaster's that it comes with."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What the system says where there is no room for more of a file."""
LONGEST = 1000
"""Characters of a message; names from a file can be of any length."""


def one_sentence(error: LoadmasterError) -> str:
    """The message on one line, of bounded length, without control characters."""
    text = " ".join(str(error).split())
    if error.option:
        text = f"{text} ({error.option})"
    text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def is_for_click(error: Exception) -> bool:
    """Whether an exception is the option parser's own, or about the pipe that output goes to."""
    own = isinstance(error, USAGE_ERROR | typer.Exit | typer.Abort)
    return own or (isinstance(error, OSError) and error.errno == errno.EPIPE)


def is_full(error: BaseException) -> bool:
    """Whether a disk is full, or a file may not grow."""
    return isinstance(error, OSError) and error.errno in FULL


def flushed(code: object) -> object:
    """Write what still waits to be written; the exit code, 2 in place of 0 where there is no room for it.

    Python tries that at its end, too, but then complains in words of its own and ends with 120.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, ValueError):  # there is none, or it is closed
            continue
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # where it can wait no longer
            if is_full(error) and not code:
                say(f"error: the output cannot be written ({error.strerror})")
                code = 2
    return code


def unexpected(error: Exception) -> str:
    """Write the traceback to a file; the sentence that names it and asks for a report."""
    what = type(error).__name__
    report = "please report it, with the command and its input file"
    text = "".join(traceback.format_exception(error))
    about = f"loadmaster {__version__}, Python {platform.python_version()}, {platform.platform()}"
    try:
        handle, path = tempfile.mkstemp(prefix="loadmaster-", suffix=".txt")
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"{about}\n{' '.join(map(repr, sys.argv))}\n\n{text}")
    except OSError as trouble:
        return f"error: this is a bug in Loadmaster ({what}; no details: {trouble.strerror}): {report}"
    return f"error: this is a bug in Loadmaster ({what}): {report}; the details are in {path}"


def missing_package(error: ModuleNotFoundError) -> str | None:
    """The sentence about a package that comes with an extra and is not installed; None for any other module."""
    package = (error.name or "").partition(".")[0]
    if package not in EXTRAS:
        return None
    return f"error: this needs the package {package}: pip install 'loadmaster[{EXTRAS[package]}]'"


def silence_warnings() -> None:
    """Keep what NumPy says about single operations off the terminal: answers are checked, not steps."""
    warnings.filterwarnings("ignore", category=RuntimeWarning)
