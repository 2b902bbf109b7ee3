"""PyTorch's models for OpenVINO: modules, exported programs, and the files that hold those."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from loadmaster.errors import InputError
from loadmaster.graph._program import check_program, weights_only

__all__ = ["converted", "example_shapes", "load_program"]


def load_program(path: str | Path) -> Any:
    """The ``ExportedProgram`` in a ``.pt2`` file.

    Raises
    ------
    InputError : it is not one, would have PyTorch run code, or PyTorch is not installed.
    """
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise InputError(f"{path}: reading .pt2 files needs the package torch: pip install torch") from None
    check_program(path)
    try:
        with warnings.catch_warnings(), weights_only(path):
            warnings.simplefilter("ignore")
            return torch.export.load(str(path))
    except InputError:
        raise
    except Exception as error:  # zip, pickle and schema errors of all kinds
        raise InputError(
            f"{path}: is not a program that torch.export.save wrote ({_first_line(error)})"
        ) from None


def converted(ov: Any, model: Any, example: Any, name: str) -> tuple[Any, Any]:
    """The ``openvino.Model`` of a module or a program, and the program if there is one.

    A module that OpenVINO cannot trace is exported by ``torch.export`` first.

    Raises
    ------
    InputError : neither way works; the message says why, for both.
    """
    is_program = hasattr(model, "graph_signature")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = ov.convert_model(model, example_input=None if is_program else example)
        return made, model if is_program else None
    except Exception as error:  # the converters raise whatever they like
        first = _first_line(error)
        if is_program or example is None or not hasattr(model, "named_parameters"):
            hint = ": give an example of its inputs" if example is None and not is_program else ""
            raise InputError(f"{name}: OpenVINO cannot convert it ({first}){hint}") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = _exported(model, example)
            return ov.convert_model(program), program
    except Exception as error:
        raise InputError(
            f"{name}: OpenVINO cannot convert it, neither by tracing ({first}) nor through torch.export "
            f"({_first_line(error)})"
        ) from None


def _exported(model: Any, example: Any) -> Any:
    import torch

    values: tuple[Any, ...] = ()
    named: dict[str, Any] = {}
    if isinstance(example, Mapping):
        named = dict(example)
    else:
        values = tuple(example) if isinstance(example, list | tuple) else (example,)
    with _without_cache(model):
        return torch.export.export(model, values, named, strict=False)


@contextmanager
def _without_cache(model: Any) -> Iterator[None]:
    """Keep a language model of ``transformers`` from giving its cache back, which is no tensor."""
    parts = model.modules() if hasattr(model, "modules") else [model]
    configs = {id(config): config for part in parts if (config := getattr(part, "config", None)) is not None}
    caching = [config for config in configs.values() if getattr(config, "use_cache", False)]
    for config in caching:
        config.use_cache = False
    try:
        yield
    finally:
        for config in caching:
            config.use_cache = True


def example_shapes(program: Any, example: Any) -> list[tuple[int, ...] | None]:
    """Shapes of the inputs in order, as a program was exported with them or an example has them; None = open."""
    if program is not None:
        return _program_shapes(program)
    values = [] if example is None else list(_flat(example))
    return [tuple(value.shape) if hasattr(value, "shape") else None for value in values]


def _program_shapes(program: Any) -> list[tuple[int, ...] | None]:
    """What the placeholders of the user's inputs say; sizes that were exported as open are as in the example."""
    wanted = set(program.graph_signature.user_inputs)
    found: list[tuple[int, ...] | None] = []
    for node in program.graph.nodes:
        if node.op != "placeholder" or node.name not in wanted:
            continue
        value = node.meta.get("val")
        if not hasattr(value, "shape"):
            continue  # a number or None, which is no input of the converted model
        sizes = [_hint(size) for size in value.shape]
        found.append(None if None in sizes else tuple(size for size in sizes if size is not None))
    return found


def _hint(size: Any) -> int | None:
    """A size of an exported program: a number, or an open one's value in the example that it was exported with."""
    if isinstance(size, int):
        return size
    hint = getattr(getattr(size, "node", None), "hint", None)
    return int(hint) if isinstance(hint, int) else None


def _flat(example: Any) -> Any:
    if isinstance(example, Mapping):
        example = list(example.values())
    if isinstance(example, list | tuple):
        for value in example:
            yield from _flat(value)
    elif example is not None:
        yield example


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [
        line for line in lines if not line.startswith(("Exception from", "Check '", "While "))
    ] or lines
    return telling[0][:200] if telling else type(error).__name__
