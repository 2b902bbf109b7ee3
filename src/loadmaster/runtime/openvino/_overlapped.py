"""Ways to run a model in which devices overlap: ``concurrent`` within one request, ``pipeline`` over a stream."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from loadmaster.cores import allowed_cores
from loadmaster.errors import RunError
from loadmaster.graph.openvino import one_line
from loadmaster.runtime._deadline import check_deadline
from loadmaster.runtime._flow import Flow, Job, Request
from loadmaster.runtime._host import Arrays, Span
from loadmaster.runtime._measuring import Sample, lost_since, run_queue_waits
from loadmaster.runtime._pieces import WAIT, Piece, simulate
from loadmaster.runtime.openvino._devices import Devices, DeviceSpec
from loadmaster.runtime.openvino._submodels import Port, Submodel, cut_model

__all__ = ["Overlapped", "Slot", "compiled_parts", "concurrent", "cores_of", "pipeline"]


def cores_of(specs: Iterable[DeviceSpec], allowed: Iterable[int] | None = None) -> dict[str, int | None]:
    """A core for every device on the CPU: its own where it names one, else one that no other device has."""
    specs = tuple(specs)
    cores = sorted(allowed_cores() if allowed is None else allowed)
    taken = {spec.core for spec in specs if spec.core is not None}
    spare = [core for core in cores if core not in taken]
    found: dict[str, int | None] = {}
    for spec in specs:
        if spec.core is not None or not spec.plugin.startswith("cpu") or spec.threads > 1:
            found[spec.name] = spec.core if spec.threads == 1 else None
        else:
            found[spec.name] = spare.pop(0) if spare else None
    return found


class Overlapped:
    """Submodels compiled on their devices, sharing tensors, driven by a :class:`Flow`.

    An executor of the worker, and what :func:`loadmaster.open` gives. ``slots`` requests may be in flight, each with
    tensors of its own.
    """

    def __init__(
        self, model: Any, devices: Devices, pieces: Sequence[Piece], *, slots: int = 1, items: int = 1
    ) -> None:
        self.items = items
        self._model, self._devices = model, devices
        self._parts = cut_model(model, pieces)
        self.submodels = len(self._parts)
        self._compiled = compiled_parts(devices, self._parts)
        self._slots = [Slot(self._parts, self._compiled, model, devices) for _ in range(slots)]
        used = [spec for spec in devices.specs.values() if any(p.device == spec.name for p in pieces)]
        self._flow = Flow([slot.jobs for slot in self._slots], cores_of(used), said=one_line)
        self._inputs: list[npt.NDArray[Any]] = []
        self._outputs: list[npt.NDArray[Any]] = []
        self._last: list[Request] = []
        self.latencies: list[float] = []
        """Seconds on the clock of every request in undisturbed samples."""

    # -- the worker's interface ------------------------------------------------------------------------------

    def feed(self, inputs: Arrays) -> None:
        """Set the inputs of the following runs."""
        self._inputs = [np.asarray(array, order="C") for array in inputs]
        for slot in self._slots:
            slot.feed(self._inputs)

    def infer(self, items: int | None = None) -> None:
        """Run once; a pipeline runs its whole stream, or so many ``items``, on the same inputs."""
        requests: list[Request] = []
        self._last = requests
        done = 0
        try:
            for _ in range(items or self.items):
                while len(requests) - done >= self._flow.slots:
                    self._finish(requests[done])
                    done += 1
                requests.append(self._flow.submit(self._flow.reserve()))
        finally:
            while done < len(requests):
                self._finish(requests[done])
                done += 1

    def _finish(self, request: Request) -> None:
        try:
            self._flow.wait(request)
        finally:
            self._flow.release(request)

    def once(self) -> None:
        """Fill every slot once: enough to see whether the outputs are right."""
        self.infer(min(self.items, self._flow.slots + 1))

    def outputs(self) -> list[npt.NDArray[Any]]:
        """What the last run gave."""
        return self._slots[self._last[-1].slot].outputs(self._inputs)

    def spans(self) -> list[Span]:
        """Real start and end of every submodel in a run made for this."""
        self.once()
        began = min(request.begun for request in self._last)
        return sorted(
            (
                {
                    "submodel": number,
                    "device": self._parts[number].piece.device,
                    "start": start - began,
                    "end": end - began,
                    "core": core,
                    "request": at,
                    "ops": len(self._parts[number].piece.ops),
                }
                for at, request in enumerate(self._last)
                for number, start, end, core in request.spans
            ),
            key=lambda span: span["start"],
        )

    def timed(self, clock: str) -> Sample:
        """Run once. By the clock ``core`` a sample is a replay: see :meth:`core_seconds`."""
        before = run_queue_waits()
        began = time.perf_counter()
        self.infer()
        seconds = time.perf_counter() - began
        if clock == "core":
            sample = Sample(seconds, max(0.0, seconds - self.core_seconds()))
        else:
            sample = Sample(seconds, lost_since(before, stream=self.items > 1))
        if clock == "core" or sample.clean:
            self.latencies += [request.ended - request.begun for request in self._last]
        return sample

    def core_seconds(self) -> float:
        """How long the last run would have taken if every submodel had had its core to itself.

        Every submodel takes its time on the core, each device keeps to the order in which it ran them, and a device
        sees after :data:`WAIT` what another one has finished.
        """
        count = len(self._parts)
        number = {name: at for at, name in enumerate(self._devices.specs)}
        ran = [
            (start, at * count + job, core)
            for at, request in enumerate(self._last)
            for job, start, _, core in request.spans
        ]
        size = count * len(self._last)
        seconds, sequence = [0.0] * size, [[] for _ in number]  # type: ignore[var-annotated]
        device = [number[part.piece.device] for part in self._parts] * len(self._last)
        waits: list[set[int]] = [set() for _ in range(size)]
        for _, unit, core in sorted(ran):
            seconds[unit] = core
            sequence[device[unit]].append(unit)
        slots = self._flow.slots
        for at in range(len(self._last)):
            for job, made in enumerate(self._slots[0].jobs):
                for reader in made.readers:
                    waits[at * count + reader].add(at * count + job)
                if at >= slots and made.waits == 0:  # nothing begins before there is a slot for it
                    waits[at * count + job] |= set(range((at - slots) * count, (at - slots + 1) * count))
        return simulate(sequence, seconds, waits, device, piece=0.0, wait=WAIT)[0] + WAIT

    def close(self) -> None:
        """End the threads."""
        self._flow.close()

    # -- for those who watch ---------------------------------------------------------------------------------

    @property
    def pieces(self) -> list[Piece]:
        """What runs."""
        return [part.piece for part in self._parts]

    def queues(self) -> dict[str, int]:
        """Device -> submodels that could run there or do."""
        return self._flow.queues()

    def observed(self) -> list[Span]:
        """The last runs of submodels, in seconds since 1970."""
        offset = time.time() - time.perf_counter()
        return [
            {
                "device": self._parts[job].piece.device,
                "submodel": job,
                "request": request,
                "start": start + offset,
                "end": end + offset,
            }
            for request, job, start, end in self._flow.ran()
        ]

    # -- for Python ------------------------------------------------------------------------------------------

    def run(self, inputs: Arrays) -> list[npt.NDArray[Any]]:
        """The outputs of one request."""
        return next(self.stream([inputs]))

    def stream(self, requests: Iterable[Arrays]) -> Iterator[list[npt.NDArray[Any]]]:
        """The outputs of many requests, in order; as many are in flight as there are slots."""
        flying: list[tuple[Request, Arrays]] = []
        try:
            for inputs in requests:
                if len(flying) >= self._flow.slots:
                    yield self._take(flying)
                arrays = [np.asarray(array, order="C") for array in inputs]
                slot = self._flow.reserve()
                try:
                    self._slots[slot].feed(arrays)
                except BaseException:
                    self._flow.give_back(slot)
                    raise
                flying.append((self._flow.submit(slot), arrays))
            while flying:
                yield self._take(flying)
        finally:
            for request, _ in flying:  # the stream was left early: let what is under way end
                request.finished.wait()
                self._flow.release(request)

    def _take(self, flying: list[tuple[Request, Arrays]]) -> list[npt.NDArray[Any]]:
        request, inputs = flying.pop(0)
        try:
            self._flow.wait(request)
            return self._slots[request.slot].outputs(inputs)
        finally:
            self._flow.release(request)


class Slot:
    """The infer requests and tensors of one request in flight."""

    def __init__(
        self, parts: Sequence[Submodel], compiled: Sequence[Any], model: Any, devices: Devices
    ) -> None:
        self._inputs: dict[str, list[tuple[Any, int]]] = {}
        self._names = [port.get_node().get_friendly_name() for port in model.inputs]
        self._outputs: list[Any] = [None] * len(model.outputs)
        self._model = model
        tensors: dict[tuple[int, Port], Any] = {}
        self.jobs: list[Job] = []
        readers: list[set[int]] = [set() for _ in parts]
        waits: list[set[int]] = [set() for _ in parts]
        requests = [made.create_infer_request() for made in compiled]
        for number, (part, request) in enumerate(zip(parts, requests, strict=True)):
            for at, port in enumerate(part.outputs):
                tensor = request.get_output_tensor(at)
                if at in part.final:
                    self._outputs[part.final[at]] = tensor
                else:
                    tensors[number, port] = tensor
        for number, (part, request) in enumerate(zip(parts, requests, strict=True)):
            for at, (source, port) in enumerate(part.inputs):
                if source is None:
                    self._inputs.setdefault(port[0], []).append((request, at))
                    continue
                request.set_input_tensor(at, tensors[source, port])
                readers[source].add(number)
                waits[number].add(source)
            what = f"submodel {number} ({len(part.piece.ops)} ops, from {part.piece.ops[0]!r})"
            run = devices.specs[part.piece.device].paced(request.infer)
            self.jobs.append(Job(what, part.piece.device, run, (), 0))
        for number, job in enumerate(self.jobs):
            job.readers, job.waits = sorted(readers[number]), len(waits[number])

    def feed(self, inputs: Arrays) -> None:
        import openvino as ov

        for name, array in zip(self._names, inputs, strict=True):
            tensor = ov.Tensor(array)
            for request, at in self._inputs.get(name, ()):
                request.set_input_tensor(at, tensor)

    def outputs(self, inputs: Arrays) -> list[npt.NDArray[Any]]:
        found = []
        for at, tensor in enumerate(self._outputs):
            if tensor is not None:
                found.append(tensor.data.copy())
                continue
            source = self._model.outputs[at].get_node().input(0).get_source_output().get_node()
            if source.get_type_name() == "Parameter":
                found.append(inputs[self._names.index(source.get_friendly_name())].copy())
            else:
                found.append(np.array(source.data))
        return found


def compiled_part(devices: Devices, part: Submodel) -> Any:
    try:
        return devices.compile(part.model, part.piece.device)
    except RuntimeError as error:
        raise RunError(
            f"device {part.piece.device!r} cannot compile the submodel from op {part.piece.ops[0]!r} to "
            f"{part.piece.ops[-1]!r} ({one_line(error)})"
        ) from None


def compiled_parts(devices: Devices, parts: Sequence[Submodel]) -> list[Any]:
    """All submodels compiled, as long as there is time."""
    found = []
    for number, part in enumerate(parts):
        check_deadline(number, len(parts))
        found.append(compiled_part(devices, part))
    return found


def concurrent(model: Any, devices: Devices, *, pieces: Sequence[Piece]) -> Overlapped:
    """All devices at once on one request."""
    return Overlapped(model, devices, pieces)


def pipeline(
    model: Any, devices: Devices, *, pieces: Sequence[Piece], items: int = 32, slots: int | None = None
) -> Overlapped:
    """A stream of requests; a run is a stream of ``items``, of which ``slots`` are in flight."""
    stages = len({piece.device for piece in pieces})
    return Overlapped(model, devices, pieces, slots=slots or stages + 1, items=items)
