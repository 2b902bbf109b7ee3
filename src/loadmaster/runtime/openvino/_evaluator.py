"""The cost of placements, measured by running them through HETERO."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from loadmaster.problem import Problem
from loadmaster.runtime._cache import Cache, model_hash
from loadmaster.runtime._evaluator import MeasuredEvaluator
from loadmaster.runtime.openvino._devices import DeviceSpec
from loadmaster.runtime.openvino._session import OpenVinoSession

__all__ = ["OpenVinoEvaluator"]


class OpenVinoEvaluator(MeasuredEvaluator):
    """Runs every placement of a model of OpenVINO's on ``devices``; ``limit`` is in seconds, for each of them."""

    def __init__(
        self,
        problem: Problem,
        model: str | Path,
        devices: Sequence[DeviceSpec],
        shapes: Mapping[str, Sequence[int]] | Iterable[str] = (),
        *,
        samples: int = 7,
        limit: float = 120.0,
        cache: Cache | None = None,
        clock: str = "wall",
    ) -> None:
        super().__init__(problem, devices[0].name, samples=samples, limit=limit, cache=cache)
        self._model, self._devices, self._shapes, self._clock = str(model), tuple(devices), shapes, clock

    def open(self) -> OpenVinoSession:
        """The model in a worker on one core."""
        return OpenVinoSession(self._model, self._devices, self._shapes, clock=self._clock)

    def about(self) -> Mapping[str, Any]:
        """Model, devices, OpenVINO's version, and how it is measured."""
        import openvino

        return {
            "model": model_hash(self._model),
            "graph": self.problem.graph.digest,
            "devices": [spec.text for spec in self._devices],
            "openvino": openvino.__version__,
            "clock": self._clock,
            "samples": self._samples,
        }
