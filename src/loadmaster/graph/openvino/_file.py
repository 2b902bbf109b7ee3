"""OpenVINO models as files and objects hold them, made ready: shapes fixed, names unique, constants folded."""

from __future__ import annotations

import os
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from loadmaster.errors import InputError
from loadmaster.files import check_limit, check_regular, limit, shown
from loadmaster.graph._given import Given, typed_value
from loadmaster.graph.openvino._messages import one_line
from loadmaster.graph.openvino._names import name_canonically, numbered
from loadmaster.graph.openvino._onnx import read_onnx
from loadmaster.graph.openvino._pytorch import converted, example_shapes, load_program
from loadmaster.graph.openvino._state import forget_state

__all__ = ["convert", "openvino", "read"]

DEEPEST = 200
"""Levels of elements in an IR; a model in the body of a loop is a few levels down."""


def openvino(purpose: str) -> Any:
    """The package ``openvino``, imported when something needs it.

    Raises
    ------
    InputError : it is not installed.
    """
    try:
        import openvino as package
    except ModuleNotFoundError as error:
        if error.name != "openvino":
            raise
        raise InputError(
            f"{purpose} needs the package openvino: pip install 'loadmaster[openvino]'"
        ) from None
    return package


def read(path: str | Path, given: Given) -> Any:
    """The model in a file (IR, ONNX or ``.pt2``), with all shapes fixed and names unique.

    Raises
    ------
    InputError : the file does not exist or is damaged, or a shape is wrong or not fixed.
    """
    ov = openvino(f"{path}: reading it")
    file = Path(path)
    kind = file.suffix.lower()
    check_regular(path, {".xml": "file", ".pt2": "weights"}.get(kind, "model"))
    if kind == ".pt2":
        return convert(load_program(path), given, name=str(path))
    if kind == ".xml":
        _check_ir(file)
    elif kind == ".onnx":
        return _ready(*read_onnx(ov, file, given))
    try:
        model = ov.Core().read_model(str(file))
    except Exception as error:  # frontends raise kinds of their own
        raise InputError(f"{path}: OpenVINO cannot read it ({one_line(error)})") from None
    return _ready(model, given, str(path), set() if kind == ".xml" else numbered(model))


def _check_ir(path: Path) -> None:
    """Find damage before OpenVINO does, which would try all its frontends on the file, each with its own noise."""
    found = _Outline(path)
    try:
        ElementTree.parse(path, ElementTree.XMLParser(target=found))
    except (ElementTree.ParseError, OSError, LookupError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        # LookupError, ValueError: an encoding that is unknown, or that its bytes are not in
        raise InputError(f"{path}: is not an OpenVINO IR ({error})") from None
    if found.root != "net":
        raise InputError(f"{path}: is not an OpenVINO IR (its root element is <{found.root}>)")
    if not found.layers or not re.fullmatch(r"[0-9]{1,3}", found.version):
        raise InputError(f"{path}: is not an OpenVINO IR (it has no layers, or no version)")
    weights, needed = path.with_suffix(".bin"), found.needed
    if needed and not os.path.lexists(weights):
        raise InputError(f"{path}: its weights are missing: there is no file {weights}")
    if os.path.lexists(weights):  # OpenVINO opens it whether it is needed or not
        check_regular(weights, "weights")
    if needed and weights.stat().st_size < needed:
        raise InputError(
            f"{weights}: is truncated ({weights.stat().st_size:,} bytes, the model needs {needed:,})"
        )


class _Outline:
    """What is looked at in an IR, taken from its elements as they are read: no tree is made of them."""

    def __init__(self, path: Path) -> None:
        self._path, self._depth, self._count, self._most = path, 0, 0, limit("values")
        self.root = self.version = ""
        self.layers = False
        self.needed = 0
        """Bytes of weights."""

    def doctype(self, name: str, pubid: str | None, system: str | None) -> None:
        """An IR has none, and the entities that one can define multiply."""
        raise InputError(f"{self._path}: is not an OpenVINO IR (it has a document type)")

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        """An element begins."""
        self._count += 1
        if self._count > self._most:
            check_limit("values", self._count, f"{self._path}: holds more than {self._most:,} elements")
        if self._depth == 0:
            self.root, self.version = tag, attributes.get("version", "")
        self.layers |= self._depth == 1 and tag == "layers"
        self._depth += 1
        if self._depth > DEEPEST:
            raise InputError(
                f"{self._path}: is not an OpenVINO IR (nested too deeply: over {DEEPEST} levels)"
            )
        if tag == "data" and "offset" in attributes:
            ends = _whole(self._path, attributes, "offset") + _whole(self._path, attributes, "size")
            self.needed = max(self.needed, ends)

    def end(self, tag: str) -> None:
        """An element ends."""
        self._depth -= 1

    def close(self) -> None:
        """The file ends."""


def _whole(path: Path, data: Mapping[str, str], key: str) -> int:
    """An attribute that says where weights are."""
    text = data.get(key, "0")
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise InputError(f"{path}: is not an OpenVINO IR (the {key} of a constant is {shown(text)})")
    return int(text)


def convert(model: Any, given: Given, example: Any = None, *, name: str = "") -> Any:
    """A ``torch.nn.Module``, an ``ExportedProgram`` or an ``openvino.Model`` as a model with fixed shapes.

    The given ``openvino.Model`` is not changed.
    """
    ov = openvino("converting a model")
    name = name or type(model).__name__
    if isinstance(model, ov.Model):
        return _ready(model.clone(), given, model.get_friendly_name() or name, numbered(model))
    made, program = converted(ov, model, example, name)
    shapes: dict[str, tuple[int, ...]] = {
        str(at): shape
        for at, shape in enumerate(example_shapes(program, example))
        if at < len(made.inputs) and shape is not None and made.inputs[at].partial_shape.is_dynamic
    }
    known = {str(at): names_of(port) for at, port in enumerate(made.inputs)}
    own = {
        at: shape for at, shape in shapes.items() if not known[at] & (given.keys() | given.constants.keys())
    }
    return _ready(made, Given({**own, **given}, given.constants), name, numbered(made))


def names_of(port: Any) -> set[str]:
    """What an input of a model may be called: its node's name, and those of its tensor."""
    return {port.get_node().get_friendly_name(), *port.get_names()}


def _ready(model: Any, given: Given, source: str, generated: Collection[int]) -> Any:
    name_canonically(model, generated)  # before anything is taken away
    _set_values(model, given.constants, source)
    _fix_shapes(model, given, source)
    forget_state(model, source)
    return model


def _ports(model: Any) -> dict[str, Any]:
    """The inputs by all their names."""
    ports = {}
    for at, port in enumerate(model.inputs):
        for name in (str(at), *sorted(names_of(port))):
            ports[name] = port
    return ports


def _known(model: Any) -> str:
    return ", ".join(port.get_node().get_friendly_name() for port in model.inputs) or "it has none"


def _set_values(model: Any, values: Mapping[str, Any], source: str) -> None:
    """Make constants of the inputs whose values are given."""
    if not values:
        return
    from openvino import opset13

    ports = _ports(model)
    for name, value in values.items():
        if name not in ports:
            raise InputError(
                f"{source}: the value of {name!r} is given, but the inputs are {_known(model)}",
                option="--value",
            )
        port, sizes = ports[name], None
        if port.partial_shape.rank.is_static:
            sizes = [None if size.is_dynamic else size.get_length() for size in port.partial_shape]
        kind = port.get_element_type()
        array = typed_value(name, value, kind.to_dtype(), sizes, source)
        constant = opset13.constant(array, kind)
        parameter = port.get_node()
        constant.set_friendly_name(parameter.get_friendly_name())
        for reader in list(port.get_target_inputs()):
            reader.replace_source_output(constant.output(0))
        model.remove_parameter(parameter)
    try:
        model.validate_nodes_and_infer_types()
    except RuntimeError as error:
        said = ", ".join(f"{name}={shown(value)}" for name, value in values.items())
        raise InputError(
            f"{source}: the value {said} does not fit the model ({one_line(error)})", option="--value"
        ) from None


def _fix_shapes(model: Any, shapes: Mapping[str, Sequence[int]], source: str) -> None:
    ports = _ports(model)
    wanted = {}
    for name, shape in shapes.items():
        if name not in ports:
            raise InputError(
                f"{source}: the shape {name}=… names no input: the inputs are {_known(model)}",
                option="--shape",
            )
        wanted[ports[name]] = list(shape)
    if wanted:
        try:
            model.reshape(wanted)
        except (RuntimeError, TypeError, ValueError, OverflowError, MemoryError) as error:
            said = ", ".join(f"{name}={'x'.join(map(str, shape))}" for name, shape in shapes.items())
            raise InputError(
                f"{source}: the shape {said} does not fit the model ({one_line(error)})"
            ) from None
    for port in model.inputs:
        if port.partial_shape.is_dynamic:
            name = port.get_node().get_friendly_name()
            raise InputError(
                f"{source}: the shape {port.partial_shape} of input {name!r} is not fixed: "
                f"give it as the shape '{name}={_pattern(port.partial_shape)}'",
                option="--shape",
            )


def _pattern(shape: Any) -> str:
    """A shape as it is to be given, a question mark for what is open."""
    if shape.rank.is_dynamic:
        return "1x3x…"
    return "x".join("?" if size.is_dynamic else str(size.get_length()) for size in shape)
