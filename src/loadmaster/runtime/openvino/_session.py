"""A model opened for running: candidates loaded into one pinned worker, verified, and measured side by side."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy.typing as npt

from loadmaster.errors import BusyError, InputError, RunError
from loadmaster.graph.onnx import parse_shapes
from loadmaster.runtime._measuring import (
    CLOCKS,
    Latency,
    Measurement,
    Sample,
    calmest_core,
    summarise,
    undisturbed,
)
from loadmaster.runtime._verifying import Verification, check
from loadmaster.runtime.openvino._devices import DeviceSpec
from loadmaster.runtime.openvino._worker import Worker

__all__ = ["Candidate", "Session"]

SAMPLES = 30
TRIES = 4
"""Disturbed samples per clean one that are put up with."""
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
        """Compare the outputs with those of the unplaced model at the same precision.

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


class Session:
    """A model opened in a worker process that is pinned to one core.

    One core, because HETERO ignores the number of threads that its devices are given: on more cores a plan would
    get help that a single device does not get. ``cores`` is for runtimes that overlap devices on purpose; ``clock`` is
    one of :data:`~loadmaster.runtime._measuring.CLOCKS`.

    >>> # with Session("model.xml", parse_devices(["A=cpu", "B=cpu"])) as session:
    >>> #     plan = session.load("hetero", placement={"conv": "A", "relu": "B"})
    >>> #     alone = session.load("single", device="A")
    >>> #     session.measure([plan, alone])
    """

    def __init__(
        self,
        model: str | Path,
        devices: Sequence[DeviceSpec],
        shapes: Mapping[str, Sequence[int]] | Iterable[str] = (),
        *,
        cores: Iterable[int] | None = None,
        clock: str = "wall",
    ) -> None:
        if clock not in CLOCKS:
            raise InputError(f"the clock {clock!r} is unknown: choose one of {', '.join(CLOCKS)}")
        self.clock = clock
        self.path, self.devices = str(model), tuple(devices)
        own = next((spec.core for spec in devices if spec.core is not None), None)
        chosen = cores if cores is not None else [own if own is not None else calmest_core()]
        self.worker = Worker(chosen)
        self._keys = itertools.count()
        self._references: dict[str, Candidate] = {}
        try:
            opened = self.worker.ask(
                "open", path=self.path, shapes=parse_shapes(shapes), devices=list(self.devices)
            )
        except BaseException:
            self.worker.close()
            raise
        self.openvino: str = opened["openvino"]

    # -- candidates ------------------------------------------------------------------------------------------

    def load(self, how: str, *, limit: float | None = None, **options: Any) -> Candidate:
        """Make a way to run the model ready.

        ``how``: ``hetero`` with a ``placement`` of ops to devices, ``single`` with a ``device``, ``auto`` (what
        HETERO chooses) with an ``order`` of devices, ``concurrent`` and ``pipeline`` (a run is ``items`` requests) with
        the ``pieces`` of a placement (:func:`~loadmaster.runtime.cut`), ``all-cores`` and ``streams`` with a
        number of ``threads``.

        Raises
        ------
        RunError : it cannot be compiled; the message names the op or the submodel.
        """
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
        for name in sorted(used - set(known) - {f"reference-{spec.precision}" for spec in self.devices}):
            if not name.startswith("reference-"):
                raise RunError(f"there is no device {name!r}: the devices are {', '.join(known)}")
        key = f"{how}{next(self._keys)}"
        loaded = self.worker.ask("load", limit=limit, key=key, how=how, options=options)
        precisions = {known[name].precision for name in used if name in known} or {"f32"}
        precisions |= {options["precision"]} if "precision" in options else set()
        lowest = next((p for p in ("f16", "bf16") if p in precisions), "f32")
        what = f"device {options['device']!r} alone" if how == "single" else f"the {how} plan"
        return Candidate(self, key, what, lowest, loaded)

    def reference(self, precision: str) -> Candidate:
        """The unplaced model at a precision."""
        if precision not in self._references:
            self._references[precision] = self.load("single", device=f"reference-{precision}")
        return self._references[precision]

    # -- verifying and measuring -----------------------------------------------------------------------------

    def verify(self, candidate: Candidate) -> Verification:
        """See :meth:`Candidate.verify`."""
        reference = self.reference(candidate.precision)
        error, control = self._compare(candidate, reference)
        rounding = 0.0
        if candidate.precision != "f32":
            rounding = self._compare(reference, self.reference("f32"))[0].relative
        return check(error, control, candidate.precision, rounding=rounding, what=candidate.what)

    def _compare(self, candidate: Candidate, reference: Candidate) -> Any:
        return self.worker.ask("compare", key=candidate.key, reference=reference.key, seed=SEED, other=OTHER)

    def measure(
        self,
        candidates: Sequence[Candidate],
        *,
        samples: int = SAMPLES,
        limit: float | None = None,
        until: float = math.inf,
        fewest: int = SAMPLES,
    ) -> list[Measurement]:
        """Verify all, then measure them in turns until each has enough undisturbed samples, or, at the time ``until``
        of ``time.monotonic``, the ``fewest`` that will do.

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
        while True:
            seconds = SLICE if clean < fewest else min(SLICE, max(0.0, until - time.monotonic()))
            asked = {"keys": keys, "rounds": max(1, samples - clean), "seconds": seconds, "clock": self.clock}
            for key, taken, lost in self.worker.ask("sample", limit=limit, **asked):
                found[key].append(undisturbed(taken / items[key], lost / items[key], self.clock))
            clean = min(sum(sample.clean for sample in each) for each in found.values())
            tried = max(len(each) for each in found.values())
            if clean >= samples or (clean >= fewest and time.monotonic() >= until):
                break
            if tried >= samples * (1 + TRIES):
                raise BusyError(
                    f"the machine is too busy to measure: of {tried} samples only {clean} were undisturbed "
                    f"on core {', '.join(map(str, self.worker.cores))}; stop other work, or try later"
                )
            keys = keys[1:] + keys[:1]  # nobody is always behind the same neighbour
        return [summarise(found[c.key], submodels=c.submodels, clock=self.clock) for c in candidates]

    def close(self) -> None:
        """End the worker."""
        self.worker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
