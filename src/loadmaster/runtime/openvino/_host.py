"""OpenVINO inside the worker process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing as npt

from loadmaster.graph.openvino import one_line, openvino_model
from loadmaster.runtime._host import Executor, ModelHost
from loadmaster.runtime.openvino._counters import read_counters
from loadmaster.runtime.openvino._devices import Devices, DeviceSpec
from loadmaster.runtime.openvino._executors import EXECUTORS
from loadmaster.runtime.openvino._inputs import draw_inputs

__all__ = ["OpenVinoHost"]


class OpenVinoHost(ModelHost):
    """A model of OpenVINO's, its devices, and the executors made of them."""

    def open(self, path: str, shapes: dict[str, tuple[int, ...]], devices: list[Any]) -> Mapping[str, str]:
        """Read the model and register the devices."""
        self.model = openvino_model(path, shapes)
        # Beside the devices asked for: the unplaced model in each of their precisions, and in f32.
        precisions = dict.fromkeys(("f32", *(spec.precision for spec in devices)))
        references = [DeviceSpec(f"reference-{p}", "cpu", precision=p) for p in precisions]
        self.devices = Devices([*devices, *references])
        return {"openvino": self.devices.ov.__version__}

    def executor(self, how: str, options: Mapping[str, Any]) -> Executor:
        """One of those in the table."""
        return EXECUTORS[how](self.model, self.devices, **options)

    def inputs(self, seed: int) -> list[npt.NDArray[Any]]:
        """Inputs of the model's shapes and types."""
        return draw_inputs(self.model, seed)

    def said(self, error: BaseException) -> str:
        """Without the places in OpenVINO's source."""
        return one_line(error)

    def profile(self, device: str, repeats: int, clock: str, seconds: float) -> dict[str, Any]:
        """Counters of one device, and the nodes that it made of the model's."""
        return read_counters(self.model, self.devices, device, repeats, clock, seconds)

    def unsupported(self, device: str) -> list[str]:
        """Ops that a device does not support."""
        return self.devices.unsupported(self.model, device)
