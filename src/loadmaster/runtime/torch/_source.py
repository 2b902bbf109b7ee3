"""A user's model: the function ``build`` of a Python file, or an exported program."""

from __future__ import annotations

import ast
import importlib.util
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from loadmaster.errors import InputError
from loadmaster.graph.torch import Capture, Example, as_example, capture

__all__ = ["Source", "check_source", "load_source"]

KEYS = ("model", "example", "loss", "target")


@dataclass(frozen=True)
class Source:
    """A model with what is needed to train it: an example of one microbatch, a loss, and a target for it."""

    model: Any
    example: Example | None
    loss: Callable[..., Any] | None = None
    target: Any = None
    name: str = ""

    @property
    def training(self) -> bool:
        """Whether there is a loss to train with."""
        return self.loss is not None

    def capture(self) -> Capture:
        """Exported: in training mode if there is a loss."""
        return capture(self.model, self.example, training=self.training, name=self.name)


def load_source(text: str) -> Source:
    """The model that ``file.py:function`` builds, or the one in a ``.pt2`` file.

    The function takes no arguments and returns ``(model, example)``, ``(model, example, loss)`` or ``(model, example,
    loss, target)``, or a dict with these keys. ``example`` is one microbatch. ``loss`` is called with the model's
    result, and with the target if there is one. Without a loss the model is for inference.

    Raises
    ------
    InputError : there is no such file or function, it fails (the message names the line), or returns something else.
    """
    check_source(text)
    if text.lower().endswith(".pt2"):
        return Source(text, None, name=Path(text).stem)
    path, _, name = text.rpartition(":")
    function = _function(path, name)
    try:
        given = function()
    except (Exception, SystemExit) as error:
        own = Path(path).resolve()
        frames = [
            frame
            for frame in traceback.extract_tb(error.__traceback__)
            if Path(frame.filename).resolve() == own
        ]
        line = f", line {frames[-1].lineno}" if frames else ""
        raise InputError(f"{text}: it fails{line} ({_said(error)})") from None
    return _source(given, text, name)


def _said(error: BaseException) -> str:
    """An exception of the user's own, on a line."""
    try:
        return f"{type(error).__name__}: {error}"[:300]
    except Exception:
        return type(error).__name__


def check_source(text: str) -> None:
    """Whether a text can name a model, as far as that is seen without importing anything of it.

    Raises
    ------
    InputError : it is written otherwise, or there is no such file or function.
    """
    program = text.lower().endswith(".pt2")
    path, separator, name = (text, ":", "") if program else text.rpartition(":")
    if not program and not (separator and path and name):
        raise InputError(f"{text!r} must be written FILE.py:FUNCTION, or be a .pt2 file")
    try:
        there = Path(path).is_file()
    except OSError:  # a name that is too long
        there = False
    if not there:
        raise InputError(f"{path[:200]}: there is no such file")
    if program:
        return
    try:
        tree = ast.parse(Path(path).read_bytes(), path)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"{path}: is not a Python file ({_said(error)})") from None
    defined = [part.name for part in ast.walk(tree) if isinstance(part, ast.FunctionDef | ast.ClassDef)]
    if name not in defined and not _may_hold(tree, name):
        raise InputError(f"{path}: has no function {name!r}")


def _may_hold(tree: ast.Module, name: str) -> bool:
    """Whether a module may get a name in another way than by defining it."""
    for part in ast.walk(tree):
        if isinstance(part, ast.Import | ast.ImportFrom) and any(
            alias.name == "*" or (alias.asname or alias.name) == name for alias in part.names
        ):
            return True
        if isinstance(part, ast.Name) and part.id == name and isinstance(part.ctx, ast.Store):
            return True
    return False


def _function(path: str, name: str) -> Callable[[], Any]:
    # A file may be called as a module that is there already: torch.py, say.
    spec = importlib.util.spec_from_file_location(f"model_file_{Path(path).stem}", path)
    if spec is None or spec.loader is None:
        raise InputError(f"{path}: is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and pickles of the file look their module up there
    folder = str(Path(path).resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)  # what lies beside the file can be imported there, but hides nothing
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise InputError(f"{path}: cannot be imported ({_said(error)})") from None
    found = getattr(module, name, None)
    if not callable(found):
        raise InputError(f"{path}: has no function {name!r}")
    made: Callable[[], Any] = found
    return made


def _source(given: Any, text: str, name: str) -> Source:
    if isinstance(given, Mapping):
        unknown = [key for key in given if key not in KEYS]
        if unknown:
            raise InputError(f"{text}: it returns {unknown[0]!r}, which is none of {', '.join(KEYS)}")
        values = {key: given.get(key) for key in KEYS}
    elif isinstance(given, tuple) and 2 <= len(given) <= 4:
        values = dict(zip(KEYS, (*given, *([None] * (4 - len(given)))), strict=True))
    else:
        raise InputError(
            f"{text}: it must return (model, example), (model, example, loss) or (model, example, loss, target), not a "
            f"{type(given).__name__}"
        )
    if not isinstance(values["model"], nn.Module):
        raise InputError(
            f"{text}: the model must be a torch.nn.Module, not a {type(values['model']).__name__}"
        )
    if values["loss"] is not None and not callable(values["loss"]):
        raise InputError(f"{text}: the loss must be a function, not a {type(values['loss']).__name__}")
    stem = Path(text.rpartition(":")[0]).stem
    return Source(
        values["model"],
        as_example(values["example"]),
        values["loss"],
        values["target"],
        name=stem if name == "build" else f"{stem}:{name}",
    )
