"""A model opened for running: candidates loaded into one pinned worker, verified, and measured side by side."""

from __future__ import annotations

import itertools
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import numpy.typing as npt

from loadmaster.errors import BusyError, InputError
from loadmaster.runtime._measuring import CLOCKS, Latency, Measurement, Sample, summarise, undisturbed
from loadmaster.runtime._tolerance import Tolerance, judge
from loadmaster.runtime._verifying import F32_TOLERANCE, OTHERS, UnclearError, Verification, check
from loadmaster.runtime._worker import Worker

__all__ = ["SAMPLES", "SECONDS", "Candidate", "Session"]

SAMPLES = 30
SECONDS = 60.0
"""For running a plan, where no budget is given."""
TRIES = 4
"""Disturbed samples per clean one that are put up with."""
FEWEST = 3
"""Clean samples that will do when the time for measuring is over."""
SLICE = 2.0
"""Seconds of sampling per request to the worker."""
SEED, OTHER = 1, 2
"""Seeds of the inputs that outputs are compared on, and of the control."""


class Candidate:
    """One way to run the model, ready in the worker: run, measure, verify, trace."""

    def __init__(
        self, session: Session, key: str, what: str, precision: str, loaded: Mapping[str, Any]
    ) -> None:
        self._session, self.key, self.what, self.precision = session, key, what, precision
        self.submodels: int = loaded["submodels"]
        self.seconds_to_load: float = loaded["seconds"]
        self.items: int = loaded.get("items", 1)
        """Requests of one run; times are per request."""
        self.verification: Verification | None = None

    def run(self, inputs: Sequence[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
        """The outputs, in the model's order."""
        found: list[npt.NDArray[Any]] = self._session.worker.ask("run", key=self.key, inputs=list(inputs))
        return found

    def verify(self) -> Verification:
        """Compare the outputs with those of the unplaced model at the same precision, or at f32 by a stated tolerance.

        Raises
        ------
        WrongOutputError : they differ, or the comparison proves nothing.
        """
        if self.verification is None:
            self.verification = self._session.verify(self)
        return self.verification

    def measure(self, *, samples: int = SAMPLES, limit: float | None = None) -> Measurement:
        """Verify, then measure alone; to compare with others use :meth:`Session.measure`."""
        return self._session.measure([self], samples=samples, limit=limit)[0]

    def latency(self) -> Latency | None:
        """Of single requests in the samples so far, where a run is a stream of them."""
        if self.items == 1:
            return None
        return Latency.of(self._session.worker.ask("latencies", key=self.key))

    def trace(self) -> list[dict[str, Any]]:
        """When each submodel ran, on which device."""
        found: list[dict[str, Any]] = self._session.worker.ask("spans", key=self.key)
        return found

    def close(self) -> None:
        """Free it."""
        if self._session.worker.alive:
            self._session.worker.ask("drop", key=self.key)


class Session(ABC):
    """A model opened by an engine in a worker process that is pinned to some cores.

    An engine says in :meth:`describe` which ways to run the model it has, and how it runs one device, a placement and
    the unplaced model; verifying and measuring are the same for all. ``clock`` is one of
    :data:`~loadmaster.runtime._measuring.CLOCKS`; ``opening`` is what the engine's host needs to open the model. A
    context manager: leaving it ends the worker.
    """

    tolerance: Tolerance | None = None
    """By which what computes in less than f32 is judged against f32; None: by what its own precision changes."""
    stream = False
    """Whether what is compared is the time per request of a stream, not that of one request."""

    def __init__(self, host: str, *, cores: Iterable[int], clock: str = "wall", **opening: Any) -> None:
        if clock not in CLOCKS:
            raise InputError(f"the clock {clock!r} is unknown: choose one of {', '.join(CLOCKS)}")
        self.clock = clock
        self.worker = self.start(host, cores)
        self._keys = itertools.count()
        self._references: dict[str, Candidate] = {}
        try:
            self.engine: dict[str, str] = dict(self.worker.ask("open", **opening))
            """The engine's name and version."""
        except BaseException:
            self.worker.close()
            raise

    def start(self, host: str, cores: Iterable[int]) -> Worker:
        """What answers: a process of this machine, unless an engine has others."""
        return Worker(cores, host)

    # -- candidates ------------------------------------------------------------------------------------------

    @abstractmethod
    def describe(self, how: str, options: Mapping[str, Any]) -> tuple[str, str]:
        """What a way to run the model is called in messages, and the lowest precision in it.

        Raises
        ------
        RunError : there is no such device.
        """

    @abstractmethod
    def alone(self, device: str, *, limit: float | None = None) -> Candidate:
        """The whole model on one device."""

    @abstractmethod
    def placed(self, placement: Mapping[str, str], *, limit: float | None = None) -> Candidate:
        """The model by a placement of ops to devices, its submodels one after another."""

    @abstractmethod
    def unplaced(self, precision: str) -> Candidate:
        """The model as it is, at a precision: what outputs are compared with."""

    def load(
        self, how: str, *, limit: float | None = None, seconds: float = math.inf, **options: Any
    ) -> Candidate:
        """Make a way to run the model ready.

        After ``limit`` seconds the worker is ended, with all that it holds. After ``seconds`` no further submodel is
        compiled, and the worker goes on.

        Raises
        ------
        RunError : it cannot be compiled; the message names the op or the submodel.
        """
        what, precision = self.describe(how, options)
        key = f"{how}{next(self._keys)}"
        loaded = self.worker.ask("load", limit=limit, key=key, how=how, options=options, seconds=seconds)
        return Candidate(self, key, what, precision, loaded)

    def reference(self, precision: str) -> Candidate:
        """The unplaced model at a precision, loaded once."""
        if precision not in self._references:
            self._references[precision] = self.unplaced(precision)
        return self._references[precision]

    # -- verifying and measuring -----------------------------------------------------------------------------

    def verify(self, candidate: Candidate) -> Verification:
        """See :meth:`Candidate.verify`."""
        if self.tolerance is not None and candidate.precision != "f32":
            found, control = self.worker.ask(
                "judge",
                key=candidate.key,
                reference=self.reference("f32").key,
                seeds=list(range(SEED, SEED + self.tolerance.inputs)),
            )
            return judge(found, control, self.tolerance, precision=candidate.precision, what=candidate.what)
        unclear: UnclearError | None = None
        for change in OTHERS:
            try:
                return self._verified(candidate, change)
            except UnclearError as error:
                unclear = unclear or error
        assert unclear is not None
        raise unclear

    def _verified(self, candidate: Candidate, change: tuple[float, float]) -> Verification:
        """With another input, scaled and shifted, as the control."""
        reference = self.reference(candidate.precision)
        error, control = self._compare(candidate, reference, change)
        rounding = 0.0
        if candidate.precision != "f32":
            rounding = self._compare(reference, self.reference("f32"))[0].relative
        elif F32_TOLERANCE < error.relative < math.inf:
            rounding = self.worker.ask("amplified", key=reference.key, seed=SEED).relative
        return check(error, control, candidate.precision, rounding=rounding, what=candidate.what)

    def _compare(
        self, candidate: Candidate, reference: Candidate, change: tuple[float, float] = OTHERS[0]
    ) -> Any:
        both = {"key": candidate.key, "reference": reference.key, "seed": SEED, "other": OTHER}
        return self.worker.ask("compare", limit=None, **both, change=change)

    def measure(
        self,
        candidates: Sequence[Candidate],
        *,
        samples: int = SAMPLES,
        limit: float | None = None,
        until: float = math.inf,
        fewest: int | None = None,
        give_up: float | None = None,
    ) -> list[Measurement]:
        """Verify all, then measure them in turns until each has enough undisturbed samples, or, at the time ``until``
        of ``time.monotonic``, the ``fewest`` that will do. At the time ``give_up`` the machine counts as too busy: by
        default that is ``until``, too.

        Raises
        ------
        WrongOutputError : the outputs of one are wrong: then there are no times.
        BusyError : other work disturbed most samples.
        """
        measured = self.measure_most(
            candidates,
            samples=samples,
            limit=limit,
            until=until,
            fewest=(samples if until == math.inf else min(FEWEST, samples)) if fewest is None else fewest,
            give_up=until if give_up is None else give_up,
        )
        return [found for found in measured if found is not None]  # none is optional

    def measure_anyway(
        self,
        candidates: Sequence[Candidate],
        *,
        samples: int,
        until: float,
        switch: bool,
        say: Callable[[str], None],
    ) -> list[Measurement]:
        """As :meth:`measure`; with ``switch``, where the machine is too busy for half of the time, by the other clock.

        Raises
        ------
        WrongOutputError : the outputs of one are wrong: then there are no times.
        BusyError : other work disturbed most samples.
        """
        now = time.monotonic()
        if not switch or self.clock != "wall":
            return self.measure(candidates, samples=samples, until=until)
        with suppress(BusyError):
            if now < until:
                return self.measure(candidates, samples=samples, until=until, give_up=now + (until - now) / 2)
        self.clock = "core"
        say("the machine is busy, or slow: all is by the time on the cores (--clock core)")
        return self.measure(candidates, samples=samples, until=until)

    def measure_most(
        self,
        candidates: Sequence[Candidate],
        *,
        optional: Sequence[Candidate] = (),
        samples: int = SAMPLES,
        limit: float | None = None,
        until: float = math.inf,
        fewest: int = SAMPLES,
        give_up: float = math.inf,
    ) -> list[Measurement | None]:
        """As :meth:`measure`, but nobody waits for the ``optional`` ones: None where all samples were disturbed.

        Raises
        ------
        WrongOutputError : the outputs of one are wrong: then there are no times.
        BusyError : other work disturbed most samples.
        """
        for candidate in candidates:
            candidate.verify()
        found: dict[str, list[Sample]] = {candidate.key: [] for candidate in candidates}
        items = {candidate.key: candidate.items for candidate in candidates}
        keys, clean = list(found), 0
        needed = [candidate.key for candidate in candidates if candidate not in optional]
        while True:
            seconds = min(SLICE, max(0.0, until - time.monotonic()))
            asked = {"keys": keys, "rounds": max(1, samples - clean), "seconds": seconds, "clock": self.clock}
            for key, taken, lost in self.worker.ask("sample", limit=limit, **asked):
                found[key].append(undisturbed(taken / items[key], lost / items[key], self.clock))
            clean = min(sum(sample.clean for sample in found[key]) for key in needed)
            tried = max(len(found[key]) for key in needed)
            enough = tried >= samples * (1 + TRIES)
            if clean >= samples or (clean >= fewest and (enough or time.monotonic() >= until)):
                break
            if enough or (clean < fewest < tried and time.monotonic() >= give_up):
                raise BusyError(
                    f"the outputs are right, but the machine is too busy to measure: only {clean} of {tried} samples "
                    f"were clean on core {', '.join(map(str, self.worker.cores))}; stop other work, try later"
                    + (", or measure the time on the cores (--clock core)" if self.clock == "wall" else "")
                )
            # Nobody is always behind the same neighbour, and after a round that was cut short the others come first.
            keys = sorted(keys[1:] + keys[:1], key=lambda key: len(found[key]))
        return [
            summarise(found[c.key], submodels=c.submodels, clock=self.clock)
            if any(sample.clean for sample in found[c.key])
            else None
            for c in candidates
        ]

    def close(self) -> None:
        """End the worker."""
        self.worker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
