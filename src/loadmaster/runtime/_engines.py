"""The engines that models run by, by name."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

from loadmaster.errors import InputError

__all__ = ["ENGINES", "engine"]

ENGINES = ("openvino", "onnxruntime", "ray")
"""Each is a package beside this module."""


def engine(name: str) -> Any:
    """The package of an engine, imported now.

    It has ``open_session``, ``profile_model``, ``run_plan``, ``open_plan``, ``how_to_run``, ``all_cores_lines`` and
    ``serial_lines``.

    Raises
    ------
    InputError : there is none of that name, or its library is not installed: said before a worker is started for it.
    """
    if name not in ENGINES:
        raise InputError(f"the runtime {name!r} is unknown: choose one of {', '.join(ENGINES)}")
    if importlib.util.find_spec(name) is None:
        raise InputError(f"running a model needs the package {name}: pip install 'loadmaster[{name}]'")
    return importlib.import_module(f"loadmaster.runtime.{name}")
