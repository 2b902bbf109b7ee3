"""Models of the zoo as OpenVINO files that run, with seeded random weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from loadmaster.errors import InputError
from loadmaster.files import check_writable
from loadmaster.zoo._openvino_trace import OpenvinoTrace

__all__ = ["EXPORTABLE", "export_model", "exported"]

EXPORTABLE = {
    "inception-v3": {"transform": True},
    "resnet-50": {},
    "resnet-101": {},
    "resnet-152": {},
    "bert-base": {},
    "bert-large": {},
    "gpt2-decode": {},
    "two-tower": {},
}
"""Name -> options that an export has by default, as the published models have them."""


def exported(name: str, *, seed: int = 0) -> Any:
    """The ``openvino.Model`` called ``name``, with options after a question mark as in ``zoo:NAME``.

    Raises
    ------
    InputError : the model cannot be exported, or an option is unknown or wrong.
    """
    from loadmaster.zoo import make

    plain = name.partition("?")[0]
    if plain not in EXPORTABLE:
        raise InputError(f"the zoo has no runnable model {name!r}: choose one of {', '.join(EXPORTABLE)}")
    traces: list[OpenvinoTrace] = []

    def trace(label: str, *, training: bool = False) -> OpenvinoTrace:
        traces.append(OpenvinoTrace(label, seed=seed, training=training))
        return traces[-1]

    make(name, trace=trace, defaults=EXPORTABLE[plain])
    return traces[0].model_file()


def export_model(name: str, path: str | Path, *, seed: int = 0) -> Any:
    """Write the model to ``path`` (``.xml``, the weights beside it as ``.bin``), weights as 16-bit numbers.

    Returns the model before its weights were rounded.
    """
    from loadmaster.graph.openvino import one_line, openvino

    target = Path(path)
    if target.suffix != ".xml":
        raise InputError(f"{path}: an OpenVINO model must be called *.xml")
    check_writable(target)
    check_writable(target.with_suffix(".bin"))
    model = exported(name, seed=seed)
    try:
        openvino(f"exporting {name}").save_model(model, str(target), compress_to_fp16=True)
    except RuntimeError as error:
        raise InputError(f"{path}: cannot be written ({one_line(error)})") from None
    return model
