"""Compiled models inside the worker process: a table of ways to run one, all with the same few methods."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from loadmaster.errors import RunError
from loadmaster.graph.openvino import one_line
from loadmaster.runtime._host import Arrays, Executor, Span
from loadmaster.runtime._measuring import Sample, lost_since, run_queue_waits
from loadmaster.runtime._pieces import Piece
from loadmaster.runtime.openvino._affinity import place_nodes, set_affinity
from loadmaster.runtime.openvino._chain import Chain, chain, submodels_of
from loadmaster.runtime.openvino._devices import Devices, DeviceSpec
from loadmaster.runtime.openvino._overlapped import concurrent, pipeline
from loadmaster.runtime.openvino._submodels import cut_model

__all__ = ["EXECUTORS"]


class Compiled:
    """A model that OpenVINO runs by itself, on one device or through HETERO."""

    def __init__(
        self,
        compiled: Any,
        devices: Mapping[str, str],
        again: Any,
        culprit: Callable[[RuntimeError], str] = lambda _: "the model",
        spec: DeviceSpec | None = None,
    ) -> None:
        self._compiled, self._devices, self._again, self._culprit = compiled, devices, again, culprit
        self.submodels = submodel_count(compiled)
        self._request = compiled.create_infer_request()
        self._speed = 1.0 if spec is None else spec.speed
        self._run = self._request.infer if spec is None else spec.paced(self._request.infer)

    def feed(self, inputs: Arrays) -> None:
        import openvino as ov

        self._inputs = [ov.Tensor(np.asarray(array, order="C")) for array in inputs]
        for at, tensor in enumerate(self._inputs):
            self._request.set_input_tensor(at, tensor)

    def infer(self) -> None:
        try:
            self._run()
        except RuntimeError as error:
            raise RunError(f"OpenVINO cannot run {self._culprit(error)} ({one_line(error)})") from None

    def outputs(self) -> list[npt.NDArray[Any]]:
        return [self._request.get_output_tensor(i).data.copy() for i in range(len(self._compiled.outputs))]

    def spans(self) -> list[Span]:
        """Submodel after submodel, as long as its nodes took: HETERO gives no start times, but it is serial."""
        counted = self._again()
        request = counted.create_infer_request()
        for at, tensor in enumerate(self._inputs):
            request.set_input_tensor(at, tensor)
        request.infer()
        request.infer()
        order: dict[str, float] = {}
        device: dict[str, str] = {}
        for entry in request.profiling_info:
            prefix, separator, _ = entry.node_name.partition(": ")
            key = prefix if separator and prefix.startswith("subgraph") else "subgraph0"
            order[key] = order.get(key, 0.0) + entry.real_time.total_seconds() / self._speed
            name = entry.node_name.removeprefix(f"{key}: ")
            if name in self._devices:
                device[key] = self._devices[name]
        spans, now = [], 0.0
        for key, seconds in order.items():
            spans.append(
                {
                    "submodel": int(key.removeprefix("subgraph")),
                    "device": device.get(key, self._devices.get("", "")),
                    "start": now,
                    "end": now + seconds,
                }
            )
            now += seconds
        return spans


def submodel_count(compiled: Any) -> int:
    """Into how many submodels HETERO has cut a model; 1 where it is not HETERO's."""
    try:
        return int(compiled.get_property("HETERO_NUMBER_OF_SUBMODELS"))
    except RuntimeError:
        return 1


def single(model: Any, devices: Devices, *, device: str) -> Compiled:
    """Everything on one device."""
    return Compiled(
        devices.compile(model, device),
        {"": device},
        lambda: devices.compile(model, device, PERF_COUNT=True),
        spec=devices.specs[device],
    )


def auto(model: Any, devices: Devices, *, order: Sequence[str]) -> Compiled | Chain:
    """What HETERO does by itself: the first device that supports an op, in this order."""
    fresh = model.clone()
    if any(devices.specs[name].speed != 1.0 for name in order):
        return hetero(model, devices, placement=_first_supporting(model, devices, order))
    return Compiled(
        devices.compile_hetero(fresh, order),
        {"": order[0]},
        lambda: devices.compile_hetero(model.clone(), order, PERF_COUNT=True),
    )


def _first_supporting(model: Any, devices: Devices, order: Sequence[str]) -> dict[str, str]:
    where: dict[str, str] = {}
    names = [node.get_friendly_name() for node in model.get_ordered_ops()]
    for device in reversed(order):
        missing = set(devices.unsupported(model, device))
        where |= {name: device for name in names if name not in missing or name not in where}
    return where


def hetero(model: Any, devices: Devices, *, placement: Mapping[str, str]) -> Compiled | Chain:
    """Every op on the device that a placement gives it; by a chain of our own where a device is slowed down."""
    used = [name for name in devices.specs if name in set(placement.values())]
    fresh = model.clone()
    where = place_nodes(fresh, placement)
    set_affinity(fresh, where, devices.registered)
    for name in used:
        missing = [op for op in devices.unsupported(fresh, name) if where[op] == name]
        if missing:
            raise RunError(f"device {name!r} does not support op {missing[0]!r}: place it elsewhere")
    if len(used) == 1:
        return single(model, devices, device=used[0])
    if any(devices.specs[name].speed != 1.0 for name in used):
        return Chain(model, devices, submodels_of(model, where))

    def culprit(error: RuntimeError) -> str:
        return _culprit(model, devices, where, error)

    def compiled(**more: Any) -> Any:
        try:
            return devices.compile_hetero(fresh, used, **more)
        except RuntimeError as error:
            raise RunError(f"HETERO cannot compile {culprit(error)} ({one_line(error)})") from None

    return Compiled(compiled(), where, lambda: compiled(PERF_COUNT=True), culprit)


def _culprit(model: Any, devices: Devices, where: Mapping[str, str], error: RuntimeError) -> str:
    """The submodel that a message of OpenVINO's is about.

    The one that holds an op which the message names; else the first that its device cannot compile by itself.
    """
    text = str(error)
    pieces = submodels_of(model, where)
    for node in reversed(model.get_ordered_ops()):
        name = node.get_friendly_name()
        if f"'{name}'" in text:
            piece = next((piece for piece in pieces if name in piece.ops), Piece(where[name], (name,)))
            return _named(piece, name)
    for part in cut_model(model, pieces, channels_last=False):
        try:
            devices.compile(part.model, part.piece.device)
        except RuntimeError:
            return _named(part.piece, None)
    return "the placement, though each of its submodels compiles by itself"


def _named(piece: Piece, op: str | None) -> str:
    inside = f", at op {op!r}" if op is not None else ""
    return f"the submodel on device {piece.device!r} from op {piece.ops[0]!r} to {piece.ops[-1]!r}{inside}"


class AllCores(Compiled):
    """OpenVINO by itself on several threads of one CPU: no placement."""

    def __init__(self, compiled: Any, threads: int, again: Any) -> None:
        super().__init__(compiled, {"": "all cores"}, again)
        self._threads = threads

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


def all_cores(model: Any, devices: Devices, *, threads: int, precision: str = "f32") -> AllCores:
    """What OpenVINO makes of so many cores by itself."""
    name = f"reference-{precision}"

    def compiled(**more: Any) -> Any:
        return devices.compile(model, name, INFERENCE_NUM_THREADS=threads, **more)

    return AllCores(compiled(), threads, lambda: compiled(PERF_COUNT=True))


class Streams(AllCores):
    """OpenVINO by itself on a stream of requests: one at a time on each of several cores, no placement."""

    def __init__(self, compiled: Any, threads: int, again: Any, items: int) -> None:
        super().__init__(compiled, threads, again)
        self.items = items
        self._requests = [self._request, *(compiled.create_infer_request() for _ in range(threads - 1))]

    def feed(self, inputs: Arrays) -> None:
        super().feed(inputs)
        for request in self._requests:
            for at, tensor in enumerate(self._inputs):
                request.set_input_tensor(at, tensor)

    def infer(self, items: int | None = None) -> None:
        """Run the whole stream, or so many ``items``, on the same inputs."""
        busy: list[Any] = []
        for number in range(items or self.items):
            if len(busy) == len(self._requests):
                busy.pop(0).wait()
            request = self._requests[number % len(self._requests)]
            request.start_async()
            busy.append(request)
        for request in busy:
            request.wait()

    def once(self) -> None:
        """Run every request once: enough to see whether the outputs are right."""
        self.infer(len(self._requests))


def streams(model: Any, devices: Devices, *, threads: int, items: int, precision: str = "f32") -> Streams:
    """What OpenVINO makes of so many cores and a stream of requests by itself."""
    name = f"reference-{precision}"

    def compiled(**more: Any) -> Any:
        return devices.compile(model, name, INFERENCE_NUM_THREADS=threads, NUM_STREAMS=threads, **more)

    return Streams(compiled(), threads, lambda: compiled(PERF_COUNT=True), items)


EXECUTORS: dict[str, Callable[..., Executor]] = {
    "single": single,
    "auto": auto,
    "hetero": hetero,
    "chain": chain,
    "all-cores": all_cores,
    "streams": streams,
    "concurrent": concurrent,
    "pipeline": pipeline,
}
"""Way to run -> what makes it ready; the worker's command ``load`` names one."""
