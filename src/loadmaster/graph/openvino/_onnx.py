"""ONNX files through OpenVINO's frontend: shapes first, branches that are not taken left out, refusals by name."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from loadmaster.errors import InputError
from loadmaster.graph._given import Given
from loadmaster.graph.onnx import input_shapes, missing_weights, simplified_onnx
from loadmaster.graph.onnx._wire import without_weights
from loadmaster.graph.openvino._messages import one_line, refusal
from loadmaster.graph.openvino._names import canonical_order, numbered

__all__ = ["read_onnx"]

ELSEWHERE = "ONNX Runtime may run it"
PROBE = "import sys, openvino; openvino.Core().read_model(sys.argv[1])"
SECOND = re.compile(r"_\d+_\d+$")
"""At the end of a name with OpenVINO's number that was there already."""
PATIENCE = 60.0
"""Seconds for reading a file in another process."""


def read_onnx(ov: Any, file: Path, given: Given) -> tuple[Any, Given, str, set[int]]:
    """The model, what is still to be fixed of its shapes, the file's name, and which of its nodes have no name there.

    Raises
    ------
    InputError : it is damaged, or OpenVINO cannot convert it; the message names the op.
    """
    small = without_weights(file)  # it must be a model of bearable size, before OpenVINO makes objects of it
    inside = next(_with_graphs(small), None)
    if inside is not None and _kills(str(file), file.stat().st_mtime_ns):
        raise InputError(
            f"{file}: OpenVINO crashes on it (its op {inside[0]!r} is a {inside[1]}): {ELSEWHERE}",
            option="--runtime onnxruntime",
        )
    if given.constants:
        return _simplified(ov, file, given)
    shapes = Given(input_shapes(file, given)) if given else given

    def once() -> Any:
        return _read_shaped(ov, file, shapes) if shapes else ov.Core().read_model(str(file))

    try:
        model = once()
        return model, shapes, str(file), _generated(model, once)
    except Exception as error:  # the frontend raises kinds of its own, and texts may not be UTF-8
        if inside is not None:
            return _simplified(ov, file, given)
        missing = missing_weights(file)
        if missing is not None:
            raise InputError(f"{file}: its weights are missing: there is no file {missing}") from None
        said = refusal(file, error)
        if "cannot convert" not in said:
            raise InputError(said) from None
        raise InputError(f"{said}: {ELSEWHERE}", option="--runtime onnxruntime") from None


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
    the file are those which are there a second time. Where the number of another node made a name of the file a second
    one, OpenVINO has put ``_1`` behind one of them: the node gets its name back.
    """
    names = [node.get_friendly_name() for node in canonical_order(model)]
    if not numbered(model) and not any(map(SECOND.search, names)):
        return set()
    found = set()
    for at, (node, again) in enumerate(
        zip(canonical_order(model), canonical_order(once_more()), strict=True)
    ):
        first, second = names[at], again.get_friendly_name()
        if first == second:
            continue
        short, long = sorted((first, second), key=len)
        if re.fullmatch(re.escape(short) + r"_\d+", long):
            node.set_friendly_name(short)
        else:
            found.add(at)
    return found


def _simplified(ov: Any, path: Path, given: Given) -> tuple[Any, Given, str, set[int]]:
    def once() -> Any:
        return _read_simplified(ov, path, given)

    model = once()
    return model, Given(), str(path), _generated(model, once)


def _read_simplified(ov: Any, path: Path, given: Given) -> Any:
    """An ONNX model without the branches that are not taken: OpenVINO refuses some that it would not need."""
    simple = simplified_onnx(path, given)
    try:
        return ov.Core().read_model(simple.SerializeToString())
    except Exception as error:
        open_branch = next((node for node in simple.graph.node if node.op_type == "If"), None)
        if open_branch is None:
            raise InputError(f"{refusal(path, error)}: {ELSEWHERE}", option="--runtime onnxruntime") from None
        name = open_branch.name or open_branch.output[0]
        raise InputError(
            f"{path}: OpenVINO cannot read it ({one_line(error)}) with the branch of node {name!r} (If) open: if an "
            f"input that never changes decides it, give its value; else {ELSEWHERE} (--runtime onnxruntime)",
            option="--value",
        ) from None


def _with_graphs(content: bytes) -> Iterator[tuple[str, str]]:
    """Name and type of the nodes with graphs inside; none where the file is damaged, which OpenVINO will say."""
    try:
        import onnx
    except ModuleNotFoundError:
        return
    try:
        nodes = onnx.load_from_string(content).graph.node
    except Exception:
        return
    for node in nodes:
        if any(attribute.HasField("g") for attribute in node.attribute):
            yield node.name or next(iter(node.output), ""), node.op_type


@functools.cache
def _kills(path: str, changed: int) -> bool:
    """Whether OpenVINO's frontend dies of a file, as it does of some ``Scan``: then this process is not to read it."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(part for part in sys.path if part)}
    try:
        done = subprocess.run(
            [sys.executable, "-c", PROBE, path],
            capture_output=True,
            env=environment,
            timeout=PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode < 0
