"""OpenVINO models as files and objects hold them, made ready: shapes fixed, names unique, constants folded."""

from __future__ import annotations

import os
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from loadmaster.errors import InputError
from loadmaster.files import shown
from loadmaster.graph.onnx import input_shapes
from loadmaster.graph.openvino._names import canonical_order, name_canonically, numbered

__all__ = ["convert", "fold", "one_line", "openvino", "read"]


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


def read(path: str | Path, shapes: Mapping[str, Sequence[int]]) -> Any:
    """The model in a file (IR or ONNX), with all shapes fixed and names unique.

    Raises
    ------
    InputError : the file is not there or damaged, or a shape is open or wrong.
    """
    ov = openvino(f"{path}: reading it")
    file = Path(path)
    if not os.path.isfile(file):
        raise InputError(f"{path}: there is no such file")
    if file.suffix.lower() == ".xml":
        _check_ir(file)
    is_onnx = file.suffix.lower() == ".onnx"
    if is_onnx and shapes:
        shapes = input_shapes(file, shapes)

    def once() -> Any:
        return _read_shaped(ov, file, shapes) if is_onnx and shapes else ov.Core().read_model(str(file))

    try:
        model = once()
        # Every layer of an IR has a name of its own.
        generated = set() if file.suffix.lower() == ".xml" else _generated(model, once)
    except (RuntimeError, ValueError, MemoryError) as error:  # ValueError: texts that are not UTF-8
        raise InputError(f"{path}: OpenVINO cannot read it ({one_line(error)})") from None
    return _ready(model, shapes, str(path), generated)


def _read_shaped(ov: Any, file: Path, shapes: Mapping[str, Sequence[int]]) -> Any:
    """An ONNX model read with the shapes of its inputs set before OpenVINO looks at what follows from them."""
    from openvino.frontend import FrontEndManager

    frontend = FrontEndManager().load_by_framework("onnx")
    inputs = frontend.load(str(file))
    for place in inputs.get_inputs():
        for name in place.get_names():
            if name in shapes:
                inputs.set_partial_shape(place, ov.PartialShape(list(shapes[name])))
    return frontend.convert(inputs)


def _generated(model: Any, once_more: Callable[[], Any]) -> set[int]:
    """The nodes without a name in the file, by their place in the canonical order.

    A name of the file may happen to be the very one that OpenVINO would give. Numbers only go up, so that the names of
    the file are those which are there a second time.
    """
    found = numbered(model)
    if not found:
        return found
    first, second = (
        [node.get_friendly_name() for node in canonical_order(each)] for each in (model, once_more())
    )
    return {at for at in found if first[at] != second[at]}


def _check_ir(path: Path) -> None:
    """Find damage before OpenVINO does, which would try all its frontends on the file, each with its own noise."""
    try:
        root = ElementTree.parse(path).getroot()
    except (ElementTree.ParseError, OSError, LookupError, ValueError) as error:
        # LookupError, ValueError: an encoding that is unknown, or that its bytes are not in
        raise InputError(f"{path}: is not an OpenVINO IR ({error})") from None
    if root.tag != "net":
        raise InputError(f"{path}: is not an OpenVINO IR (it is XML, but of a <{root.tag}>)")
    if root.find("layers") is None or not re.fullmatch(r"[0-9]{1,3}", root.get("version", "")):
        raise InputError(f"{path}: is not an OpenVINO IR (it has no layers, or no version)")
    weights = path.with_suffix(".bin")
    needed = 0
    for data in root.iter("data"):
        if "offset" in data.attrib:
            needed = max(needed, _whole(path, data, "offset") + _whole(path, data, "size"))
    if needed and not weights.is_file():
        raise InputError(f"{path}: its weights are missing: there is no file {weights}")
    if needed and weights.stat().st_size < needed:
        raise InputError(
            f"{weights}: is cut short ({weights.stat().st_size:,} bytes, the model needs {needed:,})"
        )


def _whole(path: Path, data: ElementTree.Element, key: str) -> int:
    """An attribute that says where weights are."""
    text = data.get(key, "0")
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise InputError(f"{path}: is not an OpenVINO IR (the {key} of a constant is {shown(text)})")
    return int(text)


def convert(model: Any, shapes: Mapping[str, Sequence[int]], example: Any = None) -> Any:
    """A ``torch.nn.Module``, an ``ExportedProgram`` or an ``openvino.Model`` as a model with fixed shapes.

    The given ``openvino.Model`` is not changed.
    """
    ov = openvino("converting a model")
    name = type(model).__name__
    if isinstance(model, ov.Model):
        return _ready(model.clone(), shapes, model.get_friendly_name() or name, numbered(model))
    try:
        converted = ov.convert_model(model, example_input=example)
    except Exception as error:  # the converters raise whatever they like
        raise InputError(f"{name}: OpenVINO cannot convert it ({one_line(error)})") from None
    if example is None and hasattr(
        model, "example_inputs"
    ):  # an ExportedProgram knows what it was exported with
        example = model.example_inputs[0] if model.example_inputs else None
    if example is not None:
        for at, value in enumerate(_flat(example)):
            if at < len(converted.inputs) and converted.inputs[at].partial_shape.is_dynamic:
                shapes = {**{str(at): tuple(value.shape)}, **shapes}
    return _ready(converted, shapes, name, numbered(converted))


def _flat(example: Any) -> list[Any]:
    if isinstance(example, Mapping):
        example = list(example.values())
    return list(example) if isinstance(example, list | tuple) else [example]


def _ready(model: Any, shapes: Mapping[str, Sequence[int]], source: str, generated: Collection[int]) -> Any:
    _fix_shapes(model, shapes, source)
    name_canonically(model, generated)
    return model


def _fix_shapes(model: Any, shapes: Mapping[str, Sequence[int]], source: str) -> None:
    ports = {}
    for at, port in enumerate(model.inputs):
        for name in (str(at), port.get_node().get_friendly_name(), *sorted(port.get_names())):
            ports[name] = port
    known = ", ".join(port.get_node().get_friendly_name() for port in model.inputs) or "it has none"
    wanted = {}
    for name, shape in shapes.items():
        if name not in ports:
            raise InputError(f"{source}: --shape {name}=… names no input: the inputs are {known}")
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
                f"{source}: the shape {port.partial_shape} of input {name!r} is open: "
                f"give it as --shape {name}=1x3x…"
            )


def fold(model: Any) -> Any:
    """Replace what has the same value in every run by constants, in place; names of all other nodes stay."""
    from openvino.passes import ConstantFolding, Manager

    manager = Manager()
    manager.register_pass(ConstantFolding())
    manager.run_passes(model)
    name_canonically(model)
    return model


def one_line(error: BaseException) -> str:
    """The last telling line of a message of OpenVINO's, which begins with places in its source."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if not line.startswith(("Exception from", "Check '"))] or lines
    return telling[-1][:300] if telling else type(error).__name__
