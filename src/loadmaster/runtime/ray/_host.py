"""What stands for the worker process where models run on several machines: it is in this process, and asks actors."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import numpy.typing as npt

from loadmaster.errors import InputError, RunError
from loadmaster.graph.openvino import one_line, openvino_model
from loadmaster.runtime._host import Executor, ModelHost
from loadmaster.runtime._pieces import DATA, Piece
from loadmaster.runtime._worker import Worker
from loadmaster.runtime.openvino import Devices, DeviceSpec, cut_model, draw_inputs, single
from loadmaster.runtime.ray._actors import Actors
from loadmaster.runtime.ray._connection import Machines
from loadmaster.runtime.ray._segments import joined, needs_of, segments
from loadmaster.runtime.ray._spread import Spread
from loadmaster.units import bytes_text

__all__ = ["RayHost", "RayWorker", "whole"]

_keys = itertools.count()
PROFILING = 0.4
"""Of the memory that is free, what a part of a model may take that is profiled: compiling needs more for a while, and
Ray keeps what it sends in memory of its own on the node. Smaller parts cost little."""


def whole(model: Any, device: str) -> Piece:
    """All ops of a model on one device."""
    return Piece(
        device,
        tuple(n.get_friendly_name() for n in model.get_ordered_ops() if n.get_type_name() not in DATA),
    )


class RayHost(ModelHost):
    """A model, an actor for each of its devices, and the executors made of them; the unplaced model runs here."""

    def __init__(self, machines: Machines) -> None:
        super().__init__()
        self.machines = machines
        self.actors: Actors | None = None
        self._measured: dict[str, float] = {}
        """Device -> bytes that the whole model was measured to take there."""

    def open(self, path: str, shapes: dict[str, tuple[int, ...]], devices: list[Any]) -> Mapping[str, str]:
        """Read the model and start the actors."""
        import ray

        self.model = openvino_model(path, shapes)
        precisions = dict.fromkeys(("f32", *(spec.precision for spec in devices)))
        self.references = Devices([DeviceSpec(f"reference-{p}", "cpu", precision=p) for p in precisions])
        self.actors = Actors(self.machines, devices)
        return {"openvino": self.references.ov.__version__, "ray": ray.__version__}

    def executor(self, how: str, options: Mapping[str, Any]) -> Executor:
        """One device alone (``single``), or the pieces of a placement: ``concurrent`` or ``pipeline``."""
        assert self.actors is not None
        given = dict(options)
        if how == "single":
            device = given.pop("device")
            if device in self.references.specs:
                found: Executor = single(self.model, self.references, device=device)
                return found
            self._check_room(device)
            items = given.pop("items", 1)
            pieces = [whole(self.model, device)]
            return Spread(self.model, self.actors, pieces, items=items, slots=2 if items > 1 else 1)
        if how not in ("concurrent", "pipeline"):
            raise InputError(f"devices of several machines do not run {how}: choose concurrent or pipeline")
        pieces, items = given["pieces"], given.get("items", 1)
        stages = len({piece.device for piece in pieces})
        slots = 1 if how == "concurrent" else given.get("slots") or stages + 1
        return Spread(self.model, self.actors, pieces, slots=slots, items=items)

    def inputs(self, seed: int) -> list[npt.NDArray[Any]]:
        """Inputs of the model's shapes and types."""
        return draw_inputs(self.model, seed)

    def said(self, error: BaseException) -> str:
        """Without the places in OpenVINO's source."""
        return one_line(error)

    def go_on(self) -> list[str]:
        """Forget the devices that died, and all that was loaded on devices; who died."""
        assert self.actors is not None
        gone = self.actors.gone()
        self.actors.forget(gone)
        for key in [key for key, made in self.executors.items() if isinstance(made, Spread)]:
            self.drop(key)
        return gone

    # -- profiling -------------------------------------------------------------------------------------------

    def profile(self, device: str, repeats: int, clock: str, seconds: float) -> dict[str, Any]:
        """Counters of one device, by the actor that is pinned to it; in parts where the whole does not fit there."""
        assert self.actors is not None
        handle, actors = self.actors.handles[device], self.actors
        needs = needs_of(self.model)
        pieces = segments(needs, device, PROFILING * self._room(device))
        parts = [self.model] if len(pieces) == 1 else [part.model for part in cut_model(self.model, pieces)]
        found = []
        unsupported: list[str] = []
        for number, part in enumerate(parts):
            key, what = (
                f"whole{next(_keys)}",
                "the model" if len(parts) == 1 else f"part {number} of the model",
            )
            actors.send(device, key, 0, part, what)
            parts[number] = None
            found.append(actors.get(handle.counters.remote(key, repeats, clock, seconds / len(pieces))))
            unsupported += found[-1]["unsupported"]
            actors.get(handle.drop.remote(key))
        held = dict(zip(needs.names, needs.weights, strict=True))
        weights = [sum(held.get(op, 0.0) for op in piece.ops) for piece in pieces]
        counters = found[0] if len(found) == 1 else joined(found, weights)
        self._measured[device] = counters["memory"]
        return {**counters, "unsupported": unsupported, "parts": len(parts)}

    def _room(self, device: str) -> float:
        """Bytes that are free for one device of its node."""
        assert self.actors is not None
        node = self.actors.specs[device].node
        sharing = sum(spec.node == node for spec in self.actors.specs.values())
        return float(self.actors.get(self.actors.handles[device].free.remote())) / sharing

    def _check_room(self, device: str) -> None:
        """Rather an error than a node whose processes are killed."""
        assert self.actors is not None
        needed = self._measured.get(device) or needs_of(self.model).running()
        room = self._room(device)
        if needed > room:
            raise RunError(
                f"node {self.actors.specs[device].node!r} has no room for the whole model: it takes about "
                f"{bytes_text(needed)}, and {bytes_text(room)} are free for device {device!r}"
            )


class RayWorker(Worker):
    """Answers requests in this process, as a worker process would: the work is done by actors, on their nodes."""

    def __init__(self, host: RayHost, cores: Iterable[int]) -> None:
        self.host, self.cores = host, tuple(sorted(cores))
        self._closed = False

    @property
    def pid(self) -> int:
        """Of this process."""
        import os

        return os.getpid()

    @property
    def alive(self) -> bool:
        """Whether all devices still answer."""
        return not self._closed and self.host.actors is not None and not self.host.actors.gone()

    def ask(self, command: str, *, limit: float | None = None, **arguments: Any) -> Any:
        """The answer to a request."""
        return getattr(self.host, command)(**arguments)

    def close(self) -> None:
        """End the actors."""
        self._closed = True
        if self.host.actors is not None:
            self.host.actors.close()
