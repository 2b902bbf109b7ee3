"""A placement run submodel after submodel, as HETERO does, by a loop of our own.

For what HETERO cannot do: devices of unlike speed, and the time that every submodel took.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from loadmaster.errors import RunError
from loadmaster.graph.openvino import one_line
from loadmaster.runtime._flow import Job
from loadmaster.runtime._host import Arrays, Span
from loadmaster.runtime._pieces import DATA, Piece
from loadmaster.runtime.openvino._devices import Devices
from loadmaster.runtime.openvino._overlapped import Slot, compiled_parts
from loadmaster.runtime.openvino._submodels import cut_model

__all__ = ["Chain", "chain", "in_order", "submodels_of"]


class Chain:
    """Submodels in an order in which each finds what it reads; boundaries have the layout that HETERO's have.

    The order is that of ``pieces`` wherever it does not matter.
    """

    def __init__(self, model: Any, devices: Devices, pieces: Sequence[Piece]) -> None:
        self._parts = cut_model(model, pieces, channels_last=False)
        self.submodels = len(self._parts)
        compiled = compiled_parts(devices, self._parts)
        self._slot = Slot(self._parts, compiled, model, devices)
        self._order = in_order(self._slot.jobs)
        self._inputs: list[npt.NDArray[Any]] = []

    def feed(self, inputs: Arrays) -> None:
        """Set the inputs of the following runs."""
        self._inputs = [np.ascontiguousarray(array) for array in inputs]
        self._slot.feed(self._inputs)

    def infer(self) -> None:
        """Run once."""
        for number in self._order:
            job = self._slot.jobs[number]
            try:
                job.run()
            except RuntimeError as error:
                raise RunError(f"{job.name} on device {job.device!r} failed: {one_line(error)}") from None

    def outputs(self) -> list[npt.NDArray[Any]]:
        """What the last run gave."""
        return self._slot.outputs(self._inputs)

    def spans(self) -> list[Span]:
        """Real start and end of every submodel in a run made for this."""
        self.infer()
        found = []
        began = time.perf_counter()
        for number in self._order:
            part, job = self._parts[number], self._slot.jobs[number]
            start, on_core = time.perf_counter(), time.thread_time()
            job.run()
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


def in_order(jobs: Sequence[Job]) -> list[int]:
    """Jobs such that none comes before one that it waits for; of those that could come next, the first."""
    left = [job.waits for job in jobs]
    ready = [number for number, waits in enumerate(left) if not waits]
    order: list[int] = []
    while ready:
        order.append(heapq.heappop(ready))
        for reader in jobs[order[-1]].readers:
            left[reader] -= 1
            if not left[reader]:
                heapq.heappush(ready, reader)
    if len(order) < len(jobs):
        stuck = next(number for number, waits in enumerate(left) if waits)
        raise RunError(f"the submodels wait for each other: {jobs[stuck].name} never begins")
    return order


def chain(model: Any, devices: Devices, *, pieces: Sequence[Piece]) -> Chain:
    """Pieces one after another."""
    return Chain(model, devices, pieces)


def submodels_of(model: Any, where: Mapping[str, str]) -> list[Piece]:
    """The ops of each device between two changes of the device, in an order in which they can run."""
    level: dict[str, int] = {}
    found: dict[tuple[int, str], list[str]] = {}
    for node in model.get_ordered_ops():
        if node.get_type_name() in DATA:
            continue
        name = node.get_friendly_name()
        sources = [port.get_source_output().get_node().get_friendly_name() for port in node.inputs()]
        level[name] = max(
            (level[source] + (where[source] != where[name]) for source in sources if source in level),
            default=0,
        )
        found.setdefault((level[name], where[name]), []).append(name)
    return [Piece(device, tuple(found[at, device])) for at, device in sorted(found)]
