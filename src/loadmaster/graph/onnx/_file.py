"""Reading an ONNX file without its weights."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx.inliner
from google.protobuf.message import DecodeError

from loadmaster.errors import InputError
from loadmaster.files import check_regular
from loadmaster.graph.onnx._wire import without_weights

__all__ = ["SMALL", "missing_weights", "read_model", "tensor_value", "tensors_of"]

SMALL = 1024
"""Elements of a constant whose value is kept, because shapes may depend on it."""

DATA_FIELDS = (
    "raw_data",
    "float_data",
    "int32_data",
    "int64_data",
    "double_data",
    "uint64_data",
    "string_data",
)


def read_model(source: Any, *, whole: bool = False) -> Any:
    """The ``ModelProto`` of a file, its large tensors without data unless it is to be ``whole``, its functions inlined.

    A ``ModelProto`` in place of a file is copied.

    Raises
    ------
    InputError : the file is not there, cannot be read, or is not a model.
    """
    if isinstance(source, onnx.ModelProto):
        model, path = onnx.ModelProto(), source.graph.name or "the model"
        model.CopyFrom(source)
    else:
        model, path = _loaded(source, whole=whole), source
    if not model.HasField("graph") or not model.graph.output:
        raise InputError(f"{path}: is not an ONNX model: it has no graph with an output")
    if not 0 <= model.ir_version < 2**31:
        raise InputError(f"{path}: is not an ONNX model: its IR is of version {model.ir_version}")
    if not model.opset_import:
        raise InputError(f"{path}: is not a complete ONNX model: it imports no operator set")
    for entry in model.opset_import:
        if not isinstance(entry.domain, str) or not 0 < entry.version < 2**31:
            raise InputError(f"{path}: imports version {entry.version} of the operator set {entry.domain!r}")
    if not whole:
        _drop_all_data(model)
    if model.functions:
        model = _inlined(model, path)
    if not all(isinstance(text, str) and text.isprintable() for text in _texts(model.graph)):
        raise InputError(f"{path}: is not an ONNX model: it has names that are not valid text")
    return model


def _loaded(path: str | Path, *, whole: bool) -> Any:
    try:
        small = without_weights(path)
        if not whole:
            return onnx.load_from_string(small, format="protobuf")
        del small
        return onnx.load(str(path), format="protobuf", load_external_data=True)
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except (DecodeError, UnicodeDecodeError):
        raise InputError(f"{path}: is not an ONNX model, or only a part of one") from None
    except (
        onnx.checker.ValidationError,
        ValueError,
    ) as error:  # external data that are not there, or too short
        if not whole:
            raise
        missing = missing_weights(path)
        if missing is not None:
            raise InputError(f"{path}: its weights are missing: there is no file {missing}") from None
        raise InputError(f"{path}: its weights cannot be read ({_first_line(error)})") from None


def missing_weights(path: str | Path) -> Path | None:
    """The first file of external data that a model names and that is not there."""
    try:
        model = onnx.load(str(path), format="protobuf", load_external_data=False)
    except Exception:  # whoever reads the model says what is wrong with it
        return None
    named = {
        entry.value
        for tensor in tensors_of(model.graph)
        if tensor.data_location == onnx.TensorProto.EXTERNAL
        for entry in tensor.external_data
        if entry.key == "location"
    }
    files = [Path(path).parent / name for name in sorted(named)]
    return next((file for file in files if not file.is_file()), None)


def _inlined(model: Any, path: str | Path) -> Any:
    try:
        inlined = onnx.inliner.inline_local_functions(model)
    except Exception as error:  # the C++ inliner raises plain RuntimeErrors
        raise InputError(f"{path}: its functions cannot be inlined ({_first_line(error)})") from None
    left = {(function.domain, function.name): function for function in inlined.functions}
    for node in inlined.graph.node:
        function = left.get((node.domain, node.op_type))
        if function is not None:
            needs = ", ".join(
                f"{entry.domain or 'ai.onnx'} {entry.version}" for entry in function.opset_import
            )
            raise InputError(
                f"{path}: the function {function.domain}.{function.name} cannot be inlined: it is written for "
                f"other operator sets ({needs}) than the model"
            )
    return inlined


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0]


def _texts(graph: Any) -> Iterator[str | bytes]:
    """Every name in a graph; protobuf gives bytes where it is not UTF-8."""
    for info in (*graph.input, *graph.output, *graph.value_info):
        yield info.name
        yield from (dim.dim_param for dim in info.type.tensor_type.shape.dim)
    yield from (tensor.name for tensor in graph.initializer)
    yield from (sparse.values.name for sparse in graph.sparse_initializer)
    for node in graph.node:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        for attribute in node.attribute:
            yield attribute.name
            for inner in (attribute.g, *attribute.graphs):
                yield from _texts(inner)


def tensors_of(graph: Any) -> Iterator[Any]:
    """Every tensor that is stored in a graph, those of its subgraphs too."""
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    for node in graph.node:
        yield from _node_tensors(node)


def _node_tensors(node: Any) -> Iterator[Any]:
    for attribute in node.attribute:
        if attribute.HasField("t"):
            yield attribute.t
        yield from attribute.tensors
        if attribute.HasField("sparse_tensor"):
            yield from (attribute.sparse_tensor.values, attribute.sparse_tensor.indices)
        if attribute.HasField("g"):
            yield from tensors_of(attribute.g)
        for graph in attribute.graphs:
            yield from tensors_of(graph)


def _drop_all_data(model: Any) -> None:
    for tensor in tensors_of(model.graph):
        _drop_data(tensor)
    for function in model.functions:
        for node in function.node:
            for tensor in _node_tensors(node):
                _drop_data(tensor)


def _drop_data(tensor: Any) -> None:
    if math.prod(tensor.dims) > SMALL:
        for field in DATA_FIELDS:
            tensor.ClearField(field)


def tensor_value(tensor: Any, path: str | Path) -> npt.NDArray[Any] | None:
    """The value of a small tensor, read from its external file where it has one; None if that is missing.

    Raises
    ------
    InputError : the data do not fit the tensor's type and shape.
    """
    try:
        if onnx.external_data_helper.uses_external_data(tensor):
            tensor = _with_external_data(tensor, path)
        return np.asarray(onnx.numpy_helper.to_array(tensor))
    except InputError:
        raise
    except (FileNotFoundError, onnx.checker.ValidationError):
        return None
    except Exception as error:  # whatever damage there can be
        raise InputError(f"{path}: the tensor {tensor.name!r} is damaged ({_first_line(error)})") from None


def _with_external_data(tensor: Any, path: str | Path) -> Any:
    """A copy with its data, which must be in a plain file beside the model.

    Raises
    ------
    InputError : the file is elsewhere, or no plain file.
    FileNotFoundError : it is not there.
    """
    folder = Path(path).resolve().parent
    given = {entry.key: entry.value for entry in tensor.external_data}
    location = folder / given.get("location", "")
    if not location.resolve().is_relative_to(folder):
        raise InputError(
            f"{path}: the data of the tensor {tensor.name!r} are said to be in {given['location']!r}, which is not in "
            "the model's folder"
        )
    if not location.exists():
        raise FileNotFoundError(str(location))
    check_regular(location, "weights")
    whole = onnx.TensorProto()
    whole.CopyFrom(tensor)
    if "length" not in given:  # else the whole file would be read
        most = math.prod(tensor.dims) * 16
        whole.external_data.add(key="length", value=str(min(most, location.stat().st_size)))
    onnx.external_data_helper.load_external_data_for_tensor(whole, str(folder))
    return whole
