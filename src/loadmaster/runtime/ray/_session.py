"""A model opened on the devices of several machines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from loadmaster.runtime._session import Candidate
from loadmaster.runtime._tolerance import Tolerance
from loadmaster.runtime._worker import Worker
from loadmaster.runtime.openvino import DeviceSpec, OpenVinoSession
from loadmaster.runtime.ray._connection import Machines
from loadmaster.runtime.ray._host import RayHost, RayWorker

__all__ = ["ALONE", "RaySession"]

ALONE = 8
"""Requests of a stream on one device: two are in flight, so that sending the next one costs nothing."""


class RaySession(OpenVinoSession):
    """As :class:`~loadmaster.runtime.openvino.OpenVinoSession`, with an actor for each device, on its node."""

    def __init__(
        self,
        machines: Machines,
        model: str | Path,
        devices: Sequence[DeviceSpec],
        shapes: Mapping[str, Sequence[int]] | Iterable[str] = (),
        *,
        cores: Iterable[int] | None = None,
        clock: str = "wall",
        tolerance: Tolerance | str | None = None,
    ) -> None:
        self.machines = machines
        super().__init__(model, devices, shapes, cores=(), clock=clock, tolerance=tolerance)

    def start(self, host: str, cores: Iterable[int]) -> Worker:
        """The worker is here, its hands are on the nodes."""
        return RayWorker(RayHost(self.machines), cores)

    def alone(self, device: str, *, limit: float | None = None) -> Candidate:
        """The whole model on one device; a stream of requests where streams are compared."""
        return self.load("single", device=device, limit=limit, **({"items": ALONE} if self.stream else {}))
