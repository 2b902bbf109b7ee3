"""ONNX models. The ``onnx`` package is imported when a model is read, not before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt

from loadmaster.errors import InputError
from loadmaster.graph._given import Given, parse_shapes
from loadmaster.graph._network import Network

__all__ = ["input_shapes", "load_onnx", "missing_weights", "parse_shapes", "simplified_onnx", "whole_onnx"]


def load_onnx(
    source: Any,
    shapes: Mapping[str, Sequence[int]] | Iterable[str] = (),
    *,
    values: Mapping[str, Any] | Iterable[str] = (),
    io: bool = True,
) -> Network:
    """The operator graph of an ONNX model.

    Ops are the nodes that compute something in every run, under the name of the node, or of its first output
    where the node has none (``_1``, ``_2``, … appended to a name that is taken). What has the same value in every
    run (initializers, constants, whatever is computed from those and from shapes) is not an op but
    ``param_bytes`` of its reader. A constant that several ops read is copied to each of them where the copies
    are small; else it is stored with the first, and its readers are one colocation group. A table of which
    rows are looked up is an op ``Constant`` of its own, beside its reader. Functions are inlined, and the
    taken branch of an ``If`` whose condition is constant; any other ``If``, ``Loop`` or ``Scan`` is one op with all
    that is inside it.

    Weights are not read, so files of external data may be missing, unless a shape depends on what is in them. A shape
    that depends on data (how often a ``Loop`` turns), or that is of an operator which is not known, is what ONNX
    Runtime, if it is installed, gives in one run on inputs that are drawn.

    Parameters
    ----------
    source : the model's file, or an ``onnx.ModelProto``.
    shapes : sizes for what the model leaves open: shapes of inputs (or of any other tensor) by name, or sizes
        of named dimensions; a mapping, or texts such as ``"input=1x3x224x224"`` or ``"batch=8"``.
    values : values of inputs that are the same in every run, by name; a mapping, or texts such as ``"sr=16000"``.
        Such an input becomes a constant.
    io : have an op ``Parameter`` per input and ``Result`` per output of the model.

    Raises
    ------
    InputError : the file is not there or not a model, a dimension is open, a node is of a kind that cannot be
        placed (sequences, strings, …); or the package ``onnx`` is not installed.
    """
    _need_onnx(source if isinstance(source, str | Path) else "the model")
    from loadmaster.graph.onnx._network import assemble

    walk, name = _walked(source, Given(shapes, values), whole=False)
    return assemble(walk, name, io=io)


def simplified_onnx(source: Any, given: Given) -> Any:
    """The model as a ``ModelProto`` with its weights, for those who cannot read it as it is: shapes are fixed, given
    values are constants, and of an ``If`` whose condition is constant the taken branch alone is left."""
    _need_onnx(source if isinstance(source, str | Path) else "the model")
    from loadmaster.graph.onnx._simplify import simplify

    return simplify(_walked(source, given, whole=True)[0])


def whole_onnx(path: str | Path, given: Given) -> tuple[Any, dict[str, npt.NDArray[Any]]]:
    """The model in a file with its weights, its functions inlined; inputs whose values are given are constants of it,
    and those values.

    Raises
    ------
    InputError : it cannot be read, its weights are missing, or a value does not fit.
    """
    _need_onnx(path)
    from loadmaster.graph.onnx._file import read_model
    from loadmaster.graph.onnx._values import set_values

    model = read_model(path, whole=True)
    return model, set_values(model, path, given.constants)


def missing_weights(path: str | Path) -> Path | None:
    """The first file of weights that a model names and that is not there; None too where onnx is not installed."""
    try:
        from loadmaster.graph.onnx import _file
    except ModuleNotFoundError:
        return None
    return _file.missing_weights(path)


def _walked(source: Any, given: Given, *, whole: bool) -> tuple[Any, str]:
    from loadmaster.graph.onnx._file import read_model
    from loadmaster.graph.onnx._observe import Observer
    from loadmaster.graph.onnx._values import set_values
    from loadmaster.graph.onnx._walk import Walk

    model = read_model(source, whole=whole)
    if isinstance(source, str | Path):
        path, name = source, Path(source).stem
    else:
        path = name = model.graph.name or "model"
    set_values(model, path, given.constants)
    walk = Walk(model, path, given, Observer(source, path, given))
    walk.run()
    return walk, name


def _need_onnx(what: str | Path) -> None:
    try:
        import onnx  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "onnx":
            raise
        raise InputError(
            f"{what}: reading ONNX models needs the package onnx: pip install 'loadmaster[onnx]'"
        ) from None


def input_shapes(path: str | Path, shapes: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, ...]]:
    """The shapes of a model's inputs, as far as ``shapes`` and the file settle them.

    ``shapes`` are as :func:`load_onnx` takes them: of inputs by name (or number), of other tensors, which have no
    say here, or the sizes of named dimensions. Where the package ``onnx`` is not installed they stay as they are.

    Raises
    ------
    InputError : the file is not a model, or a name or a size does not fit it.
    """
    try:
        import onnx  # noqa: F401
    except ModuleNotFoundError:
        return {name: tuple(shape) for name, shape in shapes.items()}
    from loadmaster.graph.onnx._file import read_model
    from loadmaster.graph.onnx._sizes import OpenSizes

    graph = read_model(path).graph
    stored = {tensor.name for tensor in graph.initializer}
    inputs = [info for info in graph.input if info.name not in stored]
    known = {info.name for info in inputs}
    given = {}
    for name, shape in shapes.items():
        by_number = name not in known and name.isdecimal() and int(name) < len(inputs)
        given[inputs[int(name)].name if by_number else name] = tuple(shape)
    sizes = OpenSizes(graph, path, given)
    found = {}
    for info in inputs:
        settled = given.get(info.name) or sizes.settled(info)
        if settled is not None:
            found[info.name] = settled
    return found
