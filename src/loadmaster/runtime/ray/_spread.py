"""A model cut into pieces that run on the devices of several machines; tensors pass between their actors.

A request is submitted whole: one call per piece, which waits for those that it reads. What a piece makes goes straight
to the devices that read it, by calls of actors, while others compute; who calls hears that it is done. A device takes
whatever is ready, so that sending and computing overlap. At most ``slots`` requests are in flight; results are taken in
the order of the requests.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from loadmaster.errors import RunTimeoutError, WorkerError
from loadmaster.runtime._host import Arrays, Span
from loadmaster.runtime._measuring import Sample
from loadmaster.runtime._pieces import Piece, simulate
from loadmaster.runtime.openvino import Port, Submodel, cut_model
from loadmaster.runtime.ray._actors import PATIENCE, Actors
from loadmaster.runtime.ray._device import Wires

__all__ = ["Flight", "Spread"]

_keys = itertools.count()
GLANCE = 5.0
"""Seconds without an answer until it is asked who is there: what a node was sending when it died never comes."""


@dataclass
class Flight:
    """One request: what it was given, and where its results will be."""

    number: int
    inputs: list[npt.NDArray[Any]]
    results: dict[int, Any] = field(default_factory=dict)
    """Output of the model -> reference."""
    begun: float = 0.0
    calls: list[tuple[str, list[int], Any]] = field(default_factory=list)
    """Of every submodel: its device, the submodels that it waits for, and a reference that is there when it is done."""


def _passed(part: Submodel, port: Port) -> int:
    """The output of a submodel that others read: what is the model's, too, is there twice, in a layout of its own."""
    return next(at for at, made in enumerate(part.outputs) if made == port and at not in part.final)


def _given(part: Submodel) -> list[str]:
    """The inputs of the whole model that a submodel reads, each once."""
    return list(dict.fromkeys(port[0] for source, port in part.inputs if source is None))


class Spread:
    """An executor (:class:`~loadmaster.runtime.Executor`) over :class:`Actors`, and what ``loadmaster.open`` uses."""

    def __init__(
        self, model: Any, actors: Actors, pieces: Sequence[Piece], *, slots: int = 1, items: int = 1
    ) -> None:
        self.items, self.slots, self.pieces = items, slots, list(pieces)
        self._model, self._actors, self._key = model, actors, f"spread{next(_keys)}"
        self._names = [port.get_node().get_friendly_name() for port in model.inputs]
        self._parts: list[Submodel] = cut_model(model, pieces)
        self.submodels = len(self._parts)
        for number, part in enumerate(self._parts):
            what = f"submodel {number} ({len(part.piece.ops)} ops, from {part.piece.ops[0]!r})"
            actors.send(part.piece.device, self._key, number, part.model, what, self._wires(number))
            part.model = None  # its weights are where they belong
        self._count = itertools.count()
        self._inputs: list[npt.NDArray[Any]] = []
        self._outputs: list[npt.NDArray[Any]] = []
        self._numbers: list[int] = []
        self.latencies: list[float] = []
        self.taken: deque[tuple[float, float]] = deque(maxlen=1000)
        """When the last requests ended, and how long each took."""
        self.done = 0
        self._flying: dict[int, Flight] = {}

    @property
    def key(self) -> str:
        """What its submodels are called by on the devices."""
        return self._key

    def _wires(self, number: int) -> Wires:
        """Of one submodel."""
        part = self._parts[number]
        readers: list[dict[str, int]] = [{} for _ in part.outputs]
        for other in self._parts:
            for source, port in other.inputs:
                if source == number:
                    counts, device = readers[_passed(part, port)], other.piece.device
                    counts[device] = counts.get(device, 0) + 1
        given = _given(part)
        inputs = [
            (None, given.index(port[0])) if s is None else (s, _passed(self._parts[s], port))
            for s, port in part.inputs
        ]
        return Wires(tuple(inputs), tuple(readers), tuple(part.final))

    # -- requests --------------------------------------------------------------------------------------------

    def submit(self, inputs: Arrays) -> Flight:
        """Start a request; nothing is waited for."""
        arrays = [np.asarray(array, order="C") for array in inputs]
        flight = Flight(next(self._count), arrays, begun=time.perf_counter())
        given = dict(zip(self._names, arrays, strict=True))
        done: dict[int, Any] = {}
        calls: dict[int, tuple[str, list[int], Any]] = {}
        left = list(range(len(self._parts)))
        while left:
            ready = [n for n in left if all(s is None or s in done for s, _ in self._parts[n].inputs)]
            assert ready, "the submodels wait for each other"
            for number in ready:
                part = self._parts[number]
                sources = sorted({s for s, _ in part.inputs if s is not None})
                arguments = [given[name] for name in _given(part)]
                call = self._actors.handles[part.piece.device].run.options(num_returns=1 + len(part.final))
                found = call.remote(self._key, number, flight.number, *arguments, *(done[s] for s in sources))
                done[number], *results = found if part.final else (found,)
                calls[number] = part.piece.device, sources, done[number]
                flight.results |= dict(zip(part.final.values(), results, strict=True))
            left = [n for n in left if n not in ready]
        flight.calls = [calls[number] for number in range(len(self._parts))]
        self._flying[flight.number] = flight
        return flight

    def queues(self) -> dict[str, int]:
        """Device -> submodels that could run there or do, of the requests in flight; for another thread to ask."""
        import ray

        found = dict.fromkeys((piece.device for piece in self.pieces), 0)
        flying = list(self._flying.values())
        refs = [ref for flight in flying for _, _, ref in flight.calls]
        if refs:
            done, _ = ray.wait(refs, num_returns=len(refs), timeout=0, fetch_local=False)
            there = set(done)
            for flight in flying:
                for device, sources, ref in flight.calls:
                    if ref not in there and all(flight.calls[s][2] in there for s in sources):
                        found[device] += 1
        return found

    def take(self, flight: Flight, limit: float = PATIENCE) -> list[npt.NDArray[Any]]:
        """The outputs of a request, when it is done.

        Raises
        ------
        WorkerError : a node died; the message names it.
        """
        order = sorted(flight.results)
        try:
            values = self._values([flight.results[at] for at in order], limit)
        finally:
            self._flying.pop(flight.number, None)
        # Copies: what is in the object store stays there as long as an array of it does.
        known = dict(zip(order, (np.array(value) for value in values), strict=True))
        ended = time.perf_counter()
        self.taken.append((ended, ended - flight.begun))
        self.done += 1
        return [
            known[at] if at in known else self._constant(at, flight) for at in range(len(self._model.outputs))
        ]

    def _values(self, refs: list[Any], limit: float) -> Any:
        """What calls gave, unless somebody died who had something to send."""
        end = time.monotonic() + limit
        while True:
            left = end - time.monotonic()
            try:
                return self._actors.get(refs, max(0.0, min(left, GLANCE)))
            except RunTimeoutError:
                if self._actors.gone():
                    raise WorkerError(self._actors.who_died()) from None
                if left <= GLANCE:
                    raise

    def _constant(self, at: int, flight: Flight) -> npt.NDArray[Any]:
        """An output that no submodel makes: an input, or a constant."""
        source = self._model.outputs[at].get_node().input(0).get_source_output().get_node()
        if source.get_type_name() == "Parameter":
            return flight.inputs[self._names.index(source.get_friendly_name())].copy()
        return np.array(source.data)

    def stream(self, requests: Iterable[Arrays]) -> Iterator[list[npt.NDArray[Any]]]:
        """The outputs of many requests, in order; no request is taken before there is room for it."""
        flying: deque[Flight] = deque()
        for inputs in requests:
            if len(flying) >= self.slots:
                yield self.take(flying.popleft())
            flying.append(self.submit(inputs))
        while flying:
            yield self.take(flying.popleft())

    # -- the interface of executors --------------------------------------------------------------------------

    def feed(self, inputs: Arrays) -> None:
        """Set the inputs of the following runs."""
        self._inputs = [np.asarray(array, order="C") for array in inputs]

    def infer(self, items: int | None = None) -> None:
        """Run once; a pipeline runs its whole stream, or so many ``items``, on the same inputs."""
        first = next(self._count)
        for outputs in self.stream([self._inputs] * (items or self.items)):
            self._outputs = outputs
        self._numbers = list(range(first + 1, first + 1 + (items or self.items)))

    def once(self) -> None:
        """Fill every slot once."""
        self.infer(min(self.items, self.slots + 1))

    def outputs(self) -> list[npt.NDArray[Any]]:
        """What the last run gave."""
        return self._outputs

    def _ran(self) -> list[Span]:
        """What the devices did in the last run."""
        wanted = set(self._numbers)
        logs = self._actors.all(lambda handle: handle.spans.remote())
        return [span for log in logs.values() for span in log if span["request"] in wanted]

    def spans(self) -> list[Span]:
        """Start and end of every submodel in a run made for this, each by the clock of its node."""
        self._actors.all(lambda handle: handle.spans.remote())
        self.once()
        ran = self._ran()
        began, first = min(span["start"] for span in ran), min(self._numbers)
        return sorted(
            (
                {
                    **span,
                    "start": span["start"] - began,
                    "end": span["end"] - began,
                    "request": span["request"] - first,
                    "ops": len(self.pieces[span["submodel"]].ops),
                }
                for span in ran
            ),
            key=lambda span: span["start"],
        )

    def timed(self, clock: str) -> Sample:
        """Run once. By the clock ``core`` a sample is a replay of the submodels' times on their cores."""
        self._actors.all(lambda handle: handle.spans.remote())
        before = self._actors.all(lambda handle: handle.waited.remote())
        began = time.perf_counter()
        self.infer()
        seconds = time.perf_counter() - began
        if clock == "core":
            return self._kept(Sample(seconds, max(0.0, seconds - self.core_seconds())), clock)
        after = self._actors.all(lambda handle: handle.waited.remote())
        waited = [
            after[name][thread] - before[name].get(thread, 0.0) for name in after for thread in after[name]
        ]
        lost = max(waited, default=0.0) if self.items > 1 else sum(waited)
        return self._kept(Sample(seconds, lost), clock)

    def _kept(self, sample: Sample, clock: str) -> Sample:
        if clock == "core" or sample.clean:
            self.latencies += [taken for _, taken in list(self.taken)[-self.items :]]
        return sample

    def core_seconds(self) -> float:
        """How long the last run would have taken if every submodel had had its core to itself, and links were free."""
        ran = sorted(self._ran(), key=lambda span: span["start"])
        count, first, size = len(self._parts), min(self._numbers), len(self._numbers)
        at = {name: d for d, name in enumerate(self._actors.specs)}
        seconds: list[float] = [0.0] * (count * size)
        sequence: list[list[int]] = [[] for _ in at]
        device = [at[part.piece.device] for part in self._parts] * size
        waits: list[set[int]] = [set() for _ in range(count * size)]
        for span in ran:
            unit = (span["request"] - first) * count + span["submodel"]
            seconds[unit] = span["core"]
            sequence[device[unit]].append(unit)
        for number in range(size):
            for job, part in enumerate(self._parts):
                unit = number * count + job
                waits[unit] = {number * count + s for s, _ in part.inputs if s is not None}
                if number >= self.slots and not waits[unit]:
                    waits[unit] = set(range((number - self.slots) * count, (number - self.slots + 1) * count))
        return simulate(sequence, seconds, waits, device, piece=0.0, wait=0.0)[0]

    def close(self) -> None:
        """Free its submodels; the devices stay."""
        from loadmaster.errors import RunError

        for handle in self._actors.handles.values():
            try:
                self._actors.get(handle.drop.remote(self._key), 30.0)
            except RunError:  # a device that is gone holds nothing
                continue
