"""The engines that models run by, by name."""

from __future__ import annotations

import importlib
from typing import Any

from loadmaster.errors import InputError

__all__ = ["ENGINES", "engine"]

ENGINES = ("openvino", "onnxruntime")
"""Each is a package beside this module."""


def engine(name: str) -> Any:
    """The package of an engine, imported now.

    It has ``open_session``, ``profile_model``, ``run_plan``, ``open_plan``, ``how_to_run`` and ``all_cores_lines``.

    Raises
    ------
    InputError : there is none of that name.
    """
    if name not in ENGINES:
        raise InputError(f"the runtime {name!r} is unknown: choose one of {', '.join(ENGINES)}")
    return importlib.import_module(f"loadmaster.runtime.{name}")
