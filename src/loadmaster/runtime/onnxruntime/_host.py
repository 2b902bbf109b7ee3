"""ONNX Runtime inside the worker process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from loadmaster.runtime._host import Executor, ModelHost
from loadmaster.runtime.onnxruntime._counters import read_counters
from loadmaster.runtime.onnxruntime._executors import EXECUTORS
from loadmaster.runtime.onnxruntime._library import check_devices, one_line, onnxruntime
from loadmaster.runtime.onnxruntime._model import FlatModel

__all__ = ["OnnxRuntimeHost"]


class OnnxRuntimeHost(ModelHost):
    """An ONNX model, its devices, and the executors made of them."""

    def open(self, path: str, shapes: dict[str, tuple[int, ...]], devices: list[Any]) -> Mapping[str, str]:
        """Read the model with its weights."""
        check_devices(devices)
        self.model = FlatModel(path, shapes)
        self.devices = {spec.name: spec for spec in devices}
        return {"onnxruntime": onnxruntime("running a model by ONNX Runtime").__version__}

    def executor(self, how: str, options: Mapping[str, Any]) -> Executor:
        """One of those in the table."""
        return EXECUTORS[how](self.model, self.devices, **options)

    def inputs(self, seed: int) -> list[npt.NDArray[Any]]:
        """Inputs of the model's shapes and types."""
        return self.model.draw(seed)

    def said(self, error: BaseException) -> str:
        """Without the codes and places in ONNX Runtime's source."""
        return one_line(error)

    def profile(self, device: str, repeats: int, clock: str, seconds: float) -> dict[str, Any]:
        """Seconds of every executed node of one device, and the ops that it was made of."""
        return read_counters(self.model, self.devices, device, repeats, clock, seconds)

    def unsupported(self, device: str) -> list[str]:
        """None: what a provider has no kernel for, ONNX Runtime gives to the CPU."""
        return []
