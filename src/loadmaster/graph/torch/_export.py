"""From a module to an ``ExportedProgram``, with errors that name the line of whoever wrote the model."""

from __future__ import annotations

import io
import logging
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any

import torch

from loadmaster.errors import InputError
from loadmaster.graph._program import check_program, weights_only
from loadmaster.graph.torch._example import Example

__all__ = ["export_module", "load_program", "without_cache"]

TORCH = str(Path(torch.__file__).parent)
OURS = str(Path(__file__).parents[2])


def export_module(module: Any, example: Example, name: str) -> Any:
    """``torch.export`` of a module, non-strict, in the mode (training or not) that the module is in.

    Raises
    ------
    InputError : it cannot be exported; the message names the file and line of the model's own code.
    """
    if isinstance(module, torch.jit.ScriptModule):
        raise InputError(
            f"{name}: is a ScriptModule, which torch.export does not take: give the module it was made of"
        )
    try:
        with (
            warnings.catch_warnings(),
            without_cache(module),
            _without_log(),
            _without_printed_graph(),
            _called_functions() as called,
        ):
            warnings.simplefilter("ignore")
            program = torch.export.export(module, example.args, dict(example.kwargs), strict=False)
    except (
        Exception,
        SystemExit,
    ) as error:  # torch.export raises whatever the model, dynamo and the shape checker raise
        raise InputError(f"{name}: {_why(error)}") from None
    if module.training and called:
        raise InputError(f"{name}: {_lost(called[0])}")
    return program


@contextmanager
def _called_functions() -> Iterator[list[type]]:
    """The autograd functions of the model's own that are called meanwhile: an export keeps their forward pass only."""
    called: list[type] = []
    # Where Function.apply looks for torch's own: whoever has kept a bound apply comes by here, too.
    base: Any = torch.autograd.function._SingleLevelFunction

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        own = not cls.__module__.startswith("torch.") or cls.__module__ == "torch.utils.checkpoint"
        if own and torch.is_grad_enabled():
            called.append(cls)
        return super(base, cls).apply(*args, **kwargs)

    base.apply = classmethod(apply)
    try:
        yield called
    finally:
        del base.apply


def _lost(function: type) -> str:
    if function.__module__ == "torch.utils.checkpoint":
        return "its checkpoints have use_reentrant=True: torch.export loses their backward, give use_reentrant=False"
    return (
        f"it uses the autograd function {function.__qualname__} of {function.__module__}, whose backward pass "
        "torch.export loses, so that gradients would be wrong: register it with torch.library.custom_op and "
        "register_autograd, or leave that part out of the model"
    )


def load_program(path: str | Path) -> Any:
    """The ``ExportedProgram`` in a ``.pt2`` file.

    Raises
    ------
    InputError : it is not one, or would have PyTorch run code.
    """
    check_program(path)
    try:
        with warnings.catch_warnings(), weights_only(path):
            warnings.simplefilter("ignore")
            return torch.export.load(str(path))
    except InputError:
        raise
    except Exception as error:  # zip, pickle and schema errors of all kinds
        raise InputError(f"{path}: is not a program that torch.export.save wrote ({_line(error)})") from None


@contextmanager
def _without_log() -> Iterator[None]:
    """Keep PyTorch from writing tracebacks to its log for what is raised as well."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


@contextmanager
def _without_printed_graph() -> Iterator[None]:
    """Keep PyTorch from printing the graph so far where a value decides what runs; what others print stays."""
    printed, graph = io.StringIO(), None
    try:
        with redirect_stderr(printed):
            yield
    except Exception as error:
        graph = getattr(error, "partial_fx_graph", None)
        raise
    finally:
        said = printed.getvalue()
        sys.stderr.write(said.replace(f"{graph}\n", "") if graph else said)  # it may be printed twice


@contextmanager
def without_cache(module: Any) -> Iterator[None]:
    """Keep a language model of ``transformers`` from giving its cache back, which is no tensor."""
    configs = {id(config): config for part in module.modules() if (config := getattr(part, "config", None))}
    caching = [config for config in configs.values() if getattr(config, "use_cache", False)]
    for config in caching:
        config.use_cache = False
    try:
        yield
    finally:
        for config in caching:
            config.use_cache = True


def _why(error: BaseException) -> str:
    where = _place(error)
    what = f"{type(error).__name__}: {_line(error)}"
    if "data-dependent" in str(error).lower() or "DataDependent" in type(error).__name__:
        advice = "what runs there depends on values: write it with torch.where, or keep it outside the model"
    elif isinstance(error, RuntimeError | TypeError | IndexError | ValueError):
        advice = "check that the example has the shapes and types that the model takes"
    else:
        advice = "rewrite that line so that torch.export can trace it, or leave that part out of the model"
    return f"torch.export stops at {where} ({what}); {advice}"


def _place(error: BaseException) -> str:
    """``file:line, in function`` of the innermost frame that is neither torch's nor ours."""
    frames: list[traceback.FrameSummary] = []
    seen: BaseException | None = error
    while seen is not None:
        frames = [
            frame
            for frame in traceback.extract_tb(seen.__traceback__)
            if not frame.filename.startswith((TORCH, OURS, "<"))
        ] or frames
        seen = seen.__cause__
    if not frames:
        return "a line of torch itself"
    last = frames[-1]
    return f"{last.filename}:{last.lineno}, in {last.name}: {last.line!r}"


def _line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:200] if lines else type(error).__name__
