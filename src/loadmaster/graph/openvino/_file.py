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
from loadmaster.graph._given import Given, typed_value
from loadmaster.graph.onnx import input_shapes, simplified_onnx
from loadmaster.graph.openvino._names import canonical_order, name_canonically, numbered
from loadmaster.graph.openvino._pytorch import converted, example_shapes, load_program
from loadmaster.graph.openvino._state import forget_state

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


def read(path: str | Path, given: Given) -> Any:
    """The model in a file (IR, ONNX or ``.pt2``), with all shapes fixed and names unique.

    Raises
    ------
    InputError : the file does not exist or is damaged, or a shape is wrong or not fixed.
    """
    ov = openvino(f"{path}: reading it")
    file = Path(path)
    if not os.path.isfile(file):
        raise InputError(f"{path}: there is no such file")
    kind = file.suffix.lower()
    if kind == ".pt2":
        return convert(load_program(path), given, name=str(path))
    if kind == ".xml":
        _check_ir(file)
    is_onnx = kind == ".onnx"
    if is_onnx and given.constants:
        return _simplified(ov, path, given)
    shapes = Given(input_shapes(file, given)) if is_onnx and given else given

    def once() -> Any:
        return _read_shaped(ov, file, shapes) if is_onnx and shapes else ov.Core().read_model(str(file))

    try:
        model = once()
        # Every layer of an IR has a name of its own.
        generated = set() if kind == ".xml" else _generated(model, once)
    except (RuntimeError, ValueError, MemoryError) as error:  # ValueError: texts that are not UTF-8
        if is_onnx and _holds_branches(path):
            return _simplified(ov, path, given)
        raise InputError(f"{path}: OpenVINO cannot read it ({one_line(error)})") from None
    return _ready(model, shapes if is_onnx else given, str(path), generated)


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


def _simplified(ov: Any, path: str | Path, given: Given) -> Any:
    model = _read_simplified(ov, path, given)
    return _ready(model, Given(), str(path), numbered(model))


def _read_simplified(ov: Any, path: str | Path, given: Given) -> Any:
    """An ONNX model without the branches that are not taken: OpenVINO refuses some that it would not need."""
    simple = simplified_onnx(path, given)
    try:
        return ov.Core().read_model(simple.SerializeToString())
    except (RuntimeError, ValueError, MemoryError) as error:
        open_branch = next((node for node in simple.graph.node if node.op_type == "If"), None)
        if open_branch is None:
            raise InputError(f"{path}: OpenVINO cannot read it ({one_line(error)})") from None
        name = open_branch.name or open_branch.output[0]
        raise InputError(
            f"{path}: OpenVINO cannot read it ({one_line(error)}) with the branch of node {name!r} (If) open: if an "
            "input that never changes decides it, give its value",
            option="--value",
        ) from None


def _holds_branches(path: str | Path) -> bool:
    try:
        import onnx
    except ModuleNotFoundError:
        return False
    try:
        nodes = onnx.load(str(path), load_external_data=False).graph.node
    except Exception:  # OpenVINO has said already what is wrong with it
        return False
    return any(node.op_type == "If" for node in nodes)


def _check_ir(path: Path) -> None:
    """Find damage before OpenVINO does, which would try all its frontends on the file, each with its own noise."""
    try:
        root = ElementTree.parse(path).getroot()
    except (ElementTree.ParseError, OSError, LookupError, ValueError) as error:
        # LookupError, ValueError: an encoding that is unknown, or that its bytes are not in
        raise InputError(f"{path}: is not an OpenVINO IR ({error})") from None
    if root.tag != "net":
        raise InputError(f"{path}: is not an OpenVINO IR (its root element is <{root.tag}>)")
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
            f"{weights}: is truncated ({weights.stat().st_size:,} bytes, the model needs {needed:,})"
        )


def _whole(path: Path, data: ElementTree.Element, key: str) -> int:
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
                f"give it as the shape '{name}=1x3x…'",
                option="--shape",
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
