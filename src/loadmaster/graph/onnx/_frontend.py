"""ONNX models. The ``onnx`` package is imported when a model is read, not before."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from loadmaster.errors import InputError
from loadmaster.files import shown
from loadmaster.graph._network import Network

__all__ = ["input_shapes", "load_onnx", "parse_shapes"]

MOST_ELEMENTS = 2**40
MOST_DIMENSIONS = 64
MOST_DIGITS = 20
"""Of one size, before it is read as a number at all."""


def load_onnx(
    path: str | Path, shapes: Mapping[str, Sequence[int]] | Iterable[str] = (), *, io: bool = True
) -> Network:
    """The operator graph of an ONNX model.

    Ops are the nodes that compute something in every run, under the name of the node, or of its first output
    where the node has none (``_1``, ``_2``, … behind a name that is taken). What has the same value in every
    run (initializers, constants, whatever is computed from those and from shapes) is not an op but
    ``param_bytes`` of its reader. A constant that several ops read is copied to each of them where the copies
    are small; else it is stored with the first, and its readers are one colocation group. A table of which
    rows are looked up is an op ``Constant`` of its own, beside its reader. Functions are inlined, and the
    taken branch of an ``If`` whose condition is constant.

    Weights are not read, so files of external data may be missing, unless a shape depends on what is in them.

    Parameters
    ----------
    path : the model.
    shapes : sizes for what the model leaves open: shapes of inputs (or of any other tensor) by name, or sizes
        of named dimensions; a mapping, or texts such as ``"input=1x3x224x224"`` or ``"batch=8"``.
    io : have an op ``Parameter`` per input and ``Result`` per output of the model.

    Raises
    ------
    InputError : the file is not there or not a model, a dimension is open, a node is of a kind that cannot be
        placed (``Loop``, sequences, …); or the package ``onnx`` is not installed.
    """
    given = parse_shapes(shapes)
    try:
        import onnx  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "onnx":
            raise
        raise InputError(
            f"{path}: reading ONNX models needs the package onnx: pip install 'loadmaster[onnx]'"
        ) from None
    from loadmaster.graph.onnx._file import read_model
    from loadmaster.graph.onnx._network import assemble
    from loadmaster.graph.onnx._walk import Walk

    walk = Walk(read_model(path), path, given)
    walk.run()
    return assemble(walk, Path(path).stem, io=io)


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


def parse_shapes(shapes: Mapping[str, Sequence[int]] | Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Shapes by name, from texts as the command line gives them.

    >>> parse_shapes(["x:0=1x3x224x224", "batch=8"])
    {'x:0': (1, 3, 224, 224), 'batch': (8,)}
    """
    if isinstance(shapes, Mapping):
        given = {name: tuple(int(size) for size in shape) for name, shape in shapes.items()}
        for name, shape in given.items():
            if not _is_sensible(shape):
                raise InputError(
                    f"the shape {shown(shape)} of {name!r}: a tensor may have at most 2**40 elements"
                )
        return given
    found: dict[str, tuple[int, ...]] = {}
    for text in shapes:
        name, separator, sizes = text.rpartition("=")
        if not separator or not name or not re.fullmatch(r"\d+(x\d+)*", sizes):
            raise InputError(
                f"--shape {shown(text)} must be written NAME=SIZExSIZEx…, e.g. input=1x3x224x224"
            )
        if name in found:
            raise InputError(f"--shape {text!r}: {name!r} is there twice")
        found[name] = tuple(int(size) for size in sizes.split("x") if len(size) < MOST_DIGITS)
        if len(found[name]) <= sizes.count("x") or not _is_sensible(found[name]):
            raise InputError(f"--shape {shown(text)}: a tensor may have at most 2**40 elements")
    return found


def _is_sensible(shape: tuple[int, ...]) -> bool:
    """Whether a tensor of the shape could exist: models multiply sizes, and allocate what comes out."""
    return len(shape) <= MOST_DIMENSIONS and math.prod(max(size, 1) for size in shape) <= MOST_ELEMENTS
