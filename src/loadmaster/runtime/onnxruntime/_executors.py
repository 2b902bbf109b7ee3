"""Ways to run a model by ONNX Runtime inside the worker process, all with the same few methods."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from loadmaster.errors import RunError
from loadmaster.runtime._deadline import check_deadline
from loadmaster.runtime._flow import Flow, Job, Request
from loadmaster.runtime._host import Arrays, Executor, Span
from loadmaster.runtime._measuring import Sample, lost_since, run_queue_waits
from loadmaster.runtime._pieces import Piece
from loadmaster.runtime.onnxruntime._library import one_line, onnxruntime, session
from loadmaster.runtime.onnxruntime._model import FlatModel, Submodel
from loadmaster.runtime.openvino._chain import in_order
from loadmaster.runtime.openvino._devices import DeviceSpec
from loadmaster.runtime.openvino._overlapped import Overlapped, cores_of

__all__ = ["EXECUTORS", "Devices", "OverlappedSessions", "open_part"]

Devices = Mapping[str, DeviceSpec]


def open_part(part: Submodel, devices: Devices) -> Any:
    """A session for a submodel on its device.

    Raises
    ------
    RunError : names the submodel.
    """
    try:
        return session(part.content, devices[part.piece.device])
    except Exception as error:
        raise RunError(
            f"device {part.piece.device!r} cannot load the submodel from op {part.piece.ops[0]!r} to "
            f"{part.piece.ops[-1]!r} ({one_line(error)})"
        ) from None


def _open_parts(parts: Sequence[Submodel], devices: Devices) -> list[Any]:
    """Sessions for all submodels, as long as there is time."""
    found = []
    for number, part in enumerate(parts):
        check_deadline(number, len(parts))
        found.append(open_part(part, devices))
    return found


class _Tensors:
    """What one request holds: the inputs, and what the submodels have made so far."""

    def __init__(
        self, model: FlatModel, devices: Devices, parts: Sequence[Submodel], sessions: Sequence[Any]
    ) -> None:
        self._model, self._parts, self._sessions = model, parts, sessions
        self._ort = onnxruntime("running a model by ONNX Runtime")
        self._given: dict[str, Any] = {}
        self._made: list[dict[str, Any]] = [{} for _ in parts]
        self.calls = [
            devices[part.piece.device].paced(partial(self._run, number)) for number, part in enumerate(parts)
        ]
        """One per submodel, at the speed of its device."""

    def feed(self, inputs: Arrays) -> None:
        self._given = {
            name: self._ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array))
            for (name, _, _), array in zip(self._model.inputs, inputs, strict=True)
        }

    def _run(self, number: int) -> None:
        """One submodel: tensors pass from one to the next without being copied."""
        part = self._parts[number]
        if not part.outputs:
            return
        feed = {
            name: self._given[name] if source is None else self._made[source][name]
            for source, name in part.inputs
        }
        found = self._sessions[number].run_with_ort_values(part.outputs, feed)
        self._made[number] = dict(zip(part.outputs, found, strict=True))

    def outputs(self) -> list[npt.NDArray[Any]]:
        made = {name: value for tensors in self._made for name, value in tensors.items()}
        return [
            (self._given[name] if name in self._given else made[name]).numpy().copy()
            for name in self._model.outputs
        ]


class Chain:
    """Submodels one after another, in the calling thread; one of them is a device alone."""

    def __init__(self, model: FlatModel, devices: Devices, parts: Sequence[Submodel]) -> None:
        self._parts, self.submodels = parts, len(parts)
        self._slot = _Slot(model, devices, parts, _open_parts(parts, devices))
        self._order = in_order(self._slot.jobs)

    def feed(self, inputs: Arrays) -> None:
        self._slot.feed(inputs)

    def infer(self) -> None:
        for number in self._order:
            self._run(number)

    def _run(self, number: int) -> None:
        job = self._slot.jobs[number]
        try:
            job.run()
        except Exception as error:
            raise RunError(f"{job.name} on device {job.device!r} failed: {one_line(error)}") from None

    def outputs(self) -> list[npt.NDArray[Any]]:
        return self._slot.outputs(())

    def spans(self) -> list[Span]:
        self.infer()
        found: list[Span] = []
        began = time.perf_counter()
        for number in self._order:
            part = self._parts[number]
            start, on_core = time.perf_counter(), time.thread_time()
            self._run(number)
            found.append(
                {
                    "submodel": number,
                    "device": part.piece.device,
                    "start": start - began,
                    "end": time.perf_counter() - began,
                    "core": time.thread_time() - on_core,
                    "ops": len(part.piece.ops),
                }
            )
        return found


class Plain:
    """ONNX Runtime by itself on the file as it is: what outputs are compared with, and all cores at once."""

    submodels = 1

    def __init__(self, model: FlatModel, threads: int = 1) -> None:
        self._model, self._threads = model, threads
        self._session = session(model.path, None, threads=threads)
        self._feed: dict[str, Any] = {}
        self._outputs: list[Any] = []

    def feed(self, inputs: Arrays) -> None:
        names = [name for name, _, _ in self._model.inputs]
        fed = {name: np.ascontiguousarray(array) for name, array in zip(names, inputs, strict=True)}
        self._feed = {**fed, **self._model.values}

    def infer(self) -> None:
        self._outputs = self._session.run(None, self._feed)

    def outputs(self) -> list[npt.NDArray[Any]]:
        return [np.array(array) for array in self._outputs]

    def spans(self) -> list[Span]:
        began = time.perf_counter()
        self.infer()
        return [{"submodel": 0, "device": "all cores", "start": 0.0, "end": time.perf_counter() - began}]

    def timed(self, clock: str) -> Sample:
        """Run once. By the clock ``core``: at best, as if all threads were busy all the time or none waited twice."""
        before, busy = run_queue_waits(), time.process_time()
        began = time.perf_counter()
        self.infer()
        seconds = time.perf_counter() - began
        waited = lost_since(before, stream=getattr(self, "items", 1) > 1)
        busy = time.process_time() - busy
        if clock == "core":
            waited = min(waited, seconds - busy / self._threads)
        return Sample(seconds, max(0.0, waited))


class Streams(Plain):
    """ONNX Runtime by itself on a stream of requests: one at a time on each of several threads."""

    def __init__(self, model: FlatModel, threads: int, items: int) -> None:
        super().__init__(model)
        self._threads, self.items = threads, items
        self._pool = ThreadPoolExecutor(threads)

    def infer(self, items: int | None = None) -> None:
        """Run the whole stream, or so many ``items``, on the same inputs."""
        runs = [self._pool.submit(self._session.run, None, self._feed) for _ in range(items or self.items)]
        for run in runs:
            self._outputs = run.result()

    def once(self) -> None:
        """Run every thread once."""
        self.infer(self._threads)

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()


class OverlappedSessions(Overlapped):
    """Sessions on their devices at once, one thread per device, driven by a :class:`Flow`."""

    def __init__(
        self, model: FlatModel, devices: Devices, pieces: Sequence[Piece], *, slots: int = 1, items: int = 1
    ) -> None:
        self.items = items
        named: Any = _Named(devices)
        self._model, self._devices = model, named
        self._parts: Any = model.cut(pieces)
        self.submodels = len(self._parts)
        self._compiled = _open_parts(self._parts, devices)
        self._slots: Any = [_Slot(model, devices, self._parts, self._compiled) for _ in range(slots)]
        used = [spec for spec in devices.values() if any(p.device == spec.name for p in pieces)]
        self._flow = Flow([slot.jobs for slot in self._slots], cores_of(used), said=one_line)
        self._inputs: list[npt.NDArray[Any]] = []
        self._outputs: list[npt.NDArray[Any]] = []
        self._last: list[Request] = []
        self.latencies: list[float] = []


class _Named:
    """Devices as :class:`Overlapped` knows them."""

    def __init__(self, specs: Devices) -> None:
        self.specs = specs


class _Slot:
    """The tensors and jobs of one request in flight."""

    def __init__(
        self, model: FlatModel, devices: Devices, parts: Sequence[Submodel], sessions: Sequence[Any]
    ) -> None:
        self._tensors = _Tensors(model, devices, parts, sessions)
        readers: list[set[int]] = [set() for _ in parts]
        waits = [{source for source, _ in part.inputs if source is not None} for part in parts]
        for number, sources in enumerate(waits):
            for source in sources:
                readers[source].add(number)
        self.jobs = [
            Job(
                f"submodel {number} ({len(part.piece.ops)} ops, from {part.piece.ops[0]!r})",
                part.piece.device,
                self._tensors.calls[number],
                sorted(readers[number]),
                len(waits[number]),
            )
            for number, part in enumerate(parts)
        ]

    def feed(self, inputs: Arrays) -> None:
        self._tensors.feed(inputs)

    def outputs(self, _: Arrays) -> list[npt.NDArray[Any]]:
        return self._tensors.outputs()


def single(model: FlatModel, devices: Devices, *, device: str) -> Executor:
    """Everything on one device; a reference is the file as it is."""
    if device.startswith("reference-"):
        return Plain(model)
    return Chain(model, devices, [model.whole(device)])


def serial(model: FlatModel, devices: Devices, *, placement: Mapping[str, str]) -> Executor:
    """Every op on the device that a placement gives it, one submodel after another."""
    return Chain(model, devices, model.cut(model.pieces(placement)))


def chain(model: FlatModel, devices: Devices, *, pieces: Sequence[Piece]) -> Executor:
    """Pieces one after another."""
    return Chain(model, devices, model.cut(pieces))


def concurrent(model: FlatModel, devices: Devices, *, pieces: Sequence[Piece]) -> Executor:
    """All devices at once on one request."""
    return OverlappedSessions(model, devices, pieces)


def pipeline(
    model: FlatModel,
    devices: Devices,
    *,
    pieces: Sequence[Piece],
    items: int = 32,
    slots: int | None = None,
) -> Executor:
    """A stream of requests; a run is a stream of ``items``, of which ``slots`` are in flight."""
    stages = len({piece.device for piece in pieces})
    return OverlappedSessions(model, devices, pieces, slots=slots or stages + 1, items=items)


def all_cores(model: FlatModel, devices: Devices, *, threads: int, precision: str = "f32") -> Executor:
    """What ONNX Runtime makes of so many cores by itself."""
    return Plain(model, threads)


def streams(
    model: FlatModel, devices: Devices, *, threads: int, items: int, precision: str = "f32"
) -> Executor:
    """What ONNX Runtime makes of so many cores and a stream of requests by itself."""
    return Streams(model, threads, items)


EXECUTORS: dict[str, Callable[..., Executor]] = {
    "single": single,
    "serial": serial,
    "chain": chain,
    "concurrent": concurrent,
    "pipeline": pipeline,
    "all-cores": all_cores,
    "streams": streams,
}
"""Way to run -> what makes it ready; the worker's command ``load`` names one."""
