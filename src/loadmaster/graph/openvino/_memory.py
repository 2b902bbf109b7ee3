"""Models that are in memory, as files: other processes run them from there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from loadmaster.files import scratch_folder
from loadmaster.graph._given import Given
from loadmaster.graph.openvino._file import openvino
from loadmaster.graph.openvino._frontend import openvino_model

__all__ = ["model_file"]


@contextmanager
def model_file(source: Any, given: Given, example: Any = None) -> Iterator[tuple[str | Path, Given]]:
    """The file of a model, and what it is still to be read with.

    What is in memory is written into a folder that lasts as long as the context: an ``onnx.ModelProto`` as it is, all
    else as OpenVINO's IR, whose ops have the names and the hash that :func:`load_openvino` gives them.

    Raises
    ------
    InputError : the model cannot be converted.
    """
    if isinstance(source, str | Path):
        yield source, given
        return
    with scratch_folder() as folder:
        if type(source).__module__.startswith("onnx."):
            import onnx

            target = Path(folder, "model.onnx")
            onnx.save_model(source, target, save_as_external_data=source.ByteSize() > 2**30)
            yield target, given
            return
        model = openvino_model(source, given, example=example)
        target = Path(folder, "model.xml")
        openvino("writing a model").save_model(model, target, compress_to_fp16=False)
        del model
        yield target, Given()
