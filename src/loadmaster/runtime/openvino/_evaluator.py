"""The cost of placements, measured: the interface that placers know, on real runs."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from loadmaster.errors import BusyError, RunError, RunTimeoutError, WorkerError, WrongOutputError
from loadmaster.problem import Placement, Problem
from loadmaster.problem._evaluator import Outcome, SimulatedEvaluator
from loadmaster.runtime._cache import Cache, model_hash
from loadmaster.runtime.openvino._devices import DeviceSpec
from loadmaster.runtime.openvino._session import Candidate, Session

__all__ = ["MeasuredEvaluator", "Result"]

FAILURES: tuple[tuple[type[RunError], str], ...] = (
    (WrongOutputError, "wrong"),
    (RunTimeoutError, "timeout"),
    (WorkerError, "died"),
    (RunError, "failed"),
)
"""Kind of error -> what a result calls it; the first that fits."""


@dataclass(frozen=True)
class Result:
    """What running a placement gave.

    ``status`` is ``measured``, ``infeasible`` (a constraint of the problem is broken: it was not run), ``failed`` (it
    does not compile or run), ``wrong`` (other outputs than the unplaced model), ``timeout`` or ``died`` (the worker).
    """

    status: str
    seconds: float | None = None
    low: float | None = None
    high: float | None = None
    why: str = ""
    cached: bool = False


class MeasuredEvaluator:
    """An :class:`~loadmaster.problem.Evaluator` that compiles and runs every placement.

    A placement is measured in turns with the first device alone; its cost is scaled to what that device took when the
    evaluator began, so that costs of one evaluator can be compared however the machine changes its pace. A failure is
    an infinite cost with a :class:`Result` in ``results``, and the next placement gets a fresh worker; only a machine
    that is too busy to measure is an error. A context manager: leaving it ends the worker.
    """

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
        self.problem, self.evaluations = problem, 0
        self.results: dict[Placement, Result] = {}
        self._model, self._devices, self._shapes = str(model), tuple(devices), shapes
        self._samples, self._limit, self._cache, self._clock = samples, limit, cache, clock
        self._session: Session | None = None
        self._alone: Candidate | None = None
        self._pace: float | None = None
        self._constraints = SimulatedEvaluator(problem)
        self._about: dict[str, Any] | None = None

    def evaluate(self, placement: Placement) -> Outcome:
        """The measured cost of one placement."""
        result = self.result(placement)
        cost = math.inf if result.seconds is None else result.seconds
        return Outcome(cost, result.status == "measured")

    def evaluate_batch(
        self, device: npt.NDArray[np.int32]
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
        """One after another: a machine measures one thing at a time."""
        outcomes = [self.evaluate(Placement(row)) for row in np.atleast_2d(device)]
        return np.array([o.cost for o in outcomes]), np.array([o.feasible for o in outcomes], np.bool_)

    def result(self, placement: Placement) -> Result:
        """What running it gave, or gave before."""
        self.evaluations += 1
        if placement not in self.results:
            self.results[placement] = self._result(placement)
        return self.results[placement]

    def _result(self, placement: Placement) -> Result:
        if not self._constraints.evaluate(Placement(placement.device)).feasible:
            return Result("infeasible", why="a constraint of the problem is broken")
        about = {**self._key(), "placement": hashlib.sha256(placement.device.tobytes()).hexdigest()}
        stored = None if self._cache is None else self._cache.get_as("run", about, Result)
        if stored is not None:
            return replace(stored, cached=True)
        try:
            result = self._run(placement)
        except BusyError:
            raise
        except RunError as error:
            status = next(name for kind, name in FAILURES if isinstance(error, kind))
            result = Result(status, why=str(error))
            if self._session is not None and not self._session.worker.alive:
                self.close()
        # A worker that died or was slow may do better next time; all else stays as it is.
        if self._cache is not None and result.status not in ("died", "timeout"):
            self._cache.put("run", about, asdict(result))
        return result

    def _run(self, placement: Placement) -> Result:
        session, alone = self._open()
        candidate = session.load("hetero", placement=placement.to_names(self.problem), limit=self._limit)
        try:
            base, found = session.measure([alone, candidate], samples=self._samples, limit=self._limit)
        finally:
            candidate.close()
        self._pace = self._pace or base.median
        scale = self._pace / base.median
        return Result("measured", found.median * scale, found.low * scale, found.high * scale)

    def _open(self) -> tuple[Session, Candidate]:
        if self._session is None or self._alone is None:
            self._session = Session(self._model, self._devices, self._shapes, clock=self._clock)
            self._alone = self._session.load("single", device=self._devices[0].name, limit=self._limit)
        return self._session, self._alone

    def _key(self) -> dict[str, Any]:
        if self._about is None:
            import openvino

            self._about = {
                "model": model_hash(self._model),
                "graph": self.problem.graph.digest,
                "devices": [spec.text for spec in self._devices],
                "openvino": openvino.__version__,
                "clock": self._clock,
                "samples": self._samples,
            }
        return self._about

    def close(self) -> None:
        """End the worker; the next evaluation starts another one."""
        if self._session is not None:
            self._session.close()
        self._session = self._alone = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
