"""A model opened by ONNX Runtime in a pinned worker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from loadmaster.errors import RunError
from loadmaster.graph import Given
from loadmaster.runtime._cores import calmest_core
from loadmaster.runtime._session import Candidate, Session
from loadmaster.runtime._tolerance import Tolerance
from loadmaster.runtime.openvino._devices import DeviceSpec

__all__ = ["OnnxRuntimeSession"]

HOST = "loadmaster.runtime.onnxruntime._host:OnnxRuntimeHost"


class OnnxRuntimeSession(Session):
    """An ONNX model opened in a worker process: on one core, or on ``cores`` where devices overlap."""

    def __init__(
        self,
        model: str | Path,
        devices: Sequence[DeviceSpec],
        shapes: Mapping[str, Sequence[int]] | Iterable[str] = (),
        *,
        cores: Iterable[int] | None = None,
        clock: str = "wall",
        tolerance: Tolerance | str | None = None,
    ) -> None:
        self.tolerance = None if tolerance is None else Tolerance.parse(tolerance)
        self.path, self.devices = str(model), tuple(devices)
        own = next((spec.core for spec in devices if spec.core is not None), None)
        chosen = cores if cores is not None else [own if own is not None else calmest_core()]
        super().__init__(
            HOST,
            cores=chosen,
            clock=clock,
            path=self.path,
            shapes=Given(shapes),
            devices=list(self.devices),
        )

    def alone(self, device: str, *, limit: float | None = None) -> Candidate:
        """The whole model on one device."""
        return self.load("single", device=device, limit=limit)

    def placed(self, placement: Mapping[str, str], *, limit: float | None = None) -> Candidate:
        """The model by a placement of ops to devices, one submodel after another."""
        return self.load("serial", placement=placement, limit=limit)

    def unplaced(self, precision: str) -> Candidate:
        """The file as it is."""
        return self.load("single", device=f"reference-{precision}")

    def describe(self, how: str, options: Mapping[str, Any]) -> tuple[str, str]:
        """What a way to run the model is called in messages; all compute in f32."""
        known = {spec.name for spec in self.devices}
        if "device" in options:
            used = {options["device"]}
        elif "pieces" in options:
            used = {piece.device for piece in options["pieces"]}
        else:
            used = set(options.get("placement", {}).values())
        for name in sorted(used - known):
            if not name.startswith("reference-"):
                raise RunError(f"there is no device {name!r}: the devices are {', '.join(sorted(known))}")
        return f"device {options['device']!r} alone" if how == "single" else f"the {how} plan", "f32"
