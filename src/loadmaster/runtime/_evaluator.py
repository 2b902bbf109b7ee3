"""The cost of placements, measured: the interface that placers know, on real runs."""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from loadmaster.errors import BusyError, RunError, RunTimeoutError, WorkerError, WrongOutputError
from loadmaster.problem import Outcome, Placement, Problem, SimulatedEvaluator
from loadmaster.runtime._cache import Cache
from loadmaster.runtime._session import Candidate, Session

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


class MeasuredEvaluator(ABC):
    """An :class:`~loadmaster.problem.Evaluator` that compiles and runs every placement.

    A placement is measured in turns with the first device alone; its cost is scaled to what that device took when the
    evaluator began, so that costs of one evaluator can be compared however the machine changes its pace. A failure is
    an infinite cost with a :class:`Result` in ``results``, and the next placement gets a fresh worker; only a machine
    that is too busy to measure is an error. A context manager: leaving it ends the worker. An engine says how a session
    is opened (:meth:`open`) and what a measurement depends on (:meth:`about`).
    """

    def __init__(
        self,
        problem: Problem,
        first: str,
        *,
        samples: int = 7,
        limit: float = 120.0,
        cache: Cache | None = None,
    ) -> None:
        self.problem, self.evaluations = problem, 0
        self.results: dict[Placement, Result] = {}
        self._first, self._samples, self._limit, self._cache = first, samples, limit, cache
        self._session: Session | None = None
        self._alone: Candidate | None = None
        self._pace: float | None = None
        self._constraints = SimulatedEvaluator(problem)
        self._known: Mapping[str, Any] | None = None

    @abstractmethod
    def open(self) -> Session:
        """The model, ready to be loaded."""

    @abstractmethod
    def about(self) -> Mapping[str, Any]:
        """All that a measured cost depends on but the placement: the key in the cache."""

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
        session, alone = self._opened()
        candidate = session.placed(placement.to_names(self.problem), limit=self._limit)
        try:
            base, found = session.measure([alone, candidate], samples=self._samples, limit=self._limit)
        finally:
            candidate.close()
        self._pace = self._pace or base.median
        scale = self._pace / base.median
        return Result("measured", found.median * scale, found.low * scale, found.high * scale)

    def _opened(self) -> tuple[Session, Candidate]:
        if self._session is None or self._alone is None:
            self._session = self.open()
            self._alone = self._session.alone(self._first, limit=self._limit)
        return self._session, self._alone

    def _key(self) -> Mapping[str, Any]:
        if self._known is None:
            self._known = self.about()
        return self._known

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
