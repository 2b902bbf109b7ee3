"""Sizes that an ONNX model leaves open, and what the user says about them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from loadmaster.errors import InputError
from loadmaster.graph.onnx._infer import Guess, dimensions, symbol

__all__ = ["OpenSizes"]


class OpenSizes:
    """Shapes by name of a tensor and sizes by name of a dimension.

    A shape given for one input also settles the named dimensions of the others.
    """

    def __init__(self, graph: Any, path: str | Path, given: Mapping[str, tuple[int, ...]]) -> None:
        self._path = path
        self._given = given
        self.symbols: dict[str, int] = {}
        """Named dimension -> size."""
        tensors = set(_tensor_names(graph))
        named = {
            symbol(dim)
            for info in (*graph.input, *graph.output, *graph.value_info)
            for dim in info.type.tensor_type.shape.dim
            if symbol(dim)
        }
        for name, shape in given.items():
            if any(size < 0 for size in shape):
                raise InputError(f"the shape {_written(name, shape)}: sizes must be >= 0", option="--shape")
            if name in tensors:
                continue
            if name not in named:
                inputs = ", ".join(repr(info.name) for info in graph.input) or "none"
                also = f", its named dimensions {', '.join(map(repr, sorted(named)))}" if named else ""
                raise InputError(
                    f"the shape {_written(name, shape)}: {path} has no tensor or dimension {name!r}: its inputs "
                    f"are {inputs}{also}",
                    option="--shape",
                )
            if len(shape) != 1:
                raise InputError(
                    f"the shape {_written(name, shape)}: {name!r} is one dimension, so it takes one size",
                    option="--shape",
                )
            self.symbols[name] = shape[0]
        for info in graph.input:
            if info.name in given:
                self._settle(info, given[info.name])

    def _settle(self, info: Any, shape: tuple[int, ...]) -> None:
        """Check a shape against what the model says about an input, and learn its named dimensions."""
        tensor = info.type.tensor_type
        if not tensor.HasField("shape"):
            return
        dims = tensor.shape.dim
        if len(dims) != len(shape):
            raise InputError(
                f"the shape {_written(info.name, shape)}: the input has {len(dims)} dimensions "
                f"({_shape(info)}) in {self._path}",
                option="--shape",
            )
        for axis, (dim, size) in enumerate(zip(dims, shape, strict=True)):
            fixed = dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else None
            if symbol(dim):
                fixed = self.symbols.setdefault(symbol(dim), size)
            if fixed is not None and fixed != size:
                which = f"{axis} ({symbol(dim)!r})" if symbol(dim) else f"{axis}"
                raise InputError(
                    f"the shape {_written(info.name, shape)}: dimension {which} of the input is {fixed} in "
                    f"{self._path}, not {size}",
                    option="--shape",
                )

    def of_input(self, info: Any) -> tuple[int, tuple[int, ...]]:
        """Element type and shape of an input of the model.

        Raises
        ------
        InputError : it is not a tensor, or a dimension is not fixed; the message says how to give it.
        """
        found = dimensions(info.type, self.symbols)
        where = f"{self._path}: input {info.name!r}"
        if found.kind != "tensor":
            raise InputError(f"{where} is a {found.kind}: only tensors can be placed")
        if info.name in self._given:
            return found.elem, self._given[info.name]
        if found.sizes is None:
            raise InputError(f"{where} has no shape: give it as the shape '{info.name}=…'", option="--shape")
        if None in found.sizes:
            axis = found.sizes.index(None)
            name = symbol(info.type.tensor_type.shape.dim[axis])
            which, also = (f"{axis} ({name!r})", f" or '{name}=…'") if name else (f"{axis}", "")
            raise InputError(
                f"{where}: dimension {which} of its shape {_shape(info)} is open: give it as the shape "
                f"'{info.name}={_open(found.sizes)}'{also}",
                option="--shape",
            )
        return found.elem, tuple([size for size in found.sizes if size is not None])

    def settled(self, info: Any) -> tuple[int, ...] | None:
        """The shape of an input, if no dimension of it is open."""
        sizes = dimensions(info.type, self.symbols).sizes
        if sizes is None or None in sizes:
            return None
        return tuple([size for size in sizes if size is not None])

    def of_output(self, name: str, inferred: Guess, declared: Guess) -> tuple[int, ...] | None:
        """The shape of a node's output: what is inferred, its gaps filled by what the user and the file say;
        None where gaps are left.

        Raises
        ------
        InputError : what the user says contradicts what is inferred.
        """
        sizes, given = inferred.sizes, self._given.get(name)
        if given is not None:
            if sizes is not None and (
                len(sizes) != len(given) or any(a not in (None, b) for a, b in zip(sizes, given, strict=True))
            ):
                raise InputError(
                    f"the shape {_written(name, given)}: the tensor has the shape {_open(sizes)} in {self._path}",
                    option="--shape",
                )
            return given
        if sizes is None:
            sizes = declared.sizes
        elif declared.sizes is not None and len(declared.sizes) == len(sizes):
            sizes = tuple([b if a is None else a for a, b in zip(sizes, declared.sizes, strict=True)])
        if sizes is None or None in sizes:
            return None
        return tuple([size for size in sizes if size is not None])


def _tensor_names(graph: Any) -> Iterator[str]:
    yield from (info.name for info in graph.input)
    for node in graph.node:
        yield from node.output
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _tensor_names(attribute.g)


def _written(name: str, shape: tuple[int, ...]) -> str:
    return repr(f"{name}={'x'.join(map(str, shape))}")


def _open(sizes: tuple[int | None, ...]) -> str:
    return "x".join("?" if size is None else str(size) for size in sizes)


def _shape(info: Any) -> str:
    dims = info.type.tensor_type.shape.dim
    return "x".join(
        dim.dim_param or (str(dim.dim_value) if dim.HasField("dim_value") else "?") for dim in dims
    )
