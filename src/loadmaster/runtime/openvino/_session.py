"""A model opened by OpenVINO in a pinned worker."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from loadmaster.errors import RunError
from loadmaster.graph import Given
from loadmaster.runtime._cores import calmest_core
from loadmaster.runtime._session import Candidate, Session
from loadmaster.runtime._tolerance import Tolerance
from loadmaster.runtime._worker import Worker
from loadmaster.runtime.openvino._devices import DeviceSpec, require_here

__all__ = ["OpenVinoSession"]

HOST = "loadmaster.runtime.openvino._host:OpenVinoHost"


class OpenVinoSession(Session):
    """A model opened in a worker process that is pinned to one core.

    One core, because HETERO ignores the number of threads that its devices are given: on more cores a plan would
    get help that a single device does not get. ``cores`` is for runtimes that overlap devices on purpose.

    >>> # with OpenVinoSession("model.xml", parse_devices(["A=cpu", "B=cpu"])) as session:
    >>> #     plan = session.placed({"conv": "A", "relu": "B"})
    >>> #     session.measure([plan, session.alone("A")])
    """

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

    def start(self, host: str, cores: Iterable[int]) -> Worker:
        """A process of this machine, for devices of this machine."""
        require_here(self.devices)
        return super().start(host, cores)

    def load(
        self, how: str, *, limit: float | None = None, seconds: float = math.inf, **options: Any
    ) -> Candidate:
        """Make a way to run the model ready.

        ``how``: ``hetero`` with a ``placement`` of ops to devices, ``single`` with a ``device``, ``auto`` (what
        HETERO chooses) with an ``order`` of devices, ``concurrent`` and ``pipeline`` (a run is ``items`` requests) with
        the ``pieces`` of a placement (:func:`~loadmaster.runtime.cut`), ``all-cores`` and ``streams`` with a
        number of ``threads``.

        Raises
        ------
        RunError : it cannot be compiled; the message names the op or the submodel.
        """
        return super().load(how, limit=limit, seconds=seconds, **options)

    def alone(self, device: str, *, limit: float | None = None) -> Candidate:
        """The whole model on one device."""
        return self.load("single", device=device, limit=limit)

    def placed(self, placement: Mapping[str, str], *, limit: float | None = None) -> Candidate:
        """The model by a placement of ops to devices, through HETERO."""
        return self.load("hetero", placement=placement, limit=limit)

    def unplaced(self, precision: str) -> Candidate:
        """The model as it is, at a precision, on a CPU device of its own."""
        return self.load("single", device=f"reference-{precision}")

    def describe(self, how: str, options: Mapping[str, Any]) -> tuple[str, str]:
        """What a way to run the model is called in messages, and the lowest precision in it."""
        known = {spec.name: spec for spec in self.devices}
        if how == "single":
            used = {options["device"]}
        elif how == "auto":
            used = set(options["order"])
        elif how in ("all-cores", "streams"):
            used = {f"reference-{options.get('precision', 'f32')}"}
        elif "pieces" in options:
            used = {piece.device for piece in options["pieces"]}
        else:
            used = set(options["placement"].values())
        for name in sorted(used - set(known)):
            if not name.startswith("reference-"):
                raise RunError(f"there is no device {name!r}: the devices are {', '.join(known)}")
        precisions = {known[name].precision for name in used if name in known} or {"f32"}
        precisions |= {options["precision"]} if "precision" in options else set()
        lowest = next((p for p in ("f16", "bf16") if p in precisions), "f32")
        return f"device {options['device']!r} alone" if how == "single" else f"the {how} plan", lowest
