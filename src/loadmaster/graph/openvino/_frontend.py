"""Models through OpenVINO: its IR, ONNX, PyTorch. The package is imported when a model is read, not before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from loadmaster.graph._given import Given
from loadmaster.graph._network import Network

__all__ = ["load_openvino", "openvino_model"]


def load_openvino(
    source: Any,
    shapes: Mapping[str, Sequence[int]] | Iterable[str] = (),
    *,
    values: Mapping[str, Any] | Iterable[str] = (),
    counting: str = "ops",
    io: bool = True,
    example: Any = None,
) -> Network:
    """The operator graph of a model as OpenVINO sees it.

    Ops have the friendly names of the nodes of :func:`openvino_model`, one to one, so that a placement can be
    set as their affinity; where a name is taken, ``_1``, ``_2``, … is appended to it, in the model too. Nodes that
    the model gives no name are called after what reads them (:mod:`loadmaster.graph.openvino._names`).

    Parameters
    ----------
    source : a file (``.xml``, ``.onnx`` or ``.pt2``), a ``torch.nn.Module``, an ``ExportedProgram`` or an
        ``openvino.Model``.
    shapes : shapes of inputs that the model does not fix, by name or number; a mapping, or strings such as
        ``"input=1x3x224x224"``.
    values : values of inputs that are the same in every run, by name; a mapping, or texts such as ``"sr=16000"``.
        Such an input becomes a constant.
    counting : ``"ops"``, the ops that execute: constants are folded, and are ``param_bytes`` of their reader.
        ``"layers"``, every node of the IR, constants and their decompression included.
    io : have the ops ``Parameter`` and ``Result``.
    example : an example of the inputs, for a ``torch.nn.Module``.

    Raises
    ------
    InputError : the model cannot be read, the shape of an input is not fixed or does not fit, or the package
        ``openvino`` is not installed.

    References
    ----------
    The counting ``layers`` is that of S. Duan et al., "A structure-aware framework for learning device
    placements on computation graphs", NeurIPS 2024, table 1.
    """
    from loadmaster.graph.openvino._network import assemble

    given = Given(shapes, values)
    model = openvino_model(source, given, folded=counting != "layers", example=example)
    name = Path(source).stem if isinstance(source, str | Path) else model.get_friendly_name()
    return assemble(model, name, counting=counting, io=io)


def openvino_model(
    source: Any,
    shapes: Mapping[str, Sequence[int]] | Iterable[str] = (),
    *,
    folded: bool = True,
    example: Any = None,
) -> Any:
    """The ``openvino.Model`` behind :func:`load_openvino`: fixed shapes, unique names, constants folded.

    ``shapes`` may hold values of inputs, too (:class:`~loadmaster.graph.Given`).
    """
    from loadmaster.graph.openvino._file import convert, read
    from loadmaster.graph.openvino._folding import fold

    given = Given(shapes)
    model = read(source, given) if isinstance(source, str | Path) else convert(source, given, example)
    return fold(model, str(source) if isinstance(source, str | Path) else "the model") if folded else model
